"""Cohere's official client, plain and asynchronous, against a live gateway: scripts, a tool's round trip, reasoning, an image,
errors, a stream that is left."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from typing import Any

import cohere
import pytest
from cohere.core.api_error import ApiError

from headrace.tape import ReplayServer
from tests.live import LoopThread, gateway_config, live_gateway

from .expected import MILL, REASONING, SCRIPTS, TEXT
from .shared import PATIENCE, Mill, eventually

USER = [{"role": "user", "content": "What is a headrace?"}]
PROVIDERS = ("as-openai", "as-anthropic", "as-cohere")
WAYS = ("whole", "stream", "async")
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(200))).decode()
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
STOPS = {"end": "COMPLETE", "tools": "TOOL_CALL", "length": "MAX_TOKENS", "refusal": "COMPLETE"}


@pytest.fixture(scope="module")
def gateway_url(servers: LoopThread, replay: ReplayServer) -> Iterator[str]:
    providers = {"as-cohere": f"{{format: cohere, base_url: '{replay.base_url}'}}"}
    with live_gateway(servers, gateway_config(replay.base_url, providers=providers)) as live:
        yield live.url


class Seen:
    """What a client showed of an answer."""

    def __init__(self) -> None:
        self.text = ""
        self.thinking = ""
        self.plan = ""
        self.calls: list[list[str]] = []
        """[id, name, arguments]"""
        self.id: str | None = None
        self.stop: str | None = None
        self.error: str | None = None
        self.usage: Any = None
        self.pieces = 0
        self._open: set[tuple[str, int]] = set()

    @property
    def arguments(self) -> list[tuple[str, str, Any]]:
        return [(id, name, json.loads(arguments)) for id, name, arguments in self.calls]

    def add(self, event: Any) -> None:
        """An event of a stream, as a user of the client puts an answer together."""
        assert self.stop is None, "something followed the end"
        step = getattr(self, "_" + event.type.replace("-", "_"), None)
        if step is not None:
            step(event, event.delta.message if getattr(event, "delta", None) and event.type != "message-end" else None)

    def _message_start(self, event: Any, message: Any) -> None:
        assert self.id is None
        assert message.role == "assistant"
        self.id = event.id

    def _content_start(self, event: Any, message: Any) -> None:
        assert ("content", event.index) not in self._open
        self._open.add(("content", event.index))
        assert message.content.type in ("text", "thinking")

    def _content_delta(self, event: Any, message: Any) -> None:
        assert ("content", event.index) in self._open
        self.text += message.content.text or ""
        self.thinking += message.content.thinking or ""
        self.pieces += 1

    def _content_end(self, event: Any, message: Any) -> None:
        self._open.remove(("content", event.index))

    def _tool_plan_delta(self, event: Any, message: Any) -> None:
        self.plan += message.tool_plan

    def _tool_call_start(self, event: Any, message: Any) -> None:
        assert event.index == len(self.calls)
        self._open.add(("call", event.index))
        call = message.tool_calls
        self.calls.append([call.id, call.function.name, call.function.arguments])

    def _tool_call_delta(self, event: Any, message: Any) -> None:
        assert ("call", event.index) in self._open
        self.calls[event.index][2] += message.tool_calls.function.arguments
        self.pieces += 1

    def _tool_call_end(self, event: Any, message: Any) -> None:
        self._open.remove(("call", event.index))

    def _message_end(self, event: Any, message: Any) -> None:
        self.stop, self.error = event.delta.finish_reason, event.delta.error
        self.usage = event.delta.usage
        assert self._open == set() or self.stop == "ERROR", "something never ended"

    def whole(self, answer: Any) -> None:
        for part in answer.message.content or []:
            self.text += getattr(part, "text", "")
            self.thinking += getattr(part, "thinking", "")
        self.plan = answer.message.tool_plan or ""
        self.calls = [
            [call.id, call.function.name, call.function.arguments] for call in answer.message.tool_calls or []
        ]
        self.id, self.stop, self.usage = answer.id, answer.finish_reason, answer.usage


def client_of(url: str) -> Any:
    return cohere.ClientV2(api_key="none", base_url=url, timeout=60, max_retries=0)


def ask(url: str, way: str, model: str, **request: Any) -> Seen:
    """An answer, by one of WAYS."""
    seen = Seen()
    request = {"model": model, "messages": USER, **request}
    if way == "async":

        async def main() -> None:
            async with cohere.AsyncClientV2(api_key="none", base_url=url, timeout=60, max_retries=0) as client:
                async for event in client.chat_stream(**request):
                    seen.add(event)

        asyncio.run(main())
    elif way == "stream":
        with client_of(url) as client:
            for event in client.chat_stream(**request):
                seen.add(event)
    else:
        with client_of(url) as client:
            seen.whole(client.chat(**request))
    return seen


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", WAYS)
def test_every_script(gateway_url: str, way: str, provider: str, script: str) -> None:
    row = SCRIPTS[script]
    seen = ask(gateway_url, way, f"{provider}/{script}")
    assert (seen.text + seen.plan, seen.thinking) == (row.text + row.refusal, row.reasoning)
    assert seen.arguments == list(row.calls)
    assert seen.stop == STOPS[row.stop]
    assert seen.error is None
    assert seen.id
    if way != "whole":
        assert seen.pieces >= len(f"{row.text} {row.reasoning}".split()), "not word by word"
    if row.usage is not None:
        assert (seen.usage.tokens.input_tokens, seen.usage.tokens.output_tokens) == row.usage[:2]
        assert seen.usage.billed_units is not None


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", WAYS)
def test_a_tool_and_its_result(gateway_url: str, replay: ReplayServer, way: str, provider: str) -> None:
    model = f"{provider}/tool-round-trip"
    first = ask(gateway_url, way, model, tools=[TOOL])
    ((id, name, arguments),) = first.arguments
    assert (name, arguments, first.stop) == ("get_weather", {"city": "Vienna"}, "TOOL_CALL")
    call = {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    document = {"type": "document", "document": {"data": {"weather": "12 degrees"}, "id": "d1"}}
    messages = [
        *USER,
        {"role": "assistant", "tool_plan": "I look it up.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": id, "content": [document]},
    ]
    second = ask(gateway_url, way, model, messages=messages, tools=[TOOL], tool_choice="REQUIRED")
    assert second.text.startswith("The tool says: ")
    sent = replay.requests[-1].body
    assert "12 degrees" in json.dumps(sent["messages"][-1])
    assert "I look it up." in json.dumps(sent["messages"][1])
    assert (
        sent["tool_choice"]
        == {"as-openai": "required", "as-anthropic": {"type": "any"}, "as-cohere": "REQUIRED"}[provider]
    )


def test_the_message_itself_goes_back(gateway_url: str, replay: ReplayServer) -> None:
    """A user hands the client its own answer."""
    with client_of(gateway_url) as client:
        answer = client.chat(model="as-cohere/tool-round-trip", messages=USER, tools=[TOOL])
        messages = [
            *USER,
            answer.message,
            {"role": "tool", "tool_call_id": answer.message.tool_calls[0].id, "content": "12 degrees"},
        ]
        again = client.chat(model="as-cohere/tool-round-trip", messages=messages, tools=[TOOL])
    assert again.message.content[0].text == "The tool says: 12 degrees"
    assert replay.requests[-1].body["messages"][1]["tool_calls"][0]["id"] == answer.message.tool_calls[0].id


def test_what_another_caller_was_told_before_a_call_is_the_plan(gateway_url: str, replay: ReplayServer) -> None:
    import openai

    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    messages: Any = [
        *USER,
        {"role": "assistant", "content": "I look it up.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "12 degrees"},
    ]
    with openai.OpenAI(base_url=f"{gateway_url}/v1", api_key="none") as client:
        client.chat.completions.create(model="as-cohere/tool-round-trip", messages=messages)
    sent = replay.requests[-1].body["messages"][1]
    assert sent == {"role": "assistant", "tool_plan": "I look it up.", "tool_calls": [call]}


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", WAYS)
def test_thinking_is_asked_for_and_comes(gateway_url: str, replay: ReplayServer, way: str, provider: str) -> None:
    thinking = {"type": "enabled", "token_budget": 2000}
    seen = ask(gateway_url, way, f"{provider}/reasoning", thinking=thinking)
    assert seen.thinking == REASONING
    body = replay.requests[-1].body
    if provider == "as-cohere":
        assert body["thinking"] == thinking
    else:
        assert body.get("reasoning_effort") or body.get("thinking")


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", WAYS)
def test_an_image_reaches_the_provider(gateway_url: str, replay: ReplayServer, way: str, provider: str) -> None:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]}]
    seen = ask(gateway_url, way, f"{provider}/echo", messages=messages)
    assert "images: 1;" in seen.text
    assert PIXEL in json.dumps(replay.requests[-1].body)


def test_options_and_formats(gateway_url: str, replay: ReplayServer) -> None:
    options: dict[str, Any] = {
        "max_tokens": 77,
        "temperature": 0.25,
        "p": 0.5,
        "k": 40,
        "stop_sequences": ["END"],
        "seed": 7,
    }
    schema = {"type": "json_object", "json_schema": Mill.model_json_schema()}
    seen = ask(gateway_url, "whole", "as-openai/json", response_format=schema, **options)
    assert json.loads(seen.text) == MILL
    body = replay.requests[-1].body
    assert (body["temperature"], body["top_p"], body["stop"], body["seed"]) == (0.25, 0.5, ["END"], 7)
    assert set(body["response_format"]["json_schema"]["schema"]["properties"]) == set(MILL)
    ask(gateway_url, "whole", "as-cohere/json", response_format=schema, safety_mode="OFF", **options)
    body = replay.requests[-1].body
    assert {name: body[name] for name in options} == options
    assert (body["response_format"], body["safety_mode"]) == (schema, "OFF")


@pytest.mark.parametrize(
    ("model", "kind", "status"),
    [
        ("text?status=401", "UnauthorizedError", 401),
        ("text?status=429&retry_after=7", "TooManyRequestsError", 429),
        ("nonsense", "NotFoundError", 404),
        ("text?status=500", "ServiceUnavailableError", 503),
    ],
)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", WAYS)
def test_a_provider_that_refuses(gateway_url: str, way: str, provider: str, model: str, kind: str, status: int) -> None:
    with pytest.raises(ApiError) as raised:
        ask(gateway_url, way, f"{provider}/{model}")
    error = raised.value
    assert (type(error).__name__, error.status_code) == (kind, status)
    assert isinstance(error.body["message"], str)
    assert error.body["message"]
    if "retry_after" in model:
        assert (error.headers or {})["retry-after"] == "7"


def test_a_bad_request_is_told_where(gateway_url: str) -> None:
    with pytest.raises(ApiError) as raised:
        ask(gateway_url, "whole", "as-openai/text", messages=[{"role": "wizard", "content": "x"}])
    assert raised.value.status_code == 400
    assert "messages[0].role" in raised.value.body["message"]


@pytest.mark.parametrize("fault", ["error=6:overloaded_error", "cut=6", "cut=6&cut_clean=1", "reset=6", "malformed=6"])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", ["stream", "async"])
def test_a_stream_that_breaks_is_never_complete(gateway_url: str, way: str, provider: str, fault: str) -> None:
    seen = ask(gateway_url, way, f"{provider}/text?{fault}")  # the client raises nothing: the last event tells it
    assert seen.stop == "ERROR"
    assert seen.error
    assert seen.text
    assert TEXT.startswith(seen.text)


@pytest.mark.parametrize(
    "fault", ["comment=1", "crlf=1", "coalesce=5", "split=1", "garbage=6", "json=1", "eventless=1"]
)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_must_not_matter(gateway_url: str, provider: str, fault: str) -> None:
    for script in ("parallel-tools", "unicode"):
        seen = ask(gateway_url, "stream", f"{provider}/{script}?{fault}")
        row = SCRIPTS[script]
        assert (seen.text + seen.plan, seen.arguments, seen.stop) == (row.text, list(row.calls), STOPS[row.stop])


@pytest.mark.parametrize("provider", PROVIDERS)
def test_leaving_a_stream_lets_the_provider_go(gateway_url: str, replay: ReplayServer, provider: str) -> None:
    assert eventually(lambda: replay.active == 0)
    aborted = replay.aborted
    seen = Seen()
    with client_of(gateway_url) as client:
        events = client.chat_stream(model=f"{provider}/long?speed=1", messages=USER)
        for event in events:
            seen.add(event)
            if seen.text:
                break
        events.close()
    assert eventually(lambda: replay.active == 0), "the provider still sends"
    assert replay.aborted == aborted + 1
    assert SCRIPTS["long"].text.startswith(seen.text)


def test_cancelling_a_task_lets_the_provider_go(gateway_url: str, replay: ReplayServer) -> None:
    assert eventually(lambda: replay.active == 0)
    aborted = replay.aborted
    seen = Seen()

    async def main() -> None:
        async with cohere.AsyncClientV2(api_key="none", base_url=gateway_url, timeout=60, max_retries=0) as client:

            async def read() -> None:
                async for event in client.chat_stream(model="as-cohere/long?silence=8", messages=USER):
                    seen.add(event)

            task = asyncio.get_running_loop().create_task(read())
            async with asyncio.timeout(PATIENCE):
                while not seen.text:  # noqa: ASYNC110  # what the client fills has no event
                    await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert eventually(lambda: replay.active == 0), "the provider still sends"
    assert replay.aborted == aborted + 1
