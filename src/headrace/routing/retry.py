"""When a failed attempt is made again, whether another candidate may take over, and what a failure says of a provider.

Three questions with three tables (spec/gateway.md, "Retry", "Failover", "Circuit breaker"). They differ: a provider that
refuses our key will refuse it again, but the next provider will not; a caller's own mistake is a mistake everywhere.
Pure: chance and time come from outside.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from headrace.model.errors import ErrorCode, ErrorInfo

_C = ErrorCode

_RETRYABLE = frozenset({_C.TIMEOUT, _C.PROVIDER_UNAVAILABLE, _C.PROVIDER_RATE_LIMITED})

_FAILS_OVER: dict[ErrorCode, str] = {
    # code: why another candidate may do better
    _C.TIMEOUT: "it may be faster",
    _C.PROVIDER_UNAVAILABLE: "it may be up",
    _C.PROVIDER_RATE_LIMITED: "it has limits of its own",
    _C.QUOTA_EXCEEDED: "it has an account of its own",
    _C.UNAUTHENTICATED: "it is asked with a key of its own",
    _C.FORBIDDEN: "it is asked with a key of its own",
    _C.MODEL_NOT_FOUND: "it may have the model",
    _C.INTERNAL_ERROR: "a wrong configuration of one provider, or a fault of one codec, is not the next one's",
}
# Not in the table: invalid_request (the caller's mistake), budget_exceeded (the caller's money), cancelled and
# consumer_too_slow (the caller's wish, and pace).

_CIRCUIT_FAILURES = frozenset({_C.TIMEOUT, _C.PROVIDER_UNAVAILABLE, _C.PROVIDER_RATE_LIMITED})
"""A provider that limits us is one to leave alone for a while, too. Refused keys and requests say nothing of its health."""

_OUR_OWN = frozenset({"circuit_open", "deadline_exceeded"})
"""Types of errors that no provider has caused."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`attempts`: in all, on one candidate. Seconds: the first backoff, and the longest."""

    attempts: int = 3
    base: float = 0.2
    cap: float = 4.0

    def delay(self, tries: int, retry_after: float | None, rng: random.Random) -> float:
        """Seconds before the next attempt, after so many tries: what the provider asks for, else exponential backoff
        with full jitter (any time between nothing and the backoff, so that callers who failed together part)."""
        if retry_after is not None and retry_after >= 0:
            return retry_after
        backoff = self.cap if tries > 60 else min(self.cap, self.base * 2 ** (tries - 1))
        return rng.random() * backoff


def retryable(error: ErrorInfo) -> bool:
    """Whether the same provider may be asked the same again."""
    if error.retryable is False:
        return False
    return error.code in _RETRYABLE and error.type not in _OUR_OWN


def fails_over(error: ErrorInfo) -> bool:
    """Whether another candidate may be asked."""
    return error.code in _FAILS_OVER


def counts_as_failure(error: ErrorInfo) -> bool:
    """Whether this failure says that the provider is not well."""
    return error.code in _CIRCUIT_FAILURES
