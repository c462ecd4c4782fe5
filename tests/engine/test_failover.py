"""Failures that nobody sees: retries, the next candidate, circuits, hedging, deadlines; and what is said of them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headrace.engine import Abort, Command, Connect, Finish, Plan, SendHead, Settle, Timeouts
from headrace.model.errors import ErrorCode, ErrorInfo
from headrace.routing.breaker import Breaker, BreakerSettings, State
from headrace.routing.retry import RetryPolicy
from tests.engine.fakes import ONCE, Driver, acme, answer, line, sse

START = sse(line("start"))
TWICE = RetryPolicy(attempts=2, base=0.2, cap=4)


def text(value: str) -> bytes:
    return sse(line("text", value))


def plan(*names: str, retry: RetryPolicy = ONCE, **more: Any) -> Plan:
    """Candidates of these names."""
    candidates = [acme(provider=name, model=f"{name}-model", **more.pop(name, {})) for name in names]
    return Plan(candidates, strategy="ordered", retry=retry, rng=random.Random(1), **more)


def connected(driver: Driver) -> list[int]:
    """The candidates that were asked, in order."""
    return [command.candidate for command in driver.seen if isinstance(command, Connect)]


# Ways of failing before anything was visible, each with the code under which it is told.
FAILURES: dict[str, tuple[Any, str]] = {
    "refused": (lambda d: d.fail("upstream_connect"), "provider_unavailable"),
    "connect timeout": (lambda d: d.fail("upstream_connect_timeout", code=ErrorCode.TIMEOUT), "timeout"),
    "tls": (lambda d: d.fail("upstream_tls"), "provider_unavailable"),
    "500": (lambda d: d.headers(500).end(), "provider_unavailable"),
    "503": (lambda d: d.headers(503, retry_after="0").end(), "provider_unavailable"),
    "429": (lambda d: d.headers(429).end(), "provider_rate_limited"),
    "500 cut": (lambda d: d.headers(500).fail(), "provider_unavailable"),
    "reset after headers": (lambda d: d.headers().fail(), "provider_unavailable"),
    "a web page": (lambda d: d.headers(200, "text/html"), "provider_unavailable"),
    "error event": (lambda d: d.headers().data(sse(line("error", "overloaded"))), "provider_rate_limited"),
    "error event after the start": (
        lambda d: d.headers().data(START + sse(line("error", "overloaded"))),
        "provider_rate_limited",
    ),
    "cut in the first event": (lambda d: d.headers().data(START[:9]).end(), "provider_unavailable"),
    "cut after the start": (lambda d: d.headers().data(START).end(), "provider_unavailable"),
    "malformed": (lambda d: d.headers().data(START + sse(b"nonsense")), "provider_unavailable"),
    "empty delta, then reset": (lambda d: d.headers().data(START + text("")).fail(), "provider_unavailable"),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("failure", FAILURES)
def test_the_next_candidate_takes_over_and_nothing_shows(failure: str, stream: bool) -> None:
    fail, code = FAILURES[failure]
    driver = Driver(stream=stream, plan=plan("a", "b", a={"stream": True}, b={"stream": True})).begin()
    fail(driver)
    assert connected(driver) == [0, 1], "at once: no time has passed"
    assert driver.body == b""
    driver.headers().data(answer("x")).end()
    if stream:
        assert driver.told == ["start", "x", "end"]
        routing = driver.lines()[-1]["routing"]
        assert routing == {
            "strategy": "ordered",
            "selected_provider": "b",
            "selected_model": "b-model",
            "attempts": 2,
            "failovers": 1,
            "tried": [{"provider": "a", "model": "a-model", "code": code, "ms": 0.0}],
            "cache": "miss",
        }
        assert driver.lines()[0]["provider"] == "b", "start names who really answers"
    else:
        assert driver.json["text"] == "x"
        assert driver.json["provider"] == "b"
    outcome = driver.outcome
    assert (outcome.kind, outcome.provider, outcome.failovers, outcome.error) == ("completed", "b", 1, None)
    assert [(tried.provider, tried.code) for tried in outcome.attempts] == [("a", code), ("b", None)]


def test_a_whole_answer_fails_over_even_in_its_midst() -> None:
    driver = Driver(stream=False, plan=plan("a", "b", a={"stream": True}, b={"stream": True})).open()
    driver.data(START + text("half")).fail()
    assert connected(driver) == [0, 1]
    driver.headers().data(answer("whole")).end()
    assert driver.json["text"] == "whole", "nothing of the first is left"


@pytest.mark.parametrize("cut", [True, False])
def test_once_something_was_seen_nobody_takes_over(cut: bool) -> None:
    driver = Driver(plan=plan("a", "b")).open()
    pieces = [START, text("x"), sse(line("error", "overloaded"))]
    for piece in pieces if cut else [b"".join(pieces)]:
        driver.data(piece)
    assert connected(driver) == [0]
    assert driver.told == ["start", "x", ("error", "provider_rate_limited", None)]


@pytest.mark.parametrize("status", [400, 422])
def test_the_callers_own_mistake_is_tried_nowhere_else(status: int) -> None:
    driver = Driver(plan=plan("a", "b", retry=TWICE)).begin().headers(status).end()
    assert connected(driver) == [0]
    assert driver.head.status == 400


@pytest.mark.parametrize(("status", "again"), [(401, False), (403, False), (404, False), (500, True), (429, True)])
def test_what_is_retried_and_what_fails_over(status: int, again: bool) -> None:
    driver = Driver(plan=plan("a", "b", retry=TWICE)).begin().headers(status).end().wait(1)
    assert connected(driver) == ([0, 0] if again else [0, 1])


def test_retries_come_first_with_growing_waits_within_bounds() -> None:
    driver = Driver(plan=plan("a", "b", retry=RetryPolicy(attempts=3, base=0.2, cap=4))).begin()
    times = [driver.now]
    for _ in range(2):
        driver.headers(500).end()
        asked = driver.count(Connect)
        due = driver.stream.dispatch_at
        assert driver.count(Connect) == asked
        driver.wait(due - driver.now)
        times.append(driver.now)
    assert connected(driver) == [0, 0, 0]
    assert 0 < times[1] - times[0] <= 0.2
    assert 0 < times[2] - times[1] <= 0.4
    driver.headers(500).end()
    assert connected(driver) == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("wait", "names", "asked"),
    [
        ("1", ["a", "b"], [0, 0]),  # short: worth waiting for
        ("30", ["a", "b"], [0, 1]),  # long: another one first
        ("30", ["a"], [0, 0]),  # long, but there is nobody else
        ("90", ["a"], [0]),  # beyond the deadline: the caller may wait, we do not
    ],
)
def test_retry_after_is_honoured(wait: str, names: list[str], asked: list[int]) -> None:
    driver = Driver(plan=plan(*names, retry=TWICE, deadline=60)).begin()
    begun = driver.now
    driver.headers(503, retry_after=wait).end()
    if asked == [0, 0]:
        assert driver.stream.dispatch_at == begun + float(wait)
        driver.wait(float(wait))
    assert connected(driver) == asked
    if asked == [0]:
        assert driver.head.headers == (("retry-after", wait),)


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_failovers_are_limited(limit: int) -> None:
    driver = Driver(plan=plan("a", "b", "c", "d", max_failovers=limit)).begin()
    while driver.count(SendHead) == 0:
        driver.headers(500).end()
    assert connected(driver) == list(range(limit + 1))
    assert driver.outcome.failovers == limit


def test_when_all_fail_the_last_error_names_those_that_were_tried() -> None:
    seen: list[ErrorInfo] = []
    driver = Driver(plan=plan("a", "b")).begin()
    driver.headers(500).end().wait(0.5).headers(429, retry_after="7").end()
    assert driver.head == SendHead(429, "application/json", (("retry-after", "7"),))
    outcome = driver.outcome
    assert outcome.error is not None
    seen.append(outcome.error)
    assert outcome.error.provider == "b"
    assert outcome.error.details == {
        "tried": [
            {"provider": "a", "model": "a-model", "code": "provider_unavailable", "ms": 0.0},
            {"provider": "b", "model": "b-model", "code": "provider_rate_limited", "ms": 500.0},
        ]
    }


def test_after_a_keepalive_went_out_failing_over_goes_on_unseen() -> None:
    driver = Driver(plan=plan("a", "b"), timeouts=Timeouts(first_token=20, keepalive=15)).open().wait(16)
    assert driver.head.status == 200, "the head went out with a comment"
    driver.wait(5)
    assert connected(driver) == [0, 1]
    driver.headers().data(answer("x"))
    assert driver.told == ["start", "x", "end"]
    assert driver.lines()[-1]["routing"]["failovers"] == 1


def test_the_deadline_bounds_everything() -> None:
    driver = Driver(plan=plan("a", "b", "c", retry=TWICE, deadline=50)).begin()
    begun = driver.now
    driver.wait(200)
    assert driver.outcome.duration == pytest.approx(50)
    assert driver.now > begun + 50
    assert driver.outcome.error is not None
    assert driver.outcome.error.code is ErrorCode.TIMEOUT
    assert driver.count(Abort) == driver.count(Connect)


def test_the_deadline_is_over_when_the_answer_begins() -> None:
    driver = Driver(plan=plan("a", deadline=50)).open().data(START + text("a"))
    for _ in range(10):
        driver.wait(10).data(text("a"))
    assert driver.data(sse(line("end"))).outcome.kind == "completed"


@pytest.mark.parametrize("how", ["gone", "cancel"])
def test_a_wait_for_a_retry_ends_with_its_caller(how: str) -> None:
    driver = Driver(plan=plan("a", retry=TWICE)).begin().headers(500).end()
    getattr(driver, how)()
    assert driver.outcome.kind == "cancelled"
    driver.wait(100)
    assert connected(driver) == [0]
    assert driver.stream.done


# --- circuits ---------------------------------------------------------------------------------------------------------


def circuit() -> Breaker:
    return Breaker(BreakerSettings(min_requests=2, error_threshold=0.5, window=30, open_for=15, trials=1))


def test_an_open_circuit_is_passed_over() -> None:
    breaker = circuit()
    breaker.open(1000)
    driver = Driver(plan=plan("a", "b", a={"circuit": breaker})).open().data(answer("x"))
    assert connected(driver) == [1]
    routing = driver.lines()[-1]["routing"]
    assert (routing["attempts"], routing["failovers"], routing["selected_provider"]) == (1, 1, "b")
    assert routing["tried"] == [{"provider": "a", "model": "a-model", "code": "circuit_open", "ms": 0.0}]


def test_with_all_circuits_open_the_caller_hears_when_to_come_back() -> None:
    breakers = [circuit(), circuit()]
    breakers[0].open(995)
    breakers[1].open(1000)
    driver = Driver(plan=plan("a", "b", a={"circuit": breakers[0]}, b={"circuit": breakers[1]})).begin()
    assert connected(driver) == []
    assert driver.head == SendHead(503, "application/json", (("retry-after", "10"),))
    assert driver.outcome.error is not None
    assert driver.outcome.error.type == "circuit_open"


@pytest.mark.parametrize(
    ("ends", "state"),
    [
        (lambda d: d.headers(500).end(), State.OPEN),
        (lambda d: d.headers().data(START + text("a")).fail(), State.OPEN),
        (lambda d: d.headers().data(sse(line("error", "x"))), State.OPEN),
        (lambda d: d.wait(25), State.OPEN),
        (lambda d: d.headers(400).end(), State.HALF_OPEN),
        (lambda d: d.headers(401).end(), State.HALF_OPEN),
        (lambda d: d.gone(), State.HALF_OPEN),
        (lambda d: d.headers().data(START + text("a")).cancel(), State.HALF_OPEN),
        (lambda d: d.headers().data(answer("a")), State.CLOSED),
    ],
)
def test_how_a_trial_ends_decides_on_the_circuit(ends: Any, state: State) -> None:
    breaker = circuit()
    breaker.open(980)
    driver = Driver(plan=plan("a", a={"circuit": breaker})).begin()
    assert not breaker.allow(driver.now), "the only trial is taken"
    ends(driver)
    assert breaker.state(driver.now) is state
    assert breaker.allow(driver.now) is (state is not State.OPEN), "its place is free again, once"


# --- hedging ----------------------------------------------------------------------------------------------------------


def hedged(*names: str, **more: Any) -> Driver:
    return Driver(plan=plan(*names, hedge_after=0.8, **more))


def test_no_hedge_where_the_first_is_quick() -> None:
    driver = hedged("a", "b").open().wait(0.7).data(START + text("x")).wait(10)
    assert connected(driver) == [0]


def test_an_answer_that_only_began_does_not_stop_the_hedge() -> None:
    driver = hedged("a", "b").open().data(START).wait(1)
    assert connected(driver) == [0, 1]


@pytest.mark.parametrize("winner", [0, 1])
def test_the_first_visible_output_wins_and_the_other_is_cut_off(winner: int) -> None:
    driver = hedged("a", "b", "c").begin().wait(1).headers(of=0).headers(of=1)
    driver.data(START, of=1 - winner)
    driver.data(START + text("x"), of=winner)
    assert [command for command in driver.seen if isinstance(command, Abort)] == [Abort(1 - winner)]
    driver.data(text("lost"), of=1 - winner).data(text("y"), of=winner).data(sse(line("end")), of=winner)
    assert driver.told == ["start", "x", "y", "end"]
    routing = driver.lines()[-1]["routing"]
    assert routing["selected_provider"] == "ab"[winner]
    assert (routing["attempts"], routing["failovers"]) == (2, winner)
    assert [entry["code"] for entry in routing["tried"]] == ["hedge_lost"]
    assert [tried.code for tried in driver.outcome.attempts] == ["hedge_lost", None]


@pytest.mark.parametrize("first", [0, 1])
def test_when_one_of_two_fails_the_other_goes_on_alone(first: int) -> None:
    driver = hedged("a", "b", "c").begin().wait(1).headers(of=0).headers(of=1)
    driver.fail(of=first)
    assert driver.count(Connect) == 2
    driver.data(answer("x"), of=1 - first)
    assert driver.told == ["start", "x", "end"]
    assert driver.outcome.attempts[-1].provider == "ab"[1 - first]


def test_when_both_fail_the_third_is_asked() -> None:
    driver = hedged("a", "b", "c").begin().wait(1).headers(of=0).headers(of=1).fail(of=0).fail(of=1)
    assert connected(driver) == [0, 1, 2]
    driver.headers().data(answer("x"))
    assert driver.told == ["start", "x", "end"]


def test_whole_answers_and_lone_candidates_are_not_hedged() -> None:
    assert connected(hedged("a").begin().wait(5)) == [0]
    assert connected(Driver(stream=False, plan=plan("a", "b", hedge_after=0.8)).begin().wait(5)) == [0]


def test_a_hedge_does_not_go_through_an_open_circuit() -> None:
    breaker = circuit()
    breaker.open(1000)
    assert connected(hedged("a", "b", "c", b={"circuit": breaker}).begin().wait(1)) == [0, 2]


def test_the_caller_leaves_both() -> None:
    driver = hedged("a", "b").begin().wait(1).headers(of=0).gone()
    assert driver.count(Abort) == 2
    assert driver.stream.done


# --- order ------------------------------------------------------------------------------------------------------------


class Ordered(Driver):
    """Keeps the order of commands and bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[str] = []

    def see(self, command: Command) -> None:
        super().see(command)
        self.order.append(type(command).__name__)

    def write(self, data: bytes) -> None:
        super().write(data)
        self.order.append("bytes")


def test_it_is_settled_before_the_terminal_event_is_handed_out() -> None:
    driver = Ordered()
    driver.open().data(START + text("a"))
    driver.order.clear()
    driver.data(sse(line("end")))
    assert driver.order == [Settle.__name__, "bytes", Finish.__name__]
