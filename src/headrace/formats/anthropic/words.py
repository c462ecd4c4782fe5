"""Anthropic's words and ours, as tables: names, stop reasons, kinds of content blocks.

The rule: every word of the wire that has a counterpart in the model is paired here and nowhere else. Reading keeps the
provider's own word beside ours (`Finish.raw`); writing takes the nearest word where Anthropic has none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from headrace.model.content import Extensions
from headrace.model.stop import StopReason

NAME = "anthropic"
VENDOR = "anthropic"
VERSION = "2023-06-01"
"""Value of the anthropic-version header: the only one there has been since the Messages API exists."""

STOP_REASONS: dict[str, StopReason] = {
    "end_turn": StopReason.END_TURN,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "max_tokens": StopReason.MAX_TOKENS,
    "model_context_window_exceeded": StopReason.CONTEXT_WINDOW,
    "tool_use": StopReason.TOOL_USE,
    "pause_turn": StopReason.PAUSE,
    "refusal": StopReason.REFUSAL,
    "compaction": StopReason.OTHER,
}

_STOP_WORDS: dict[StopReason, str] = {
    **{reason: word for word, reason in STOP_REASONS.items() if reason is not StopReason.OTHER},
    StopReason.CONTENT_FILTER: "refusal",
    StopReason.MALFORMED_TOOL_CALL: "end_turn",
    StopReason.OTHER: "end_turn",
}


def read_stop(word: str | None) -> StopReason:
    """Anthropic's stop_reason as ours."""
    return STOP_REASONS.get(word or "", StopReason.OTHER)


def write_stop(reason: StopReason | None, raw: str | None, *, tool_called: bool, refused: bool) -> str | None:
    """Our stop reason as Anthropic's; None where the provider gave none.

    Derived from the content where a provider says only "stop" (DOSSIER P-22): Anthropic's clients run tools on
    `tool_use` alone, and a refusal is told by `refusal`.
    """
    if reason in (StopReason.END_TURN, StopReason.OTHER, None):
        if tool_called:
            return "tool_use"
        if refused:
            return "refusal"
        if reason is None:
            return None
        if reason is StopReason.OTHER and raw in STOP_REASONS:
            return raw
    return _STOP_WORDS[reason]


def opaque_role(block_type: str) -> str:
    """The role of a block that the model keeps whole (`Opaque.role`)."""
    if block_type.endswith("tool_use"):
        return "server_tool_call"
    if block_type.endswith("_tool_result"):
        return "server_tool_result"
    return "other"


def extras(found: Mapping[str, Any], known: Collection[str], vendor: str = VENDOR) -> Extensions | None:
    """What an object says beyond the fields we know, as extensions; None where there is nothing (null says nothing)."""
    rest = {key: value for key, value in found.items() if value is not None and key not in known}
    return {vendor: rest} if rest else None


def own(extensions: Extensions | None, vendor: str = VENDOR) -> dict[str, Any]:
    """The fields that extensions hold for a vendor ({} where there are none)."""
    fields = (extensions or {}).get(vendor)
    return fields if isinstance(fields, dict) else {}
