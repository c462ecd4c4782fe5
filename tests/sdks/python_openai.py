"""OpenAI's Python SDK, used in all the ways its users do. Each scenario of `SCENARIOS` leads to an `Outcome`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import openai

from .expected import Call, Outcome, Seen, UsageSeen
from .shared import RESULT, USER, Mill, cancelled, failure


def run(url: str, scenario: str, model: str, **request: Any) -> Outcome:
    """Run a scenario against the gateway at `url`. `request`: fields of the request, and options of the scenario."""
    client: Any = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60)
    outcome = Outcome()
    try:
        with client:
            SCENARIOS[scenario](client, outcome, {"model": model, "messages": USER, **request})
    except (openai.OpenAIError, asyncio.CancelledError) as error:
        outcome.failure = failure(error)
    return outcome


# What the SDK shows.


def add_chunk(seen: Seen, chunk: Any) -> None:
    """Put a chunk to the answer, as users of `stream=True` do by hand."""
    seen.id = seen.id or chunk.id
    seen.model = chunk.model
    if chunk.usage is not None:
        seen.usage = usage_seen(chunk.usage)
    if not chunk.choices:
        seen.bare_chunks += 1
        return
    (choice,) = chunk.choices
    delta = choice.delta
    reasoning = getattr(delta, "reasoning_content", None) or ""
    seen.text += delta.content or ""
    seen.refusal += delta.refusal or ""
    seen.reasoning += reasoning
    fragments = [call.function.arguments for call in delta.tool_calls or []]
    seen.deltas += sum(bool(piece) for piece in (delta.content, delta.refusal, reasoning, *fragments))
    add_details(seen, delta)
    for call in delta.tool_calls or []:
        if call.index == len(seen.calls):
            seen.calls.append(Call(call.id, call.function.name, ""))
        seen.calls[call.index].arguments += call.function.arguments or ""
    if choice.finish_reason is not None:
        assert seen.stop is None, "a second finish reason"
        seen.stop = choice.finish_reason
        for made in seen.calls:
            made.arguments = parsed(made.arguments)


def whole(completion: Any) -> Seen:
    (choice,) = completion.choices
    message = choice.message
    seen = Seen(
        id=completion.id,
        request_id=getattr(completion, "_request_id", None) or "",
        model=completion.model,
        text=message.content or "",
        refusal=message.refusal or "",
        reasoning=getattr(message, "reasoning_content", None) or "",
        calls=[Call(c.id, c.function.name, parsed(c.function.arguments)) for c in message.tool_calls or []],
        stop=choice.finish_reason,
        usage=None if completion.usage is None else usage_seen(completion.usage),
    )
    add_details(seen, message)
    return seen


def add_details(seen: Seen, holder: Any) -> None:
    for item in getattr(holder, "reasoning_details", None) or []:
        if item.get("signature"):
            seen.signatures.append(item["signature"])
        if item.get("data"):
            seen.redacted.append(item["data"])


def usage_seen(usage: Any) -> UsageSeen:
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    details = usage.completion_tokens_details
    return UsageSeen(usage.prompt_tokens, usage.completion_tokens, details and details.reasoning_tokens)


def parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


# The ways to an answer.


def create(client: Any, outcome: Outcome, request: dict[str, Any]) -> None:
    outcome.answers.append(whole(client.chat.completions.create(**request)))


def stream(client: Any, outcome: Outcome, request: dict[str, Any]) -> None:
    seen = Seen()
    chunks = client.chat.completions.create(**request, stream=True)
    outcome.answers.append(seen)
    for chunk in chunks:
        add_chunk(seen, chunk)


def helper(client: Any, outcome: Outcome, request: dict[str, Any]) -> None:
    """`client.chat.completions.stream`, and the completion that it puts together."""
    with client.chat.completions.stream(**request) as events:
        outcome.answers.append(whole(events.get_final_completion()))


def asynchronous(client: Any, outcome: Outcome, request: dict[str, Any]) -> None:
    async def main() -> None:
        async with _async_client(client) as other:
            seen = Seen()
            chunks = await other.chat.completions.create(**request, stream=True)
            outcome.answers.append(seen)
            async for chunk in chunks:
                add_chunk(seen, chunk)

    asyncio.run(main())


def _async_client(client: Any) -> Any:
    return openai.AsyncOpenAI(base_url=client.base_url, api_key="none", max_retries=0, timeout=60)


# Turns, and everything else.


def converse(client: Any, outcome: Outcome, request: dict[str, Any]) -> None:
    """Two turns: the SDK's own message goes back, with a result for each call, or a further question."""
    result, streamed = request.pop("result", RESULT), request.pop("streamed", False)
    messages, models = request.pop("messages"), [request.pop("model")]
    models.append(request.pop("then", models[0]))
    for request["model"] in models:
        if streamed:
            with client.chat.completions.stream(**request, messages=messages) as events:
                completion = events.get_final_completion()
        else:
            completion = client.chat.completions.create(**request, messages=messages)
        outcome.answers.append(whole(completion))
        message = completion.choices[0].message
        calls = message.tool_calls or []
        results = [{"role": "tool", "tool_call_id": call.id, "content": result} for call in calls]
        messages = [*messages, message, *(results or [{"role": "user", "content": "Are you sure?"}])]


