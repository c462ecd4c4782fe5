"""Costs against figures worked out by hand from the vendors' price lists, USD per million tokens."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.metering.prices import OWN, SOURCE, Cost, ModelPrice, Prices
from headrace.model.usage import Usage

OURS = ModelPrice(input=1.0, output=10.0, cached=0.1, cache_write=2.0, reasoning=20.0)


def cost(prices: Prices, vendor: str, model: str, **counts: Any) -> Cost | None:
    return prices.cost(Usage(**counts), provider="p", vendor=vendor, model=model)


@pytest.mark.parametrize(
    ("vendor", "model", "counts", "usd"),
    [
        # 800 at 2.50, 200 cached at 1.25, 100 out at 10.00
        ("openai", "gpt-4o", {"input_tokens": 1000, "output_tokens": 100, "cached_tokens": 200}, 0.00325),
        ("openai", "gpt-4o", {"input_tokens": 1000, "output_tokens": 100, "reasoning_tokens": 60}, 0.0035),
        ("openai", "gpt-4o", {"input_tokens": 0, "output_tokens": 0}, 0.0),
        # a price that changed on a day in the past: 800 at 2.00, 200 cached at 0.50, 100 out at 8.00
        ("openai", "o3", {"input_tokens": 1000, "output_tokens": 100, "cached_tokens": 200}, 0.0025),
        # prices by size: 700 at 3.00, 200 cached at 0.30, 100 written at 3.75, 100 out at 15.00
        (
            "anthropic",
            "claude-sonnet-4-5",
            {"input_tokens": 1000, "output_tokens": 100, "cached_tokens": 200, "cache_write_tokens": 100},
            0.004035,
        ),
    ],
)
def test_published_prices(vendor: str, model: str, counts: dict[str, int], usd: float) -> None:
    prices = Prices()
    for _ in range(2):  # the second time from what was kept of the first
        found = cost(prices, vendor, model, **counts)
        assert found == Cost(pytest.approx(usd, abs=1e-12), SOURCE)  # type: ignore[arg-type]  # stands for a float


@pytest.mark.parametrize(
    ("vendor", "model"), [("openai", "no-such-model"), ("vllm", "gpt-4o"), ("", ""), ("openai", "a" * 5000)]
)
def test_an_unknown_price_is_absent(vendor: str, model: str) -> None:
    assert cost(Prices(), vendor, model, input_tokens=10, output_tokens=10) is None


@pytest.mark.parametrize("counts", [{}, {"input_tokens": 5}, {"output_tokens": 5}])
def test_unknown_counts_have_no_cost(counts: dict[str, int]) -> None:
    assert cost(Prices(), "openai", "gpt-4o", **counts) is None


def test_own_prices_go_first_and_each_kind_is_counted_once() -> None:
    prices = Prices({"p/gpt-4o": OURS})
    counts = {"input_tokens": 100, "output_tokens": 50, "cached_tokens": 30, "cache_write_tokens": 20}
    found = cost(prices, "openai", "gpt-4o", **counts, reasoning_tokens=40)
    assert found == Cost(pytest.approx((50 * 1 + 30 * 0.1 + 20 * 2 + 10 * 10 + 40 * 20) / 1e6), OWN)  # type: ignore[arg-type]  # a float
    assert prices.cost(Usage(input_tokens=1, output_tokens=0), provider="q", vendor="openai", model="gpt-4o") == Cost(
        pytest.approx(2.5e-6),  # type: ignore[arg-type]  # a float
        SOURCE,
    ), "another provider's model of that name has its published price"
    assert cost(Prices({"gpt-4o": OURS}), "x", "gpt-4o", input_tokens=1, output_tokens=0) == Cost(1e-6, OWN)


def test_kinds_without_a_price_cost_what_contains_them() -> None:
    prices = Prices({"m": ModelPrice(input=1, output=10)})
    found = cost(prices, "x", "m", input_tokens=10, output_tokens=10, cached_tokens=10, reasoning_tokens=10)
    assert found == Cost(pytest.approx(110 / 1e6), OWN)  # type: ignore[arg-type]  # a float


def test_the_worst_case_takes_nothing_from_a_cache() -> None:
    found = Prices({"m": OURS}).worst_case(input_tokens=10, output_tokens=3, provider="p", vendor="x", model="m")
    assert found == Cost(pytest.approx(40 / 1e6), OWN)  # type: ignore[arg-type]  # a float
