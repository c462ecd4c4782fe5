"""Content blocks to parts and back: what requests and whole answers have in common.

The rule: a block is checked against its shape and nothing is dropped; fields without a word in the model go into the
part's extensions, blocks without one become `Opaque`, whole. A tool's arguments stay the text they were: `raw_inputs`
finds it in the body, so that no number or key order changes on the way.
"""

from __future__ import annotations

import json as stdlib_json
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from headrace.formats.json import encode, split_path
from headrace.formats.sealing import decode_id, unseal
from headrace.model.content import (
    Citation,
    Opaque,
    Part,
    Reasoning,
    RedactedReasoning,
    Text,
    ToolCall,
    ToolResult,
)
from headrace.model.errors import InvalidRequest

from .media import MEDIA_BLOCKS, read_media
from .words import VENDOR, extras, opaque_role

T = TypeVar("T")

_MISSING = "Object missing required field `"
_as_raw = msgspec.json.Decoder(msgspec.Raw).decode


def checked(value: Any, type: type[T], path: str) -> T:
    """The value as `type`. Raises InvalidRequest with the full path of the field that does not fit."""
    try:
        return msgspec.convert(value, type)
    except msgspec.ValidationError as error:
        message, inner = split_path(str(error))
        if message.startswith(_MISSING):
            inner = ".".join(filter(None, (inner, message[len(_MISSING) : -1])))
            message = "Field required"
        where = inner if not path else path + inner if inner.startswith("[") else f"{path}.{inner}" if inner else path
        raise InvalidRequest(f"{where}: {message}" if where else message, param=where) from None
    except RecursionError:
        raise InvalidRequest("The body is nested too deeply", type="invalid_json") from None


class _Text(msgspec.Struct):
    text: str
    citations: list[dict[str, Any]] | None = None


class _Thinking(msgspec.Struct):
    thinking: str
    signature: str | None = None


class _Redacted(msgspec.Struct):
    data: str


class _ToolUse(msgspec.Struct):
    id: str
    name: str
    input: dict[str, Any]


class _ToolResult(msgspec.Struct):
    tool_use_id: str
    content: str | list[dict[str, Any]] | None = None
    is_error: bool | None = None


def read_block(block: dict[str, Any], path: str, *, arguments: str | None = None, vendor: str = VENDOR) -> Part:
    """A content block as a part. `arguments`: the text of a tool_use's input. Raises InvalidRequest."""
    name = block.get("type")
    if not isinstance(name, str) or not name:
        what = "Field required" if name is None else "Expected a string"
        raise InvalidRequest(f"{path}.type: {what}", param=f"{path}.type")
    if name in MEDIA_BLOCKS:
        return read_media(block, path, vendor)
    known = _BLOCKS.get(name)
    if known is None:
        return Opaque(vendor=vendor, payload=block, role=opaque_role(name))
    shape, read = known
    part = read(checked(block, shape, path), path, vendor)
    if arguments is not None and isinstance(part, ToolCall):
        part.arguments = arguments
    part.extensions = extras(block, ("type", *shape.__struct_fields__), vendor)
    return part


def read_content(content: str | list[dict[str, Any]] | None, path: str, vendor: str = VENDOR) -> list[Part]:
    """Content that is a string or a list of blocks (tool results, system prompts)."""
    if isinstance(content, str):
        return [Text(text=content)]
    return [read_block(block, f"{path}[{i}]", vendor=vendor) for i, block in enumerate(content or ())]


def _text(block: _Text, path: str, vendor: str) -> Part:
    return Text(text=block.text, citations=[Citation(vendor, item) for item in block.citations or ()] or None)


def _thinking(block: _Thinking, path: str, vendor: str) -> Part:
    if not block.signature:
        return Reasoning(text=block.thinking)
    sealed = unseal(block.signature)
    if sealed is None:
        return Reasoning(text=block.thinking, signature=block.signature, vendor=vendor)
    return Reasoning(text=block.thinking, signature=sealed.value, vendor=sealed.vendor or None, id=sealed.id or None)


def _redacted(block: _Redacted, path: str, vendor: str) -> Part:
    sealed = unseal(block.data)
    if sealed is None:
        return RedactedReasoning(data=block.data, vendor=vendor)
    return RedactedReasoning(data=sealed.value, vendor=sealed.vendor)


def _tool_use(block: _ToolUse, path: str, vendor: str) -> Part:
    return ToolCall(id=decode_id(block.id), name=block.name, arguments=encode(block.input).decode())


def _tool_result(block: _ToolResult, path: str, vendor: str) -> Part:
    return ToolResult(
        tool_call_id=decode_id(block.tool_use_id),
        parts=read_content(block.content, f"{path}.content", vendor),
        is_error=bool(block.is_error),
    )


_Read = Callable[[Any, str, str], Part]
_BLOCKS: dict[str, tuple[Any, _Read]] = {
    "text": (_Text, _text),
    "thinking": (_Thinking, _thinking),
    "redacted_thinking": (_Redacted, _redacted),
    "tool_use": (_ToolUse, _tool_use),
    "tool_result": (_ToolResult, _tool_result),
}


class _RawBlock(msgspec.Struct):
    input: msgspec.Raw = msgspec.Raw(b"")


class _RawMessage(msgspec.Struct):
    content: str | list[_RawBlock] = ""


class _RawBody(msgspec.Struct):
    messages: list[_RawMessage] = []
    content: str | list[_RawBlock] = ""


def raw_inputs(body: bytes) -> list[list[str]]:
    """The text of every block's `input` in a checked body, by message (an answer counts as one), "" where it has none."""
    raw = msgspec.json.decode(body, type=_RawBody)
    messages = raw.messages or [_RawMessage(raw.content)]
    return [
        [] if isinstance(message.content, str) else [bytes(block.input).decode() for block in message.content]
        for message in messages
    ]


def json_value(text: str) -> msgspec.Raw | None:
    """JSON text as a value to encode unchanged; None where it is not valid. "" is {}: a call without arguments."""
    if not text.strip():
        return msgspec.Raw(b"{}")
    try:
        _as_raw(text)
    except msgspec.DecodeError:
        if "\\ud" not in text.lower():
            return None
        try:  # halves of surrogate pairs are JSON, but msgspec refuses them
            stdlib_json.loads(text)
        except (ValueError, RecursionError):
            return None
    except (RecursionError, UnicodeEncodeError):
        return None
    return msgspec.Raw(text.encode())


def text_block(part: Text) -> dict[str, Any]:
    """A text block, with those of its citations that are Anthropic's."""
    block: dict[str, Any] = {"type": "text", "text": part.text}
    citations = [item.payload for item in part.citations or () if item.vendor == VENDOR]
    if citations:
        block["citations"] = citations
    return block


def opaque_block(payload: dict[str, Any]) -> dict[str, Any]:
    """A block that was kept whole, as it stands on the wire. An assembler leaves a tool's input as JSON text."""
    given = payload.get("input")
    if not isinstance(given, str):
        return dict(payload)
    value = json_value(given)
    return {**payload, "input": {} if value is None else msgspec.json.decode(value)}
