"""AG-UI's own client, whose verifier checks the order of events, and the protocol's Python types, against a live gateway."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from ag_ui.core import Event, RunAgentInput
from pydantic import TypeAdapter

from headrace.formats.sealing import seal
from headrace.tape import ReplayServer
from tests.live import LiveGateway

from .expected import REASONING, REDACTED, SCRIPTS, SIGNATURE, TEXT
from .javascript import FOLDER, NodeProcess
from .shared import eventually

PROVIDERS = ("as-openai", "as-anthropic")
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(200))).decode()
EVENTS: TypeAdapter[Any] = TypeAdapter(Event)
WEATHER = {
    "name": "get_weather",
    "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@pytest.fixture(scope="module")
def node(gateway: LiveGateway) -> Iterator[NodeProcess]:
    if not (FOLDER / "node_modules").exists():
        pytest.skip("the JavaScript SDKs are not installed: run make test")
    process = NodeProcess("ag_ui", gateway.url)
    yield process
    process.close()


def post(gateway: LiveGateway, body: object) -> Any:
    url = f"{gateway.url}/v1/ui/ag-ui"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    return urllib.request.urlopen(request, timeout=30)


@pytest.mark.parametrize("script", ["text", "reasoning", "redacted-reasoning", "parallel-tools", "zero-argument-tool"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_events_are_the_protocols(gateway: LiveGateway, provider: str, script: str) -> None:
    asked = RunAgentInput.model_validate(
        {
            "threadId": "t",
            "runId": "r",
            "state": {},
            "messages": [{"id": "u", "role": "user", "content": "Hi"}],
            "tools": [],
            "context": [],
            "forwardedProps": {"model": f"{provider}/{script}"},
        }
    )
    with post(gateway, asked.model_dump(by_alias=True, exclude_none=True)) as answer:
        lines = answer.read().decode().split("\n\n")
    events = [EVENTS.validate_json(line.removeprefix("data: ")) for line in lines if line]
    assert (events[0].type, events[-1].type) == ("RUN_STARTED", "RUN_FINISHED")
    assert (events[-1].thread_id, events[-1].run_id) == ("t", "r")
    text = "".join(event.delta for event in events if event.type == "TEXT_MESSAGE_CONTENT")
    assert text == SCRIPTS[script].text


@pytest.mark.parametrize("script", ["text", "unicode", "reasoning", "redacted-reasoning", "parallel-tools", "refusal"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_script(node: NodeProcess, provider: str, script: str) -> None:
    row = SCRIPTS[script]
    seen = node.run("run", f"{provider}/{script}").seen
    assert (seen.text, seen.reasoning) == (row.text + row.refusal, row.reasoning)
    assert [(call.id, call.name, call.arguments) for call in seen.calls] == list(row.calls)
    vendor = "openai" if provider == "as-openai" else "anthropic"
    sealed = (
        [seal(vendor, "", SIGNATURE)]
        if row.signature
        else [seal(vendor, "-redacted", REDACTED)]
        if row.redacted
        else []
    )
    assert seen.signatures == sealed
    if row.usage is not None:
        assert seen.usage is not None
        assert (seen.usage.input, seen.usage.output) == row.usage[:2]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_tool_and_its_result(node: NodeProcess, provider: str) -> None:
    outcome = node.run("round_trip", f"{provider}/tool-round-trip", tools=[WEATHER])
    assert outcome.failure is None
    assert outcome.answers[-1].text == "The tool says: 12 degrees"


def test_reasoning_goes_back(node: NodeProcess, replay: ReplayServer) -> None:
    outcome = node.run("round_trip", "as-anthropic/reasoning", then="as-anthropic/echo")
    assert outcome.answers[-1].text.startswith("Go on")
    (block, *_) = replay.requests[-1].body["messages"][1]["content"]
    assert (block["thinking"], block["signature"]) == (REASONING, SIGNATURE)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_image_errors_and_an_abort(node: NodeProcess, replay: ReplayServer, provider: str) -> None:
    source = {"type": "data", "value": PIXEL, "mimeType": "image/png"}
    content = [{"type": "text", "text": "What is it?"}, {"type": "image", "source": source}]
    assert "images: 1;" in node.run("run", f"{provider}/echo", content=content).seen.text
    assert node.run("run", f"{provider}/text?status=429").failure is not None
    broken = node.run("run", f"{provider}/text?cut=6")
    assert broken.failure is not None
    assert TEXT.startswith(broken.answers[-1].text)

    def idle() -> bool:
        return replay.active == 0

    assert eventually(idle)
    aborted = replay.aborted
    node.run("abort", f"{provider}/long?speed=1")
    assert eventually(lambda: replay.aborted == aborted + 1)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"forwardedProps": {}}, "forwardedProps.model"),
        ({"messages": []}, "messages"),
        ({"messages": [{"id": "u", "role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"id": "u", "role": "tool", "content": "x"}]}, "messages[0].toolCallId"),
    ],
)
def test_a_bad_request_is_told_where(gateway: LiveGateway, change: dict[str, Any], word: str) -> None:
    body = {"messages": [{"id": "u", "role": "user", "content": "x"}], "forwardedProps": {"model": "m"}, **change}
    with pytest.raises(urllib.error.HTTPError) as raised:
        post(gateway, body)
    assert raised.value.code == 400
    error = json.load(raised.value)
    assert error["type"] == "RUN_ERROR"
    assert word in error["message"]
