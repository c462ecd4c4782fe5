"""The draft's four stop reasons, to and from the model's."""

from __future__ import annotations

from headrace.model.stop import StopReason

_S = StopReason

END_TURN = "end_turn"
TOOL_USE = "tool_use"
CONTENT_FILTER = "content_filter"

WORDS: dict[StopReason, str] = {
    _S.END_TURN: END_TURN,
    _S.STOP_SEQUENCE: END_TURN,
    _S.MAX_TOKENS: "max_tokens",
    _S.CONTEXT_WINDOW: "max_tokens",
    _S.TOOL_USE: TOOL_USE,
    _S.CONTENT_FILTER: CONTENT_FILTER,
    _S.REFUSAL: CONTENT_FILTER,
    _S.PAUSE: END_TURN,
    _S.MALFORMED_TOOL_CALL: END_TURN,
    _S.OTHER: END_TURN,
}

REASONS: dict[str, StopReason] = {
    END_TURN: _S.END_TURN,
    "max_tokens": _S.MAX_TOKENS,
    TOOL_USE: _S.TOOL_USE,
    CONTENT_FILTER: _S.CONTENT_FILTER,
}
"""Any other word is OTHER."""

_REASONS_BY_NAME = {reason.value: reason for reason in StopReason}


def reason_named(name: object) -> StopReason | None:
    """The model's reason of that name, or None."""
    return _REASONS_BY_NAME.get(name) if isinstance(name, str) else None
