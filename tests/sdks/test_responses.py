"""OpenAI's SDKs on /v1/responses, against a live gateway: every script, a tool's round trip, reasoning, an image, errors, a
stream that is left. In Python the SDK's own accumulator checks each event; in JavaScript likewise."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from headrace.formats.sealing import seal
from headrace.tape import ReplayServer
from tests.live import LoopThread, gateway_config, live_gateway

from .expected import MILL, REDACTED, SCRIPTS, SIGNATURE, TEXT
from .javascript import FOLDER, NodeProcess
from .shared import Mill, eventually

PROVIDERS = ("as-openai", "as-anthropic", "as-responses")
WAYS = ("create", "stream", "helper", "async")
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(200))).decode()
TOOL: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


@pytest.fixture(scope="module")
def gateway_url(servers: LoopThread, replay: ReplayServer) -> Iterator[str]:
    providers = {"as-responses": f"{{format: openai_responses, base_url: '{replay.base_url}/v1'}}"}
    with live_gateway(servers, gateway_config(replay.base_url, providers=providers)) as live:
        yield live.url


@pytest.fixture(scope="module")
def node(gateway_url: str) -> Iterator[NodeProcess]:
    if not (FOLDER / "node_modules").exists():
        pytest.skip("the JavaScript SDKs are not installed: run make test")
    process = NodeProcess("responses", gateway_url)
    yield process
    process.close()


def client_of(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60)


def check(events: list[Any]) -> Response:
    """Of a whole stream: what the events say piece by piece is what the last one says as a whole."""
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    last = events[-1].response
    done = [event for event in events if event.type == "response.output_item.done"]
    assert sorted(event.output_index for event in done) == list(range(len(last.output)))
    for event in done:
        assert event.item.id == last.output[event.output_index].id
    texts: dict[tuple[int, int], str] = {}
    for event in events:
        if event.type == "response.output_text.delta":
            assert event.item_id == last.output[event.output_index].id
            place = event.output_index, event.content_index
            texts[place] = texts.get(place, "") + event.delta
        if event.type == "response.output_text.done":
            assert event.text == texts.get((event.output_index, event.content_index), "")
    assert "".join(texts.values()) == last.output_text
    assert isinstance(last, Response)
    return last


def ask(url: str, way: str, model: str, **request: Any) -> Response:
    """An answer, by one of WAYS."""
    request = {"model": model, "input": "What is a headrace?", **request}
    if way == "async":

        async def main() -> Response:
            async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
                return check([event async for event in await client.responses.create(**request, stream=True)])

        return asyncio.run(main())
    with client_of(url) as client:
        if way == "create":
            whole: Response = client.responses.create(**request)
            return whole
        if way == "stream":
            return check(list(client.responses.create(**request, stream=True)))
        with client.responses.stream(**request) as stream:
            for _ in stream:
                pass
            final: Response = stream.get_final_response()
            return final


def calls_of(response: Response) -> list[tuple[str, str, Any]]:
    return [(i.call_id, i.name, json.loads(i.arguments)) for i in response.output if i.type == "function_call"]


def refusal_of(response: Response) -> str:
    parts = [part for item in response.output if item.type == "message" for part in item.content]
    return "".join(part.refusal for part in parts if part.type == "refusal")


def reasoning_of(response: Response) -> str:
    return "".join(part.text for item in response.output if item.type == "reasoning" for part in item.summary)


def sealed_of(response: Response) -> list[str]:
    return [i.encrypted_content for i in response.output if i.type == "reasoning" and i.encrypted_content]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", WAYS)
def test_every_script(gateway_url: str, way: str, provider: str, script: str) -> None:
    incomplete = script == "max-tokens" or (script == "refusal" and provider == "as-anthropic")  # a filter's, there
    if way == "helper" and incomplete:
        with pytest.raises(RuntimeError, match=r"response\.completed"):  # the helper takes nothing else for an end
            ask(gateway_url, way, f"{provider}/{script}")
        return
    row = SCRIPTS[script]
    seen = ask(gateway_url, way, f"{provider}/{script}")
    text, refusal = row.text, row.refusal
    if provider == "as-anthropic":
        text, refusal = text + refusal, ""  # there a refusal is text
    assert seen.output_text == text
    assert refusal_of(seen) == refusal
    assert reasoning_of(seen) == row.reasoning
    assert calls_of(seen) == list(row.calls)
    assert seen.model == script
    incomplete = row.stop == "length" or (row.stop == "refusal" and not refusal)
    assert seen.status == ("incomplete" if incomplete else "completed")
    if row.usage is not None:
        assert seen.usage is not None
        assert (seen.usage.input_tokens, seen.usage.output_tokens) == row.usage[:2]
        assert seen.usage.total_tokens == sum(row.usage[:2])
    vendor = "anthropic" if provider == "as-anthropic" else "openai"
    if row.signature:
        assert sealed_of(seen) == [SIGNATURE if vendor == "openai" else seal(vendor, "", SIGNATURE)]
    if row.redacted:
        assert sealed_of(seen) == [seal(vendor, "-redacted", REDACTED)]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", WAYS)
def test_a_tool_and_its_result(gateway_url: str, replay: ReplayServer, way: str, provider: str) -> None:
    model = f"{provider}/tool-round-trip"
    first = ask(gateway_url, way, model, tools=[TOOL])
    ((id, name, arguments),) = calls_of(first)
    assert (name, arguments) == ("get_weather", {"city": "Vienna"})
    turn = [
        {"role": "user", "content": "What is a headrace?"},
        *[item.model_dump(exclude={"parsed_arguments"}, exclude_none=True) for item in first.output],
        {"type": "function_call_output", "call_id": id, "output": "12 degrees"},
    ]
    second = ask(gateway_url, way, model, tools=[TOOL], input=turn)
    assert second.output_text == "The tool says: 12 degrees"


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("script", ["reasoning", "redacted-reasoning"])
def test_reasoning_goes_back_to_whom_it_came_from(
    gateway_url: str, replay: ReplayServer, provider: str, script: str
) -> None:
    first = ask(gateway_url, "stream", f"{provider}/{script}", reasoning={"effort": "low", "summary": "auto"})
    turn = [
        {"role": "user", "content": "What is a headrace?"},
        *[item.model_dump(exclude_none=True) for item in first.output],
        {"role": "user", "content": "Go on"},
    ]
    second = ask(gateway_url, "stream", f"{provider}/echo", input=turn)
    assert second.output_text.startswith("Go on")
    sent = json.dumps(replay.requests[-1].body)
    secret = SIGNATURE if script == "reasoning" else REDACTED
    if provider == "as-responses" and script == "redacted-reasoning":
        assert f"headrace:openai:-redacted:{REDACTED}" in sent, (
            "what our own writer sealed comes back to our own reader"
        )
    else:
        assert f'"{secret}"' in sent, "unchanged"
    if provider == "as-anthropic":
        content = replay.requests[-1].body["messages"][1]["content"]
        assert content[0]["type"] == ("thinking" if script == "reasoning" else "redacted_thinking")
    asked = replay.requests[-2].body
    assert asked.get("reasoning_effort") or asked.get("output_config") or asked.get("thinking") or asked["reasoning"]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", WAYS)
def test_an_image_reaches_the_provider(gateway_url: str, replay: ReplayServer, way: str, provider: str) -> None:
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"}
    content = [{"type": "input_text", "text": "What is it?"}, image]
    seen = ask(gateway_url, way, f"{provider}/echo", input=[{"role": "user", "content": content}])
    assert "images: 1;" in seen.output_text
    body = json.dumps(replay.requests[-1].body)
    assert PIXEL in body
    assert "image/png" in body


@pytest.mark.parametrize("provider", PROVIDERS)
def test_structured_output(gateway_url: str, provider: str) -> None:
    with client_of(gateway_url) as client:
        answer = client.responses.parse(model=f"{provider}/json", input="The mill?", text_format=Mill)
    assert answer.output_parsed == Mill.model_validate(MILL)


@pytest.mark.parametrize(
    ("model", "status", "kind"),
    [
        ("text?status=401", 401, openai.AuthenticationError),
        ("text?status=429", 429, openai.RateLimitError),
        ("nonsense", 404, openai.NotFoundError),
        ("text?status=500", 503, openai.InternalServerError),
    ],
)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", WAYS)
def test_a_provider_that_refuses(
    gateway_url: str, way: str, provider: str, model: str, status: int, kind: type[openai.APIStatusError]
) -> None:
    with pytest.raises(kind) as raised:
        ask(gateway_url, way, f"{provider}/{model}")
    assert raised.value.status_code == status
    assert raised.value.message


@pytest.mark.parametrize("fault", ["error=6:overloaded_error", "cut=6", "cut=6&cut_clean=1", "reset=6", "malformed=6"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_stream_that_breaks_says_so(gateway_url: str, provider: str, fault: str) -> None:
    with client_of(gateway_url) as client:
        events: list[Any] = list(client.responses.create(model=f"{provider}/text?{fault}", input="Hi", stream=True))
    assert events[-1].type == "response.failed"
    assert events[-1].response.status == "failed"
    assert events[-1].response.error.message
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert TEXT.startswith(text)
    assert not any(event.type == "response.output_text.done" for event in events)


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        ({"input": [{"role": "wizard", "content": "x"}]}, "input[0].role"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content[0]"),
        ({"input": ""}, "input"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tool_choice": "maybe"}, "tool_choice"),
        ({"temperature": 9}, "temperature"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ],
)
def test_a_bad_request_is_told_where(gateway_url: str, request_: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        ask(gateway_url, "create", "as-openai/text", **request_)
    assert str(raised.value.param).startswith(param)
    assert param in raised.value.message


def test_state_is_the_providers_own(gateway_url: str, replay: ReplayServer) -> None:
    seen = ask(gateway_url, "stream", "as-responses/text", previous_response_id="resp_1", store=True)
    assert seen.output_text == TEXT
    body = replay.requests[-1].body
    assert (body["previous_response_id"], body["store"]) == ("resp_1", True)


def test_a_provider_of_this_format_keeps_nothing(gateway_url: str, replay: ReplayServer) -> None:
    with client_of(gateway_url) as client:
        client.chat.completions.create(
            model="as-responses/text", messages=[{"role": "user", "content": "Hi"}], reasoning_effort="low"
        )
    body = replay.requests[-1].body
    assert body["store"] is False
    assert body["include"] == ["reasoning.encrypted_content"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_leaving_a_stream_lets_the_provider_go(gateway_url: str, replay: ReplayServer, provider: str) -> None:
    assert eventually(lambda: replay.active == 0)
    aborted = replay.aborted
    with client_of(gateway_url) as client:
        stream: Any = client.responses.create(model=f"{provider}/long?speed=1", input="Hi", stream=True)
        for event in stream:
            if event.type == "response.output_text.delta":
                break
        stream.close()
    assert eventually(lambda: replay.active == 0), "the provider still sends"
    assert replay.aborted == aborted + 1


# JavaScript.


@pytest.mark.parametrize("script", ["text", "reasoning", "parallel-tools", "zero-argument-tool"])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", ["create", "stream", "helper"])
def test_javascript(node: NodeProcess, way: str, provider: str, script: str) -> None:
    row = SCRIPTS[script]
    seen = node.run(way, f"{provider}/{script}").seen
    assert (seen.text, seen.reasoning) == (row.text, row.reasoning)
    assert [(call.id, call.name, call.arguments) for call in seen.calls] == list(row.calls)
    if row.usage is not None:
        assert seen.usage is not None
        assert (seen.usage.input, seen.usage.output) == row.usage[:2]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_javascript_tool_and_result(node: NodeProcess, provider: str) -> None:
    outcome = node.run("round_trip", f"{provider}/tool-round-trip", tools=[TOOL])
    assert outcome.failure is None
    assert outcome.answers[-1].text == "The tool says: 12 degrees"


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("script", ["reasoning", "redacted-reasoning"])
def test_javascript_reasoning_goes_back(node: NodeProcess, replay: ReplayServer, provider: str, script: str) -> None:
    asked = {"effort": "low", "summary": "auto"}
    outcome = node.run("round_trip", f"{provider}/{script}", then=f"{provider}/echo", reasoning=asked)
    assert outcome.failure is None
    assert outcome.answers[-1].text.startswith("Go on")
    assert (SIGNATURE if script == "reasoning" else REDACTED) in json.dumps(replay.requests[-1].body)
    if provider == "as-anthropic":
        block = replay.requests[-1].body["messages"][1]["content"][0]
        assert (block.get("signature") or block["data"]) == (SIGNATURE if script == "reasoning" else REDACTED)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_javascript_image_error_and_abort(node: NodeProcess, replay: ReplayServer, provider: str) -> None:
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"}
    content = [{"type": "input_text", "text": "What is it?"}, image]
    assert (
        "images: 1;" in node.run("stream", f"{provider}/echo", input=[{"role": "user", "content": content}]).seen.text
    )
    failed = node.run("create", f"{provider}/text?status=429").failure
    assert failed is not None
    assert (failed.kind, failed.status) == ("RateLimitError", 429)
    broken = node.run("helper", f"{provider}/text?cut=6")
    assert broken.failure is not None or broken.answers[-1].stop == "failed"
    aborted = replay.aborted
    node.run("abort", f"{provider}/long?speed=1")
    assert eventually(lambda: replay.aborted > aborted)
