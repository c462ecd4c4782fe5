"""What a request consumed: exact, partial or estimated; priced; told while it streams and in the end; held to a budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from headrace.engine import Abort, Plan, Upstream
from headrace.engine.attempt import CHECKED_FOLD, FOLD
from headrace.model.errors import ErrorCode, ErrorInfo
from headrace.model.usage import Usage
from tests.engine.fakes import ONCE, Driver, acme, answer, line, sse

START = sse(line("start"))
PROMPT = 100


def text(value: str) -> bytes:
    return sse(line("text", value))


class Scale:
    """A meter that takes every character for a token, at a dollar for a hundred."""

    def __init__(self, *, price: float | None = 0.01, budget: int | None = None) -> None:
        self.price = price
        self.budget = budget
        self.limited = budget is not None
        self.prompts = 0

    def prompt_tokens(self, upstream: Upstream) -> int:
        self.prompts += 1
        return PROMPT

    def output_tokens(self, upstream: Upstream, texts: Sequence[str]) -> int:
        return len("".join(texts))

    def cost(self, upstream: Upstream, usage: Usage) -> float | None:
        return None if self.price is None else round((usage.total_tokens or 0) * self.price, 6)

    def exceeded(self, upstream: Upstream, output_tokens: int) -> ErrorInfo | None:
        if self.budget is None or output_tokens <= self.budget:
            return None
        return ErrorInfo(code=ErrorCode.BUDGET_EXCEEDED, type="budget_exceeded", message="too much")


def metered(**more: Any) -> tuple[Driver, Scale]:
    scale = Scale(**{name: more.pop(name) for name in ("price", "budget") if name in more})
    return Driver(meter=scale, **more), scale


def test_a_provider_that_counts_is_believed_and_nothing_is_estimated() -> None:
    driver, scale = metered()
    driver.open().data(START + text("abc") + sse(line("tokens", [7, 9])) + sse(line("end")))
    outcome = driver.outcome
    assert outcome.usage == Usage(input_tokens=7, output_tokens=9, cost_usd=0.16)
    assert outcome.quality == "exact"
    assert scale.prompts == 0
    assert driver.lines()[-1]["usage"] == [7, 9, 0.16], "the terminal event has it, with its cost"


def test_a_provider_that_does_not_count_is_estimated() -> None:
    driver, _ = metered()
    driver.open().data(answer("abc", "de"))
    assert driver.outcome.usage == Usage(input_tokens=PROMPT, output_tokens=5, cost_usd=1.05, estimated=True)
    assert driver.outcome.quality == "estimated"
    assert driver.lines()[-1]["usage"] == [PROMPT, 5, 1.05]


def test_real_counts_replace_estimates_field_by_field() -> None:
    driver, _ = metered()
    driver.open().data(START + text("abc") + sse(line("usage", 9)) + sse(line("end")))
    assert driver.outcome.usage == Usage(input_tokens=PROMPT, output_tokens=9, cost_usd=1.09, estimated=True)
    assert driver.outcome.quality == "partial"


@pytest.mark.parametrize("end", ["fail", "gone", "cancel", "silence"])
def test_an_answer_that_was_cut_counts_as_far_as_it_came(end: str) -> None:
    driver, _ = metered()
    driver.open().data(START + text("abc") + sse(line("tokens", [7, 1]))).data(text("de"))
    if end == "silence":
        driver.wait(100)
    else:
        getattr(driver, end)()
    assert driver.outcome.usage == Usage(input_tokens=7, output_tokens=5, cost_usd=0.12, estimated=True)
    assert driver.outcome.quality == "partial", "the provider's input, our output: its last count was of the beginning"


def test_who_never_began_to_answer_consumed_nothing() -> None:
    for driver in (
        metered()[0].begin().gone(),
        metered()[0].begin().fail(),
        metered()[0].begin().headers(500).end(),
    ):
        assert driver.outcome.usage is None
        assert driver.outcome.quality is None


def test_an_unknown_price_leaves_the_cost_out() -> None:
    driver, _ = metered(price=None)
    driver.open().data(answer("abc"))
    assert driver.outcome.usage is not None
    assert driver.outcome.usage.cost_usd is None


def test_every_attempt_is_counted_for_itself() -> None:
    plan = Plan([acme(provider="a"), acme(provider="b")], retry=ONCE, hedge_after=0.8)
    driver, _ = metered(plan=plan)
    driver.begin().headers().wait(1).headers().data(START, of=0).data(answer("abc"), of=1)
    lost, won = driver.outcome.attempts
    assert (lost.code, lost.usage) == (
        "hedge_lost",
        Usage(input_tokens=PROMPT, output_tokens=0, cost_usd=1.0, estimated=True),
    )
    assert won.usage == driver.outcome.usage


def test_a_failed_stream_tells_what_it_consumed_before_its_error() -> None:
    driver, _ = metered()
    driver.open().data(START + text("abc")).cancel()
    assert driver.told == ["start", "abc", "usage", ("error", "cancelled", "cancelled")]
    assert driver.lines()[-2] == {"t": "usage", "v": 3, "cost": 1.03}


def test_interim_usage_comes_at_its_interval_and_ends_with_the_stream() -> None:
    driver, _ = metered(usage_interval=5.0)
    driver.open().wait(10).data(START + text("abc"))
    assert driver.told == ["start", "abc"], "there is nothing to tell before the answer"
    driver.wait(5).data(text("de")).wait(5)
    assert driver.told == ["start", "abc", "usage", "de", "usage"]
    assert [said["v"] for said in driver.lines() if said["t"] == "usage"] == [3, 5]
    driver.data(sse(line("end"))).end().wait(100)
    assert driver.told[-1] == "end"


def test_interim_usage_waits_while_the_caller_does_not_read() -> None:
    driver, _ = metered(usage_interval=5.0)
    driver.open().data(START + text("abc")).block().wait(20)
    assert driver.stream.buffered == 0
    driver.unblock().wait(5)
    assert driver.told == ["start", "abc", "usage"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_budget_ends_the_answer_soon_after_it_is_reached(stream: bool) -> None:
    driver, _ = metered(budget=50, stream=stream, upstream=acme(stream=True))
    driver.open().data(START)
    for _ in range(200):
        driver.data(text("ab"))
    assert driver.count(Abort) == 1
    assert driver.outcome.error is not None
    assert driver.outcome.error.code is ErrorCode.BUDGET_EXCEEDED
    if stream:
        said = "".join(word for word in driver.told if isinstance(word, str) and word.startswith("ab"))
        assert 50 < len(said) <= 50 + 2 * CHECKED_FOLD
        assert driver.told[-2:] == ["usage", ("error", "budget_exceeded", "budget_exceeded")]
    else:
        assert driver.head.status == 402


def test_output_is_counted_in_bounded_pieces() -> None:
    driver, _ = metered()
    driver.open().data(START + text("x"))
    for _ in range(3 * FOLD):
        driver.data(text("x"))
    (attempt,) = driver.stream._attempts
    assert len(attempt.texts) < FOLD
    driver.data(sse(line("end")))
    assert driver.outcome.usage is not None
    assert driver.outcome.usage.output_tokens == 3 * FOLD + 1


def test_a_meter_that_fails_does_not_fail_the_answer() -> None:
    class Broken(Scale):
        def cost(self, upstream: Upstream, usage: Usage) -> float | None:
            raise LookupError("a bug")

    driver = Driver(meter=Broken()).open().data(answer("abc"))
    assert driver.told == ["start", "abc", "end"]
    assert driver.outcome.kind == "completed"
    assert isinstance(driver.outcome.exception, LookupError)
