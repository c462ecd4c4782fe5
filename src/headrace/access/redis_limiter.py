"""The limits of `limits`, for all processes that share a Redis. Admitting and settling are one script each.

A request's place in its key's sorted set is a lease: its score is when it runs out, and a stream that goes on has to
renew it. So the slots of an instance that crashed come back by themselves; what it had reserved of a budget stays
charged, being the most it can have used. The place is also the proof that a request has not been settled, so settling can
be tried again.

Without Redis (down, or slower than its timeout) each process limits requests, tokens and streams by itself. A key with a
budget is refused, as nobody knows what it has used, unless `on_down` is "fail_open": then each process keeps the budget
by itself too. What was used meanwhile is kept, and brought to Redis when it is back. Trade-off: N processes without Redis
admit up to N times the limit.

The time is that of Redis, so that instances need not agree on it; `now` is for the times without.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import secrets
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from headrace.access.keys import Key
from headrace.access.limits import Grant, Levels, Limit, MemoryLimiter, Refusal, Unpriced, periods, refusal
from headrace.access.redis_client import TIMEOUT, RedisClient, RedisDown
from headrace.access.redis_scripts import SCRIPTS
from headrace.model.errors import ErrorCode

logger = logging.getLogger("headrace.access")

LEASE = 60.0
"""Seconds a stream keeps its slot without renewing it."""

OnDown = Literal["fail_closed", "fail_open"]

_RETRY_SECONDS = 2.0
"""Retry-After while the budgets' store cannot be reached."""

_MOST_PENDING = 10_000
"""Settlements kept for Redis while it is down, some hundred bytes each."""

_BATCH = 500
"""Leases renewed by one script: some 0.3 ms of Redis's time."""


@dataclass(frozen=True, slots=True)
class _Settlement:
    key: Key
    arguments: tuple[str | float, ...]
    """Of the script, from the request's id on."""


