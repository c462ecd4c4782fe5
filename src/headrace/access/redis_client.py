"""One Redis, asked within a bounded time, and left alone for a moment after it failed.

Every call is one script, so one round trip and atomic. Nothing is tried twice: a script whose answer was lost may have
run. After a failure callers are told at once that Redis is down, until a trial a second later has succeeded; requests do
not all wait for their own timeout meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

logger = logging.getLogger("headrace.access")

TIMEOUT = 0.25
"""Seconds for one call, with connecting and with waiting for a free connection."""

_REST = 1.0
"""Seconds without a call after a failure."""

_CONNECTIONS = 32


class RedisDown(Exception):
    """No answer from Redis. `maybe_done`: the script may have run all the same."""

    def __init__(self, message: str, *, maybe_done: bool) -> None:
        super().__init__(message)
        self.maybe_done = maybe_done


class RedisClient:
    """Calls scripts by `name`, of the table that `scripts` is. `clock` is monotonic.

    Raises ImportError where the client library is missing, ValueError for a URL that is none.
    """

    def __init__(
        self,
        url: str,
        scripts: dict[str, str],
        *,
        timeout: float = TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        try:
            import redis.asyncio as redis
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
            from redis.exceptions import RedisError
        except ImportError:
            raise ImportError("limits in Redis need its client: pip install headrace[redis]") from None
        self._errors = (RedisError, OSError, TimeoutError)
        pool = redis.BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=timeout,
            socket_timeout=None,  # `call` bounds the whole; the library's own costs a task each time
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
        )
        self._redis = redis.Redis(connection_pool=pool)
        self._scripts: dict[str, Any] = {name: self._redis.register_script(text) for name, text in scripts.items()}
        self._timeout = timeout
        self._clock = clock
        self._down_until: float | None = None  # None: up

    @property
    def up(self) -> bool:
        """Whether the last call succeeded; True before the first."""
        return self._down_until is None

    async def call(self, name: str, keys: Sequence[str], arguments: Sequence[str | bytes | int | float]) -> Any:
        """The script's answer. Raises RedisDown."""
        if self._down_until is not None:
            now = self._clock()
            if now < self._down_until:
                raise RedisDown("Redis did not answer a moment ago", maybe_done=False)
            self._down_until = now + _REST  # this call is the trial: the others do not wait for it
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._scripts[name](keys=keys, args=arguments)
        except self._errors as error:
            if self._down_until is None:
                # The text may hold the address, and that may hold a password.
                logger.warning("Redis does not answer (%s); its callers do without", type(error).__name__)
            self._down_until = self._clock() + _REST
            raise RedisDown(f"Redis does not answer ({type(error).__name__})", maybe_done=True) from None
        if self._down_until is not None:
            self._down_until = None
            logger.warning("Redis answers again")
        return answer

    async def close(self) -> None:
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()
