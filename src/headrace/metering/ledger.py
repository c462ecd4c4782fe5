"""Where usage records are kept for good: an SQLite file, or a PostgreSQL database. Synchronous; never on a stream's path.

A record is stored once, whoever delivers it how often: its id is the primary key. Totals are counted where the data is,
from columns; the whole record stands beside them as JSON. Names in columns are cut and cleaned, counts are bounded: what
a caller or a provider makes up shall not keep the records after it from being stored.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from headrace.metering.record import RecordedUsage, UsageRecord, encode

By = Literal["model", "provider", "key", "day"]

VERSION = 1
"""Of the tables."""

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
    "CREATE TABLE IF NOT EXISTS headrace_usage_schema (version INTEGER PRIMARY KEY)",
    f"INSERT INTO headrace_usage_schema VALUES ({VERSION}) ON CONFLICT (version) DO NOTHING",  # noqa: S608  # a constant
    f"CREATE TABLE IF NOT EXISTS headrace_usage ({', '.join(f'{name} {type}' for name, type in _COLUMNS)})",
    "CREATE INDEX IF NOT EXISTS headrace_usage_day ON headrace_usage (day, key_id)",
)
_VERSION_QUERY = "SELECT MAX(version) FROM headrace_usage_schema"
_MAX_COUNT = 2**40
"""Eight million of these can be added in 64 bits."""

_MAX_NAME = 512
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
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
        """Store these, all or none; those that are there already are left as they are. Raises ValueError where the
        database refuses a record for what it holds."""

    def totals(self, by: By, *, since: str = "", until: str = "") -> list[Total]:
        """Sums by group, the largest cost first; days in order. `since` and `until`: dates (YYYY-MM-DD, UTC), both
        included. Raises ValueError for what is no date."""

    def close(self) -> None: ...


def check_url(url: str) -> None:
    """Raises ValueError for what is no ledger's URL; never quotes it, as it may hold a password."""
    scheme, separator, rest = url.partition("://")
    if not (separator and (scheme in _POSTGRES or (scheme == "sqlite" and rest.startswith("/") and len(rest) > 1))):
        raise ValueError("a ledger is sqlite:///PATH or postgresql://USER:PASSWORD@HOST/DATABASE")


def open_ledger(url: str, *, create: bool = True) -> Ledger:
    """`sqlite:///PATH` (`sqlite:////PATH` from the root), or `postgresql://...`. `create`: make tables that are missing.

    Raises ValueError for another URL, OSError where it cannot be opened.
    """
    check_url(url)
    scheme, _, rest = url.partition("://")
    return PostgresLedger(url, create=create) if scheme in _POSTGRES else SQLiteLedger(Path(rest[1:]), create=create)


_POSTGRES = ("postgresql", "postgres")


def _row(record: UsageRecord) -> tuple[Any, ...]:
    usage = record.usage or RecordedUsage()
    return (
        _name(record.record_id),
        _name(record.request_id),
        _name(record.timestamp),
        _name(record.timestamp[:10]),
        _name(record.attribution.get("key", "")),
        _name(record.model),
        _name(record.provider),
        _name(record.provider_model),
        record.outcome,
        _count(usage.prompt_tokens),
        _count(usage.completion_tokens),
        _count(usage.cached_tokens),
        _count(usage.reasoning_tokens),
        int(usage.quality != "exact"),
        _cost(usage.cost_usd),
        _cost(record.other_cost),
        encode(record).decode(),
    )


def _name(text: str) -> str:
    return _UNWRITABLE.sub("\ufffd", text[:_MAX_NAME])


def _count(tokens: int) -> int:
    return min(max(tokens, 0), _MAX_COUNT)


def _cost(usd: float | None) -> float | None:
    return usd if usd is not None and math.isfinite(usd) else None


def _insertions(records: Sequence[UsageRecord], mark: str) -> Iterator[tuple[str, list[Any]]]:
    """Statements and their values, some rows each.

    Each statement gives the interpreter's lock away and waits up to 5 ms for it while the event loop is busy: with one row
    a statement a gateway at its limit would store two hundred records a second. With very many, the event loop would wait
    while they are put together.
    """
    row = f"({', '.join([mark] * len(_COLUMNS))})"
    for start in range(0, len(records), _ROWS):
        rows = [_row(record) for record in records[start : start + _ROWS]]
        yield (
            f"INSERT INTO headrace_usage ({_NAMES}) VALUES {', '.join([row] * len(rows))}"  # noqa: S608  # our own names
            " ON CONFLICT (record_id) DO NOTHING",
            [value for values in rows for value in values],
        )


_ROWS = 50
"""A statement: half a ms of work, and far below the number of values that both databases take."""

_SUMS = {
    # field of Total -> what it is of the records of a group
    "requests": "COUNT(*)",
    "failed": "SUM(CASE WHEN outcome = 'failed' THEN 1 ELSE 0 END)",
    "prompt_tokens": "SUM(prompt_tokens)",
    "completion_tokens": "SUM(completion_tokens)",
    "cached_tokens": "SUM(cached_tokens)",
    "reasoning_tokens": "SUM(reasoning_tokens)",
    "unpriced": "SUM(CASE WHEN cost_usd IS NULL AND prompt_tokens + completion_tokens > 0 THEN 1 ELSE 0 END)",
    "cost_usd": "SUM(cost_usd)",
    "other_cost_usd": "SUM(other_cost_usd)",
}


