"""The ledger, in a real SQLite file and a real PostgreSQL: one table of tests for both."""

from __future__ import annotations

import sqlite3
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
        connection.execute("DROP TABLE IF EXISTS headrace_usage, headrace_usage_schema")
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
    assert len(ledger.totals("day", until="2026-03-04")) == 4
    assert len(ledger.totals("day", since="20260304")) == 2, "any form of ISO 8601"
    for bad in ("yesterday", "2026-3-4", "2026-13-01", "'; DROP TABLE headrace_usage; --"):
        with pytest.raises(ValueError, match="not a date"):
            ledger.totals("day", since=bad)


def test_an_unknown_price_is_counted_and_never_zero(ledger: Ledger) -> None:
    unpriced = RecordedUsage(prompt_tokens=1, completion_tokens=1, total_tokens=2)
    ledger.insert([record("1", usage=unpriced), record("2", model="none", usage=None)])
    totals = {total.group: total for total in ledger.totals("model")}
    assert (totals["fast"].cost_usd, totals["fast"].unpriced) == (None, 1)
    assert (totals["none"].cost_usd, totals["none"].unpriced) == (None, 0), "no tokens, so no price is missing"


def test_what_other_attempts_cost_stands_apart(ledger: Ledger) -> None:
    def usage(usd: float | None) -> RecordedUsage:
        return RecordedUsage(prompt_tokens=100, completion_tokens=3, total_tokens=103, cost_usd=usd)

    loser = AttemptRecord(provider="a", model="m", code="hedge_lost", ms=3, usage=usage(0.25))
    unpriced = AttemptRecord(provider="b", model="m", code="internal", ms=3, usage=usage(None))
    silent = AttemptRecord(provider="c", model="m", code="timeout", ms=3)
    answered = AttemptRecord(provider="d", model="m", ms=4, usage=usage(0.5))
    cut = AttemptRecord(provider="d", model="m", code="provider_error", ms=4, usage=usage(0.5))
    ledger.insert(
        [
            record("1", attempts=[loser, unpriced, silent, answered]),
            record("2", attempts=[cut], outcome="failed", error="provider_error"),
        ]
    )
    (total,) = ledger.totals("model")
    assert (total.cost_usd, total.other_cost_usd) == (1.0, 0.25), "nothing is counted twice"


def test_no_name_and_no_count_keeps_a_record_out(ledger: Ledger) -> None:
    """What callers and providers make up is stored in a form that every database takes."""
    names = ["a\0b", "\ud800", "x" * 10_000, "'; DROP TABLE headrace_usage; --", ""]
    counts = [-1, 2**53, 2**63, 10**30, 0]
    odd = [
        record(
            f"odd-{number}",
            model=name,
            provider_model=name,
            attribution={"key": name, name: name},
            usage=RecordedUsage(prompt_tokens=count, completion_tokens=count, cost_usd=cost),
        )
        for number, (name, count, cost) in enumerate(
            zip(names, counts, (float("nan"), float("inf"), 1.0, None, 0.0), strict=True)
        )
    ]
    ledger.insert([*odd, record("plain")])
    ledger.insert([record(f"many-{n}", usage=RecordedUsage(prompt_tokens=10**30, cost_usd=1.0)) for n in range(2000)])
    totals = {total.group: total for total in ledger.totals("model")}
    assert set(totals) == {"a\ufffdb", "\ufffd", "x" * 512, "'; DROP TABLE headrace_usage; --", "", "fast"}
    assert totals["a\ufffdb"].cost_usd is None, "what is no number is no price"
    assert totals["fast"].prompt_tokens > 2000 * 10**9


def test_a_ledger_of_a_newer_version_is_left_alone(ledger: Ledger, url: str) -> None:
    statement = "INSERT INTO headrace_usage_schema VALUES (99)"
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            connection.execute(statement)
    else:
        import psycopg

        with psycopg.connect(url, autocommit=True) as other:
            other.execute(statement)
    with pytest.raises(OSError, match="newer Headrace"):
        open_ledger(url)


def test_reading_makes_nothing(url: str, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"no ledger|headrace_usage"):
        open_ledger(url, create=False)
    assert list(tmp_path.iterdir()) == []
    open_ledger(url).close()
    reader = open_ledger(url, create=False)
    assert reader.totals("model") == []
    reader.close()


def test_a_postgres_user_who_may_only_read_can_read(postgres_url: str) -> None:
    import psycopg

    writer = open_ledger(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        connection.execute("DROP ROLE IF EXISTS reader")
        connection.execute("CREATE ROLE reader LOGIN")
        connection.execute("GRANT SELECT ON headrace_usage, headrace_usage_schema TO reader")
        reader = open_ledger(postgres_url.replace("headrace@", "reader@"), create=False)
        reader.totals("model")
        with pytest.raises(OSError, match="permission denied"):
            reader.insert([record("1")])
        reader.close()
        connection.execute("DROP OWNED BY reader")
        connection.execute("DROP ROLE reader")
    writer.close()


def test_a_broken_connection_is_opened_anew(postgres_url: str) -> None:
    import psycopg

    ledger = open_ledger(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DELETE FROM headrace_usage")
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    with pytest.raises(OSError, match="does not take records"):
        ledger.insert([record("1")])
    ledger.insert([record("1")])
    assert ledger.totals("model")[0].requests == 1
    ledger.close()


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
    with pytest.raises(OSError, match="cannot be read") as raised:
        open_ledger("postgresql://user:top@secret:word@127.0.0.1/none?x")
    assert "secret" not in str(raised.value)
