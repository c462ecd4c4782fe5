"""Circuit breakers: a provider's model that fails too often is left alone for a while (spec/gateway.md). Pure.

Closed: requests pass, and their ends are counted in a sliding window. Too many failures open the circuit: nothing passes
until `open_for` is over. Then it is half-open: a few trials pass; when all of them succeed it closes, and one failure
opens it again. A trial that ends without saying anything of the provider (its caller left) gives its place back.

The window is made of buckets, so an old failure leaves it up to a tenth of the window early; in exchange a circuit costs
a few hundred bytes and every question less than a microsecond.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum

BUCKETS = 10
_MAX_CIRCUITS = 10_000
"""Callers can name any model of a provider; what is quiet and closed is forgotten first."""


class State(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """Times in seconds."""

    error_threshold: float = 0.5
    window: float = 30.0
    min_requests: int = 20
    open_for: float = 15.0
    trials: int = 5


class Breaker:
    """One circuit. Every request that `allow` lets pass must end in exactly one of `succeeded`, `failed`, `released`.

    While it is open, ends of requests that began before are ignored.
    """

    __slots__ = ("_counts", "_news", "_opened_at", "_running", "_settings", "_state", "_successes", "elsewhere")

    def __init__(self, settings: BreakerSettings) -> None:
        self._settings = settings
        self._state = State.CLOSED
        self._counts: dict[int, list[int]] = {}  # bucket number -> [requests, failures]
        self._news = [0, 0]  # requests and failures since `take_news`
        self.elsewhere = (0, 0)
        """Requests and failures that others have counted in the window (see shared.py)."""
        self._opened_at = -math.inf
        self._running = 0  # trials that have not ended
        self._successes = 0  # trials that have succeeded

    def allow(self, now: float) -> bool:
        """Whether a request may be sent now. In half-open a True takes one of the trials' places."""
        if self._state is State.CLOSED:
            return True
        if self._state is State.OPEN:
            if now < self._opened_at + self._settings.open_for:
                return False
            self._state = State.HALF_OPEN
            self._running = self._successes = 0
        if self._running + self._successes >= self._settings.trials:
            return False
        self._running += 1
        return True

    def succeeded(self, now: float) -> None:
        self._news[0] += 1
        if self._state is State.CLOSED:
            self._bucket(now)[0] += 1
        elif self._state is State.HALF_OPEN and self._running:
            self._running -= 1
            self._successes += 1
            if self._successes >= self._settings.trials:
                self._state = State.CLOSED
                self._counts.clear()

    def failed(self, now: float) -> None:
        self._news[0] += 1
        self._news[1] += 1
        if self._state is State.CLOSED:
            bucket = self._bucket(now)
            bucket[0] += 1
            bucket[1] += 1
            requests, failures = self.counts(now)
            enough = requests >= self._settings.min_requests
            if enough and failures >= requests * self._settings.error_threshold:
                self.open(now)
        elif self._state is State.HALF_OPEN and self._running:
            self.open(now)

    def released(self, now: float) -> None:
        """A request ended in a way that says nothing of the provider."""
        if self._state is State.HALF_OPEN and self._running:
            self._running -= 1

    def open(self, now: float) -> None:
        """Let nothing pass for a while."""
        self._state = State.OPEN
        self._opened_at = now
        self._counts.clear()
        self.elsewhere = (0, 0)

    def state(self, now: float) -> State:
        """As a request would find it now."""
        if self._state is State.OPEN and now >= self._opened_at + self._settings.open_for:
            return State.HALF_OPEN
        return self._state

    def retry_at(self, now: float) -> float:
        """When a request may pass, as far as is known."""
        return self._opened_at + self._settings.open_for if self._state is State.OPEN else now

    @property
    def opened_at(self) -> float | None:
        """When it opened, where it is open."""
        return self._opened_at if self._state is State.OPEN else None

    def take_news(self) -> tuple[int, int]:
        """Requests and failures since the last call."""
        news, self._news = self._news, [0, 0]
        return news[0], news[1]

    def counts(self, now: float) -> tuple[int, int]:
        """Requests and failures in the window, those of others included."""
        oldest = self._number(now) - BUCKETS
        for number in [number for number in self._counts if number <= oldest]:
            del self._counts[number]
        counts = self._counts.values()
        return sum([c[0] for c in counts]) + self.elsewhere[0], sum([c[1] for c in counts]) + self.elsewhere[1]

    def _bucket(self, now: float) -> list[int]:
        return self._counts.setdefault(self._number(now), [0, 0])

    def _number(self, now: float) -> int:
        return int(now * BUCKETS / self._settings.window)


class Breakers:
    """The circuits of a process, by provider and model."""

    def __init__(self, settings: BreakerSettings) -> None:
        self.settings = settings
        self._circuits: OrderedDict[tuple[str, str], Breaker] = OrderedDict()

    def circuit(self, provider: str, model: str) -> Breaker:
        """The circuit of a provider's model; the same object for as long as anything is known of it."""
        key = (provider, model)
        breaker = self._circuits.get(key)
        if breaker is None:
            breaker = self._circuits[key] = Breaker(self.settings)
            if len(self._circuits) > _MAX_CIRCUITS:
                self._circuits.popitem(last=False)
        return breaker

    def snapshot(self, now: float) -> dict[tuple[str, str], dict[str, object]]:
        """What is known of each: {state, requests, failures} and, of one that is not closed, seconds until a retry."""
        shown: dict[tuple[str, str], dict[str, object]] = {}
        for key, breaker in self._circuits.items():
            requests, failures = breaker.counts(now)
            state = breaker.state(now)
            shown[key] = {"state": state.value, "requests": requests, "failures": failures}
            if state is not State.CLOSED:
                shown[key]["retry_in"] = round(max(0.0, breaker.retry_at(now) - now), 1)
        return shown
