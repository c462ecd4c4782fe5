"""What a gateway process knows beyond its configuration, and what survives a change of it: limits that are partly used,
circuits, answers kept for repeats, usage records on their way.

With Redis configured, limits and answers are shared with every other process that uses it; otherwise they are this
process's own. The trade-off of `MemoryLimiter`: several workers without Redis each keep the limits for themselves.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Mapping

from headrace.access.idempotency import IdempotencyStore, MemoryIdempotency, RedisIdempotency
from headrace.access.keys import Key
from headrace.access.limits import Grant, MemoryLimiter, Refusal
from headrace.access.redis_limiter import RedisLimiter
from headrace.config import Config
from headrace.metering import Recorder, UsageRecord
from headrace.routing.breaker import Breakers, BreakerSettings
from headrace.routing.shared import SharedBreakers

logger = logging.getLogger("headrace.serve")

RENEW_EVERY = 20.0
"""Seconds between two renewals of the leases of running streams."""


class State:
    """Make it inside the event loop that serves. `recorder`: where usage records go; None: nowhere."""

    def __init__(self, config: Config, recorder: Recorder | None = None) -> None:
        self.recorder = recorder
        self.breakers: Breakers | None = None
        self._sharing: asyncio.Task[None] | None = None
        if config.breaker.enabled:
            self._share_circuits(config)
        self._limiter: MemoryLimiter | RedisLimiter
        self.idempotency: IdempotencyStore
        redis = config.redis
        if redis is None:
            self._limiter, self.idempotency = MemoryLimiter(), MemoryIdempotency()
        else:
            on_down = "fail_closed" if redis.budgets_when_down == "refuse" else "fail_open"
            self._limiter = RedisLimiter(redis.url, prefix=redis.prefix, on_down=on_down)  # type: ignore[arg-type]  # one of both
            self.idempotency = RedisIdempotency(redis.url, prefix=redis.prefix)
        self._grants: dict[str, Grant] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._renewing: asyncio.TimerHandle | None = None
        if redis is not None:
            self._renew_later()

    def _share_circuits(self, config: Config) -> None:
        settings, loop = _breaker_settings(config), asyncio.get_running_loop()
        if config.redis is None:
            self.breakers = Breakers(settings)
            return
        shared = SharedBreakers(settings, config.redis.url, prefix=config.redis.prefix, clock=loop.time)
        self.breakers = shared
        self._sharing = loop.create_task(_logged(shared.run()))

    async def admit(self, key: Key, *, tokens: int, cost: float | None) -> Grant | Refusal:
        """Reserve a request's worst case, or say which limit forbids it."""
        now = _now()
        if isinstance(self._limiter, MemoryLimiter):
            answer = self._limiter.admit(key, tokens=tokens, cost=cost, now=now)
        else:
            answer = await self._limiter.admit(key, tokens=tokens, cost=cost, now=now)
            if isinstance(answer, Grant):
                self._grants[answer.id] = answer
        return answer

    def settle(self, grant: Grant, *, tokens: int, cost: float | None) -> None:
        """Put what was really used in the reservation's place. With Redis, in a moment."""
        now = _now()
        if isinstance(self._limiter, MemoryLimiter):
            self._limiter.settle(grant, tokens=tokens, cost=cost, now=now)
        else:
            self._grants.pop(grant.id, None)
            self.soon(self._limiter.settle(grant, tokens=tokens, cost=cost, now=now))

    def record(self, record: UsageRecord) -> None:
        if self.recorder is not None:
            self.recorder.record(record)

    def soon(self, work: Awaitable[None]) -> None:
        """Do this beside everything else; `aclose` waits for it."""
        task = asyncio.get_running_loop().create_task(_logged(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def prime(self, day_costs: Mapping[str, float], month_costs: Mapping[str, float]) -> None:
        """What keys (by id) have cost in the present day and month, where only the ledger remembers it."""
        if isinstance(self._limiter, MemoryLimiter):
            self._limiter.load(day_costs, month_costs, now=_now())

    @property
    def remembers(self) -> bool:
        """Whether costs outlive this process without the ledger's help."""
        return isinstance(self._limiter, RedisLimiter)

    async def aclose(self) -> None:
        """Finish what is on its way. The recorder is its maker's to close."""
        if self._renewing is not None:
            self._renewing.cancel()
        if self._sharing is not None:
            self._sharing.cancel()
            await asyncio.wait([self._sharing], timeout=5)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)
        if isinstance(self._limiter, RedisLimiter):
            await self._limiter.close()
        await self.idempotency.close()

    def _renew_later(self) -> None:
        self._renewing = asyncio.get_running_loop().call_later(RENEW_EVERY, self._renew)

    def _renew(self) -> None:
        """Also without streams: it brings to Redis what it could not be told while it was away."""
        if isinstance(self._limiter, RedisLimiter):
            self.soon(self._limiter.renew(list(self._grants.values())))
            self._renew_later()


async def _logged(work: Awaitable[None]) -> None:
    try:
        await work
    except Exception as error:
        logger.error("work beside the streams failed: %s", type(error).__name__)


def _now() -> float:
    return time.time()  # noqa: TID251  # limits by the day and the month go by the calendar


def _breaker_settings(config: Config) -> BreakerSettings:
    breaker = config.breaker
    return BreakerSettings(
        error_threshold=breaker.error_threshold,
        window=breaker.window,
        min_requests=breaker.min_requests,
        open_for=breaker.open_for,
        trials=breaker.trials,
    )
