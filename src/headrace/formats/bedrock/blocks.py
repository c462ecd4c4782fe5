"""Content blocks to parts: what requests and whole answers have in common.

A block is an object with one known field, which says what it is. The rule: a block is checked against its shape and
nothing is dropped; blocks without a word in the model become `Opaque`, whole. A cache point belongs to the part before it:
it is kept in that part's extensions, in Anthropic's words as well, who has the same thing there. Guarded content is text
to everybody else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headrace.formats.anthropic.blocks import checked
from headrace.formats.json import encode
from headrace.model.content import (
    Citation,
    Extensions,
    Opaque,
    Part,
    Reasoning,
    RedactedReasoning,
    Text,
    ToolCall,
    ToolResult,
)
from headrace.model.errors import InvalidRequest

from .media import FAMILIES, read_media
from .sealing import read_redacted, unseal
from .words import VENDOR, extended

CACHE_POINT = "cachePoint"
_ANTHROPIC = "anthropic"


class _ToolUse(msgspec.Struct, rename="camel"):
    tool_use_id: str
    name: str
    input: Any = msgspec.UNSET


class _ToolResult(msgspec.Struct, rename="camel"):
    tool_use_id: str
    content: list[dict[str, Any]] = []
    status: str | None = None


class _ReasoningText(msgspec.Struct):
    text: str = ""
    signature: str | None = None


class _Reasoning(msgspec.Struct, rename="camel"):
    reasoning_text: _ReasoningText | None = None
    redacted_content: str | None = None


class _Cited(msgspec.Struct):
    content: list[dict[str, Any]] = []
    citations: list[dict[str, Any]] = []


def read_parts(
    blocks: list[dict[str, Any]], path: str, *, vendor: str = VENDOR, inputs: list[str] | None = None
) -> list[Part]:
    """The parts of a content list. `inputs`: the text of each block's toolUse.input, "" where it has none. Raises
    InvalidRequest."""
    parts: list[Part] = []
    for i, block in enumerate(blocks):
        point = block.get(CACHE_POINT)
        if isinstance(point, dict) and parts:
            parts[-1].extensions = {**(parts[-1].extensions or {}), **cached(point)}
            continue
        part = read_block(block, f"{path}[{i}]", vendor)
        if inputs is not None and isinstance(part, ToolCall) and inputs[i]:
            part.arguments = inputs[i]
        parts.append(part)
    return parts


def cached(point: dict[str, Any]) -> Extensions:
    """A cache point, as extensions of what stands before it."""
    control = {"type": "ephemeral", **({"ttl": point["ttl"]} if "ttl" in point else {})}
    return {VENDOR: {CACHE_POINT: point}, _ANTHROPIC: {"cache_control": control}}


def cache_point(extensions: Extensions | None) -> dict[str, Any] | None:
    """The cache point that a part's extensions ask for after it, in either vendor's words."""
    said = (extensions or {}).get(VENDOR)
    point = said.get(CACHE_POINT) if isinstance(said, dict) else None
    if isinstance(point, dict):
        return {CACHE_POINT: point}
    said = (extensions or {}).get(_ANTHROPIC)
    control = said.get("cache_control") if isinstance(said, dict) else None
    if not isinstance(control, dict):
        return None
    return {CACHE_POINT: {"type": "default", **({"ttl": control["ttl"]} if control.get("ttl") else {})}}


def read_block(block: dict[str, Any], path: str, vendor: str = VENDOR) -> Part:
    """A content block as a part. Raises InvalidRequest."""
    name = next((name for name in _BLOCKS if block.get(name) is not None), "")
    if not name:
        return Opaque(vendor=vendor, payload=block)
    return _BLOCKS[name](block, path, vendor)


def _text(block: dict[str, Any], path: str, vendor: str) -> Part:
    if not isinstance(block["text"], str):
        raise InvalidRequest(f"{path}.text: Expected a string", param=f"{path}.text")
    return Text(text=block["text"])


def _guarded(block: dict[str, Any], path: str, vendor: str) -> Part:
    held = block["guardContent"]
    said = held.get("text") if isinstance(held, dict) else None
    text = said.get("text") if isinstance(said, dict) else None
    if not isinstance(text, str):
        return Opaque(vendor=vendor, payload=block)
    return Text(text=text, extensions=extended(vendor, {"guardContent": held}))


def _cited(block: dict[str, Any], path: str, vendor: str) -> Part:
    said = checked(block["citationsContent"], _Cited, f"{path}.citationsContent")
    text = "".join(part["text"] for part in said.content if isinstance(part.get("text"), str))
    return Text(text=text, citations=[Citation(vendor, each) for each in said.citations] or None)


def _tool_use(block: dict[str, Any], path: str, vendor: str) -> Part:
    said = checked(block["toolUse"], _ToolUse, f"{path}.toolUse")
    if said.input is msgspec.UNSET:
        raise InvalidRequest(f"{path}.toolUse.input: Field required", param=f"{path}.toolUse.input")
    if block["toolUse"].get("type") is not None:
        return Opaque(vendor=vendor, payload=block, role="server_tool_call")
    return ToolCall(id=said.tool_use_id, name=said.name, arguments=encode(said.input).decode())


def _tool_result(block: dict[str, Any], path: str, vendor: str) -> Part:
    said = checked(block["toolResult"], _ToolResult, f"{path}.toolResult")
    if block["toolResult"].get("type") is not None:
        return Opaque(vendor=vendor, payload=block, role="server_tool_result")
    parts: list[Part] = []
    for i, one in enumerate(said.content):
        if "json" in one:
            parts.append(Text(text=encode(one["json"]).decode()))
        else:
            parts.append(read_block(one, f"{path}.toolResult.content[{i}]", vendor))
    return ToolResult(tool_call_id=said.tool_use_id, parts=parts, is_error=said.status == "error")


def _reasoning(block: dict[str, Any], path: str, vendor: str) -> Part:
    said = checked(block["reasoningContent"], _Reasoning, f"{path}.reasoningContent")
    if said.redacted_content is not None:
        told = read_redacted(said.redacted_content, vendor)
        return RedactedReasoning(data=told.value, vendor=told.vendor)
    if said.reasoning_text is None:
        return Opaque(vendor=vendor, payload=block)
    text, signature = said.reasoning_text.text, said.reasoning_text.signature
    if not signature:
        return Reasoning(text=text)
    sealed = unseal(signature)
    if sealed is None:
        return Reasoning(text=text, signature=signature, vendor=vendor)
    return Reasoning(text=text, signature=sealed.value, vendor=sealed.vendor or None, id=sealed.id or None)


def _media(family: str) -> Callable[[dict[str, Any], str, str], Part]:
    def read(block: dict[str, Any], path: str, vendor: str) -> Part:
        return read_media(family, block[family], f"{path}.{family}", vendor)

    return read


_BLOCKS: dict[str, Callable[[dict[str, Any], str, str], Part]] = {
    "text": _text,
    "toolUse": _tool_use,
    "toolResult": _tool_result,
    "reasoningContent": _reasoning,
    **{family: _media(family) for family in FAMILIES},
    "guardContent": _guarded,
    "citationsContent": _cited,
}


class _RawUse(msgspec.Struct):
    input: msgspec.Raw = msgspec.Raw(b"")


class _RawBlock(msgspec.Struct, rename="camel"):
    tool_use: _RawUse | None = None


class _RawMessage(msgspec.Struct):
    content: list[_RawBlock] = []


class _RawOutput(msgspec.Struct):
    message: _RawMessage = msgspec.field(default_factory=_RawMessage)


class _RawBody(msgspec.Struct):
    messages: list[_RawMessage] = []
    output: _RawOutput = msgspec.field(default_factory=_RawOutput)


def raw_inputs(body: bytes) -> list[list[str]]:
    """The text of every block's toolUse.input in a checked body, by message (an answer counts as one), so that no number
    and no order of keys changes on the way."""
    raw = msgspec.json.decode(body, type=_RawBody)
    return [
        [bytes(block.tool_use.input).decode() if block.tool_use else "" for block in message.content]
        for message in raw.messages or [raw.output.message]
    ]
