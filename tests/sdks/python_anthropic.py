"""Anthropic's Python SDK, used in all the ways its users do. Each scenario of `SCENARIOS` leads to an `Outcome`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import anthropic

from .expected import Call, Outcome, Seen, UsageSeen
from .shared import RESULT, USER, Mill, cancelled, failure


def run(url: str, scenario: str, model: str, **request: Any) -> Outcome:
    """Run a scenario against the gateway at `url`. `request`: fields of the request, and options of the scenario."""
    client: Any = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=60)
    outcome = Outcome()
    try:
        with client:
            fields = {"model": model, "max_tokens": 1000, "messages": USER, **request}
            beside = {name: fields.pop(name) for name in ("temperature", "top_p") if name in fields}
            if beside:  # known to the API and to the JavaScript SDK, but no parameters of this one
                fields["extra_body"] = beside
            SCENARIOS[scenario](client, outcome, fields)
    except (anthropic.AnthropicError, asyncio.CancelledError) as error:
        outcome.failure = failure(error)
    return outcome


# What the SDK shows.


class Collector:
    """Puts raw events together, as users of `stream=True` do by hand, and checks that their order is the documented one."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self._open: Any = None
        self._index = -1
        self._arguments = ""
        self._ended = False

    def add(self, event: Any) -> None:
        assert not self._ended, f"{event.type} after message_stop"
        seen = self.seen
        if event.type == "message_start":
            seen.id, seen.model = event.message.id, event.message.model
            assert event.message.content == []
        elif event.type == "content_block_start":
            assert self._open is None, "a block inside a block"
            assert event.index == self._index + 1
            self._open, self._index, self._arguments = event.content_block, event.index, ""
            if self._open.type == "redacted_thinking":
                seen.redacted.append(self._open.data)
            elif self._open.type == "tool_use":
                seen.calls.append(Call(self._open.id, self._open.name, self._open.input))
        elif event.type == "content_block_delta":
            assert event.index == self._index
            self._delta(event.delta)
        elif event.type == "content_block_stop":
            assert event.index == self._index
            if self._arguments:
                seen.calls[-1].arguments = json.loads(self._arguments)
            self._open = None
        elif event.type == "message_delta":
            seen.stop = event.delta.stop_reason
            seen.usage = usage_seen(event.usage)
        elif event.type == "message_stop":
            assert seen.stop is not None, "the message has no stop reason"
            self._ended = True

    def _delta(self, delta: Any) -> None:
        seen = self.seen
        if delta.type == "text_delta":
            seen.text += delta.text
        elif delta.type == "thinking_delta":
            seen.reasoning += delta.thinking
        elif delta.type == "input_json_delta":
            self._arguments += delta.partial_json
        elif delta.type == "signature_delta":
            seen.signatures.append(delta.signature)
            return
        seen.deltas += 1


def whole(message: Any) -> Seen:
    seen = Seen(id=message.id, model=message.model, stop=message.stop_reason, usage=usage_seen(message.usage))
    seen.request_id = getattr(message, "_request_id", None) or ""
    for block in message.content:
        if block.type == "text":
            seen.text += block.text
        elif block.type == "thinking":
            seen.reasoning += block.thinking
            seen.signatures.append(block.signature)
        elif block.type == "redacted_thinking":
            seen.redacted.append(block.data)
        elif block.type == "tool_use":
            seen.calls.append(Call(block.id, block.name, block.input))
    return seen


def usage_seen(usage: Any) -> UsageSeen:
    details = getattr(usage, "output_tokens_details", None)
    return UsageSeen(usage.input_tokens, usage.output_tokens, details and details.thinking_tokens)


# The ways to an answer.


def create(client: Any, outcome: Outcome, request: dict[str, Any]) -> None:
    outcome.answers.append(whole(client.messages.create(**request)))


def stream(client: Any, outcome: Outcome, request: dict[str, Any]) -> None:
    events = client.messages.create(**request, stream=True)
    collector = Collector(Seen())
    outcome.answers.append(collector.seen)
    for event in events:
        collector.add(event)


def helper(client: Any, outcome: Outcome, request: dict[str, Any]) -> None:
    """`client.messages.stream`, and the message that it puts together."""
    with client.messages.stream(**request) as events:
        outcome.answers.append(whole(events.get_final_message()))


