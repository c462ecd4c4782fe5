"""Ollama's vocabulary: names, why an answer ended, times, and the counts of the last line.

`done_reason` is an open word there: Ollama itself says `stop`, `length`, `load` and `unload`. What it has no case for and
a caller should still see (a filter's cut, a refusal) is said in the words that its OpenAI dialect would use.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from headrace.model.stop import StopReason
from headrace.model.usage import Usage

NAME = "ollama"
VENDOR = "ollama"

_S = StopReason

_READ = {
    "": _S.END_TURN,
    "stop": _S.END_TURN,
    "length": _S.MAX_TOKENS,
    "tool_calls": _S.TOOL_USE,
    "content_filter": _S.CONTENT_FILTER,
    "refusal": _S.REFUSAL,
}

_WRITE = {
    _S.MAX_TOKENS: "length",
    _S.CONTEXT_WINDOW: "length",
    _S.CONTENT_FILTER: "content_filter",
    _S.REFUSAL: "refusal",
}

DURATIONS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
"""Fields of the last line, in nanoseconds."""

_TIME = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)?", re.IGNORECASE)


def read_stop(raw: str, *, called: bool) -> StopReason:
    """Ollama says `stop` after tool calls too."""
    reason = _READ.get(raw, _S.OTHER)
    return _S.TOOL_USE if reason is _S.END_TURN and called else reason


def write_stop(reason: StopReason | None) -> str:
    return "stop" if reason is None else _WRITE.get(reason, "stop")


def read_time(text: str) -> int:
    """An RFC 3339 time as Unix seconds; 0 where it is none."""
    found = _TIME.fullmatch(text)
    if found is None:
        return 0
    offset = found[2] or "Z"
    try:
        seconds = datetime.fromisoformat(found[1] + ("+00:00" if offset in "Zz" else offset)).timestamp()
    except (ValueError, OverflowError):
        return 0
    return max(0, int(seconds))


def write_time(seconds: int) -> str:
    """Unix seconds as Ollama writes times."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return "1970-01-01T00:00:00Z"


def read_usage(prompt: Any, cached: Any, output: Any) -> Usage | None:
    """The counts of the last line; each may be absent. Cached tokens are part of the prompt's."""
    counts = [count_of(value) for value in (prompt, cached, output)]
    if all(count is None for count in counts):
        return None
    return Usage(input_tokens=counts[0], cached_tokens=counts[1], output_tokens=counts[2])


def write_counts(usage: Usage | None, own: dict[str, Any]) -> dict[str, Any]:
    """Durations and counts of the last line, all numbers: clients reckon with them. `own`: what an Ollama server has said
    of its durations; nobody else tells them, and then they are 0."""
    known = {name: count_of(own.get(name)) or 0 for name in DURATIONS}
    usage = usage or Usage()
    counts: dict[str, Any] = {
        "total_duration": known["total_duration"],
        "load_duration": known["load_duration"],
        "prompt_eval_count": usage.input_tokens or 0,
        "prompt_eval_duration": known["prompt_eval_duration"],
        "eval_count": usage.output_tokens or 0,
        "eval_duration": known["eval_duration"],
    }
    if usage.cached_tokens:
        counts["prompt_eval_cached_count"] = usage.cached_tokens
    return counts


def count_of(value: Any) -> int | None:
    """A count or a duration; None where it is none."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**63:
        return int(value)
    return None
