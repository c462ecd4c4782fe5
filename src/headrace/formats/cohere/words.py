"""What all of this format's codecs share: its names, finish reasons, token counts, errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.formats.json import count_of, encode
from headrace.formats.openai_chat.errors import error_info
from headrace.formats.openai_chat.errors import read_error as read_any
from headrace.model.errors import ErrorCode, ErrorInfo
from headrace.model.stop import StopReason
from headrace.model.usage import Usage

NAME = "cohere"
VENDOR = "cohere"

PLAN: dict[str, Any] = {VENDOR: {"tool_plan": True}}
"""Extensions of a text that is the plan before tool calls: it goes back into `tool_plan`."""

_S = StopReason
_READ: dict[str, StopReason] = {
    "COMPLETE": _S.END_TURN,
    "STOP_SEQUENCE": _S.STOP_SEQUENCE,
    "MAX_TOKENS": _S.MAX_TOKENS,
    "TOOL_CALL": _S.TOOL_USE,
    "ERROR_LIMIT": _S.CONTEXT_WINDOW,
    "ERROR_TOXIC": _S.CONTENT_FILTER,
}
FAILURES = frozenset({"ERROR", "TIMEOUT", "USER_CANCEL"})
"""Finish reasons that say that the answer broke off."""
_WRITE: dict[StopReason, str] = {
    _S.STOP_SEQUENCE: "STOP_SEQUENCE",
    _S.MAX_TOKENS: "MAX_TOKENS",
    _S.CONTEXT_WINDOW: "MAX_TOKENS",
    _S.TOOL_USE: "TOOL_CALL",
}


def read_stop(raw: str, *, called: bool = False) -> StopReason:
    """`called`: there are tool calls in the answer, which some servers end like any other."""
    reason = _READ.get(raw, _S.OTHER)
    return _S.TOOL_USE if called and reason is _S.END_TURN else reason


def write_stop(reason: StopReason, *, called: bool = False) -> str:
    """`called`: there is a tool call in the answer, which Cohere's clients look for where it says so."""
    word = _WRITE.get(reason, "COMPLETE")
    return "TOOL_CALL" if called and word == "COMPLETE" else word


def is_plan(extensions: dict[str, Any] | None) -> bool:
    own = (extensions or {}).get(VENDOR)
    return isinstance(own, dict) and own.get("tool_plan") is True


def read_usage(raw: Any, vendor: str) -> Usage | None:
    """`tokens` are the real counts; the charged ones (`billed_units`) are kept beside them."""
    if not isinstance(raw, dict):
        return None
    tokens, billed = raw.get("tokens"), raw.get("billed_units")
    counted = tokens if isinstance(tokens, dict) else billed
    if not isinstance(counted, dict):
        return None
    extra = {"billed_units": billed} if isinstance(billed, dict) and counted is not billed else None
    return Usage(
        input_tokens=count_of(counted.get("input_tokens")),
        output_tokens=count_of(counted.get("output_tokens")),
        cached_tokens=count_of(raw.get("cached_tokens")),
        vendor={vendor: extra} if extra else None,
    )


def write_usage(usage: Usage) -> dict[str, Any]:
    tokens = {"input_tokens": usage.input_tokens or 0, "output_tokens": usage.output_tokens or 0}
    own = (usage.vendor or {}).get(VENDOR)
    billed = own.get("billed_units") if isinstance(own, dict) else None
    body: dict[str, Any] = {"billed_units": billed if isinstance(billed, dict) else tokens, "tokens": tokens}
    if usage.cached_tokens:
        body["cached_tokens"] = usage.cached_tokens
    return body


_OURS = frozenset(ErrorCode)


def error_in(error: Any, *, provider: str = "", status: int = 0) -> ErrorInfo:
    """What a provider's error object says, kept as Cohere's own words. `status`: the HTTP status, 0 inside a stream."""
    info = error_info(error, provider=provider or None, status=status)
    if not status and info.type is not None and info.type in _OURS:
        info.code = ErrorCode(info.type)  # another gateway's
    return _as_own(info)


def read_error(status: int, headers: Mapping[str, str], body: bytes) -> ErrorInfo:
    """A provider's HTTP error: `{"message": ...}`, or whatever it is. Never raises."""
    return _as_own(read_any(status, headers, body))


def _as_own(info: ErrorInfo) -> ErrorInfo:
    own = info.vendor_error
    if own is not None and isinstance(own.get("message"), str):
        info.vendor = VENDOR
    else:
        info.vendor = info.vendor_error = None  # not an error object of this format
    return info


def write_error(info: ErrorInfo) -> bytes:
    """`message`, which is all that Cohere says, and beside it our code, which no client minds."""
    if info.vendor == VENDOR and info.vendor_error is not None:
        return encode(info.vendor_error)
    return encode({"message": info.message, "code": info.code})
