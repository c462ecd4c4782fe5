"""What tokens cost: the configuration's own prices, else the data that comes with genai-prices. Nothing is fetched.

The rules: an unknown price is None and never zero; each token is counted once, at the price of its kind (input read from
a cache, input written to one, other input, reasoning, other output). Both sides count alike: input includes the cache's
parts, output includes reasoning.

Who is asked: the provider that genai-prices knows by the address, else the one it knows by the vendor's name. An address
tells more: many vendors speak OpenAI's format and bear its name as their default.

The library finds a model in a millisecond and adds up in 0.2; a request has no such time. Its unit prices are therefore
taken once for each model and added up here (2 µs). Prices that depend on the date or the hour are taken anew each
minute, which is the trade-off: a price that changes at midnight is used within a minute of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import NamedTuple

import genai_prices
import msgspec
from genai_prices.data_snapshot import find_provider_by_id, get_snapshot
from genai_prices.types import ModelInfo, Provider, TieredPrices
from genai_prices.types import ModelPrice as LibraryPrice

from headrace.model.usage import Usage

SOURCE = f"genai-prices {genai_prices.__version__}"
OWN = "configuration"

_MILLION = 1_000_000
_RENEW = 60.0
"""Seconds for which a price that depends on the time is kept."""

_KEPT = 4096
"""Models whose prices are kept. Callers choose names: when they are more, all are forgotten."""

_LONGEST_NAME = 256

_VENDORS: Mapping[str, str] = {
    # names of vendors in use, which the library does not recognise
    "bedrock": "aws",
    "azure_openai": "azure",
    "vertex": "google",
    "fireworks_ai": "fireworks",
    "kimi": "moonshotai",
    "moonshot": "moonshotai",
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


class _Units(NamedTuple):
    """USD for a million tokens of each kind, None where the kind has no price; `request`: USD for each request."""

    above: int
    """Of prompts with more tokens than this."""
    input: float | None
    cached: float | None
    cache_write: float | None
    output: float | None
    reasoning: float | None
    request: float = 0.0


class _Known(NamedTuple):
    tiers: tuple[_Units, ...]
    """The largest prompts first, the last for any; empty where the price is not known."""
    until: float
    """Monotonic seconds."""


class Prices:
    """`overrides` by "provider/model", or by "model" for any provider. `now`: the time that prices are asked for."""

    def __init__(
        self,
        overrides: Mapping[str, ModelPrice] | None = None,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._overrides = {name: _own(price) for name, price in (overrides or {}).items()}
        self._known: dict[tuple[str, str, str], _Known] = {}
        self._now = now
        self._clock = clock
        get_snapshot()  # read now, not while the first request waits

    def cost(self, usage: Usage, *, provider: str, vendor: str, model: str, base_url: str = "") -> Cost | None:
        """Of counts in the normal form. None where the price or the counts are not known."""
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        units, source = self._units(usage.input_tokens, provider, vendor, model, base_url)
        return None if units is None else _cost(units, usage, source)

    def worst_case(
        self, *, input_tokens: int, output_tokens: int, provider: str, vendor: str, model: str, base_url: str = ""
    ) -> Cost | None:
        """Of a request that was not answered yet: all the output that is allowed comes, and each token is of the kind
        that costs most (the prompt is written to a cache, the output is reasoning)."""
        units, source = self._units(input_tokens, provider, vendor, model, base_url)
        if units is None:
            return None
        if (units.cache_write or 0.0) > (units.input or 0.0):
            units = units._replace(input=units.cache_write)
        if (units.reasoning or 0.0) > (units.output or 0.0):
            units = units._replace(output=units.reasoning)
        return _cost(units, Usage(input_tokens=input_tokens, output_tokens=output_tokens), source)

    def _units(
        self, input_tokens: int, provider: str, vendor: str, model: str, base_url: str
    ) -> tuple[_Units | None, str]:
        if self._overrides:
            own = self._overrides.get(f"{provider}/{model}") or self._overrides.get(model)
            if own is not None:
                return own, OWN
        for units in self._published(vendor, model, base_url):
            if input_tokens > units.above:
                return units, SOURCE
        return None, SOURCE

    def _published(self, vendor: str, model: str, base_url: str) -> tuple[_Units, ...]:
        key = (vendor, model, base_url)
        known = self._known.get(key)
        if known is None or known.until <= self._clock():
            if len(self._known) >= _KEPT:
                self._known.clear()
            known = self._known[key] = self._find(key)
        return known.tiers

    def _find(self, key: tuple[str, str, str]) -> _Known:
        found = _model(*key)
        if found is None:
            return _Known((), float("inf"))
        until = float("inf") if isinstance(found.prices, LibraryPrice) else self._clock() + _RENEW
        return _Known(_tiers(found.get_prices(self._now())), until)


def _cost(units: _Units, usage: Usage, source: str) -> Cost | None:
    cached, written = usage.cached_tokens or 0, usage.cache_write_tokens or 0
    reasoning = usage.reasoning_tokens or 0
    plain = max(0, (usage.input_tokens or 0) - cached - written)
    said = max(0, (usage.output_tokens or 0) - reasoning)
    total = 0.0
    for tokens, price in (
        (plain, units.input),
        (cached, units.cached),
        (written, units.cache_write),
        (said, units.output),
        (reasoning, units.reasoning),
    ):
        if tokens:
            if price is None:
                return None
            total += tokens * price
    return Cost(round(total / _MILLION + units.request, 12), source)


def _own(price: ModelPrice) -> _Units:
    return _Units(
        above=-1,
        input=price.input,
        cached=price.input if price.cached is None else price.cached,
        cache_write=price.input if price.cache_write is None else price.cache_write,
        output=price.output,
        reasoning=price.output if price.reasoning is None else price.reasoning,
    )


# --- what the library knows -------------------------------------------------------------------------------------------


def _model(vendor: str, model: str, base_url: str) -> ModelInfo | None:
    """The library's entry of a model; its own look-up is avoided, as it remembers every name it was ever asked for."""
    if not model or len(model) > _LONGEST_NAME:
        return None
    provider = _provider(vendor, base_url)
    if provider is None:
        return None
    return provider.find_model(model, all_providers=get_snapshot().providers)


