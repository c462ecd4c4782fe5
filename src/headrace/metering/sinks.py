"""Where records go: the ledger, a Redis stream, a file of JSON lines. Synchronous, called from the recorder's thread.

A sink takes a batch whole or raises: OSError where that is not possible now (the recorder tries the same batch again, so
consumers may see a record twice and tell by its `record_id`), ValueError where a record of it can never be taken. No sink
needs its other side when it is made: a gateway starts while its database is down.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from headrace.metering.ledger import Ledger, check_url, open_ledger
from headrace.metering.record import UsageRecord, encode

STREAM = "headrace:usage"


class Sink(Protocol):
    name: str
    """Under which the recorder keeps its progress; stable across restarts."""

    def deliver(self, records: Sequence[UsageRecord]) -> None:
        """Take these records. Raises OSError where that is not possible now, ValueError where it never will be."""

    def close(self) -> None: ...


class LedgerSink:
    """Into the ledger at `url`, which is opened with the first batch. Raises ValueError for an URL of another kind."""

    name = "ledger"

    def __init__(self, url: str) -> None:
        check_url(url)
        self._url = url
        self._ledger: Ledger | None = None

    def deliver(self, records: Sequence[UsageRecord]) -> None:
        if self._ledger is None:
            self._ledger = open_ledger(self._url)
        self._ledger.insert(records)

    def close(self) -> None:
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None


class FileSink:
    """Appends JSON lines to a file, which may be moved away at any time (logrotate): it is opened for each batch.

    After a batch that the disk took in part, the next one begins on a line of its own.
    """

    name = "file"

    def __init__(self, path: Path) -> None:
        self._path = path

    def deliver(self, records: Sequence[UsageRecord]) -> None:
        data = b"".join([encode(record) + b"\n" for record in records])
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o640)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                data = b"\n" + data
            while data:
                data = data[os.write(descriptor, data) :]
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Nothing is open."""


class RedisSink:
    """Adds to a Redis stream: fields `event`, `request_id` and `record` (the JSON). The stream is trimmed to about
    `max_length` entries. Raises OSError without the client library, ValueError for an URL that is none of Redis's."""

    name = "redis"

    def __init__(self, url: str, stream: str = STREAM, *, max_length: int = 1_000_000) -> None:
        try:
            import redis
        except ImportError:
            raise OSError("usage records in Redis need its client: pip install 'headrace[redis]'") from None
        self._errors = (redis.RedisError, OSError)
        self._client: Any = redis.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=2)
        self._stream = stream
        self._max_length = max_length

    def deliver(self, records: Sequence[UsageRecord]) -> None:
        try:
            pipeline = self._client.pipeline(transaction=False)
            for record in records:
                line = encode(record)
                request_id = record.request_id.encode("utf-8", "replace")
                fields = {"event": record.event, "request_id": request_id, "record": line}
                pipeline.xadd(self._stream, fields, maxlen=self._max_length, approximate=True)
            pipeline.execute()
        except self._errors as error:
            raise OSError(f"Redis does not take usage records: {type(error).__name__}") from None

    def close(self) -> None:
        self._client.close()
