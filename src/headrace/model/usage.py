"""Token counts in one normal form that counts each token once (spec/gateway.md, "Usage and cost").

`input_tokens` includes cache reads and cache writes, `output_tokens` includes reasoning; the parts are named beside the
totals. Every format converts to and from its own convention exactly once, at its edge. None means "not said".
"""

from __future__ import annotations

from typing import Any

import msgspec


class Usage(msgspec.Struct, kw_only=True):
    """Counts of one response, in tokens. `vendor` keeps what a provider says beyond these, under its vendor's name."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    """Part of input_tokens: served from the provider's prompt cache."""
    cache_write_tokens: int | None = None
    """Part of input_tokens: written to the provider's prompt cache."""
    reasoning_tokens: int | None = None
    """Part of output_tokens."""
    cost_usd: float | None = None
    estimated: bool = False
    vendor: dict[str, Any] | None = None

    @property
    def total_tokens(self) -> int | None:
        """input + output, or None where neither is known."""
        if self.input_tokens is None and self.output_tokens is None:
            return None
        return (self.input_tokens or 0) + (self.output_tokens or 0)

    def merge(self, later: Usage) -> Usage:
        """This snapshot overlaid with a later, cumulative one: per field, never summed.

        A later zero or absence never erases a positive count: providers repeat fields they no longer know as 0.
        """
        merged = {name: _later(getattr(self, name), getattr(later, name)) for name in _COUNTS}
        vendor = self.vendor
        if later.vendor:
            vendor = {**(vendor or {}), **later.vendor}
        return Usage(**merged, estimated=later.estimated, vendor=vendor)


_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cost_usd",
)


def _later(old: float | None, new: float | None) -> Any:
    return old if new is None or (not new and old) else new