def asynchronous(client: Any, outcome: Outcome, request: dict[str, Any]) -> None:
    async def main() -> None:
        async with _async_client(client) as other:
            events = await other.messages.create(**request, stream=True)
            collector = Collector(Seen())
            outcome.answers.append(collector.seen)
            async for event in events:
                collector.add(event)

    asyncio.run(main())


def _async_client(client: Any) -> Any:
    return anthropic.AsyncAnthropic(base_url=client.base_url, api_key="none", max_retries=0, timeout=60)


# Turns, and everything else.


def converse(client: Any, outcome: Outcome, request: dict[str, Any]) -> None:
    """Two turns: the SDK's own blocks go back, with a result for each call, or a further question."""
    result, streamed = request.pop("result", RESULT), request.pop("streamed", False)
    messages, models = request.pop("messages"), [request.pop("model")]
    models.append(request.pop("then", models[0]))
    for request["model"] in models:
        if streamed:
            with client.messages.stream(**request, messages=messages) as events:
                message = events.get_final_message()
        else:
            message = client.messages.create(**request, messages=messages)
        outcome.answers.append(whole(message))
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": result}
            for block in message.content
            if block.type == "tool_use"
        ]
        messages = [
            *messages,
            {"role": "assistant", "content": message.content},
            {"role": "user", "content": results or "Are you sure?"},
        ]


def tool_runner(client: Any, outcome: Outcome, request: dict[str, Any]) -> None:
    """The SDK's own loop, which calls the function and sends its result back."""
    del request["tools"]  # made from the function
    result = request.pop("result", RESULT)

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """The weather of a city."""
        assert city == "Vienna"
        return str(result)

    runner = client.beta.messages.tool_runner(**request, tools=[get_weather])
    outcome.answers += [whole(message) for message in runner]


def parse(client: Any, outcome: Outcome, request: dict[str, Any]) -> None:
    """Structured output, into a class."""
    del request["schema"]
    mill = client.messages.parse(**request, output_format=Mill).parsed_output
    assert isinstance(mill, Mill)
    outcome.value = mill.model_dump()


def parse_stream(client: Any, outcome: Outcome, request: dict[str, Any]) -> None:
    del request["schema"]
    with client.messages.stream(**request, output_format=Mill) as events:
        mill = events.get_final_message().parsed_output
    assert isinstance(mill, Mill)
    outcome.value = mill.model_dump()


def models(client: Any, outcome: Outcome, request: dict[str, Any]) -> None:
    listed = list(client.models.list())
    one = client.models.retrieve(request["model"])
    outcome.value = {"ids": [entry.id for entry in listed], "one": one.id}


def close(client: Any, outcome: Outcome, request: dict[str, Any]) -> None:
    """Close the stream after its first piece of text."""
    events = client.messages.create(**request, stream=True)
    collector = Collector(Seen())
    outcome.answers.append(collector.seen)
    for event in events:
        collector.add(event)
        if collector.seen.text:
            break
    events.close()


def leave(client: Any, outcome: Outcome, request: dict[str, Any]) -> None:
    """Leave the helper's `with` block after the first piece of text."""
    with client.messages.stream(**request) as events:
        for text in events.text_stream:
            outcome.answers.append(Seen(text=text))
            break


def cancel(client: Any, outcome: Outcome, request: dict[str, Any]) -> None:
    """Cancel the task of an async client in the middle of the answer."""

    async def main() -> None:
        collector = Collector(Seen())
        outcome.answers.append(collector.seen)
        async with _async_client(client) as other:
            events = await other.messages.create(**request, stream=True)

            async def read() -> None:
                async for event in events:
                    collector.add(event)

            await cancelled(read(), lambda: collector.seen.text)

    asyncio.run(main())


def cancel_early(client: Any, outcome: Outcome, request: dict[str, Any]) -> None:
    """Cancel it before there is an answer."""

    async def main() -> None:
        async with _async_client(client) as other:
            await cancelled(other.messages.create(**request, stream=True))

    asyncio.run(main())


SCENARIOS: dict[str, Callable[[Any, Outcome, dict[str, Any]], None]] = {
    "create": create,
    "stream": stream,
    "helper": helper,
    "async": asynchronous,
    "converse": converse,
    "tool-runner": tool_runner,
    "parse": parse,
    "parse-stream": parse_stream,
    "models": models,
    "close": close,
    "leave": leave,
    "cancel": cancel,
    "cancel-early": cancel_early,
}
