"""From a settled request to every sink: the journal first, then a thread of its own.

`record` returns when the journal has the record; that is all that happens on a stream's path, and it never raises. The
thread reads the journal's segments, its own process's and those that dead processes left behind, and delivers them in
batches to each sink at that sink's own pace; how far each has come is kept beside the segment. A segment that every sink
has had is removed. So a sink may be down for as long as the disk has room, and a process may be killed at any time: what
`record` returned for arrives at least once.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import msgspec

from headrace.metering.journal import Journal, adopted, read
from headrace.metering.record import UsageRecord, decode, encode
from headrace.metering.sinks import Sink

logger = logging.getLogger("headrace.metering")

_BATCH = 500
_GATHER = 0.05
"""Seconds that a batch may grow after its first record."""

_IDLE = 5.0
"""Seconds after which leftovers of others are looked for again."""

_RETRY_FIRST, _RETRY_MAX = 0.5, 30.0
_KEPT = 10_000
_COMPLAIN_EVERY = 60.0


class _Progress:
    """How far one sink has come in one segment."""

    def __init__(self, segment: Path) -> None:
        self.path = segment.with_suffix(".progress")
        self.offsets: dict[str, int] = {}
        try:
            known = json.loads(self.path.read_bytes())
            self.offsets = {str(name): int(offset) for name, offset in known.items()}
        except (OSError, ValueError, AttributeError):
            pass  # nothing was delivered, as far as anybody knows

    def save(self) -> None:
        temporary = self.path.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(self.offsets))
        temporary.replace(self.path)


class _Outage:
    """When a sink that failed is tried again; one warning for each outage."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._wait = 0.0
        self._until = 0.0

    @property
    def waiting(self) -> bool:
        return time.monotonic() < self._until

    def failed(self, error: OSError) -> None:
        if not self._wait:
            logger.warning("usage records wait for %s: %s", self._name, error)
        self._wait = min(_RETRY_MAX, self._wait * 2 or _RETRY_FIRST)
        self._until = time.monotonic() + self._wait

    def over(self) -> None:
        if self._wait:
            logger.info("%s takes usage records again", self._name)
        self._wait = self._until = 0.0


class Recorder:
    """One a process. `folder` may be shared by all processes of a machine. Raises OSError where it cannot be used."""

    def __init__(self, folder: Path, sinks: Sequence[Sink]) -> None:
        self._journal = Journal(folder)
        self._sinks = sinks
        self._outages = {sink.name: _Outage(sink.name) for sink in sinks}
        self._wake = threading.Event()
        self._closing = False
        self._unwritten: deque[bytes] = deque(maxlen=_KEPT)
        self._complained = -_COMPLAIN_EVERY
        self._thread = threading.Thread(target=self._run, name="usage", daemon=True)
        self._thread.start()

    def record(self, record: UsageRecord) -> None:
        """Keep a record. When this returns it survives the death of the process (see journal.py). Never raises."""
        try:
            line = encode(record)
            while self._unwritten:
                self._journal.append(self._unwritten[0])
                self._unwritten.popleft()
            self._journal.append(line)
        except OSError as error:
            self._unwritten.append(line)
            if time.monotonic() - self._complained >= _COMPLAIN_EVERY:
                self._complained = time.monotonic()
                logger.error("the usage journal cannot be written, records are kept in memory: %s", error.strerror)
        if not self._wake.is_set():
            self._wake.set()

    def close(self, timeout: float = 10.0) -> None:
        """Deliver what is there, within `timeout` seconds; what is left waits in the folder for the next process."""
        self._closing = True
        self._wake.set()
        self._thread.join(timeout)
        self._journal.close()
        for sink in self._sinks:
            sink.close()

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                behind = self._drain()
            except Exception:
                logger.exception("usage records could not be delivered")
                behind = True
            if self._closing:
                return
            self._wake.wait(_RETRY_FIRST if behind else _IDLE)
            if self._wake.is_set() and not self._closing:
                time.sleep(_GATHER)  # in a thread of its own, to let a batch grow
            self._wake.clear()

    def _drain(self) -> bool:
        """Deliver what is in the folder; whether anything is left that a sink was not ready for."""
        behind = False
        for segment in self._journal.segments():
            if segment == self._journal.current:
                behind |= not self._deliver(segment)
                continue
            with adopted(segment) as mine:
                if mine and self._deliver(segment):
                    self._remove(segment)
                elif mine:
                    behind = True
        return behind

    def _deliver(self, segment: Path) -> bool:
        """Bring every sink as far as the segment goes; whether all of them have all of it."""
        progress = _Progress(segment)
        complete = True
        for sink in self._sinks:
            outage = self._outages[sink.name]
            if outage.waiting and not self._closing:
                complete = False
                continue
            offset = progress.offsets.get(sink.name, 0)
            try:
                while True:
                    lines, after = read(segment, offset, _BATCH)
                    if not lines:
                        break
                    records = [record for line in lines if (record := _readable(line)) is not None]
                    if records:
                        sink.deliver(records)
                    offset = progress.offsets[sink.name] = after
                    progress.save()
            except OSError as error:
                outage.failed(error)
                complete = False
            else:
                outage.over()
        return complete

    def _remove(self, segment: Path) -> None:
        torn = segment.stat().st_size - max([*_Progress(segment).offsets.values(), 0])
        if torn > 0 and self._sinks:
            logger.warning("the last line of a usage journal was torn by a crash and is dropped (%d bytes)", torn)
        segment.unlink(missing_ok=True)
        segment.with_suffix(".progress").unlink(missing_ok=True)


def _readable(line: bytes) -> UsageRecord | None:
    try:
        return decode(line)
    except msgspec.DecodeError:
        logger.warning("a line of the usage journal cannot be read and is dropped (%d bytes)", len(line))
        return None
