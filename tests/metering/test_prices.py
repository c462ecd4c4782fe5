"""Costs against figures worked out by hand from the vendors' price lists, USD per million tokens."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import genai_prices
import pytest
from genai_prices.data_snapshot import get_snapshot

from headrace.metering.prices import OWN, SOURCE, Cost, ModelPrice, Prices
from headrace.model.usage import Usage

OURS = ModelPrice(input=1.0, output=10.0, cached=0.1, cache_write=2.0, reasoning=20.0)


COUNTS = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens")
LIBRARY_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "output_reasoning_tokens")


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


def test_the_worst_case_takes_each_token_at_its_dearest() -> None:
    prices = Prices({"m": OURS, "cheap": ModelPrice(input=1, output=10, cache_write=0.5, reasoning=5)})
    for model, usd in {"m": 10 * 2 + 3 * 20, "cheap": 10 * 1 + 3 * 10}.items():
        found = prices.worst_case(input_tokens=10, output_tokens=3, provider="p", vendor="x", model=model)
        assert found == Cost(pytest.approx(usd / 1e6), OWN)  # type: ignore[arg-type]  # a float
    assert prices.worst_case(input_tokens=1, output_tokens=1, provider="p", vendor="x", model="?") is None


@pytest.mark.parametrize(("prompt", "usd"), [(200_000, 0.25 + 0.01), (200_001, 0.5000025 + 0.015)])
def test_large_prompts_cost_more_in_all_their_tokens(prompt: int, usd: float) -> None:
    # gemini-2.5-pro: 1.25 and 10.00, above 200,000 tokens 2.50 and 15.00
    found = cost(Prices(), "google", "gemini-2.5-pro", input_tokens=prompt, output_tokens=1000)
    assert found == Cost(pytest.approx(usd, abs=1e-9), SOURCE)  # type: ignore[arg-type]  # a float


def test_prices_for_each_request_are_added_once() -> None:
    # perplexity sonar: 1.00 and 1.00, and 12 for a thousand requests
    found = cost(Prices(), "perplexity", "sonar", input_tokens=1000, output_tokens=100)
    assert found == Cost(pytest.approx(0.0131), SOURCE)  # type: ignore[arg-type]  # a float


def test_the_address_says_more_than_the_vendor() -> None:
    def asked(vendor: str, model: str, base_url: str) -> Cost | None:
        usage = Usage(input_tokens=1_000_000, output_tokens=0)
        return Prices().cost(usage, provider="p", vendor=vendor, model=model, base_url=base_url)

    groq = asked("groq", "llama-3.3-70b-versatile", "")
    assert groq is not None
    assert asked("openai", "llama-3.3-70b-versatile", "https://api.groq.com/openai/v1") == groq
    assert asked("openai", "gpt-4o", "https://api.groq.com/openai/v1") is None, "OpenAI's price, but not OpenAI"
    assert asked("openai", "gpt-4o", "http://proxy.internal/v1") == asked("openai", "gpt-4o", "")


def test_a_price_that_changes_is_found_within_a_minute() -> None:
    # o3: 10.00 until 2025-06-09, then 2.00
    day, seconds = datetime(2025, 6, 9, 23, 59, tzinfo=UTC), 0.0
    prices = Prices(now=lambda: day, clock=lambda: seconds)

    def asked() -> Cost | None:
        return cost(prices, "openai", "o3", input_tokens=1_000_000, output_tokens=0)

    assert asked() == Cost(10.0, SOURCE)
    day, seconds = datetime(2025, 6, 10, 0, 0, tzinfo=UTC), 61.0
    assert asked() == Cost(2.0, SOURCE)


def test_every_model_costs_what_the_library_says() -> None:
    """Each of the library's models, at sizes on both sides of the tiers, against the library's own addition."""
    now = datetime(2026, 7, 1, 17, tzinfo=UTC)
    prices, compared, wrong = Prices(now=lambda: now), 0, []
    for provider in get_snapshot().providers:
        for entry in provider.models:
            if provider.find_model(entry.id) is not entry:
                continue  # shadowed by another entry, or found by other names only
            for counts in ((1000, 100, 0, 0, 0), (1000, 100, 200, 300, 50), (300_000, 5000, 1000, 2000, 100)):
                named: dict[str, Any] = dict(zip(COUNTS, counts, strict=True))
                usage = Usage(**named)
                ours = prices.cost(usage, provider="p", vendor=provider.id, model=entry.id)
                if ours is None:
                    continue  # a kind without a price: the library takes it for nothing
                theirs = entry.calc_price(
                    genai_prices.Usage(**dict(zip(LIBRARY_COUNTS, counts, strict=True))),
                    provider,
                    genai_request_timestamp=now,
                ).total_price
                compared += 1
                if ours.usd != pytest.approx(float(theirs), abs=1e-9):
                    wrong.append((provider.id, entry.id, counts, ours.usd, theirs))
    assert not wrong
    assert compared > 3000


def test_names_that_callers_make_up_do_not_pile_up() -> None:
    prices, snapshot = Prices(), get_snapshot()
    before = len(snapshot._lookup_cache) + len(snapshot._provider_cache) + len(snapshot._provider_misses)
    for number in range(5000):
        assert cost(prices, "openai", f"made-up-{number}", input_tokens=1, output_tokens=1) is None
    after = len(snapshot._lookup_cache) + len(snapshot._provider_cache) + len(snapshot._provider_misses)
    assert after == before
    assert len(prices._known) <= 4096
