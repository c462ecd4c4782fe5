"""A whole answer, for which the draft has no body: one in its spirit.

    {"v":"1.0", "type":"response", "request_id", "model", "created",
     "content": [parts as in an assistant message, tool calls as {"type":"tool_call","id","name","arguments"}],
     "stop_reason": one of the four, "usage": {"input_tokens","output_tokens"},
     "extensions": {"vendor:headrace": {"id", "provider", "stop_reason", usage's parts and cost, "routing", "lost"}}}

The parts can be sent back as the next turn's assistant message. Of several choices the first is told so; all of them are in
`choices` beside it: [{"index", "content", "stop_reason", "extensions"}] (also one alone that has extensions of its own).
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.formats.json import encode
from headrace.formats.standard.bodies import body_as, parts_as, read_body, refuse
from headrace.formats.standard.extensions import OURS, OURS_KEY, WireExtensions, from_wire, put, split_ours, to_wire
from headrace.formats.standard.parts import AnyPart, write_part
from headrace.formats.standard.usage import cost_of, parts_of, read_usage
from headrace.model import events as ev
from headrace.model.content import ToolCall
from headrace.model.errors import ErrorCode, ProtocolError
from headrace.model.response import Choice, Response
from headrace.model.stop import StopReason
from headrace.model.usage import Usage

from . import stops
from .errors import read_fields_of
from .reader import read_finish
from .writer import finish_words


class _Usage(Struct, kw_only=True):
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Choice(Struct, kw_only=True):
    index: int = 0
    content: list[AnyPart] = []
    stop_reason: str | None = None
    extensions: WireExtensions | None = None


class _Body(_Choice, kw_only=True):
    model: str = ""
    created: int = 0
    usage: _Usage | None = None
    choices: list[_Choice] | None = None


def write_response(response: Response, options: WriterOptions) -> bytes:
    """The body of a whole answer."""
    if options.passthrough and isinstance(response.origin, bytes):
        return response.origin
    request = options.request
    request_id = (request.request_id if request else None) or options.request_id
    body: dict[str, Any] = {"v": "1.0", "type": "response"}
    if request_id:
        body["request_id"] = request_id
    body["model"] = response.model or options.model
    body["created"] = response.created or options.created
    choices = response.choices or [Choice()]
    written = [{"index": choice.index, **_write_choice(choice)} for choice in choices]
    first = written[0]
    body |= {"content": first["content"], "stop_reason": first["stop_reason"]}
    extensions = to_wire(response.extensions)
    for name, value in split_ours(first.get("extensions"))[0].items():
        put(extensions, OURS, name, value)
    usage = response.usage
    ours: dict[str, Any] = {"id": response.id, "provider": response.provider or options.provider}
    if usage is not None:
        counts = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
        body["usage"] = {name: count for name, count in counts.items() if count is not None}
        ours["usage"] = {**parts_of(usage), **cost_of(usage)}
        if usage.vendor:
            ours["usage"]["extensions"] = to_wire(usage.vendor)
    ours |= {"routing": response.routing, "lost": sorted(options.lost)}
    for name, value in ours.items():
        if value:
            put(extensions, OURS, name, value)
    if len(choices) > 1 or choices[0].index or choices[0].extensions:
        body["choices"] = written
    if extensions:
        body["extensions"] = extensions
    return encode(body)


def _write_choice(choice: Choice) -> dict[str, Any]:
    called = any(isinstance(part, ToolCall) for part in choice.parts)
    reason = choice.stop or StopReason.OTHER
    word = stops.WORDS[reason]
    finish = ev.Finish(reason=reason, raw=choice.raw_stop, stop_sequence=choice.stop_sequence)
    extensions = to_wire(choice.extensions)
    if choice.stop is not None:
        for name, value in finish_words(finish, word, called=called).items():
            put(extensions, OURS, name, value)
    written: dict[str, Any] = {"content": [write_part(part) for part in choice.parts], "stop_reason": word}
    return {**written, "extensions": extensions} if extensions else written


def read_response(body: bytes, options: ReaderOptions) -> Response:
    """A provider's whole body. Raises ProtocolError; GatewayError where it is an error in disguise."""
    provider = options.provider
    said = read_body(body, provider)
    if isinstance(said.get("error"), dict):
        raise refuse(read_fields_of(said["error"], provider, ErrorCode.PROVIDER_UNAVAILABLE), provider)
    if "content" not in said and "choices" not in said:
        raise ProtocolError(f"the answer of {provider or 'the provider'} is not in its format: content is required")
    fields = body_as(said, _Body, provider)
    words, others = split_ours(fields.extensions)
    id, routing, counted = words.get("id"), words.get("routing"), words.get("usage")
    return Response(
        id=id if isinstance(id, str) else "",
        model=fields.model,
        created=fields.created,
        provider=provider,
        choices=[_read_choice(choice, provider) for choice in fields.choices or [_only(fields, words)]],
        usage=_read_usage(fields.usage, counted if isinstance(counted, dict) else {}),
        extensions=from_wire(others),
        routing=routing if isinstance(routing, dict) else None,
        origin=body if options.passthrough else None,
    )


def _only(body: _Body, words: dict[str, Any]) -> _Choice:
    return _Choice(content=body.content, stop_reason=body.stop_reason, extensions={OURS_KEY: words})


def _read_usage(said: _Usage | None, counted: dict[str, Any]) -> Usage | None:
    if said is None:
        return None
    extensions = counted.get("extensions")
    return read_usage(
        said.input_tokens, said.output_tokens, counted, extensions if isinstance(extensions, dict) else None
    )


def _read_choice(choice: _Choice, provider: str) -> Choice:
    read = Choice(index=choice.index, parts=parts_as(choice.content, provider))
    if choice.stop_reason is not None:
        words, others = split_ours(choice.extensions)
        finish = read_finish(choice.index, choice.stop_reason, words, others)
        read.stop, read.raw_stop = finish.reason, finish.raw
        read.stop_sequence, read.extensions = finish.stop_sequence, finish.extensions
    return read
