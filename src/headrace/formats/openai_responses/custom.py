"""Custom tools: their input is free text, where everybody else's calls have JSON arguments.

In the model such a call has the arguments `{"input": TEXT}`; a mark in its extensions, or the request's list of tools, says
that it is one, so that it becomes free text again on its way back.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.formats.json import encode
from headrace.model.content import ToolCall
from headrace.model.request import Request, VendorTool

from .words import OWN

MARK: dict[str, Any] = {OWN: {"custom": True}}
"""A call's extensions."""

OPENING = '{"input":"'
CLOSING = '"}'


def escaped(text: str) -> str:
    """A piece of the input as it stands in the arguments."""
    return encode(text)[1:-1].decode()


def wrapped(text: str) -> str:
    return OPENING + escaped(text) + CLOSING


def unwrapped(arguments: str) -> str:
    """The input; arguments of another shape are themselves the input."""
    try:
        said = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return arguments
    text = said.get("input") if isinstance(said, dict) and len(said) == 1 else None
    return text if isinstance(text, str) else arguments


def is_marked(extensions: dict[str, Any] | None) -> bool:
    own = (extensions or {}).get(OWN)
    return isinstance(own, dict) and own.get("custom") is True


def custom_names(request: Request | None) -> frozenset[str]:
    """Names of the custom tools that a request declares."""
    if request is None:
        return frozenset()
    payloads = [tool.payload for tool in request.tools if isinstance(tool, VendorTool) and tool.vendor == OWN]
    return frozenset([str(payload.get("name")) for payload in payloads if payload.get("type") == "custom"])


def is_custom(call: ToolCall, names: frozenset[str]) -> bool:
    return is_marked(call.extensions) or call.name in names
