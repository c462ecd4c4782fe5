"""Blocks of tools that Bedrock itself runs, which the model keeps whole: the payload, from a stream or from a body.

A body has `{"toolUse": {..., "input": {...}}}` and `{"toolResult": {..., "content": [...]}}`. A stream tells input as text
and content as lists of deltas; an assembler leaves them beside the block, as text under `input` and `content`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.formats.anthropic.blocks import json_value
from headrace.formats.json import encode


def tool_use_of(payload: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """The call without its input, and the input as JSON text ("" where there is none); None where it is no call."""
    call = payload.get("toolUse")
    if not isinstance(call, dict):
        return None, ""
    rest = {name: value for name, value in call.items() if name != "input"}
    text = payload.get("input")
    if isinstance(text, str) and text:
        return rest, text
    return rest, encode(call["input"]).decode() if call.get("input") else ""


def tool_result_of(payload: dict[str, Any]) -> list[Any]:
    """What a result holds: parts of text and JSON, as deltas and bodies both have them."""
    result = payload.get("toolResult")
    content = result.get("content") if isinstance(result, dict) else None
    found = list(content) if isinstance(content, list) else []
    lines = payload.get("content")
    for line in lines.split("\n") if isinstance(lines, str) else ():
        try:
            said = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            continue
        found += said if isinstance(said, list) else ()
    return found


def whole_block(payload: dict[str, Any]) -> dict[str, Any]:
    """The block as it stands in a body."""
    call, text = tool_use_of(payload)
    if call is not None:
        return {"toolUse": {**call, "input": (json_value(text) if text else None) or {}}}
    result = payload.get("toolResult")
    if isinstance(result, dict):
        return {"toolResult": {**result, "content": tool_result_of(payload)}}
    return payload
