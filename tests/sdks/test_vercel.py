"""Vercel's AI SDK against a live gateway: its model providers on the vendors' paths, and its UI streams."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from headrace.tape import ReplayServer
from tests.live import LiveGateway

from .expected import REASONING, REDACTED, SCRIPTS, SIGNATURE, TEXT
from .javascript import FOLDER, NodeProcess
from .shared import eventually

PROVIDERS = ("as-openai", "as-anthropic")
CLIENTS = ("chat", "responses", "anthropic", "google")
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(200))).decode()
IMAGE = f"data:image/png;base64,{PIXEL}"


@pytest.fixture(scope="module")
def node(gateway: LiveGateway) -> Iterator[NodeProcess]:
    if not (FOLDER / "node_modules").exists():
        pytest.skip("the JavaScript SDKs are not installed: run make test")
    process = NodeProcess("vercel", gateway.url)
    yield process
    process.close()


# As a client of models.


@pytest.mark.parametrize("script", ["text", "reasoning", "parallel-tools"])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_stream_text(node: NodeProcess, client: str, provider: str, script: str) -> None:
    row = SCRIPTS[script]
    seen = node.run("text", f"{provider}/{script}", client=client).seen
    assert seen.text == row.text
    if client != "chat":  # OpenAI's chat has no reasoning, so the SDK's provider does not look for it
        assert seen.reasoning == row.reasoning
    assert [(call.name, call.arguments) for call in seen.calls] == [call[1:] for call in row.calls]
    assert seen.usage is not None
    if row.usage is not None:
        assert (seen.usage.input, seen.usage.output) == row.usage[:2]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_the_sdk_carries_out_a_tool(node: NodeProcess, client: str, provider: str) -> None:
    outcome = node.run("text", f"{provider}/tool-round-trip", client=client, tools=True)
    assert outcome.failure is None
    assert outcome.answers[-1].text.endswith("The tool says: 12 degrees")


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_an_image_an_error_and_an_abort(node: NodeProcess, replay: ReplayServer, client: str, provider: str) -> None:
    assert "images: 1;" in node.run("text", f"{provider}/echo", client=client, image=IMAGE).seen.text
    failed = node.run("text", f"{provider}/text?status=429", client=client).failure
    assert failed is not None
    assert failed.status == 429
    broken = node.run("text", f"{provider}/text?cut=6", client=client)
    assert broken.failure is not None or broken.answers[-1].stop in ("error", "unknown", "other")
    assert eventually(lambda: replay.active == 0)
    aborted = replay.aborted
    node.run("text", f"{provider}/long?speed=1", client=client, abort=True)
    assert eventually(lambda: replay.aborted == aborted + 1)


@pytest.mark.parametrize("script", ["text", "reasoning", "parallel-tools"])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_generate_text(node: NodeProcess, replay: ReplayServer, client: str, provider: str, script: str) -> None:
    """Without a stream."""
    row = SCRIPTS[script]
    seen = node.run("whole", f"{provider}/{script}", client=client).seen
    assert seen.text == row.text
    if client != "chat":
        assert seen.reasoning == row.reasoning
    assert [(call.name, call.arguments) for call in seen.calls] == [call[1:] for call in row.calls]
    assert not replay.requests[-1].body.get("stream")
    if row.usage is not None:
        assert seen.usage is not None
        assert (seen.usage.input, seen.usage.output) == row.usage[:2]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_generate_text_tool_image_error_and_abort(
    node: NodeProcess, replay: ReplayServer, client: str, provider: str
) -> None:
    outcome = node.run("whole", f"{provider}/tool-round-trip", client=client, tools=True)
    assert outcome.failure is None
    assert outcome.answers[-1].text == "The tool says: 12 degrees"
    assert "images: 1;" in node.run("whole", f"{provider}/echo", client=client, image=IMAGE).seen.text
    failed = node.run("whole", f"{provider}/text?status=429", client=client).failure
    assert failed is not None
    assert failed.status == 429
    assert eventually(lambda: replay.active == 0)
    asked = len(replay.requests)
    stopped = node.run("whole", f"{provider}/text?hang", client=client, abort=True)
    assert stopped.failure is not None
    assert stopped.answers == []
    assert len(replay.requests) == asked + 1
    assert eventually(lambda: replay.active == 0)


@pytest.mark.parametrize("client", ["responses", "anthropic", "google"])
def test_reasoning_goes_back(node: NodeProcess, replay: ReplayServer, client: str) -> None:
    """The SDK keeps the signature among its own metadata of the part, and sends it with the next turn."""
    outcome = node.run("whole", "as-anthropic/reasoning", client=client, again="as-anthropic/echo")
    assert outcome.failure is None
    assert outcome.answers[-1].text.startswith("Go on")
    (block, *_) = replay.requests[-1].body["messages"][1]["content"]
    assert (block["thinking"], block["signature"]) == (REASONING, SIGNATURE)


# As the reader of UI message streams.


@pytest.mark.parametrize("script", ["text", "unicode", "reasoning", "redacted-reasoning", "parallel-tools", "refusal"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_ui_stream(node: NodeProcess, provider: str, script: str) -> None:
    row = SCRIPTS[script]
    seen = node.run("ui", f"{provider}/{script}").seen
    assert (seen.text, seen.reasoning) == (row.text + row.refusal, row.reasoning)
    assert [(call.id, call.name, call.arguments) for call in seen.calls] == list(row.calls)
    assert seen.signatures == ([SIGNATURE] if row.signature else [])
    assert seen.redacted == ([REDACTED] if row.redacted else [])
    assert seen.model == script
    if row.usage is not None:
        assert seen.usage is not None
        assert (seen.usage.input, seen.usage.output) == row.usage[:2]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_ui_tool_and_its_output(node: NodeProcess, provider: str) -> None:
    outcome = node.run("ui_round_trip", f"{provider}/tool-round-trip")
    assert outcome.answers[-1].text == "The tool says: 12 degrees"


@pytest.mark.parametrize("script", ["reasoning", "redacted-reasoning"])
def test_ui_reasoning_goes_back(node: NodeProcess, replay: ReplayServer, script: str) -> None:
    outcome = node.run("ui_round_trip", f"as-anthropic/{script}", then="as-anthropic/echo")
    assert outcome.answers[-1].text.startswith("Go on")
    (block, *_) = replay.requests[-1].body["messages"][1]["content"]
    assert (block.get("signature") or block.get("data")) == (SIGNATURE if script == "reasoning" else REDACTED)
    if script == "reasoning":
        assert block["thinking"] == REASONING


@pytest.mark.parametrize("provider", PROVIDERS)
def test_ui_image_errors_and_abort(node: NodeProcess, replay: ReplayServer, provider: str) -> None:
    parts = [{"type": "text", "text": "What is it?"}, {"type": "file", "mediaType": "image/png", "url": IMAGE}]
    assert "images: 1;" in node.run("ui", f"{provider}/echo", parts=parts).seen.text
    refused = node.run("ui", f"{provider}/text?status=429").failure
    assert refused is not None
    assert "rate" in refused.message.lower() or "429" in refused.message or "error" in refused.message
    broken = node.run("ui", f"{provider}/text?cut=6")
    assert broken.failure is not None
    assert TEXT.startswith(broken.answers[-1].text)
    assert eventually(lambda: replay.active == 0)
    aborted = replay.aborted
    node.run("ui_abort", f"{provider}/long?speed=1")
    assert eventually(lambda: replay.aborted == aborted + 1)


def test_ui_headers_and_bad_requests(gateway: LiveGateway) -> None:
    def post(body: object) -> urllib.request.Request:
        url = f"{gateway.url}/v1/ui/vercel"
        return urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})

    message = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}
    with urllib.request.urlopen(post({"model": "as-openai/text", "messages": [message]}), timeout=30) as answer:
        assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
        assert answer.read().endswith(b"data: [DONE]\n\n")
    for body, word in [
        ({"messages": [message]}, "model"),
        ({"model": "m", "messages": [{"role": "user"}]}, "messages[0].parts"),
        ({"model": "m", "messages": [{"role": "user", "parts": [{"type": "text"}]}]}, "messages[0].parts[0].text"),
    ]:
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(post(body), timeout=30)
        assert raised.value.code == 400
        assert word in json.load(raised.value)["error"]["message"]
