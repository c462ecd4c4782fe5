"""A whole answer of the gateway format: {id, model, provider, created, choices, usage, routing}.

A choice is {index, finish_reason, message: {role, content, tool_calls}}. The message has the form of a request's messages, so
it can be appended to the conversation as it is: `content` is a string where text is all there is, null beside tool calls
alone, else parts. Calls are told after the other parts, wherever they stood among them. `lost` names what had no place.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.formats.json import encode
from headrace.formats.standard.bodies import body_as, parts_as, read_body, refuse
from headrace.formats.standard.extensions import WireExtensions, from_wire, to_wire
from headrace.formats.standard.messages import WireToolCall, write_content
from headrace.formats.standard.parts import AnyPart
from headrace.model import events as ev
from headrace.model.content import Part, Text, ToolCall
from headrace.model.errors import ErrorCode
from headrace.model.response import Choice, Response

from .errors import read_object
from .words import read_finish, read_usage_object, write_finish, write_usage


class _ToolCall(WireToolCall, kw_only=True):
    complete: bool = True


class _Message(Struct, kw_only=True):
    content: str | list[AnyPart] | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(Struct, kw_only=True):
    index: int = 0
    message: _Message


class _Body(Struct, kw_only=True):
    choices: list[_Choice]
    id: str = ""
    model: str = ""
    provider: str = ""
    created: int = 0
    routing: dict[str, Any] | None = None
    extensions: WireExtensions | None = None


def write_response(response: Response, options: WriterOptions) -> bytes:
    """The body of a whole answer."""
    if options.passthrough and isinstance(response.origin, bytes):
        return response.origin
    provider = response.provider or options.provider
    routing = response.routing
    body: dict[str, Any] = {
        "id": response.id or options.request_id,
        "model": response.model or options.model,
        "provider": provider,
        "created": response.created or options.created,
        "choices": [_write_choice(choice) for choice in response.choices],
        "usage": write_usage(response.usage, final=True),
        "routing": {"selected_provider": provider} if routing is None else routing,
    }
    optional = {"lost": sorted(options.lost), "extensions": to_wire(response.extensions)}
    body.update((name, value) for name, value in optional.items() if value)
    return encode(body)


def _write_choice(choice: Choice) -> dict[str, Any]:
    written: dict[str, Any] = {"index": choice.index, "finish_reason": None}
    if choice.stop is not None:
        finish = ev.Finish(reason=choice.stop, raw=choice.raw_stop, stop_sequence=choice.stop_sequence)
        written |= write_finish(finish)
    message = {"role": "assistant", **write_content(choice.parts)}
    calls = [part for part in choice.parts if isinstance(part, ToolCall)]
    for call, fields in zip(calls, message.get("tool_calls", ()), strict=True):
        if not call.complete:
            fields["complete"] = False
    written["message"] = message
    if choice.extensions:
        written["extensions"] = to_wire(choice.extensions)
    return written


def read_response(body: bytes, options: ReaderOptions) -> Response:
    """A provider's whole body. Raises ProtocolError; GatewayError where it is an error in disguise."""
    provider = options.provider
    said = read_body(body, provider)
    if isinstance(said.get("error"), dict):
        raise refuse(read_object(said["error"], provider, ErrorCode.PROVIDER_UNAVAILABLE), provider)
    fields = body_as(said, _Body, provider)
    return Response(
        id=fields.id,
        model=fields.model,
        created=fields.created,
        provider=fields.provider or provider,
        choices=[
            _read_choice(choice, raw, provider) for choice, raw in zip(fields.choices, said["choices"], strict=True)
        ],
        usage=read_usage_object(said.get("usage")),
        extensions=from_wire(fields.extensions),
        routing=fields.routing,
        origin=body if options.passthrough else None,
    )


def _read_choice(choice: _Choice, raw: dict[str, Any], provider: str) -> Choice:
    content = choice.message.content
    parts: list[Part]
    if isinstance(content, list):
        parts = parts_as(content, provider)
    else:
        parts = [Text(text=content)] if content else []
    for call in choice.message.tool_calls or ():
        parts.append(
            ToolCall(
                id=call.id,
                name=call.name,
                arguments=call.arguments,
                complete=call.complete,
                extensions=from_wire(call.extensions),
            )
        )
    read = Choice(index=choice.index, parts=parts)
    finish = read_finish(raw, choice.index)
    if finish is not None:
        read.stop, read.raw_stop = finish.reason, finish.raw
        read.stop_sequence, read.extensions = finish.stop_sequence, finish.extensions
    return read
