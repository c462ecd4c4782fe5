"""Where usage records are kept for good: an SQLite file, or a PostgreSQL database. Synchronous; never on a stream's path.

A record is stored once, whoever delivers it how often: its id is the primary key. Totals are counted where the data is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from headrace.metering.record import UsageRecord, encode

By = Literal["model", "provider", "key", "day"]

_COLUMNS = (
    # name, type; the same in both databases
    ("record_id", "TEXT PRIMARY KEY"),
    ("request_id", "TEXT NOT NULL"),
    ("timestamp", "TEXT NOT NULL"),
    ("day", "TEXT NOT NULL"),
    ("key_id", "TEXT NOT NULL"),
    ("model", "TEXT NOT NULL"),
    ("provider", "TEXT NOT NULL"),
    ("provider_model", "TEXT NOT NULL"),
    ("outcome", "TEXT NOT NULL"),
    ("prompt_tokens", "BIGINT NOT NULL"),
    ("completion_tokens", "BIGINT NOT NULL"),
    ("cached_tokens", "BIGINT NOT NULL"),
    ("reasoning_tokens", "BIGINT NOT NULL"),
    ("estimated", "INTEGER NOT NULL"),
    ("cost_usd", "DOUBLE PRECISION"),
    ("other_cost_usd", "DOUBLE PRECISION"),
    ("record", "TEXT NOT NULL"),
)
_NAMES = ", ".join(name for name, _ in _COLUMNS)
_CREATE = (
    f"CREATE TABLE IF NOT EXISTS headrace_usage ({', '.join(f'{name} {type}' for name, type in _COLUMNS)})",
    "CREATE INDEX IF NOT EXISTS headrace_usage_day ON headrace_usage (day, key_id)",
)
_GROUPS: dict[By, str] = {"model": "model", "provider": "provider", "key": "key_id", "day": "day"}


class Total(msgspec.Struct, kw_only=True):
    """The sum of one group. `cost_usd` is of the requests that have a price; `unpriced` counts those with tokens and
    without one."""

    group: str
    requests: int
    failed: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    cost_usd: float | None
    other_cost_usd: float | None
    unpriced: int


class Ledger(Protocol):
    """Not for several threads at once. Every method raises OSError where the database cannot be used."""

    def insert(self, records: Sequence[UsageRecord]) -> None:
        """Store these, all or none; those that are there already are left as they are."""

    def totals(self, by: By, *, since: str = "", until: str = "") -> list[Total]:
        """Sums by group, the largest cost first; days in order. `since` and `until`: dates (YYYY-MM-DD), both included."""

    def close(self) -> None: ...


def open_ledger(url: str) -> Ledger:
    """`sqlite:///PATH`, or `postgresql://...`. Raises ValueError for another URL, OSError where it cannot be opened."""
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        return SQLiteLedger(Path(rest[1:]))
    if separator and scheme in ("postgresql", "postgres"):
        return PostgresLedger(url)
    raise ValueError("a ledger is sqlite:///PATH or postgresql://USER:PASSWORD@HOST/DATABASE")


def _row(record: UsageRecord) -> tuple[Any, ...]:
    usage = record.usage
    return (
        record.record_id,
        record.request_id,
        record.timestamp,
        record.timestamp[:10],
        record.attribution.get("key", ""),
        record.model,
        record.provider,
        record.provider_model,
        record.outcome,
        usage.prompt_tokens if usage else 0,
        usage.completion_tokens if usage else 0,
        usage.cached_tokens if usage else 0,
        usage.reasoning_tokens if usage else 0,
        int(usage is not None and usage.quality != "exact"),
        usage.cost_usd if usage else None,
        record.other_cost,
        encode(record).decode(),
    )


def _totals_query(by: By, mark: str) -> str:
    group = _GROUPS[by]
    order = "1" if by == "day" else "cost DESC, 2 DESC, 1"
    return (
        f"SELECT {group}, COUNT(*), SUM(CASE WHEN outcome = 'failed' THEN 1 ELSE 0 END), SUM(prompt_tokens),"  # noqa: S608  # names from the table above
        " SUM(completion_tokens), SUM(cached_tokens), SUM(reasoning_tokens), SUM(cost_usd), SUM(other_cost_usd),"
        " SUM(CASE WHEN cost_usd IS NULL AND prompt_tokens + completion_tokens > 0 THEN 1 ELSE 0 END),"
        " COALESCE(SUM(cost_usd), 0) AS cost"
        f" FROM headrace_usage WHERE day >= {mark} AND day <= {mark} GROUP BY {group} ORDER BY {order}"
    )


def _read_totals(rows: Iterable[Sequence[Any]]) -> list[Total]:
    names = Total.__struct_fields__
    counts = (
        "requests",
        "failed",
        "prompt_tokens",
        "completion_tokens",
        "cached_tokens",
        "reasoning_tokens",
        "unpriced",
    )
    totals = []
    for row in rows:
        fields = dict(zip(names, row, strict=False))
        fields |= {name: int(fields[name] or 0) for name in counts}
        totals.append(Total(**fields))
    return totals


def _bounds(since: str, until: str) -> tuple[str, str]:
    for day in (since, until):
        if day:
            datetime.strptime(day, "%Y-%m-%d")  # noqa: DTZ007  # only checked for its form
    return since or "0000-00-00", until or "9999-99-99"


class SQLiteLedger:
    """A file in WAL mode: readers (`headrace usage`) never wait for the writer."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=30, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")
            with self._connection:
                for statement in _CREATE:
                    self._connection.execute(statement)
        except sqlite3.Error as error:
            raise OSError(f"the ledger {path} cannot be opened: {error}") from None

    def insert(self, records: Sequence[UsageRecord]) -> None:
        marks = ", ".join("?" * len(_COLUMNS))
        try:
            with self._connection:
                self._connection.executemany(
                    f"INSERT OR IGNORE INTO headrace_usage ({_NAMES}) VALUES ({marks})",  # noqa: S608  # our own names
                    [_row(record) for record in records],
                )
        except sqlite3.Error as error:
            raise OSError(f"the ledger does not take records: {error}") from None

    def totals(self, by: By, *, since: str = "", until: str = "") -> list[Total]:
        try:
            return _read_totals(self._connection.execute(_totals_query(by, "?"), _bounds(since, until)))
        except sqlite3.Error as error:
            raise OSError(f"the ledger cannot be read: {error}") from None

    def close(self) -> None:
        self._connection.close()


