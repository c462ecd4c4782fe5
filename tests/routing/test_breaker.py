"""The circuit breaker: by its rules one by one, and against a model so simple that it is right."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.routing.breaker import Breaker, Breakers, BreakerSettings, State

SETTINGS = BreakerSettings(error_threshold=0.5, window=30, min_requests=20, open_for=15, trials=5)


def opened(now: float = 1000.0) -> Breaker:
    breaker = Breaker(SETTINGS)
    breaker.open(now)
    return breaker


@pytest.mark.parametrize(("failures", "requests", "state"), [(10, 20, "open"), (9, 20, "closed"), (19, 19, "closed")])
def test_half_of_at_least_twenty_open_it(failures: int, requests: int, state: str) -> None:
    breaker = Breaker(SETTINGS)
    for number in range(requests):
        assert breaker.allow(1000)
        if number < requests - failures:
            breaker.succeeded(1000)
        else:
            breaker.failed(1000)
    assert breaker.state(1000).value == state
    assert breaker.allow(1000) is (state == "closed")


def test_what_is_older_than_the_window_does_not_count() -> None:
    breaker = Breaker(SETTINGS)
    for _ in range(19):
        breaker.failed(1000)
    assert breaker.counts(1026) == (19, 19)
    breaker.failed(1034)
    assert breaker.counts(1034) == (1, 1)
    assert breaker.state(1034) is State.CLOSED


def test_it_stays_open_for_its_time_and_then_lets_trials_through() -> None:
    breaker = opened()
    assert not breaker.allow(1014.9)
    assert breaker.retry_at(1001) == 1015
    assert breaker.state(1015) is State.HALF_OPEN
    assert [breaker.allow(1015) for _ in range(7)] == [True] * 5 + [False] * 2


def test_all_trials_have_to_succeed() -> None:
    breaker = opened()
    for _ in range(5):
        assert breaker.allow(1016)
    for _ in range(4):
        breaker.succeeded(1017)
        assert breaker.state(1017) is State.HALF_OPEN
    breaker.succeeded(1017)
    assert breaker.state(1017) is State.CLOSED
    assert breaker.counts(1017) == (0, 0), "it begins anew"


def test_one_failed_trial_opens_it_again() -> None:
    breaker = opened()
    assert breaker.allow(1016)
    assert breaker.allow(1016)
    breaker.failed(1017)
    assert not breaker.allow(1017 + 14.9)
    assert breaker.allow(1017 + 15)


def test_a_trial_that_says_nothing_gives_its_place_back() -> None:
    breaker = opened()
    for _ in range(20):
        assert breaker.allow(1016)
        breaker.released(1016)
    assert breaker.state(1016) is State.HALF_OPEN


def test_ends_of_requests_from_before_change_nothing_while_it_is_open() -> None:
    breaker = opened()
    breaker.succeeded(1001)
    breaker.failed(1001)
    breaker.released(1001)
    assert breaker.retry_at(1001) == 1015
    assert breaker.counts(1001) == (0, 0)


def test_what_others_have_counted_counts() -> None:
    breaker = Breaker(SETTINGS)
    breaker.elsewhere = (19, 12)
    breaker.succeeded(1000)
    assert breaker.state(1000) is State.CLOSED, "a success opens nothing"
    breaker.failed(1000)
    assert breaker.state(1000) is State.OPEN


def test_circuits_are_kept_by_provider_and_model_within_bounds() -> None:
    breakers = Breakers(SETTINGS)
    first = breakers.circuit("a", "m")
    assert breakers.circuit("a", "m") is first
    assert breakers.circuit("b", "m") is not first
    for number in range(20_000):
        breakers.circuit("a", f"x{number}")
    assert len(breakers.snapshot(1000)) <= 10_000


def test_the_snapshot_says_how_each_stands() -> None:
    breakers = Breakers(SETTINGS)
    breakers.circuit("a", "m").failed(1000)
    breakers.circuit("b", "m").open(1000)
    assert breakers.snapshot(1005) == {
        ("a", "m"): {"state": "closed", "requests": 1, "failures": 1},
        ("b", "m"): {"state": "open", "requests": 0, "failures": 0, "retry_in": 10.0},
    }


class BreakerMachine(RuleBasedStateMachine):
    """The model keeps lists of times; buckets let go of a failure up to a tenth of the window early."""

    @initialize(trials=st.integers(1, 3), threshold=st.sampled_from([0.3, 0.5, 1.0]), least=st.integers(1, 6))
    def start(self, trials: int, threshold: float, least: int) -> None:
        self.settings = BreakerSettings(threshold, 30, least, 15, trials)
        self.breaker = Breaker(self.settings)
        self.now = 1000.0
        self.ends: list[tuple[float, bool]] = []  # (bucket's number, failed) while closed
        self.open_since: float | None = None
        self.half = False
        self.running = self.successes = 0
        self.flying: list[bool] = []  # whether each request in flight is a trial

    def bucket(self) -> int:
        return int(self.now * 10 / 30)

    @rule(seconds=st.sampled_from([0.1, 1.0, 4.0, 16.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def ask(self) -> None:
        due = self.open_since is not None and self.now >= self.open_since + 15
        if due:
            self.open_since, self.half, self.running, self.successes = None, True, 0, 0
            self.flying = [False for _ in self.flying]
        expected = self.open_since is None and (not self.half or self.running + self.successes < self.settings.trials)
        assert self.breaker.allow(self.now) is expected
        if expected:
            self.flying.append(self.half)
            self.running += self.half

    @precondition(lambda self: self.flying and (not self.half or all(self.flying)))
    @rule(pick=st.integers(0, 50), how=st.sampled_from(["succeeded", "failed", "released"]))
    def end(self, pick: int, how: str) -> None:
        trial = self.flying.pop(pick % len(self.flying))
        getattr(self.breaker, how)(self.now)
        if self.open_since is not None or (how == "released" and not trial):
            return
        if trial and self.half:
            self.running -= 1
            if how == "failed":
                self.open()
            elif how == "succeeded":
                self.successes += 1
                if self.successes >= self.settings.trials:
                    self.half, self.ends = False, []
                    self.flying = [False for _ in self.flying]
        elif not self.half:
            self.ends.append((self.bucket(), how == "failed"))
            recent = [failed for bucket, failed in self.ends if bucket > self.bucket() - 10]
            enough = len(recent) >= self.settings.min_requests
            if how == "failed" and enough and sum(recent) >= len(recent) * self.settings.error_threshold:
                self.open()

    def open(self) -> None:
        self.open_since, self.half, self.ends = self.now, False, []

    @invariant()
    def states_agree(self) -> None:
        if self.open_since is not None:
            expected = State.HALF_OPEN if self.now >= self.open_since + 15 else State.OPEN
        else:
            expected = State.HALF_OPEN if self.half else State.CLOSED
        assert self.breaker.state(self.now) is expected


TestBreakerMachine = BreakerMachine.TestCase
TestBreakerMachine.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