def parse(client: Any, outcome: Outcome, request: dict[str, Any]) -> None:
    """Structured output, into a class."""
    del request["schema"]
    completion = client.chat.completions.parse(**request, response_format=Mill)
    mill = completion.choices[0].message.parsed
    assert isinstance(mill, Mill)
    outcome.value = mill.model_dump()


def parse_stream(client: Any, outcome: Outcome, request: dict[str, Any]) -> None:
    del request["schema"]
    with client.chat.completions.stream(**request, response_format=Mill) as events:
        mill = events.get_final_completion().choices[0].message.parsed
    assert isinstance(mill, Mill)
    outcome.value = mill.model_dump()


def models(client: Any, outcome: Outcome, request: dict[str, Any]) -> None:
    listed = list(client.models.list())
    one = client.models.retrieve(request["model"])
    outcome.value = {"ids": [entry.id for entry in listed], "one": one.id}


def close(client: Any, outcome: Outcome, request: dict[str, Any]) -> None:
    """Close the stream after its first piece of text."""
    seen = Seen()
    chunks = client.chat.completions.create(**request, stream=True)
    outcome.answers.append(seen)
    for chunk in chunks:
        add_chunk(seen, chunk)
        if seen.text:
            break
    chunks.close()


def leave(client: Any, outcome: Outcome, request: dict[str, Any]) -> None:
    """Leave the helper's `with` block after the first piece of text."""
    with client.chat.completions.stream(**request) as events:
        for event in events:
            if event.type == "content.delta" and event.delta:
                outcome.answers.append(Seen(text=event.delta))
                break


def cancel(client: Any, outcome: Outcome, request: dict[str, Any]) -> None:
    """Cancel the task of an async client in the middle of the answer."""

    async def main() -> None:
        seen = Seen()
        outcome.answers.append(seen)
        async with _async_client(client) as other:
            chunks = await other.chat.completions.create(**request, stream=True)

            async def read() -> None:
                async for chunk in chunks:
                    add_chunk(seen, chunk)

            await cancelled(read(), lambda: seen.text)

    asyncio.run(main())


def cancel_early(client: Any, outcome: Outcome, request: dict[str, Any]) -> None:
    """Cancel it before there is an answer."""

    async def main() -> None:
        async with _async_client(client) as other:
            await cancelled(other.chat.completions.create(**request, stream=True))

    asyncio.run(main())


SCENARIOS: dict[str, Callable[[Any, Outcome, dict[str, Any]], None]] = {
    "create": create,
    "stream": stream,
    "helper": helper,
    "async": asynchronous,
    "converse": converse,
    "parse": parse,
    "parse-stream": parse_stream,
    "models": models,
    "close": close,
    "leave": leave,
    "cancel": cancel,
    "cancel-early": cancel_early,
}
