"""Mistral's official client, plain and asynchronous, against a live gateway."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from mistralai.client import Mistral, errors

from headrace.tape import ReplayServer
from tests.live import LoopThread, gateway_config, live_gateway

from .expected import REASONING, SCRIPTS, TEXT
from .shared import eventually

USER = [{"role": "user", "content": "What is a headrace?"}]
PROVIDERS = ("as-openai", "as-anthropic", "as-mistral")
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


@pytest.fixture(scope="module")
def gateway_url(servers: LoopThread, replay: ReplayServer) -> Iterator[str]:
    providers = {"as-mistral": f"{{format: mistral, base_url: '{replay.base_url}/mistral/v1'}}"}
    with live_gateway(servers, gateway_config(replay.base_url, providers=providers)) as live:
        yield f"{live.url}/mistral"


class Seen:
    def __init__(self) -> None:
        self.text = ""
        self.thinking = ""
        self.calls: list[tuple[str, str, Any]] = []
        self.stop: str | None = None
        self.usage: Any = None
        self.pieces = 0

    def add(self, said: Any) -> None:
        """A message or a delta."""
        self.pieces += 1
        content = said.content or ""
        for chunk in content if isinstance(content, list) else [content]:
            if isinstance(chunk, str):
                self.text += chunk
            elif chunk.type == "thinking":
                self.thinking += "".join(one.text for one in chunk.thinking)
            else:
                self.text += chunk.text
        for call in said.tool_calls or []:
            arguments = call.function.arguments
            if self.calls and (not call.id or call.id == "null"):
                id, name, before = self.calls[-1]
                self.calls[-1] = (id, name, before + arguments)
            else:
                self.calls.append((call.id, call.function.name, arguments))

    def done(self) -> Seen:
        self.calls = [(id, name, json.loads(a) if isinstance(a, str) else a) for id, name, a in self.calls]
        return self


def ask(url: str, way: str, model: str, **request: Any) -> Seen:
    seen = Seen()
    request = {"model": model, "messages": USER, **request}

    def take(event: Any) -> None:
        seen.usage = event.data.usage or seen.usage
        for choice in event.data.choices:
            seen.add(choice.delta)
            seen.stop = choice.finish_reason or seen.stop

    client = Mistral(api_key="none", server_url=url, timeout_ms=60_000)
    if way == "async":

        async def main() -> None:
            async for event in await client.chat.stream_async(**request):
                take(event)

        asyncio.run(main())
    elif way == "stream":
        with client.chat.stream(**request) as events:
            for event in events:
                take(event)
    else:
        answer = client.chat.complete(**request)
        (choice,) = answer.choices
        seen.add(choice.message)
        seen.stop, seen.usage = choice.finish_reason, answer.usage
    return seen.done()


@pytest.mark.parametrize("script", ["hello", "text", "unicode", "reasoning", "parallel-tools", "zero-argument-tool"])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", WAYS)
def test_every_script(gateway_url: str, way: str, provider: str, script: str) -> None:
    row = SCRIPTS[script]
    seen = ask(gateway_url, way, f"{provider}/{script}")
    assert (seen.text, seen.thinking) == (row.text, row.reasoning)
    assert [call[1:] for call in seen.calls] == [call[1:] for call in row.calls]
    assert seen.stop == ("tool_calls" if row.calls else "stop")
    if row.usage is not None:
        assert (seen.usage.prompt_tokens, seen.usage.completion_tokens) == row.usage[:2]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", WAYS)
def test_a_tool_and_its_result(gateway_url: str, replay: ReplayServer, way: str, provider: str) -> None:
    model = f"{provider}/tool-round-trip"
    ((id, name, arguments),) = ask(gateway_url, way, model, tools=[TOOL]).calls
    assert (name, arguments) == ("get_weather", {"city": "Vienna"})
    call = {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    messages = [
        *USER,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": id, "name": name, "content": "12 degrees"},
    ]
    assert ask(gateway_url, way, model, messages=messages, tools=[TOOL]).text == "The tool says: 12 degrees"


def test_other_callers_ids_are_made_nine_letters(gateway_url: str, replay: ReplayServer) -> None:
    """A conversation that another provider began goes on at Mistral."""
    import openai

    call = {"id": "call_of_another", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    messages: Any = [
        *USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_of_another", "content": "12 degrees"},
    ]
    with openai.OpenAI(base_url=gateway_url.replace("/mistral", "/v1"), api_key="none") as client:
        client.chat.completions.create(model="as-mistral/tool-round-trip", messages=messages)
    sent = replay.requests[-1].body["messages"]
    assert len(sent[1]["tool_calls"][0]["id"]) == 9
    assert sent[2]["tool_call_id"] == sent[1]["tool_calls"][0]["id"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_thinking_comes_and_an_image_goes(gateway_url: str, replay: ReplayServer, provider: str) -> None:
    assert ask(gateway_url, "stream", f"{provider}/reasoning").thinking == REASONING
    image = {"type": "image_url", "image_url": f"data:image/png;base64,{PIXEL}"}
    content = [{"type": "text", "text": "What is it?"}, image]
    seen = ask(gateway_url, "stream", f"{provider}/echo", messages=[{"role": "user", "content": content}])
    assert "images: 1;" in seen.text
    assert PIXEL in json.dumps(replay.requests[-1].body)


@pytest.mark.parametrize(("model", "status"), [("text?status=401", 401), ("text?status=429", 429), ("nonsense", 404)])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", WAYS)
def test_a_provider_that_refuses(gateway_url: str, way: str, provider: str, model: str, status: int) -> None:
    with pytest.raises(errors.SDKError) as raised:
        ask(gateway_url, way, f"{provider}/{model}", retries=None)
    assert raised.value.status_code == status
    assert json.loads(raised.value.body)["object"] == "error"


def test_a_bad_request_is_told_where(gateway_url: str) -> None:
    with pytest.raises(errors.MistralError, match="temperature"):
        ask(gateway_url, "whole", "as-openai/text", temperature=9)


@pytest.mark.parametrize("fault", ["error=6:overloaded_error", "cut=6", "reset=6", "malformed=6"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_stream_that_breaks_is_never_complete(gateway_url: str, provider: str, fault: str) -> None:
    seen = Seen()

    def read(events: Any) -> None:
        for event in events:
            for choice in event.data.choices:
                seen.add(choice.delta)
                seen.stop = choice.finish_reason or seen.stop

    client = Mistral(api_key="none", server_url=gateway_url, timeout_ms=60_000)
    messages: Any = USER
    with client.chat.stream(model=f"{provider}/text?{fault}", messages=messages) as events:  # noqa: SIM117  # longer than a line
        with pytest.raises(errors.ResponseValidationError):  # the SDK has no type for errors in a stream
            read(events)
    assert TEXT.startswith(seen.text)
    assert seen.stop is None


@pytest.mark.parametrize("provider", PROVIDERS)
def test_leaving_a_stream_lets_the_provider_go(gateway_url: str, replay: ReplayServer, provider: str) -> None:
    assert eventually(lambda: replay.active == 0)
    aborted = replay.aborted
    client = Mistral(api_key="none", server_url=gateway_url, timeout_ms=60_000)
    with client.chat.stream(model=f"{provider}/long?speed=1", messages=USER) as events:  # type: ignore[arg-type]  # as above
        for event in events:
            if event.data.choices and event.data.choices[0].delta.content:
                break
    assert eventually(lambda: replay.active == 0), "the provider still sends"
    assert replay.aborted == aborted + 1
