"""The limiters under test behind one face, with a clock that the test moves."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headrace.access.keys import Key
from headrace.access.limits import Grant, MemoryLimiter, Refusal
from headrace.access.redis_limiter import RedisLimiter

NOON = datetime(2025, 12, 1, 12, tzinfo=UTC).timestamp()
PATIENCE = 10.0
"""Seconds for a call to a Redis that is well: a busy machine is no failure."""


@dataclass
class Clock:
    now: float = NOON

    def __call__(self) -> float:
        return self.now


def make_key(key_id: str = "k1", /, **limits: Any) -> Key:
    return Key(id=key_id, name=f"key {key_id}", hash="0" * 64, created_at="2025-01-01T00:00:00Z", **limits)


def new_prefix() -> str:
    return f"test-{uuid.uuid4().hex}:"


class Subject:
    """A limiter whose `now` is the clock's."""

    def __init__(self, limiter: MemoryLimiter | RedisLimiter, clock: Clock) -> None:
        self.limiter = limiter
        self.clock = clock

    async def admit(self, key: Key, tokens: int = 0, cost: float | None = 0.0) -> Grant | Refusal:
        answer = self.limiter.admit(key, tokens=tokens, cost=cost, now=self.clock.now)
        return answer if isinstance(answer, Grant | Refusal) else await answer

    async def granted(self, key: Key, tokens: int = 0, cost: float | None = 0.0) -> Grant:
        answer = await self.admit(key, tokens, cost)
        assert isinstance(answer, Grant), answer
        return answer

    async def refused(self, key: Key, tokens: int = 0, cost: float | None = 0.0) -> Refusal:
        answer = await self.admit(key, tokens, cost)
        assert isinstance(answer, Refusal), answer
        return answer

    async def settle(self, grant: Grant, tokens: int = 0, cost: float | None = 0.0) -> None:
        answer = self.limiter.settle(grant, tokens=tokens, cost=cost, now=self.clock.now)
        if answer is not None:
            await answer
