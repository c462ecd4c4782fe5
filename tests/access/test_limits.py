"""What limits do: the same for one process and for those that share a Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from headrace.access.limits import Limit, MemoryLimiter, Refusal, Unpriced, periods
from headrace.access.redis_limiter import RedisLimiter
from headrace.model.errors import ErrorCode
from tests.access.limiters import NOON, PATIENCE, Clock, Subject, make_key, new_prefix

DAY = 86400.0


async def _subject(request: pytest.FixtureRequest, unpriced: Unpriced) -> AsyncIterator[Subject]:
    clock = Clock()
    if request.param == "memory":
        yield Subject(MemoryLimiter(unpriced=unpriced), clock)
        return
    limiter = RedisLimiter(
        request.getfixturevalue("redis_url"), prefix=new_prefix(), unpriced=unpriced, timeout=PATIENCE, clock=clock
    )
    yield Subject(limiter, clock)
    assert limiter.up
    await limiter.close()


@pytest.fixture(params=["memory", "redis"])
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    async for subject in _subject(request, "refuse"):
        yield subject


@pytest.fixture(params=["memory", "redis"])
async def lenient(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    """One that admits requests without a price."""
    async for subject in _subject(request, "admit"):
        yield subject


async def test_without_limits_everything_passes(subject: Subject) -> None:
    key = make_key()
    grants = [await subject.granted(key, tokens=10**9, cost=None) for _ in range(50)]
    assert grants[-1].headers("openai_chat") == []
    assert grants[-1].cost_left is None
    for grant in grants:
        await subject.settle(grant, 10**9, None)
        assert grant.settled


async def test_requests_of_a_minute_may_come_at_once_and_then_as_the_bucket_refills(subject: Subject) -> None:
    key = make_key(requests_per_minute=3)
    for _ in range(3):
        await subject.granted(key)
    refusal = await subject.refused(key)
    assert (refusal.limit, refusal.code) == (Limit.REQUESTS_PER_MINUTE, ErrorCode.QUOTA_EXCEEDED)
    assert refusal.retry_after == pytest.approx(20, abs=0.002)
    subject.clock.now += 19.9
    await subject.refused(key)
    subject.clock.now += 0.1
    await subject.granted(key)
    await subject.refused(key)
    subject.clock.now += 3600
    for _ in range(3):
        await subject.granted(key)
    await subject.refused(key)


async def test_settling_gives_no_request_back(subject: Subject) -> None:
    key = make_key(requests_per_minute=1)
    await subject.settle(await subject.granted(key))
    await subject.refused(key)


async def test_waiting_as_long_as_told_is_enough(subject: Subject) -> None:
    key = make_key(requests_per_minute=7, tokens_per_minute=1000)
    waits = 0
    for _ in range(30):
        answer = await subject.admit(key, tokens=333)
        if isinstance(answer, Refusal):
            waits += 1
            subject.clock.now += answer.retry_after
            await subject.granted(key, tokens=333)
    assert waits > 10


async def test_real_tokens_take_the_place_of_reserved_ones(subject: Subject) -> None:
    key = make_key(tokens_per_minute=1000)
    grant = await subject.granted(key, tokens=900)
    refusal = await subject.refused(key, tokens=101)
    assert (refusal.limit, refusal.code) == (Limit.TOKENS_PER_MINUTE, ErrorCode.QUOTA_EXCEEDED)
    assert refusal.retry_after == pytest.approx(0.06, abs=0.002)
    assert "100 are left" in refusal.message
    await subject.settle(grant, 100)
    await subject.granted(key, tokens=900)
    await subject.refused(key, tokens=1)


async def test_tokens_beyond_the_reservation_have_to_be_made_up_for(subject: Subject) -> None:
    key = make_key(tokens_per_minute=600)
    await subject.settle(await subject.granted(key, tokens=100), 1200)
    refusal = await subject.refused(key, tokens=1)
    assert refusal.retry_after == pytest.approx(60.1, abs=0.002)
    subject.clock.now += refusal.retry_after
    await subject.granted(key, tokens=1)


async def test_a_refund_never_overfills_the_bucket(subject: Subject) -> None:
    key = make_key(tokens_per_minute=600)
    grant = await subject.granted(key, tokens=600)
    subject.clock.now += 60
    await subject.settle(grant, 0)
    await subject.granted(key, tokens=600)
    await subject.refused(key, tokens=1)


async def test_a_request_larger_than_the_minutes_tokens_is_told_not_to_wait(subject: Subject) -> None:
    refusal = await subject.refused(make_key(tokens_per_minute=1000), tokens=1001)
    assert (refusal.limit, refusal.retry_after) == (Limit.TOKENS_PER_MINUTE, 0)
    assert not refusal.info.is_retryable
    headers = dict(refusal.headers("openai_chat"))
    assert headers[b"x-should-retry"] == b"false"
    assert b"retry-after" not in headers


async def test_slots_come_back_once(subject: Subject) -> None:
    key = make_key(concurrent_streams=2)
    first, _ = await subject.granted(key), await subject.granted(key)
    refusal = await subject.refused(key)
    assert (refusal.limit, refusal.code) == (Limit.CONCURRENT_STREAMS, ErrorCode.QUOTA_EXCEEDED)
    assert refusal.retry_after > 0
    for _ in range(3):
        await subject.settle(first)
    await subject.granted(key)
    await subject.refused(key)


async def test_keys_do_not_share_limits(subject: Subject) -> None:
    one, other = (make_key(key_id, requests_per_minute=1, cost_per_day=1.0) for key_id in ("a", "b"))
    await subject.granted(one, cost=1.0)
    await subject.refused(one)
    await subject.granted(other, cost=1.0)


async def test_a_refused_request_is_charged_nothing(subject: Subject) -> None:
    key = make_key(requests_per_minute=10, tokens_per_minute=100, concurrent_streams=1, cost_per_day=1.0)
    grant = await subject.granted(key, tokens=10, cost=0.5)
    for _ in range(20):
        assert (await subject.refused(key, tokens=10, cost=0.1)).limit is Limit.CONCURRENT_STREAMS
        assert (await subject.refused(key, tokens=10, cost=0.6)).limit is Limit.COST_PER_DAY
    await subject.settle(grant, 10, 0.5)
    last = await subject.granted(key, tokens=90, cost=0.5)
    assert (last.levels.requests, last.levels.tokens, last.levels.active) == (8, 0, 1)
    assert last.levels.day_cost == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("limit", "begins"),
    [
        ("cost_per_day", datetime(2025, 12, 2, tzinfo=UTC)),
        ("cost_per_month", datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
async def test_a_budget_ends_with_its_period(subject: Subject, limit: str, begins: datetime) -> None:
    key = make_key("k1", **{limit: 1.0})
    await subject.settle(await subject.granted(key, cost=0.9), cost=0.7)
    grant = await subject.granted(key, cost=0.25)
    assert grant.cost_left == pytest.approx(0.3)
    refusal = await subject.refused(key, cost=0.1)
    assert (refusal.limit, refusal.code) == (Limit(limit), ErrorCode.BUDGET_EXCEEDED)
    assert refusal.error.info.http_status == 402
    assert refusal.retry_after == pytest.approx(begins.timestamp() - NOON)
    assert begins.strftime("%Y-%m-%dT%H:%M:%SZ") in refusal.message
    subject.clock.now = begins.timestamp() - 0.5
    await subject.refused(key, cost=0.1)
    subject.clock.now = begins.timestamp()
    await subject.granted(key, cost=1.0)
    # What began in the old period is settled there.
    await subject.settle(grant, cost=50.0)
    assert (await subject.refused(key, cost=0.1)).levels is not None


async def test_a_request_of_yesterday_counts_on_its_month(subject: Subject) -> None:
    key = make_key(cost_per_day=10.0, cost_per_month=10.0)
    grant = await subject.granted(key, cost=1.0)
    subject.clock.now += DAY
    await subject.settle(grant, cost=4.0)
    levels = (await subject.granted(key)).levels
    assert levels.day_cost == 0.0
    assert levels.month_cost == pytest.approx(4.0)


async def test_a_used_up_budget_admits_nothing_more(subject: Subject) -> None:
    key = make_key(cost_per_day=1.0)
    await subject.settle(await subject.granted(key, cost=0.1), cost=1.2)
    assert (await subject.refused(key, cost=0.0)).limit is Limit.COST_PER_DAY


async def test_the_month_is_named_before_the_day(subject: Subject) -> None:
    key = make_key(cost_per_day=1.0, cost_per_month=1.0, requests_per_minute=1)
    await subject.granted(key, cost=1.0)
    assert (await subject.refused(key, cost=0.5)).limit is Limit.COST_PER_MONTH


async def test_a_request_dearer_than_the_budget_is_told_not_to_wait(subject: Subject) -> None:
    refusal = await subject.refused(make_key(cost_per_day=0.05), cost=0.051)
    assert (refusal.limit, refusal.retry_after) == (Limit.COST_PER_DAY, 0)
    assert "$0.051" in refusal.message
    assert "$0.05 a day" in refusal.message


async def test_round_sums_fit_their_budget(subject: Subject) -> None:
    key = make_key(cost_per_day=0.3)
    for _ in range(3):
        await subject.granted(key, cost=0.1)  # 0.1 + 0.1 + 0.1 > 0.3 in floats
    await subject.refused(key, cost=0.0001)


async def test_an_unknown_cost_leaves_the_reservation(subject: Subject) -> None:
    key = make_key(cost_per_day=1.0)
    await subject.settle(await subject.granted(key, cost=0.6), cost=None)
    assert (await subject.granted(key)).levels.day_cost == pytest.approx(0.6)


async def test_without_a_price_a_budget_refuses(subject: Subject) -> None:
    refusal = await subject.refused(make_key(cost_per_month=1.0), cost=None)
    assert (refusal.limit, refusal.code, refusal.retry_after) == (Limit.PRICE, ErrorCode.BUDGET_EXCEEDED, 0)
    await subject.granted(make_key(requests_per_minute=1), cost=None)


async def test_without_a_price_a_lenient_budget_admits_until_it_is_used_up(lenient: Subject) -> None:
    key = make_key(cost_per_day=1.0)
    grant = await lenient.granted(key, cost=None)
    assert grant.cost == 0.0
    await lenient.settle(grant, cost=1.0)
    assert (await lenient.refused(key, cost=None)).limit is Limit.COST_PER_DAY


async def test_a_changed_limit_holds_at_once(subject: Subject) -> None:
    await subject.granted(make_key(), tokens=5)
    await subject.granted(make_key(requests_per_minute=2))
    await subject.granted(make_key(requests_per_minute=2))
    await subject.refused(make_key(requests_per_minute=2))
    subject.clock.now += 60
    await subject.granted(make_key(requests_per_minute=1))
    await subject.refused(make_key(requests_per_minute=1))
    await subject.granted(make_key(tokens_per_minute=7), tokens=7)
    await subject.refused(make_key(tokens_per_minute=7), tokens=1)


async def test_a_clock_that_is_set_back_neither_refills_nor_blocks(subject: Subject) -> None:
    key = make_key(requests_per_minute=1)
    await subject.granted(key)
    subject.clock.now -= 3600
    await subject.refused(key)
    subject.clock.now += 60
    await subject.granted(key)


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2023, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(2024, 2, 28, 23, 59, 59, tzinfo=UTC),
        datetime(2024, 2, 29, 0, 0, 0, tzinfo=UTC),
        datetime(2024, 3, 1, 0, 0, 0, tzinfo=UTC),
        datetime(2025, 2, 28, 23, 59, 59, tzinfo=UTC),
        datetime(2025, 3, 1, 0, 0, 0, tzinfo=UTC),
        datetime(2100, 2, 28, 12, 0, 0, tzinfo=UTC),
        datetime(2100, 3, 1, 0, 0, 0, tzinfo=UTC),
        *(datetime(2026, month, 1, tzinfo=UTC) for month in range(1, 13)),
    ],
    ids=str,
)
async def test_days_and_months_are_those_of_the_calendar(subject: Subject, moment: datetime) -> None:
    subject.clock.now = moment.timestamp()
    grant = await subject.granted(make_key(cost_per_day=1.0))
    assert (grant.day, grant.month) == (
        (moment - datetime(1970, 1, 1, tzinfo=UTC)).days,
        moment.year * 12 + moment.month,
    )
    assert periods(moment.timestamp()) == (grant.day, grant.month)


class TestHeaders:
    KEY = make_key(requests_per_minute=60, tokens_per_minute=6000)

    async def test_of_openai(self, subject: Subject) -> None:
        grant = await subject.granted(self.KEY, tokens=1500)
        expected = [
            (b"x-ratelimit-limit-requests", b"60"),
            (b"x-ratelimit-remaining-requests", b"59"),
            (b"x-ratelimit-reset-requests", b"1s"),
            (b"x-ratelimit-limit-tokens", b"6000"),
            (b"x-ratelimit-remaining-tokens", b"4500"),
            (b"x-ratelimit-reset-tokens", b"15s"),
        ]
        for format in ("openai_chat", "gateway", "llm_stream"):
            assert grant.headers(format) == expected

    async def test_of_anthropic(self, subject: Subject) -> None:
        grant = await subject.granted(self.KEY, tokens=1500)
        assert grant.headers("anthropic") == [
            (b"anthropic-ratelimit-requests-limit", b"60"),
            (b"anthropic-ratelimit-requests-remaining", b"59"),
            (b"anthropic-ratelimit-requests-reset", b"2025-12-01T12:00:01Z"),
            (b"anthropic-ratelimit-tokens-limit", b"6000"),
            (b"anthropic-ratelimit-tokens-remaining", b"4500"),
            (b"anthropic-ratelimit-tokens-reset", b"2025-12-01T12:00:15Z"),
        ]

    async def test_of_a_refusal(self, subject: Subject) -> None:
        key = make_key(tokens_per_minute=600)
        await subject.settle(await subject.granted(key, tokens=600), 1500)
        refusal = await subject.refused(key, tokens=5)
        assert refusal.headers("openai_chat") == [
            (b"x-ratelimit-limit-tokens", b"600"),
            (b"x-ratelimit-remaining-tokens", b"0"),
            (b"x-ratelimit-reset-tokens", b"2m30s"),
            (b"retry-after", b"91"),
        ]
        assert refusal.info.is_retryable

    async def test_a_budget_is_not_to_be_retried(self, subject: Subject) -> None:
        key = make_key(cost_per_day=1.0)
        await subject.granted(key, cost=1.0)
        refusal = await subject.refused(key, cost=0.5)
        assert refusal.headers("anthropic") == [(b"retry-after", b"43200"), (b"x-should-retry", b"false")]
        assert not refusal.info.is_retryable


class TestLoad:
    def test_brings_the_ledgers_costs_back(self) -> None:
        clock = Clock()
        limiter = MemoryLimiter()
        limiter.load({"k1": 0.75}, {"k1": 4.0, "k2": 9.5}, now=clock.now)
        key = make_key("k1", cost_per_day=1.0, cost_per_month=100.0)
        answer = limiter.admit(key, tokens=0, cost=0.3, now=clock.now)
        assert getattr(answer, "limit", None) is Limit.COST_PER_DAY
        answer = limiter.admit(key, tokens=0, cost=0.25, now=clock.now)
        assert answer.levels is not None
        assert answer.levels.month_cost == pytest.approx(4.25)
        other = limiter.admit(make_key("k2", cost_per_month=10.0), tokens=0, cost=0.6, now=clock.now)
        assert getattr(other, "limit", None) is Limit.COST_PER_MONTH

    def test_of_an_old_period_is_forgotten(self) -> None:
        limiter = MemoryLimiter()
        limiter.load({"k1": 1.0}, {"k1": 1.0}, now=NOON)
        answer = limiter.admit(make_key(cost_per_day=1.0), tokens=0, cost=1.0, now=NOON + DAY)
        assert getattr(answer, "limit", None) is None