def _totals_query(by: By, mark: str) -> str:
    group = _GROUPS[by]
    sums = ", ".join([f"{sum} AS sum_{name}" for name, sum in _SUMS.items()])
    order = group if by == "day" else f"COALESCE(SUM(cost_usd), 0) DESC, COUNT(*) DESC, {group}"
    return (
        f"SELECT {group}, {sums} FROM headrace_usage"  # noqa: S608  # names from the tables above
        f" WHERE day >= {mark} AND day <= {mark} GROUP BY {group} ORDER BY {order}"
    )


def _read_totals(rows: Iterable[Sequence[Any]]) -> list[Total]:
    totals = []
    for group, *sums in rows:
        *counts, cost, other = sums
        fields = dict(zip(_SUMS, [int(count) for count in counts], strict=False))  # PostgreSQL's sums are Decimals
        totals.append(Total(group=group, **fields, cost_usd=cost, other_cost_usd=other))
    return totals


def _bounds(since: str, until: str) -> tuple[str, str]:
    return _day(since) if since else "", _day(until) if until else "9999-99-99"


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ValueError(f"not a date (YYYY-MM-DD): {text}") from None


def _check_version(version: int) -> None:
    if version > VERSION:
        raise OSError(f"the ledger was made by a newer Headrace (its version is {version}, this one knows {VERSION})")


class SQLiteLedger:
    """A file in WAL mode: readers (`headrace usage`) never wait for the writer."""

    def __init__(self, path: Path, *, create: bool = True) -> None:
        if not create and not path.exists():
            raise OSError(f"there is no ledger at {path}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=30, check_same_thread=False)
        except (sqlite3.Error, OSError) as error:
            raise OSError(f"the ledger {path} cannot be opened: {error}") from None
        try:
            self._prepare(create=create)
        except sqlite3.Error as error:
            self._connection.close()
            raise OSError(f"the ledger {path} cannot be opened: {error}") from None
        except OSError:
            self._connection.close()
            raise

    def _prepare(self, *, create: bool) -> None:
        if create:
            self._connection.execute("PRAGMA journal_mode=WAL")
            # No fsync a transaction: what a power cut takes from the database, it takes from the journal too.
            self._connection.execute("PRAGMA synchronous=NORMAL")
            with self._connection:
                for statement in _CREATE:
                    self._connection.execute(statement)
        with closing(self._connection.execute(_VERSION_QUERY)) as found:
            _check_version(int(found.fetchone()[0]))

    def insert(self, records: Sequence[UsageRecord]) -> None:
        try:
            with self._connection:
                for statement, values in _insertions(records, "?"):
                    self._connection.execute(statement, values)
        except (sqlite3.DataError, sqlite3.IntegrityError) as error:
            raise ValueError(str(error)) from None
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
    """A table of a database; the connection is opened anew where it broke. Every wait for it is bounded."""

    def __init__(self, url: str, *, create: bool = True) -> None:
        try:
            import psycopg
        except ImportError:
            raise OSError("a PostgreSQL ledger needs psycopg: pip install 'headrace[postgres]'") from None
        self._psycopg = psycopg
        self._url = url
        self._create = create
        self._connection: Any = None
        self._connect()

    def _connect(self) -> Any:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        try:
            connection = self._psycopg.connect(
                self._url, autocommit=True, connect_timeout=10, tcp_user_timeout=30_000, keepalives_idle=30
            )
        except self._psycopg.ProgrammingError:
            # The message would quote a piece of the URL, which may be of the password.
            raise OSError("the ledger's URL cannot be read: postgresql://USER:PASSWORD@HOST/DATABASE") from None
        except self._psycopg.Error as error:
            raise OSError(f"the ledger cannot be opened: {_plain(error)}") from None
        try:
            self._prepare(connection)
        except self._psycopg.Error as error:
            connection.close()
            raise OSError(f"the ledger cannot be opened: {_plain(error)}") from None
        except OSError:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _prepare(self, connection: Any) -> None:
        connection.execute("SET statement_timeout = '30s'")
        # Asked first, so that a user who may only read can read.
        exists = connection.execute("SELECT to_regclass('headrace_usage') IS NOT NULL").fetchone()[0]
        if self._create and not exists:
            with connection.transaction():
                # Several processes may start at once, and CREATE IF NOT EXISTS alone is no lock.
                connection.execute("SELECT pg_advisory_xact_lock(7232017)")
                for statement in _CREATE:
                    connection.execute(statement)
        _check_version(int(connection.execute(_VERSION_QUERY).fetchone()[0]))

    def insert(self, records: Sequence[UsageRecord]) -> None:
        connection = self._connect()
        try:
            with connection.transaction():
                for statement, values in _insertions(records, "%s"):
                    connection.execute(statement, values)
        except (self._psycopg.DataError, self._psycopg.IntegrityError) as error:
            raise ValueError(_plain(error)) from None
        except self._psycopg.Error as error:
            self.close()
            raise OSError(f"the ledger does not take records: {_plain(error)}") from None

    def totals(self, by: By, *, since: str = "", until: str = "") -> list[Total]:
        connection = self._connect()
        try:
            return _read_totals(connection.execute(_totals_query(by, "%s"), _bounds(since, until)).fetchall())
        except self._psycopg.Error as error:
            self.close()
            raise OSError(f"the ledger cannot be read: {_plain(error)}") from None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _plain(error: Exception) -> str:
    """The first line: a database quotes the statement, whose values hold the caller's names, after it."""
    return str(error).partition("\n")[0][:200]
