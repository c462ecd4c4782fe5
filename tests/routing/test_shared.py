"""Circuits that several processes share, through a real Redis."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.routing.breaker import BreakerSettings, State
from headrace.routing.shared import SharedBreakers
from tests.services import redis_server

SETTINGS = BreakerSettings(error_threshold=0.5, window=30, min_requests=20, open_for=15, trials=1)
ids = itertools.count()


class Process:
    """One gateway process; its clock is far from the others', the wall clock is theirs in common."""

    def __init__(self, url: str, prefix: str, time: list[float]) -> None:
        self._offset = next(ids) * 1000.0
        self._time = time
        self.breakers = SharedBreakers(
            SETTINGS, url, prefix=prefix, clock=self.now, wall=lambda: 1_700_000_000.0 + time[0]
        )
        self.breaker = self.breakers.circuit("p", "m")

    def now(self) -> float:
        return self._time[0] + self._offset

    def fail(self, count: int) -> None:
        for _ in range(count):
            self.breaker.failed(self.now())

    def succeed(self, count: int) -> None:
        for _ in range(count):
            self.breaker.succeeded(self.now())

    @property
    def state(self) -> State:
        return self.breaker.state(self.now())


class Fleet:
    def __init__(self, url: str) -> None:
        self.time = [100.0]
        prefix = f"test-circuits-{next(ids)}:"
        self.processes = [Process(url, prefix, self.time) for _ in range(2)]

    async def exchange(self) -> list[bool]:
        return [await process.breakers.exchange() for process in [*self.processes, *self.processes]]

    async def close(self) -> None:
        for process in self.processes:
            await process.breakers._redis.aclose()


@pytest.fixture
async def fleet(redis_url: str) -> AsyncIterator[Fleet]:
    fleet = Fleet(redis_url)
    yield fleet
    await fleet.close()


async def test_failures_that_are_spread_over_all_open_the_circuit_of_each(fleet: Fleet) -> None:
    one, other = fleet.processes
    one.fail(10)
    other.fail(9)
    await fleet.exchange()
    assert (one.state, other.state) == (State.CLOSED, State.CLOSED)
    assert one.breaker.counts(one.now()) == other.breaker.counts(other.now()) == (19, 19)
    other.fail(1)
    assert other.state is State.OPEN
    await fleet.exchange()
    assert one.state is State.OPEN
    assert one.breaker.retry_at(one.now()) - one.now() == pytest.approx(15, abs=0.01)


async def test_successes_elsewhere_keep_it_closed(fleet: Fleet) -> None:
    one, other = fleet.processes
    other.succeed(30)
    await fleet.exchange()
    one.fail(20)
    assert one.state is State.CLOSED


async def test_what_was_counted_once_is_counted_once(fleet: Fleet) -> None:
    one, other = fleet.processes
    one.fail(3)
    for _ in range(5):
        await fleet.exchange()
        fleet.time[0] += 0.5
    assert one.breaker.counts(one.now()) == other.breaker.counts(other.now()) == (3, 3)


async def test_it_leaves_the_window_of_all(fleet: Fleet) -> None:
    one, other = fleet.processes
    one.fail(3)
    await fleet.exchange()
    fleet.time[0] += 40
    await fleet.exchange()
    assert one.breaker.counts(one.now()) == other.breaker.counts(other.now()) == (0, 0)


async def test_an_opening_that_is_over_does_not_come_back(fleet: Fleet) -> None:
    one, other = fleet.processes
    one.fail(20)
    await fleet.exchange()
    fleet.time[0] += 15
    assert other.breaker.allow(other.now())
    other.succeed(1)
    assert other.state is State.CLOSED
    await fleet.exchange()
    assert other.state is State.CLOSED
    assert one.state is State.HALF_OPEN, "its own trial is still to come"


async def test_while_redis_is_away_each_goes_on_alone_and_then_they_meet_again() -> None:
    with redis_server() as server:
        fleet = Fleet(server.url)
        one, other = fleet.processes
        other.fail(5)
        await fleet.exchange()
        assert one.breaker.counts(one.now()) == (5, 5)
        server.stop()
        assert await fleet.exchange() == [False] * 4
        assert one.breaker.counts(one.now()) == (0, 0), "what others see is not known"
        one.fail(20)
        assert one.state is State.OPEN
        assert other.state.value == "closed"
        server.start()
        assert await fleet.exchange() == [True] * 4
        assert other.state is State.OPEN
        await fleet.close()


def test_a_url_that_is_none_is_refused() -> None:
    fakes: dict[str, Any] = {"clock": lambda: 0.0}
    with pytest.raises(ValueError, match="URL"):
        SharedBreakers(SETTINGS, "http://127.0.0.1", **fakes)
