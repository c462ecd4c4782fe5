"""Finish reasons and usage in the gateway format's words.

LLM-005 names no finish reasons: written are the model's (end_turn, max_tokens, tool_use ...), with the provider's own word
beside them; read are also the words that OpenAI made common.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.formats.standard.extensions import from_wire, to_wire
from headrace.formats.standard.usage import cost_of, parts_of, read_usage
from headrace.model import events as ev
from headrace.model.stop import StopReason
from headrace.model.usage import Usage

_REASONS: dict[str, StopReason] = {
    **{reason.value: reason for reason in StopReason},
    "stop": StopReason.END_TURN,
    "length": StopReason.MAX_TOKENS,
    "tool_calls": StopReason.TOOL_USE,
}


def write_finish(finish: ev.Finish) -> dict[str, Any]:
    """finish_reason, provider_finish_reason and stop_sequence."""
    fields: dict[str, Any] = {"finish_reason": finish.reason.value}
    if finish.raw is not None and finish.raw != finish.reason.value:
        fields["provider_finish_reason"] = finish.raw
    if finish.stop_sequence is not None:
        fields["stop_sequence"] = finish.stop_sequence
    return fields


def read_finish(fields: Mapping[str, Any], choice: int) -> ev.Finish | None:
    """The inverse; None where nothing is said."""
    said = fields.get("finish_reason")
    if not isinstance(said, str) or not said:
        return None
    raw, sequence, extensions = (fields.get(name) for name in ("provider_finish_reason", "stop_sequence", "extensions"))
    return ev.Finish(
        choice=choice,
        reason=_REASONS.get(said, StopReason.OTHER),
        raw=raw if isinstance(raw, str) else said,
        stop_sequence=sequence if isinstance(sequence, str) else None,
        extensions=from_wire(extensions) if isinstance(extensions, dict) else None,
    )


def write_usage(usage: Usage | None, *, final: bool) -> dict[str, Any]:
    """Counts and cost, those that are known; the final ones with their total."""
    if usage is None:
        return {}
    counts = {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}
    fields: dict[str, Any] = {name: value for name, value in counts.items() if value is not None}
    fields |= parts_of(usage)
    if final and usage.total_tokens is not None:
        fields["total_tokens"] = usage.total_tokens
    fields |= cost_of(usage)
    if usage.vendor:
        fields["extensions"] = to_wire(usage.vendor)
    return fields


def read_usage_object(fields: Any) -> Usage | None:
    """The inverse; None for what is no object or an empty one."""
    if not isinstance(fields, dict) or not fields:
        return None
    extensions = fields.get("extensions")
    return read_usage(
        fields.get("prompt_tokens"),
        fields.get("completion_tokens"),
        fields,
        extensions if isinstance(extensions, dict) else None,
    )
