"""The ledger, in a real SQLite file and a real PostgreSQL: one table of tests for both."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.metering import AttemptRecord, Ledger, RecordedUsage, open_ledger
from tests.metering.samples import record


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/usage.db"
        return
    import psycopg

    url = request.getfixturevalue("postgres_url")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS headrace_usage")
    yield url


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    ledger = open_ledger(url)
    yield ledger
    ledger.close()


def test_a_record_is_stored_once_however_often_it_comes(ledger: Ledger, url: str) -> None:
    ledger.insert([record("a"), record("b")])
    ledger.insert([record("b"), record("c"), record("c")])
    ledger.insert([])
    again = open_ledger(url)
    (total,) = again.totals("model")
    again.close()
    assert (total.group, total.requests, total.prompt_tokens, total.completion_tokens) == ("fast", 3, 300, 60)
    assert total.cost_usd == pytest.approx(1.5)


def test_totals_by_each_group(ledger: Ledger) -> None:
    ledger.insert(
        [
            record("1", model="fast", provider="openai", attribution={"key": "k1"}),
            record("2", model="slow", provider="anthropic", timestamp="2026-03-05T00:00:00Z", outcome="failed"),
            record("3", model="fast", provider="anthropic", timestamp="2026-03-05T23:59:59Z", outcome="cancelled"),
        ]
    )
    for by, expected in {
        "model": {"fast": 2, "slow": 1},
        "provider": {"openai": 1, "anthropic": 2},
        "key": {"k1": 1, "": 2},
        "day": {"2026-03-04": 1, "2026-03-05": 2},
    }.items():
        totals = ledger.totals(by)  # type: ignore[arg-type]  # the keys are the groups
        assert {total.group: total.requests for total in totals} == expected
    assert [total.failed for total in ledger.totals("day")] == [0, 1]


def test_days_bound_the_totals_on_both_sides(ledger: Ledger) -> None:
    for day in range(1, 6):
        ledger.insert([record(str(day), timestamp=f"2026-03-0{day}T12:00:00Z")])
    days = [total.group for total in ledger.totals("day", since="2026-03-02", until="2026-03-04")]
    assert days == ["2026-03-02", "2026-03-03", "2026-03-04"]
    assert len(ledger.totals("day", since="2026-03-04")) == 2
    with pytest.raises(ValueError, match="yesterday"):
        ledger.totals("day", since="yesterday")


def test_an_unknown_price_is_counted_and_never_zero(ledger: Ledger) -> None:
    unpriced = RecordedUsage(prompt_tokens=1, completion_tokens=1, total_tokens=2)
    ledger.insert([record("1", usage=unpriced), record("2", model="none", usage=None)])
    totals = {total.group: total for total in ledger.totals("model")}
    assert (totals["fast"].cost_usd, totals["fast"].unpriced) == (None, 1)
    assert (totals["none"].cost_usd, totals["none"].unpriced) == (None, 0), "no tokens, so no price is missing"


def test_what_other_attempts_cost_stands_apart(ledger: Ledger) -> None:
    lost = RecordedUsage(prompt_tokens=100, completion_tokens=3, total_tokens=103, cost_usd=0.25)
    attempts = [
        AttemptRecord(provider="a", model="m", code="hedge_lost", ms=3, usage=lost),
        AttemptRecord(provider="b", model="m", ms=4, usage=RecordedUsage(cost_usd=0.5)),
    ]
    ledger.insert([record("1", attempts=attempts)])
    (total,) = ledger.totals("model")
    assert (total.cost_usd, total.other_cost_usd) == (0.5, 0.25)


def test_several_open_it_at_once(url: str) -> None:
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            ledger = open_ledger(url)
            ledger.insert([record(f"{number}-{position}") for position in range(50)])
            ledger.close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    ledger = open_ledger(url)
    assert ledger.totals("model")[0].requests == 300
    ledger.close()


@pytest.mark.parametrize("url", ["usage.db", "mysql://x", "sqlite://", "sqlite:///", ""])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="sqlite:///PATH"):
        open_ledger(url)


def test_what_cannot_be_opened_says_so(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database at all, just text" * 100)
    with pytest.raises(OSError, match=r"text\.db cannot be opened"):
        open_ledger(f"sqlite:///{tmp_path}/text.db")
    with pytest.raises(OSError, match="cannot be opened"):
        open_ledger("postgresql://nobody@127.0.0.1:1/none")
