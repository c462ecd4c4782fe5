"""The order in which candidates are asked: as they stand, or drawn by weight. Pure; chance comes from outside."""

from __future__ import annotations

import random
from collections.abc import Sequence


def by_weight(weights: Sequence[float], rng: random.Random) -> list[int]:
    """The positions in an order drawn by chance: each next one from those that are left, in proportion to its weight.

    Weight 0 means "only when all others have failed": those come last, as they stand.
    """
    left = [position for position, weight in enumerate(weights) if weight > 0]
    drawn: list[int] = []
    while left:
        (chosen,) = rng.choices(left, [weights[position] for position in left])
        left.remove(chosen)
        drawn.append(chosen)
    return drawn + [position for position, weight in enumerate(weights) if weight <= 0]
