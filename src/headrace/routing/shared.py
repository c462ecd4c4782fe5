"""Circuit breakers that know what other processes have seen, through Redis.

The rule: a decision is taken here and now, from what is known; Redis is asked beside the streams, twice a second. Each
process adds its requests and failures to buckets that all share, and takes over what the others have counted; an opening
of one is an opening of all, within half a second. Trials of a half-open circuit are each process's own. While Redis is
away everything goes on with what this process sees itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from headrace.routing.breaker import BUCKETS, Breaker, Breakers, BreakerSettings

logger = logging.getLogger("headrace.routing")

INTERVAL = 0.5
"""Seconds between two exchanges."""

_PATIENCE = 1.0
"""Seconds that one exchange may take."""

_Counts = tuple[int, int]


class SharedBreakers(Breakers):
    """`clock`: of the breakers, in seconds; `wall`: Unix time, which the processes have in common. Both for tests.

    Raises ImportError where the client library is missing, ValueError for a URL that is none.
    """

    def __init__(
        self,
        settings: BreakerSettings,
        url: str,
        *,
        prefix: str = "headrace:",
        clock: Callable[[], float],
        wall: Callable[[], float] = time.time,  # noqa: TID251  # what several machines agree on
    ) -> None:
        super().__init__(settings)
        try:
            import redis.asyncio as redis
            from redis.exceptions import RedisError
        except ImportError:
            raise ImportError("circuits in Redis need its client: pip install 'headrace[redis]'") from None
        self._errors = (RedisError, OSError, TimeoutError)
        self._redis: Any = redis.Redis.from_url(url)
        self._prefix = prefix
        self._clock = clock
        self._wall = wall
        self._bucket_seconds = settings.window / BUCKETS
        self._told: dict[int, dict[str, _Counts]] = {}  # what of the buckets in Redis is ours
        self._opened: dict[str, float] = {}  # the latest opening that was told or taken over, Unix time
        self._away = False

    async def run(self) -> None:
        """Exchange until cancelled."""
        try:
            while True:
                await self.exchange()
                await asyncio.sleep(INTERVAL)
        finally:
            await self._redis.aclose()

    async def exchange(self) -> bool:
        """Tell what is new here, and take over what is known there; whether Redis answered."""
        now, wall = self._clock(), self._wall()
        current = int(wall / self._bucket_seconds)
        news = {name: counts for name, breaker in self._named() if (counts := breaker.take_news()) != (0, 0)}
        openings = {name: at for name, breaker in self._named() if (at := self._own_opening(name, breaker, now, wall))}
        pipeline = self._redis.pipeline(transaction=False)
        for name, (requests, failures) in news.items():
            pipeline.hincrby(self._key(current), f"r {name}", requests)
            if failures:
                pipeline.hincrby(self._key(current), f"f {name}", failures)
        if news:
            pipeline.expire(self._key(current), int(2 * self.settings.window) + 1)
        for name, at in openings.items():
            pipeline.hset(f"{self._prefix}circuits:open", name, f"{at:.3f}")
        numbers = range(current - BUCKETS + 1, current + 1)
        for number in numbers:
            pipeline.hgetall(self._key(number))
        pipeline.hgetall(f"{self._prefix}circuits:open")
        try:
            async with asyncio.timeout(_PATIENCE):
                answers = await pipeline.execute()
        except self._errors as error:
            for name, counts in news.items():  # they may have arrived; rather once too little than twice
                self._note(current, name, counts)
            if not self._away:
                logger.warning("circuits are not shared for now: Redis does not answer (%s)", type(error).__name__)
            self._away = True
            self._take_over({}, {}, now, wall)
            return False
        if self._away:
            self._away = False
            logger.warning("circuits are shared again")
        for name, counts in news.items():
            self._note(current, name, counts)
        self._opened.update(openings)
        self._told = {number: told for number, told in self._told.items() if number in numbers}
        self._take_over(self._of_others(numbers, answers[-1 - len(numbers) : -1]), answers[-1], now, wall)
        return True

    # --- what is told -------------------------------------------------------------------------------------------------

    def _named(self) -> list[tuple[str, Breaker]]:
        return [(f"{provider}/{model}", breaker) for (provider, model), breaker in self._circuits.items()]

    def _note(self, bucket: int, name: str, counts: _Counts) -> None:
        told = self._told.setdefault(bucket, {})
        requests, failures = told.get(name, (0, 0))
        told[name] = (requests + counts[0], failures + counts[1])

    def _own_opening(self, name: str, breaker: Breaker, now: float, wall: float) -> float | None:
        """When the circuit opened here (Unix time), where nobody has been told of it."""
        at = breaker.opened_at
        if at is None:
            return None
        opened = wall - (now - at)
        return opened if opened > self._opened.get(name, 0.0) + 0.01 else None

    # --- what is taken over -------------------------------------------------------------------------------------------

    def _of_others(self, numbers: range, answers: list[dict[bytes, bytes]]) -> dict[str, _Counts]:
        """Requests and failures that other processes have counted, by circuit."""
        sums: dict[str, list[int]] = {}
        for number, answer in zip(numbers, answers, strict=True):
            for field, value in answer.items():
                kind, _, name = field.decode().partition(" ")
                sums.setdefault(name, [0, 0])[kind == "f"] += int(value)
            for name, (requests, failures) in self._told.get(number, {}).items():
                counts = sums.setdefault(name, [0, 0])
                counts[0] -= requests
                counts[1] -= failures
        return {name: (max(0, counts[0]), max(0, counts[1])) for name, counts in sums.items()}

    def _take_over(self, counts: dict[str, _Counts], openings: dict[bytes, bytes], now: float, wall: float) -> None:
        for name, breaker in self._named():
            breaker.elsewhere = counts.get(name, (0, 0))
            opened = float(openings.get(name.encode(), b"0"))
            age = wall - opened
            if opened > self._opened.get(name, 0.0) + 0.01 and age < self.settings.open_for:
                self._opened[name] = opened
                breaker.open(now - max(0.0, age))

    def _key(self, bucket: int) -> str:
        return f"{self._prefix}circuits:{bucket}"
