"""When to ask again, whom, and in which order."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from headrace.model.errors import ErrorCode, ErrorInfo
from headrace.routing.order import by_weight
from headrace.routing.retry import RetryPolicy, counts_as_failure, fails_over, retryable

# code: (asked again, another candidate, a failure of the provider's circuit)
TABLE = {
    ErrorCode.TIMEOUT: (True, True, True),
    ErrorCode.PROVIDER_UNAVAILABLE: (True, True, True),
    ErrorCode.PROVIDER_RATE_LIMITED: (True, True, True),
    ErrorCode.QUOTA_EXCEEDED: (False, True, False),
    ErrorCode.UNAUTHENTICATED: (False, True, False),
    ErrorCode.FORBIDDEN: (False, True, False),
    ErrorCode.MODEL_NOT_FOUND: (False, True, False),
    ErrorCode.INTERNAL_ERROR: (False, True, False),
    ErrorCode.INVALID_REQUEST: (False, False, False),
    ErrorCode.BUDGET_EXCEEDED: (False, False, False),
    ErrorCode.CONSUMER_TOO_SLOW: (False, False, False),
    ErrorCode.CANCELLED: (False, False, False),
}


@pytest.mark.parametrize("code", ErrorCode)
def test_what_each_code_means(code: ErrorCode) -> None:
    error = ErrorInfo(code=code, message="")
    assert (retryable(error), fails_over(error), counts_as_failure(error)) == TABLE[code]


def test_an_error_that_says_so_itself_is_not_retried() -> None:
    assert not retryable(ErrorInfo(code=ErrorCode.PROVIDER_UNAVAILABLE, message="", retryable=False))


def test_backoff_doubles_up_to_its_cap_with_full_jitter() -> None:
    policy, rng = RetryPolicy(attempts=9, base=0.2, cap=1.0), random.Random(1)
    for tries, most in ((1, 0.2), (2, 0.4), (3, 0.8), (4, 1.0), (50, 1.0), (5000, 1.0)):
        delays = [policy.delay(tries, None, rng) for _ in range(300)]
        assert 0 <= min(delays) < most * 0.1
        assert most * 0.9 < max(delays) <= most


@pytest.mark.parametrize(("wait", "delay"), [(0.0, 0.0), (1.5, 1.5), (3600.0, 3600.0)])
def test_retry_after_wins(wait: float, delay: float) -> None:
    assert RetryPolicy().delay(1, wait, random.Random(1)) == delay


def test_draws_follow_the_weights_and_nobody_is_left_out() -> None:
    rng = random.Random(2)
    draws = [by_weight([3, 1, 0, 0], rng) for _ in range(4000)]
    firsts = Counter(draw[0] for draw in draws)
    assert firsts[0] / 4000 == pytest.approx(0.75, abs=0.03)
    assert set(firsts) == {0, 1}
    assert all(sorted(draw) == [0, 1, 2, 3] and draw[2:] == [2, 3] for draw in draws), "weight 0 comes last, as written"
    assert by_weight([], rng) == []