class PostgresLedger:
    """A table of a database; the connection is opened anew where it broke."""

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ImportError:
            raise OSError("a PostgreSQL ledger needs psycopg: pip install 'headrace[postgres]'") from None
        self._psycopg = psycopg
        self._url = url
        self._connection: Any = None
        self._connect()

    def _connect(self) -> Any:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        try:
            self._connection = self._psycopg.connect(self._url, connect_timeout=10, autocommit=True)
            with self._connection.transaction():
                # Several processes may start at once, and CREATE IF NOT EXISTS alone is no lock.
                self._connection.execute("SELECT pg_advisory_xact_lock(7232017)")
                for statement in _CREATE:
                    self._connection.execute(statement)
        except self._psycopg.Error as error:
            raise OSError(f"the ledger cannot be opened: {_plain(error)}") from None
        return self._connection

    def insert(self, records: Sequence[UsageRecord]) -> None:
        marks = ", ".join(["%s"] * len(_COLUMNS))
        connection = self._connect()
        try:
            with connection.transaction(), connection.cursor() as cursor:
                cursor.executemany(
                    f"INSERT INTO headrace_usage ({_NAMES}) VALUES ({marks}) ON CONFLICT (record_id) DO NOTHING",  # noqa: S608  # our own names
                    [_row(record) for record in records],
                )
        except self._psycopg.Error as error:
            self._drop()
            raise OSError(f"the ledger does not take records: {_plain(error)}") from None

    def totals(self, by: By, *, since: str = "", until: str = "") -> list[Total]:
        connection = self._connect()
        try:
            return _read_totals(connection.execute(_totals_query(by, "%s"), _bounds(since, until)).fetchall())
        except self._psycopg.Error as error:
            self._drop()
            raise OSError(f"the ledger cannot be read: {_plain(error)}") from None

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        self._drop()


def _plain(error: Exception) -> str:
    """The first line: a database quotes the statement, whose values hold the caller's names, after it."""
    return str(error).partition("\n")[0][:200]