class RedisLimiter:
    """`admit` and `settle` as `MemoryLimiter` has them, awaited; call `renew` every 20 s or so, and `close` at the end.

    `timeout` bounds every call, in seconds. `clock` replaces the time of Redis, for tests. Raises ImportError where the
    client library is missing, ValueError for a URL that is none.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "headrace:",
        on_down: OnDown = "fail_closed",
        unpriced: Unpriced = "refuse",
        lease: float = LEASE,
        timeout: float = TIMEOUT,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._client = RedisClient(url, SCRIPTS, timeout=timeout)
        self._prefix = prefix
        self._on_down = on_down
        self._unpriced = unpriced
        self._lease = lease
        self._clock = clock
        self._alone = MemoryLimiter(unpriced=unpriced)
        self._instance = secrets.token_hex(8)
        self._count = itertools.count(1)
        self._pending: deque[_Settlement] = deque()
        self._flushing = False

    @property
    def up(self) -> bool:
        """Whether Redis answered last time."""
        return self._client.up

    @property
    def pending(self) -> int:
        """Settlements that Redis has not been told of yet."""
        return len(self._pending)

    async def admit(self, key: Key, *, tokens: int, cost: float | None, now: float) -> Grant | Refusal:
        """As `MemoryLimiter.admit`. Never raises for want of Redis."""
        if not key.limited:
            return Grant("", key, 0, 0.0, *periods(now), Levels(math.inf, math.inf, 0, 0.0, 0.0), now)
        grant_id = self._new_id()
        arguments = (
            self._now(),
            grant_id,
            *_rates(key),
            _or_unlimited(key.concurrent_streams),
            _or_unlimited(key.cost_per_day),
            _or_unlimited(key.cost_per_month),
            tokens,
            -1 if cost is None else cost,
            self._lease,
            int(self._unpriced == "refuse"),
        )
        try:
            answer = await self._client.call("admit", self._names(key), arguments)
        except RedisDown as down:
            if down.maybe_done:
                self._release(grant_id, key, tokens, cost, now)
            return self._admit_alone(key, tokens, cost, now)
        except asyncio.CancelledError:
            self._release(grant_id, key, tokens, cost, now)
            raise
        verdict, at, *rest = answer
        requests, tokens_left, active, day, day_cost, month, month_cost = rest
        levels = Levels(float(requests), float(tokens_left), int(active), float(day_cost), float(month_cost))
        if verdict:
            return refusal(Limit(verdict.decode()), key, levels, tokens, cost, float(at))
        return Grant(grant_id, key, tokens, cost or 0.0, int(day), int(month), levels, float(at), local=False)

    async def settle(self, grant: Grant, *, tokens: int, cost: float | None, now: float) -> None:
        """As `MemoryLimiter.settle`. Where Redis cannot be told now, it is by a later `renew` or by `close`."""
        if grant.settled:
            return
        if not grant.key.limited:
            grant.settled = True
            return
        used = grant.cost if cost is None else cost
        if grant.local:
            self._alone.settle(grant, tokens=tokens, cost=cost, now=now)
            # Redis has no reservation of it: everything is to be added.
            self._keep(self._settlement(grant.id, grant.key, tokens, used, grant.day, grant.month, local=True))
            return
        grant.settled = True
        settlement = self._settlement(
            grant.id, grant.key, tokens - grant.tokens, used - grant.cost, grant.day, grant.month
        )
        try:
            await self._send(settlement)
        except RedisDown:
            self._keep(settlement)
        except asyncio.CancelledError:
            self._keep(settlement)
            raise

    async def renew(self, grants: Iterable[Grant]) -> None:
        """Renew the leases of these grants, of those that are still running; and bring to Redis what could not be brought
        before. Well within `lease` seconds after the last time, also without grants. Never raises for want of Redis."""
        leased = [
            grant
            for grant in grants
            if not grant.settled and not grant.local and grant.key.concurrent_streams is not None
        ]
        try:
            await self._flush()
            for start in range(0, len(leased), _BATCH):
                batch = leased[start : start + _BATCH]
                names = [self._names(grant.key)[1] for grant in batch]
                await self._client.call("renew", names, (self._now(), self._lease, *(grant.id for grant in batch)))
        except RedisDown:
            return

    async def close(self) -> None:
        """Bring to Redis what is left, if it can be reached, and close the connections."""
        try:
            await self._flush()
        except RedisDown:
            logger.error("%d settlements did not reach Redis; budgets there are off by them", len(self._pending))
        await self._client.close()

    def _admit_alone(self, key: Key, tokens: int, cost: float | None, now: float) -> Grant | Refusal:
        if key.has_budget and self._on_down == "fail_closed":
            return Refusal(
                Limit.BUDGET_STORE,
                f"the key {key.name!r} has a budget, and what it has used is not known: the budget store (Redis) cannot be "
                "reached; try again in a moment",
                _RETRY_SECONDS,
                ErrorCode.QUOTA_EXCEEDED,
                key,
                None,
                now,
            )
        answer = self._alone.admit(key, tokens=tokens, cost=cost, now=now)
        if isinstance(answer, Grant):
            answer.id = self._new_id()  # unlike those of other processes
        return answer

    def _release(self, grant_id: str, key: Key, tokens: int, cost: float | None, now: float) -> None:
        """Undo an admission that may have taken place, or not."""
        self._keep(self._settlement(grant_id, key, -tokens, -(cost or 0.0), *periods(now)))

    def _settlement(
        self, grant_id: str, key: Key, tokens: int, cost: float, day: int, month: int, *, local: bool = False
    ) -> _Settlement:
        return _Settlement(key, (grant_id, *_rates(key), tokens, cost, day, month, int(local)))

    def _keep(self, settlement: _Settlement) -> None:
        if len(self._pending) >= _MOST_PENDING:
            self._pending.popleft()
            logger.warning("Redis has been away for %d settlements; the oldest is dropped", _MOST_PENDING)
        self._pending.append(settlement)

    async def _flush(self) -> None:
        if self._flushing:
            return
        self._flushing = True
        try:
            while self._pending:
                settlement = self._pending.popleft()
                try:
                    await self._send(settlement)
                except BaseException:
                    self._pending.appendleft(settlement)
                    raise
        finally:
            self._flushing = False

    async def _send(self, settlement: _Settlement) -> None:
        await self._client.call("settle", self._names(settlement.key), (self._now(), *settlement.arguments))

    def _names(self, key: Key) -> tuple[str, str]:
        return f"{self._prefix}limits:{key.id}", f"{self._prefix}leases:{key.id}"

    def _new_id(self) -> str:
        return f"{self._instance}-{next(self._count)}"

    def _now(self) -> float:
        return -1 if self._clock is None else self._clock()


def _rates(key: Key) -> tuple[float, float]:
    return _or_unlimited(key.requests_per_minute), _or_unlimited(key.tokens_per_minute)


def _or_unlimited(limit: float | None) -> float:
    return -1 if limit is None else limit
