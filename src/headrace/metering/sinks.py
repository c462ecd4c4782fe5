"""Where records go beside the ledger: a Redis stream, a file of JSON lines. Synchronous, called from the recorder's thread.

A sink takes a batch whole or raises OSError; the recorder then tries the same batch again, so consumers may see a record
twice and tell by its `record_id`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from headrace.metering.ledger import Ledger
from headrace.metering.record import UsageRecord, encode


class Sink(Protocol):
    name: str
    """Under which the recorder keeps its progress; stable across restarts."""

    def deliver(self, records: Sequence[UsageRecord]) -> None:
        """Take these records. Raises OSError where that is not possible now."""

    def close(self) -> None: ...


class LedgerSink:
    """Into the ledger."""

    name = "ledger"

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def deliver(self, records: Sequence[UsageRecord]) -> None:
        self._ledger.insert(records)

    def close(self) -> None:
        self._ledger.close()


class FileSink:
    """Appends JSON lines to a file, which may be moved away at any time (logrotate): it is opened for each batch."""

    name = "file"

    def __init__(self, path: Path) -> None:
        self._path = path

    def deliver(self, records: Sequence[UsageRecord]) -> None:
        data = b"".join([encode(record) + b"\n" for record in records])
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        try:
            while data:
                data = data[os.write(descriptor, data) :]
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Nothing is open."""


class RedisSink:
    """Adds to a Redis stream: fields `event`, `request_id` and `record` (the JSON). The stream is trimmed to about
    `max_length` entries."""

    name = "redis"

    def __init__(self, url: str, stream: str, *, max_length: int = 1_000_000) -> None:
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
                fields = {"event": record.event, "request_id": record.request_id, "record": encode(record)}
                pipeline.xadd(self._stream, fields, maxlen=self._max_length, approximate=True)
            pipeline.execute()
        except self._errors as error:
            raise OSError(f"Redis does not take usage records: {type(error).__name__}") from None

    def close(self) -> None:
        self._client.close()
