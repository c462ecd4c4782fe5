"""Whole (non-streaming) answers: Anthropic's message object to and from `Response`.

The rule: the same tables as in the stream. A tool call whose arguments are cut off has no place in a whole answer, where
`input` is an object: it is left out rather than made up.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.formats.json import decode_payload, encode
from headrace.formats.sealing import encode_id, seal
from headrace.model.content import Opaque, Part, Reasoning, RedactedReasoning, Refusal, Text, ToolCall
from headrace.model.errors import GatewayError, InvalidRequest, ProtocolError
from headrace.model.response import Choice, Response

from .blocks import json_value, opaque_block, raw_inputs, read_block, text_block
from .errors import error_in
from .usage import read_usage, write_usage
from .words import VENDOR, extras, own, read_stop, write_stop

_OBJECT = msgspec.json.Decoder(dict[str, Any])
_FIELDS = frozenset({"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"})
_OF_THE_STOP = frozenset({"stop_details", "container", "context_management"})
"""What a stream tells in message_delta: belongs to the choice, not to the answer as a whole."""


def read_response(body: bytes, options: ReaderOptions) -> Response:
    """A provider's 200 body. Raises ProtocolError; GatewayError where it is an error in disguise."""
    payload = decode_payload(body, _OBJECT, "The answer")
    if payload.get("type") == "error" or ("error" in payload and "content" not in payload):
        raise GatewayError(error_in(payload, provider=options.provider))
    vendor = options.vendor or VENDOR
    blocks = payload.get("content")
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise ProtocolError("content is not a list of blocks")
    inputs = _inputs(body) if any(block.get("type") == "tool_use" for block in blocks) else None
    try:
        parts = [
            read_block(block, f"content[{i}]", arguments=inputs[i] if inputs else None, vendor=vendor)
            for i, block in enumerate(blocks)
        ]
    except InvalidRequest as error:
        raise ProtocolError(f"The answer has a block that is not what it should be: {error.info.param}") from None
    found = (extras(payload, _FIELDS, vendor) or {}).get(vendor, {})
    of_stop = {key: found.pop(key) for key in list(found) if key in _OF_THE_STOP}
    stop, sequence = payload.get("stop_reason"), payload.get("stop_sequence")
    stop = stop if isinstance(stop, str) and stop else None
    choice = Choice(
        parts=parts,
        stop=read_stop(stop) if stop else None,
        raw_stop=stop,
        stop_sequence=sequence if isinstance(sequence, str) else None,
        extensions={vendor: of_stop} if of_stop else None,
    )
    id, model = payload.get("id"), payload.get("model")
    return Response(
        id=id if isinstance(id, str) else "",
        model=model if isinstance(model, str) else "",
        provider=options.provider,
        choices=[choice],
        usage=read_usage(payload.get("usage"), vendor, cache_included=bool(options.quirks.get("input_includes_cache"))),
        extensions={vendor: found} if found else None,
        origin=body if options.passthrough else None,
    )


def write_response(response: Response, options: WriterOptions) -> bytes:
    """The message object. Of several choices, the first."""
    if options.passthrough and isinstance(response.origin, bytes):
        return response.origin
    choice = min(response.choices, key=lambda each: each.index, default=Choice())
    content = [block for block in map(_block, choice.parts) if block is not None]
    return encode(
        {
            **own(response.extensions),
            **own(choice.extensions),
            "id": response.id or f"msg_{options.request_id or '0'}",
            "type": "message",
            "role": "assistant",
            "model": response.model or options.model,
            "content": content,
            "stop_reason": write_stop(
                choice.stop,
                choice.raw_stop,
                tool_called=any(block["type"] == "tool_use" for block in content),
                refused=any(isinstance(part, Refusal) for part in choice.parts),
            ),
            "stop_sequence": choice.stop_sequence,
            "usage": write_usage(response.usage),
        }
    )


def _inputs(body: bytes) -> list[str] | None:
    try:
        return raw_inputs(body)[0]
    except (msgspec.DecodeError, UnicodeDecodeError):  # readable after repair only
        return None


def _block(part: Part) -> dict[str, Any] | None:
    """A part of an answer, or None where it has no place (or nothing to say) in this format."""
    block: dict[str, Any]
    if isinstance(part, Text):
        if not part.text and not part.citations:
            return None
        block = text_block(part)
    elif isinstance(part, Refusal):
        if not part.text:
            return None
        block = {"type": "text", "text": part.text}
    elif isinstance(part, Reasoning):
        if not part.text and not part.signature:
            return None
        block = {"type": "thinking", "thinking": part.text}
        if part.signature:
            own_one = part.vendor == VENDOR
            block["signature"] = part.signature if own_one else seal(part.vendor or "", part.id or "", part.signature)
    elif isinstance(part, RedactedReasoning):
        own_one = part.vendor == VENDOR
        block = {"type": "redacted_thinking", "data": part.data if own_one else seal(part.vendor, "", part.data)}
    elif isinstance(part, ToolCall):
        value = json_value(part.arguments)
        if value is None or not part.complete:
            return None
        block = {"type": "tool_use", "id": encode_id(part.id), "name": part.name, "input": value}
    elif isinstance(part, Opaque) and part.vendor == VENDOR and isinstance(part.payload.get("type"), str):
        block = opaque_block(part.payload)
    else:
        return None
    return {**own(part.extensions), **block}
