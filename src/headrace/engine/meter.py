"""What an attempt consumed: the provider's own counts where it gave them, estimates where not. Pure.

The rule: a real count always replaces an estimate, field by field; the quality says which of the two it is. An attempt
whose provider never began to answer consumed nothing that anybody could count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from headrace.engine.commands import Quality
from headrace.engine.settings import Upstream
from headrace.model.errors import ErrorInfo
from headrace.model.usage import Usage


class Meter(Protocol):
    """Counts and prices. Nothing here waits for anything."""

    def prompt_tokens(self, upstream: Upstream) -> int:
        """An estimate of the request's tokens. Asked for only where the provider did not say."""

    def output_tokens(self, upstream: Upstream, texts: Sequence[str]) -> int:
        """An estimate of the tokens of these consecutive pieces of output."""

    def cost(self, upstream: Upstream, usage: Usage) -> float | None:
        """USD; None where the price is not known."""

    def exceeded(self, upstream: Upstream, output_tokens: int) -> ErrorInfo | None:
        """The error of a budget that so much output has used up. Asked only where `limited`."""

    limited: bool
    """Whether there is a budget that output may use up."""


def settle(
    meter: Meter, upstream: Upstream, reported: Usage | None, output_tokens: int, *, complete: bool
) -> tuple[Usage, Quality]:
    """The final counts of an attempt. `output_tokens` is the estimate of what came; `complete`: the answer did."""
    usage = Usage() if reported is None else reported
    known_input, known_output = usage.input_tokens, usage.output_tokens
    output_is_whole = complete and known_output is not None
    if known_input is not None and output_is_whole:
        quality: Quality = "exact"
    else:
        quality = "estimated" if known_input is None and not known_output else "partial"
        usage = msgspec.structs.replace(
            usage,
            input_tokens=meter.prompt_tokens(upstream) if known_input is None else known_input,
            output_tokens=known_output if output_is_whole else max(known_output or 0, output_tokens),
            estimated=True,
        )
    cost = meter.cost(upstream, usage)
    if cost is not None:
        usage = msgspec.structs.replace(usage, cost_usd=cost)
    return usage, quality
