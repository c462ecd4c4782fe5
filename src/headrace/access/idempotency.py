"""`Idempotency-Key`: a non-streaming request that is repeated gets the first one's answer, and is billed once.

`begin` says what to do: First, carry it out, and end with `finish` or `abandon`, whatever happens; Replay, send this; Busy,
the first is still running and the patience of this one is over (409). A repeat that comes while the first runs waits for
it. When the first fails in a way that is ours, nothing is kept and one of those who wait goes on as the first.

The same key with another request is the caller's mistake (422). Keys belong to a scope (the caller's key id), so callers
cannot see each other's answers. Trade-off: a whole answer is kept for a day, in memory or in Redis, as it was sent.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from headrace.access.redis_client import TIMEOUT, RedisClient, RedisDown
from headrace.model.errors import InvalidRequest

logger = logging.getLogger("headrace.access")

HEADER = "idempotency-key"
TTL = 86400.0
"""Seconds an answer is kept."""
PENDING_TTL = 600.0
"""Seconds after which a first request that has not ended is given up: longer than any may take."""
WAIT = 120.0
"""Seconds a repeat waits for the first."""
MAX_ENTRIES = 10_000
MAX_BYTES = 64 * 1024 * 1024
_MAX_KEY = 255

_PASSING = frozenset({401, 402, 403, 408, 409, 425, 429, 499})
"""Statuses that speak of the moment and not of the request; a repeat is to be tried anew. So are all from 500 on."""

Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Token:
    """The right, and the duty, to end what `begin` began."""

    scope: str
    key: str
    fingerprint: str
    id: str
    local: bool = True
    """Whether only this process knows of it."""


@dataclass(frozen=True, slots=True)
class First:
    token: Token


class Replay(msgspec.Struct, frozen=True, array_like=True):
    """The first one's answer, as it was sent."""

    status: int
    headers: Headers
    body: bytes

    @property
    def size(self) -> int:
        return len(self.body) + sum(len(name) + len(value) for name, value in self.headers)


@dataclass(frozen=True, slots=True)
class Busy:
    retry_after: float = 1.0


class IdempotencyStore(Protocol):
    """Where answers are kept. No method raises for want of its storage."""

    async def begin(self, scope: str, key: str, fingerprint: str) -> First | Replay | Busy:
        """Raises InvalidRequest: 422 where the key came with another request, 400 where it cannot be a key."""

    async def finish(self, token: Token, status: int, headers: Headers, body: bytes) -> None:
        """Keep the answer, if its status is one to keep; else as `abandon`."""

    async def abandon(self, token: Token) -> None:
        """Forget the request. Harmless after `finish`."""

    async def close(self) -> None: ...


def fingerprint(path: str, body: bytes) -> str:
    """What makes two requests the same: where they go, and every byte of them."""
    return hashlib.sha256(path.encode("utf-8", "surrogatepass") + b"\0" + body).hexdigest()


@dataclass(slots=True, eq=False)
class _Entry:
    token: Token
    expires: float
    ended: asyncio.Event
    answer: Replay | None = None


