"""What a content_block_start tells: the block's start, and the deltas it already holds.

The rule: Anthropic's own starts are empty shells, but compatible servers put text, thinking or a tool's whole input
there; nothing of it is lost. Types the model has no word for become opaque blocks, whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.formats.json import encode
from headrace.model import events as ev
from headrace.model.content import Citation
from headrace.model.errors import ProtocolError
from headrace.model.events import BlockKind, BlockStart, Event

from .words import extras, opaque_role

Told = tuple[BlockStart, list[Event], str]


def told(block: object, vendor: str) -> Told:
    """The start (its number is the caller's to set), the deltas that follow at once, and a tool call's whole input.

    That input, "" where there is none, counts only if no delta brings it again. Raises ProtocolError.
    """
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        raise ProtocolError("A content block has no type")
    tell = _BLOCKS.get(block["type"])
    if tell is not None:
        return tell(block, vendor)
    start = BlockStart(block=0, type=BlockKind.OPAQUE, vendor=vendor, role=opaque_role(block["type"]), payload=block)
    return start, [], ""


def _string(block: dict[str, Any], field: str) -> str:
    value = block.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ProtocolError(f"{block['type']}.{field} is not a string")
    return value


def _text(block: dict[str, Any], vendor: str) -> Told:
    text, citations = _string(block, "text"), block.get("citations")
    deltas: list[Event] = []
    if isinstance(citations, list):
        deltas += [ev.CitationDelta(0, Citation(vendor, item)) for item in citations if isinstance(item, dict)]
    if text:
        deltas.append(ev.TextDelta(0, text))
    found = extras(block, ("type", "text", "citations"), vendor)
    return BlockStart(block=0, type=BlockKind.TEXT, extensions=found), deltas, ""


def _thinking(block: dict[str, Any], vendor: str) -> Told:
    text, signature = _string(block, "thinking"), _string(block, "signature")
    deltas: list[Event] = []
    if text:
        deltas.append(ev.ReasoningDelta(0, text))
    if signature:
        deltas.append(ev.SignatureDelta(0, signature))
    found = extras(block, ("type", "thinking", "signature"), vendor)
    return BlockStart(block=0, type=BlockKind.REASONING, vendor=vendor, extensions=found), deltas, ""


def _redacted(block: dict[str, Any], vendor: str) -> Told:
    data, found = _string(block, "data"), extras(block, ("type", "data"), vendor)
    start = BlockStart(block=0, type=BlockKind.REDACTED_REASONING, data=data, vendor=vendor, extensions=found)
    return start, [], ""


def _tool_use(block: dict[str, Any], vendor: str) -> Told:
    id, name, held = _string(block, "id"), _string(block, "name"), block.get("input")
    if isinstance(held, str):  # a server that sends the arguments as text
        held = held if held.strip() != "{}" else ""
    else:
        held = encode(held).decode() if held else ""
    found = extras(block, ("type", "id", "name", "input"), vendor)
    return BlockStart(block=0, type=BlockKind.TOOL_CALL, id=id, name=name, extensions=found), [], held


_BLOCKS: dict[str, Callable[[dict[str, Any], str], Told]] = {
    "text": _text,
    "thinking": _thinking,
    "redacted_thinking": _redacted,
    "tool_use": _tool_use,
}
