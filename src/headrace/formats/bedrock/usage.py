"""Token counts: Bedrock's convention (input without cached tokens) to and from the normal form (input with them).

What we have no word for (`cacheDetails`, `serverToolUsage`) stays in `Usage.vendor`.
"""

from __future__ import annotations

from typing import Any

from headrace.model.usage import Usage

from .words import VENDOR

_COUNTS = frozenset(
    {"inputTokens", "outputTokens", "totalTokens", "cacheReadInputTokens", "cacheWriteInputTokens"}
    # said twice by some models, under the names that Converse had first
    | {"cacheReadInputTokenCount", "cacheWriteInputTokenCount"}
)


def read_usage(usage: object, vendor: str = VENDOR, *, cache_included: bool = False) -> Usage | None:
    """A `usage` object; None where it is none. `cache_included`: its inputTokens hold the cached ones."""
    if not isinstance(usage, dict) or not usage:
        return None
    fresh = _count(usage.get("inputTokens"))
    cached, written = _count(usage.get("cacheReadInputTokens")), _count(usage.get("cacheWriteInputTokens"))
    beside = 0 if cache_included else (cached or 0) + (written or 0)
    rest = {name: value for name, value in usage.items() if name not in _COUNTS and value not in (None, {}, [])}
    return Usage(
        input_tokens=None if fresh is None else fresh + beside,
        output_tokens=_count(usage.get("outputTokens")),
        cached_tokens=cached,
        cache_write_tokens=written,
        vendor={vendor: rest} if rest else None,
    )


def write_usage(usage: Usage | None) -> dict[str, Any]:
    """Bedrock's object. The three counts that its clients require are always there; 0 where unknown."""
    usage = usage or Usage()
    cached, written = usage.cached_tokens, usage.cache_write_tokens
    vendor = (usage.vendor or {}).get(VENDOR)
    body: dict[str, Any] = dict(vendor) if isinstance(vendor, dict) else {}
    body["inputTokens"] = max(0, (usage.input_tokens or 0) - (cached or 0) - (written or 0))
    body["outputTokens"] = usage.output_tokens or 0
    body["totalTokens"] = usage.total_tokens or 0
    if cached is not None:
        body["cacheReadInputTokens"] = cached
    if written is not None:
        body["cacheWriteInputTokens"] = written
    return body


def _count(value: object) -> int | None:
    """A token count; -1 ("unknown") and the like are none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**63:
        return None
    return int(value)
