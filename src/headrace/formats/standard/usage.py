"""Token counts on the wire of both formats. The totals have each format's own names, the parts beside them are the same.

Inputs include cache reads and writes, outputs include reasoning (spec/gateway.md, "Usage and cost"): the model's normal form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.model.usage import Usage

from .extensions import from_wire

_PARTS = ("cached_tokens", "cache_write_tokens", "reasoning_tokens")


def parts_of(usage: Usage) -> dict[str, Any]:
    """The parts of the totals that are known."""
    return {name: value for name in _PARTS if (value := getattr(usage, name)) is not None}


def cost_of(usage: Usage) -> dict[str, Any]:
    """cost_usd where known, and `estimated` where the counts are."""
    fields: dict[str, Any] = {}
    if usage.cost_usd is not None:
        fields["cost_usd"] = usage.cost_usd
    if usage.estimated:
        fields["estimated"] = True
    return fields


def read_usage(
    input_tokens: Any, output_tokens: Any, fields: Mapping[str, Any], extensions: Mapping[str, Any] | None
) -> Usage:
    """Usage of totals, an object with the parts, and vendors' own counts. What is no count is taken as not said."""
    cost = fields.get("cost_usd")
    return Usage(
        input_tokens=_count(input_tokens),
        output_tokens=_count(output_tokens),
        **{name: _count(fields.get(name)) for name in _PARTS},
        cost_usd=float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None,
        estimated=fields.get("estimated") is True,
        vendor=from_wire(extensions),
    )


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < 2**63 else None
