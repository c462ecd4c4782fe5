"""What tokens cost: the configuration's own prices, else the data that comes with genai-prices. Nothing is fetched.

The rule: an unknown price is None and never zero. Each token is counted once at the price of its kind: input that was
read from a cache, input that was written to one, other input, output. genai-prices is asked with its own convention (the
same as ours: input includes the cache's parts). Where a model's price is one flat price for each kind, which is most, its
unit prices are asked for once and kept; prices that depend on the size of the prompt or the time of day are worked out
by the library each time (0.1 ms).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import genai_prices
import msgspec
from genai_prices.types import ModelPrice as _LibraryPrice
from genai_prices.types import TieredPrices

from headrace.model.usage import Usage

SOURCE = f"genai-prices {genai_prices.__version__}"
OWN = "configuration"

_MILLION = 1_000_000
_KEPT = 4096

_PROVIDERS: Mapping[str, str] = {
    # our vendors whose models genai-prices has under another name
    "bedrock": "aws",
    "azure_openai": "azure",
    "gemini": "google",
    "vertex": "google",
    "xai": "x-ai",
    "fireworks_ai": "fireworks",
}


class ModelPrice(msgspec.Struct, frozen=True, kw_only=True):
    """USD for a million tokens. None: as the kind that contains it (`input`, `output`)."""

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None
    reasoning: float | None = None


class Cost(NamedTuple):
    usd: float
    source: str
    """Which data, and its version."""


class Prices:
    """`overrides` by "provider/model", or by "model" for any provider."""

    def __init__(self, overrides: Mapping[str, ModelPrice] | None = None) -> None:
        self._overrides = dict(overrides or {})
        self._units: dict[tuple[str, str, str], ModelPrice | None] = {}
        self._tiered: set[tuple[str, str, str]] = set()

    def cost(self, usage: Usage, *, provider: str, vendor: str, model: str, base_url: str = "") -> Cost | None:
        """Of counts in the normal form. None where the price or the counts are not known."""
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        own = self._overrides.get(f"{provider}/{model}") or self._overrides.get(model)
        if own is not None:
            return Cost(_linear(own, usage), OWN)
        key = (vendor, model, base_url)
        if key in self._tiered:
            found = _ask(key, usage)
            return None if found is None else Cost(found, SOURCE)
        if key not in self._units:
            if len(self._units) >= _KEPT:
                self._units.clear()
            self._units[key] = self._find(key)
            return self.cost(usage, provider=provider, vendor=vendor, model=model, base_url=base_url)
        units = self._units[key]
        return None if units is None else Cost(_linear(units, usage), SOURCE)

    def worst_case(
        self, *, input_tokens: int, output_tokens: int, provider: str, vendor: str, model: str, base_url: str = ""
    ) -> Cost | None:
        """Of a request that was not answered yet: nothing comes from a cache, and all that is allowed is said."""
        usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
        return self.cost(usage, provider=provider, vendor=vendor, model=model, base_url=base_url)

    def _find(self, key: tuple[str, str, str]) -> ModelPrice | None:
        """The unit prices of a model; None where it is unknown or has none (then it may be in `_tiered`)."""
        price = _library_price(key)
        if price is None:
            return None
        if not _is_flat(price):
            self._tiered.add(key)
            return None
        million = _MILLION
        probes = {
            "input": Usage(input_tokens=million, output_tokens=0),
            "cached": Usage(input_tokens=million, output_tokens=0, cached_tokens=million),
            "cache_write": Usage(input_tokens=million, output_tokens=0, cache_write_tokens=million),
            "output": Usage(input_tokens=0, output_tokens=million),
        }
        found = {name: _ask(key, usage) for name, usage in probes.items()}
        plain, output = found["input"], found["output"]
        if plain is None or output is None:
            return None
        return ModelPrice(input=plain, output=output, cached=found["cached"], cache_write=found["cache_write"])


def _linear(price: ModelPrice, usage: Usage) -> float:
    cached, written = usage.cached_tokens or 0, usage.cache_write_tokens or 0
    reasoning = usage.reasoning_tokens or 0
    plain = max(0, (usage.input_tokens or 0) - cached - written)
    said = max(0, (usage.output_tokens or 0) - reasoning)
    micros = (
        plain * price.input
        + cached * (price.input if price.cached is None else price.cached)
        + written * (price.input if price.cache_write is None else price.cache_write)
        + said * price.output
        + reasoning * (price.output if price.reasoning is None else price.reasoning)
    )
    return round(micros / _MILLION, 12)


def _library_price(key: tuple[str, str, str]) -> Any:
    """The library's price of a model; None where it knows none, or several that depend on the time."""
    try:
        return _calculate(key, Usage(input_tokens=1, output_tokens=1)).model.prices
    except (LookupError, ValueError):
        return None


def _is_flat(price: Any) -> bool:
    return isinstance(price, _LibraryPrice) and not any(
        isinstance(value, TieredPrices) for value in vars(price).values()
    )


def _ask(key: tuple[str, str, str], usage: Usage) -> float | None:
    try:
        return float(_calculate(key, usage).total_price)
    except (LookupError, ValueError):
        return None


def _calculate(key: tuple[str, str, str], usage: Usage) -> Any:
    """Raises LookupError for what the library does not know, ValueError for counts that make no sense."""
    vendor, model, base_url = key
    counts: dict[str, int | Decimal | float | None] = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cached_tokens or None,
        "cache_write_tokens": usage.cache_write_tokens or None,
    }
    asked = genai_prices.Usage(**{name: value for name, value in counts.items() if value is not None})
    provider = _PROVIDERS.get(vendor, vendor)
    try:
        return genai_prices.calc_price(asked, model, provider_id=provider)
    except LookupError:
        if not base_url:
            raise
        return genai_prices.calc_price(asked, model, provider_api_url=base_url)
