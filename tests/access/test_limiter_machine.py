"""The limiter against a model that keeps every request and counts anew each time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from headrace.access.keys import Key
from headrace.access.limits import Grant, Limit, MemoryLimiter, Refusal
from tests.access.limiters import NOON, make_key

SLACK = 1e-6


@dataclass
class Entry:
    grant: Grant
    at: float
    tokens: int
    cost: float
    running: bool = True


class LimiterMachine(RuleBasedStateMachine):
    grants: Bundle[Entry] = Bundle("grants")

    @initialize(
        requests=st.none() | st.integers(1, 8),
        tokens=st.none() | st.integers(1, 500),
        streams=st.none() | st.integers(1, 4),
        per_day=st.none() | st.floats(0.5, 5),
        per_month=st.none() | st.floats(0.5, 5),
    )
    def begin(
        self,
        requests: int | None,
        tokens: int | None,
        streams: int | None,
        per_day: float | None,
        per_month: float | None,
    ) -> None:
        self.now = NOON
        self.limiter = MemoryLimiter()
        self.entries: list[Entry] = []
        self.key: Key = make_key(
            requests_per_minute=requests,
            tokens_per_minute=tokens,
            concurrent_streams=streams,
            cost_per_day=per_day,
            cost_per_month=per_month,
        )

    def running(self) -> int:
        return sum(entry.running for entry in self.entries)

    def spent(self, *, month: bool) -> float:
        """All that is admitted in this test is of one December."""
        return sum((entry.cost for entry in self.entries if month or entry.at // 86400 == self.now // 86400), 0.0)

    @rule(target=grants, tokens=st.integers(0, 600), cost=st.floats(0, 2))
    def admit(self, tokens: int, cost: float) -> Entry:
        answer = self.limiter.admit(self.key, tokens=tokens, cost=cost, now=self.now)
        if isinstance(answer, Refusal):
            self.check_refusal(answer, tokens, cost)
            return multiple()  # type: ignore[return-value]  # nothing for the bundle
        entry = Entry(answer, self.now, tokens, cost)
        self.entries.append(entry)
        return entry

    def check_refusal(self, answer: Refusal, tokens: int, cost: float) -> None:
        key = self.key
        if answer.limit is Limit.CONCURRENT_STREAMS:
            assert self.running() == key.concurrent_streams
        elif answer.limit in (Limit.COST_PER_DAY, Limit.COST_PER_MONTH):
            most = getattr(key, answer.limit.value)
            spent = self.spent(month=answer.limit is Limit.COST_PER_MONTH)
            assert spent + cost > most - SLACK
        elif answer.limit is Limit.REQUESTS_PER_MINUTE:
            assert key.requests_per_minute is not None
            recent = sum(self.now - entry.at < 60 for entry in self.entries)
            assert recent > 0
            assert 0 < answer.retry_after <= 60 / key.requests_per_minute + 0.002
        else:
            assert answer.limit is Limit.TOKENS_PER_MINUTE
            assert key.tokens_per_minute is not None
            assert answer.retry_after > 0 or tokens > key.tokens_per_minute

    @rule(entry=grants, tokens=st.integers(0, 700), cost=st.none() | st.floats(0, 3))
    def settle(self, entry: Entry, tokens: int, cost: float | None) -> None:
        """Also of those that are settled already: that does nothing."""
        before = self.limiter._accounts["k1"].levels() if not entry.running else None
        self.limiter.settle(entry.grant, tokens=tokens, cost=cost, now=self.now)
        if before is not None:
            assert self.limiter._accounts["k1"].levels() == before
            return
        entry.running = False
        entry.tokens = tokens
        entry.cost = entry.cost if cost is None else cost

    @rule(seconds=st.sampled_from([0.1, 1, 7.5, 30, 60, 3600, 6 * 3600]))
    def wait(self, seconds: float) -> None:
        if self.now + seconds < NOON + 20 * 86400:
            self.now += seconds

    @invariant()
    def no_limit_is_overrun(self) -> None:
        if not self.entries:
            return
        key = self.key
        account = self.limiter._accounts["k1"]
        assert account.active == self.running()
        assert key.concurrent_streams is None or self.running() <= key.concurrent_streams
        if key.requests_per_minute is not None:
            assert 0 - SLACK <= account.requests <= key.requests_per_minute
            self.check_window(key.requests_per_minute, [(entry.at, 1) for entry in self.entries])
        else:
            assert account.requests == math.inf
        if key.tokens_per_minute is not None:
            assert account.tokens <= key.tokens_per_minute
        assert math.isclose(account.month_cost, self.spent(month=True), abs_tol=SLACK)
        if account.day == self.now // 86400:
            assert math.isclose(account.day_cost, self.spent(month=False), abs_tol=SLACK)

    def check_window(self, limit: int, uses: list[tuple[float, int]]) -> None:
        """In any span that ends now, no more than a full bucket and what has flown into it."""
        for start, _ in uses:
            used = sum(amount for at, amount in uses if at >= start)
            assert used <= limit + (self.now - start) * limit / 60 + SLACK


LimiterMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestLimiter = LimiterMachine.TestCase
