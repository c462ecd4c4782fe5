"""Token counts: Anthropic's convention (input without cached tokens) to and from the normal form (input with them).

The rule: objects of one stream are merged in Anthropic's own fields first and converted afterwards, once. Merged in the
normal form, a last object that repeats the cache counts as 0 would take them out of the input but leave them beside it.
A later zero or null never erases a count. Fields we have no word for stay in `Usage.vendor`.
"""

from __future__ import annotations

from typing import Any

from headrace.model.usage import Usage

from .words import VENDOR

_COUNTS = frozenset({"input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"})
_DETAILS = "output_tokens_details"
_THINKING = "thinking_tokens"


class UsageTally:
    """The usage objects of one answer. `cache_included`: a compatible server whose input_tokens holds cached ones too."""

    __slots__ = ("_cache_included", "_raw", "_vendor")

    def __init__(self, vendor: str = VENDOR, *, cache_included: bool = False) -> None:
        self._vendor = vendor
        self._cache_included = cache_included
        self._raw: dict[str, Any] = {}

    def add(self, usage: object) -> Usage | None:
        """The counts so far, with this object's overlaid; None where it is no usage object."""
        if not isinstance(usage, dict):
            return None
        self._raw = _overlay(self._raw, usage)
        return self.total()

    def total(self) -> Usage | None:
        """The counts so far; None where nothing was said."""
        raw = self._raw
        if not raw:
            return None
        fresh, output = _count(raw.get("input_tokens")), _count(raw.get("output_tokens"))
        cached, written = _count(raw.get("cache_read_input_tokens")), _count(raw.get("cache_creation_input_tokens"))
        beside = 0 if self._cache_included else (cached or 0) + (written or 0)
        details = raw.get(_DETAILS)
        vendor = {key: value for key, value in raw.items() if key not in _COUNTS}
        return Usage(
            input_tokens=None if fresh is None else fresh + beside,
            output_tokens=output,
            cached_tokens=cached,
            cache_write_tokens=written,
            reasoning_tokens=_count(details.get(_THINKING)) if isinstance(details, dict) else None,
            vendor={self._vendor: vendor} if vendor else None,
        )


def read_usage(usage: object, vendor: str = VENDOR, *, cache_included: bool = False) -> Usage | None:
    """The usage object of a whole answer."""
    return UsageTally(vendor, cache_included=cache_included).add(usage)


def write_usage(usage: Usage | None) -> dict[str, Any]:
    """Anthropic's usage object. All four counts are always there, since its clients add them up; 0 where unknown."""
    usage = usage or Usage()
    cached, written = usage.cached_tokens or 0, usage.cache_write_tokens or 0
    vendor = (usage.vendor or {}).get(VENDOR)
    body: dict[str, Any] = {
        "input_tokens": max(0, (usage.input_tokens or 0) - cached - written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.output_tokens or 0,
    }
    if isinstance(vendor, dict):
        body |= {key: value for key, value in vendor.items() if key not in _COUNTS}
    if usage.reasoning_tokens is not None:
        details = body.get(_DETAILS)
        body[_DETAILS] = {**(details if isinstance(details, dict) else {}), _THINKING: usage.reasoning_tokens}
    return body


def _overlay(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            merged[key] = _overlay(before, value)
        elif value or (value is not None and not before):
            merged[key] = value
    return merged


def _count(value: object) -> int | None:
    """A token count. Numbers only; a compatible server's 12.0 is 12, its -1 ("unknown") is nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**63:
        return None
    return int(value)