def _provider(vendor: str, base_url: str) -> Provider | None:
    snapshot = get_snapshot()
    if base_url:
        try:
            return snapshot.find_provider(None, None, base_url)
        except LookupError:
            pass  # a proxy, or a server of one's own: the vendor's name is all there is
    if not vendor:
        return None
    return find_provider_by_id(snapshot.providers, _VENDORS.get(vendor, vendor))


def _tiers(price: LibraryPrice) -> tuple[_Units, ...]:
    """One row of unit prices for each size of prompt that has prices of its own; none for a model without prices."""
    named = {name: value for name, value in vars(price).items() if isinstance(value, Decimal | TieredPrices)}
    if not named:
        return ()
    starts = {tier.start for value in named.values() if isinstance(value, TieredPrices) for tier in value.tiers}
    return tuple([_units(named, above) for above in sorted(starts | {-1}, reverse=True)])


def _units(named: Mapping[str, Decimal | TieredPrices], above: int) -> _Units:
    def price(name: str, otherwise: float | None = None) -> float | None:
        value = named.get(name)
        if isinstance(value, TieredPrices):
            value = max(
                ((tier.start, tier.price) for tier in value.tiers if tier.start <= above), default=(-1, value.base)
            )[1]
        return otherwise if value is None else float(value)

    plain, output = price("input_mtok"), price("output_mtok")
    return _Units(
        above=above,
        input=plain,
        cached=price("cache_read_mtok", plain),
        cache_write=price("cache_write_mtok", plain),
        output=output,
        reasoning=price("output_reasoning_mtok", output),
        request=(price("requests_kcount") or 0.0) / 1000,
    )
