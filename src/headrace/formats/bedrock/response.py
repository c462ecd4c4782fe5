"""Whole (non-streaming) answers: Converse's output object to and from `Response`.

The rule: the same tables as in the stream. A tool call whose arguments are cut off has no place in a whole answer, where
`input` is an object: it is left out rather than made up.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.formats.anthropic.blocks import json_value
from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.formats.json import decode_payload, encode
from headrace.model.content import Media, Opaque, Part, Reasoning, RedactedReasoning, Refusal, Text, ToolCall
from headrace.model.errors import GatewayError, InvalidRequest, ProtocolError
from headrace.model.response import Choice, Response

from .blocks import raw_inputs, read_parts
from .errors import error_in_body
from .media import write_media
from .opaque import whole_block
from .sealing import seal, told_redacted, tool_id
from .usage import read_usage
from .words import VENDOR, extended, own, read_stop, write_stop
from .writer import metadata

_OBJECT = msgspec.json.Decoder(dict[str, Any])
_OF_THE_STOP = "additionalModelResponseFields"
_READ = frozenset({"output", "stopReason", "usage", _OF_THE_STOP})


def read_response(body: bytes, options: ReaderOptions) -> Response:
    """A provider's 200 body. Raises ProtocolError; GatewayError where it is an error in disguise."""
    payload = decode_payload(body, _OBJECT, "The answer")
    error = error_in_body(payload, options.provider)
    if error is not None:
        raise GatewayError(error)
    vendor = options.vendor or VENDOR
    output = payload.get("output")
    message = output.get("message") if isinstance(output, dict) else None
    blocks = message.get("content") if isinstance(message, dict) else None
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise ProtocolError("output.message.content is not a list of blocks")
    try:
        parts = read_parts(blocks, "content", vendor=vendor, inputs=_inputs(body))
    except InvalidRequest as error_:
        raise ProtocolError(f"The answer has a block that is not what it should be: {error_.info.param}") from None
    stop = payload.get("stopReason")
    stop = stop if isinstance(stop, str) and stop else None
    choice = Choice(
        parts=parts,
        stop=read_stop(stop) if stop else None,
        raw_stop=stop,
        extensions=extended(vendor, {_OF_THE_STOP: payload.get(_OF_THE_STOP)}),
    )
    return Response(
        provider=options.provider,
        choices=[choice],
        usage=read_usage(payload.get("usage"), vendor, cache_included=bool(options.quirks.get("input_includes_cache"))),
        extensions=extended(vendor, {name: value for name, value in payload.items() if name not in _READ}),
        origin=body if options.passthrough else None,
    )


def write_response(response: Response, options: WriterOptions) -> bytes:
    """The output object. Of several choices, the first."""
    if options.passthrough and isinstance(response.origin, bytes):
        return response.origin
    choice = min(response.choices, key=lambda each: each.index, default=Choice())
    content = [block for block in map(_block, choice.parts) if block is not None]
    return encode(
        {
            **own(choice.extensions),
            **metadata(response.usage, own(response.extensions)),
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": write_stop(
                choice.stop,
                choice.raw_stop,
                tool_called=any("toolUse" in block for block in content),
                refused=any(isinstance(part, Refusal) and part.text for part in choice.parts),
            ),
        }
    )


def _inputs(body: bytes) -> list[str] | None:
    try:
        return raw_inputs(body)[0]
    except (msgspec.DecodeError, UnicodeDecodeError):  # readable after repair only
        return None


def _block(part: Part) -> dict[str, Any] | None:
    """A part of an answer, or None where it has no place (or nothing to say) in this format."""
    if isinstance(part, Text):
        cited = [item.payload for item in part.citations or () if item.vendor == VENDOR]
        if cited:
            return {"citationsContent": {"content": [{"text": part.text}], "citations": cited}}
        return {"text": part.text} if part.text else None
    if isinstance(part, Refusal):
        return {"text": part.text} if part.text else None
    if isinstance(part, Reasoning):
        if not part.text and not part.signature:
            return None
        said = {"text": part.text}
        if part.signature:
            mine = part.vendor == VENDOR
            said["signature"] = part.signature if mine else seal(part.vendor or "", part.id or "", part.signature)
        return {"reasoningContent": {"reasoningText": said}}
    if isinstance(part, RedactedReasoning):
        return {"reasoningContent": {"redactedContent": told_redacted(part.data, part.vendor)}}
    if isinstance(part, ToolCall):
        value = json_value(part.arguments)
        if value is None or not part.complete:
            return None
        return {"toolUse": {"toolUseId": tool_id(part.id), "name": part.name, "input": value}}
    if isinstance(part, Media):
        return write_media(part, number=1) if part.type == "image" and part.data else None
    if isinstance(part, Opaque) and part.vendor == VENDOR:
        return whole_block(part.payload)
    return None
