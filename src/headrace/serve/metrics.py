"""`GET /metrics`, in Prometheus' text format: worked out when somebody asks, so that it costs a stream nothing.

Each worker answers for itself; behind several, a scrape meets one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from headrace.routing.breaker import Breakers, State

CONTENT_TYPE = CONTENT_TYPE_LATEST

_VALUES = {State.CLOSED: 0, State.HALF_OPEN: 1, State.OPEN: 2}


class _Gateway(Collector):
    def __init__(self, breakers: Breakers | None, live: int, now: float) -> None:
        self._breakers = breakers
        self._live = live
        self._now = now

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("headrace_streams", "Requests in flight.", value=self._live)
        states = GaugeMetricFamily(
            "headrace_circuit_state",
            "A model's circuit: 0 closed, 1 half-open, 2 open.",
            labels=["provider", "model"],
        )
        if self._breakers is not None:
            for (provider, model), circuit in self._breakers.snapshot(self._now).items():
                states.add_metric([provider, model], _VALUES[State(str(circuit["state"]))])
        yield states


def exposition(breakers: Breakers | None, live: Callable[[], int], now: float) -> bytes:
    """The metrics as they are now. `live`: how many requests are in flight."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Gateway(breakers, live(), now))
    return generate_latest(registry)
