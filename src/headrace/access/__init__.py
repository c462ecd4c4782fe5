"""Who may call, and how much: keys, their limits and budgets, and requests that come twice."""

from headrace.access.idempotency import (
    Busy,
    First,
    IdempotencyStore,
    MemoryIdempotency,
    RedisIdempotency,
    Replay,
    Token,
    fingerprint,
)
from headrace.access.keys import Key, KeyFile, KeyFileError, find_secret
from headrace.access.limits import Grant, Limit, MemoryLimiter, Refusal
from headrace.access.redis_limiter import RedisLimiter

__all__ = [
    "Busy",
    "First",
    "Grant",
    "IdempotencyStore",
    "Key",
    "KeyFile",
    "KeyFileError",
    "Limit",
    "MemoryIdempotency",
    "MemoryLimiter",
    "RedisIdempotency",
    "RedisLimiter",
    "Refusal",
    "Replay",
    "Token",
    "find_secret",
    "fingerprint",
]