class MemoryIdempotency:
    """Of one process. Requests in flight do not count in the bounds; the oldest answers go first."""

    def __init__(
        self,
        *,
        ttl: float = TTL,
        pending_ttl: float = PENDING_TTL,
        wait: float = WAIT,
        max_entries: int = MAX_ENTRIES,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ttl = ttl
        self._pending_ttl = pending_ttl
        self._wait = wait
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._clock = clock
        self._running: dict[tuple[str, str], _Entry] = {}
        self._answers: OrderedDict[tuple[str, str], _Entry] = OrderedDict()  # the oldest first
        self._bytes = 0

    @property
    def size(self) -> tuple[int, int]:
        """Answers kept, and their bytes."""
        return len(self._answers), self._bytes

    async def begin(self, scope: str, key: str, fingerprint: str) -> First | Replay | Busy:
        _check(key)
        place = (scope, key)
        end = asyncio.get_running_loop().time() + self._wait
        while True:
            now = self._clock()
            self._drop_expired(now)
            entry = self._answers.get(place) or self._running.get(place)
            if entry is None or now >= entry.expires:
                token = Token(scope, key, fingerprint, secrets.token_hex(8))
                if entry is not None:
                    entry.ended.set()
                self._running[place] = _Entry(token, now + self._pending_ttl, asyncio.Event())
                return First(token)
            _check_same(entry.token.fingerprint, fingerprint)
            if entry.answer is not None:
                return entry.answer
            try:
                async with asyncio.timeout_at(end):
                    await entry.ended.wait()
            except TimeoutError:
                return Busy()

    async def finish(self, token: Token, status: int, headers: Headers, body: bytes) -> None:
        entry = self._end(token)
        if entry is None or not _lasting(status):
            return
        answer = Replay(status, headers, body)
        if answer.size > self._max_bytes:
            return
        entry.answer = answer
        entry.expires = self._clock() + self._ttl
        self._answers[token.scope, token.key] = entry
        self._bytes += answer.size
        while len(self._answers) > self._max_entries or self._bytes > self._max_bytes:
            self._drop_oldest()

    async def abandon(self, token: Token) -> None:
        self._end(token)

    async def close(self) -> None:
        """Nothing is open."""

    def _end(self, token: Token) -> _Entry | None:
        """Take a request out of those that run; None where it is not there (any more)."""
        place = (token.scope, token.key)
        entry = self._running.get(place)
        if entry is None or entry.token.id != token.id:
            return None
        del self._running[place]
        entry.ended.set()  # who waits looks again, after this call
        return entry

    def _drop_expired(self, now: float) -> None:
        while self._answers and next(iter(self._answers.values())).expires <= now:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, entry = self._answers.popitem(last=False)
        if entry.answer is not None:
            self._bytes -= entry.answer.size


_BEGIN = """
local kept = redis.call('GET', KEYS[1])
if kept then return kept end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return false
"""
# ARGV[1]: what a pending entry holds; [2]: what to put in its place, '' for nothing; [3]: for how many ms.
_END = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
return 1
"""


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """What Redis holds, in MessagePack."""

    fingerprint: str
    id: str
    answer: Replay | None = None


class RedisIdempotency:
    """Shared by all processes with one Redis. Who waits asks again and again, at growing intervals of at most half a
    second. Without Redis each process keeps its own answers. Raises as RedisLimiter does.

    An answer that Redis did not take leaves its request pending there: repeats get Busy until `pending_ttl` is over,
    rather than being billed again.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "headrace:",
        ttl: float = TTL,
        pending_ttl: float = PENDING_TTL,
        wait: float = WAIT,
        max_body: int = MAX_BYTES // 8,
        timeout: float = TIMEOUT,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = RedisClient(url, {"begin": _BEGIN, "end": _END}, timeout=timeout)
        self._prefix = prefix
        self._ttl = ttl
        self._pending_ttl = pending_ttl
        self._wait = wait
        self._max_body = max_body
        self._sleep = sleep
        self._alone = MemoryIdempotency(ttl=ttl, pending_ttl=pending_ttl, wait=wait)

    async def begin(self, scope: str, key: str, fingerprint: str) -> First | Replay | Busy:
        _check(key)
        token = Token(scope, key, fingerprint, secrets.token_hex(8), local=False)
        arguments = (_pending(token), _milliseconds(self._pending_ttl))
        waited, pause = 0.0, 0.02
        while True:
            try:
                answer = await self._client.call("begin", [self._name(token)], arguments)
            except RedisDown:
                return await self._alone.begin(scope, key, fingerprint)
            if answer is None:
                return First(token)
            try:
                kept = msgspec.msgpack.decode(answer, type=_Kept)
            except msgspec.DecodeError:  # of another version of ours
                return await self._alone.begin(scope, key, fingerprint)
            _check_same(kept.fingerprint, fingerprint)
            if kept.answer is not None:
                return kept.answer
            if waited >= self._wait:
                return Busy()
            pause = min(0.5, pause * 1.5, self._wait - waited)
            waited += pause
            await self._sleep(pause)

    async def finish(self, token: Token, status: int, headers: Headers, body: bytes) -> None:
        if token.local:
            await self._alone.finish(token, status, headers, body)
        elif not _lasting(status) or len(body) > self._max_body:
            await self._end(token, b"")
        else:
            await self._end(token, _encode(_Kept(token.fingerprint, token.id, Replay(status, headers, body))))

    async def abandon(self, token: Token) -> None:
        if token.local:
            await self._alone.abandon(token)
        else:
            await self._end(token, b"")

    async def close(self) -> None:
        await self._client.close()

    async def _end(self, token: Token, kept: bytes) -> None:
        try:
            await self._client.call("end", [self._name(token)], (_pending(token), kept, _milliseconds(self._ttl)))
        except RedisDown:
            logger.warning("an idempotent request's end did not reach Redis; repeats of it are busy for a while")

    def _name(self, token: Token) -> str:
        # Callers choose their keys, of any characters; the hash keeps scopes apart whatever is in them.
        digest = hashlib.sha256(f"{len(token.scope)}:{token.scope}{token.key}".encode("utf-8", "surrogatepass"))
        return f"{self._prefix}idempotency:{digest.hexdigest()}"


_encode = msgspec.msgpack.encode


def _pending(token: Token) -> bytes:
    return _encode(_Kept(token.fingerprint, token.id))


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _lasting(status: int) -> bool:
    return status < 500 and status not in _PASSING


def _check(key: str) -> None:
    if not 0 < len(key) <= _MAX_KEY or not key.isprintable():
        raise InvalidRequest(
            f"Idempotency-Key has to be 1 to {_MAX_KEY} printable characters",
            param=HEADER,
            type="idempotency_key_invalid",
        )


def _check_same(first: str, this: str) -> None:
    if first != this:
        raise InvalidRequest(
            "this Idempotency-Key came with another request before; a new request needs a new key",
            param=HEADER,
            status=422,
            type="idempotency_key_reused",
        )
