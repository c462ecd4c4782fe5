"""Finish reasons: every word the OpenAI-compatible family uses, and the five that OpenAI's own clients know."""

from __future__ import annotations

from headrace.model.stop import StopReason

_S = StopReason

_READ: dict[str, StopReason] = {
    "stop": _S.END_TURN,
    "eos": _S.END_TURN,
    "eos_token": _S.END_TURN,
    "end_turn": _S.END_TURN,
    "complete": _S.END_TURN,
    "stop_sequence": _S.STOP_SEQUENCE,
    "length": _S.MAX_TOKENS,
    "max_tokens": _S.MAX_TOKENS,
    "model_length": _S.CONTEXT_WINDOW,
    "model_context_window_exceeded": _S.CONTEXT_WINDOW,
    "tool_calls": _S.TOOL_USE,
    "tool_call": _S.TOOL_USE,
    "tool_use": _S.TOOL_USE,
    "function_call": _S.TOOL_USE,
    "content_filter": _S.CONTENT_FILTER,
    "content_filtered": _S.CONTENT_FILTER,
    "sensitive": _S.CONTENT_FILTER,
    "safety": _S.CONTENT_FILTER,
    "recitation": _S.CONTENT_FILTER,
    "refusal": _S.REFUSAL,
    "malformed_function_call": _S.MALFORMED_TOOL_CALL,
}

FAILURES = frozenset({"error", "abort", "aborted", "insufficient_system_resource", "network_error"})
"""Finish reasons that say that the provider broke off: the stream has failed, whatever marker follows."""

_WRITE: dict[StopReason, str] = {
    _S.END_TURN: "stop",
    _S.STOP_SEQUENCE: "stop",
    _S.MAX_TOKENS: "length",
    _S.CONTEXT_WINDOW: "length",
    _S.TOOL_USE: "tool_calls",
    _S.CONTENT_FILTER: "content_filter",
    _S.REFUSAL: "content_filter",  # or "stop", where the choice holds the refusal's text
    _S.PAUSE: "stop",
    _S.MALFORMED_TOOL_CALL: "stop",
    _S.OTHER: "stop",
}

_KNOWN = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})
_BLURRED = frozenset({_S.STOP_SEQUENCE, _S.CONTEXT_WINDOW, _S.REFUSAL, _S.PAUSE, _S.MALFORMED_TOOL_CALL, _S.OTHER})


def read_stop(raw: str, *, calls: bool = False, refused: bool = False) -> StopReason:
    """A provider's word. `calls` and `refused`: the choice made tool calls, held refusal text.

    Many servers say "stop" after tool calls; OpenAI says it after a refusal.
    """
    reason = _READ.get(raw.lower(), _S.OTHER)
    if reason is _S.END_TURN:
        if calls:
            return _S.TOOL_USE
        if refused:
            return _S.REFUSAL
    return reason


def write_stop(reason: StopReason, *, refused: bool = False) -> str:
    """One of OpenAI's words. `refused`: the choice holds refusal text, which OpenAI ends with "stop"."""
    return "stop" if refused and reason is _S.REFUSAL else _WRITE[reason]


def native_stop(reason: StopReason, raw: str | None) -> str | None:
    """The provider's own word, where OpenAI's blurs it (then it goes into `native_finish_reason`)."""
    return raw if raw and reason in _BLURRED and raw not in _KNOWN else None
