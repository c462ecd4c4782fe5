"""From a settled request to every sink: the journal first, then a thread of its own.

`record` returns when the journal has the record; that is all that happens on a stream's path, and it never raises. The
thread reads the journal's segments, its own process's and those that dead processes left behind, and delivers them in
batches to each sink at that sink's own pace; how far each has come is kept beside the segment. A segment that every sink
has had is removed. So a sink may be down for as long as the disk has room, and a process may be killed at any time: what
`record` returned for arrives at least once.

A sink that is down is tried again at growing intervals, and the log says so once. While the journal itself cannot be
written (the disk is full), records wait in memory, the last `_KEPT` of them; those are lost with the process.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import msgspec

from headrace.metering.journal import SEGMENT_BYTES, Journal, adopted, read
from headrace.metering.record import UsageRecord, decode, encode
from headrace.metering.sinks import Sink

logger = logging.getLogger("headrace.metering")

_BATCH = 500
"""Records. A batch needs the interpreter's lock some twenty times, and waits 5 ms for it while the event loop is busy:
small batches would be slow."""

_SLICE = 50
"""Records that are decoded before the event loop may have the interpreter's lock again: 0.2 ms."""

_GATHER = 0.2
"""Seconds that a batch may grow after its first record."""

_IDLE = 5.0
"""Seconds after which leftovers of others are looked for again."""

_RETRY_FIRST, _RETRY_MAX = 0.5, 30.0
_KEPT = 10_000
_COMPLAIN_EVERY = 60.0


class Recorder:
    """One a process, made after a fork. `folder` may be shared by all processes of a machine that have the same sinks.

    Raises OSError where the folder cannot be used, ValueError without sinks. All methods may be called from any thread.
    """

    def __init__(self, folder: Path, sinks: Sequence[Sink], *, segment_bytes: int = SEGMENT_BYTES) -> None:
        if len({sink.name for sink in sinks}) != len(sinks) or not sinks:
            raise ValueError("usage records need a sink, and no two of the same kind")
        self._journal = Journal(folder, segment_bytes=segment_bytes)
        self._lock = threading.Lock()  # of the journal's writing side, and of what waits for it
        self._lanes = [_Lane(sink) for sink in sinks]
        self._own: dict[Path, _Progress] = {}
        self._leftovers_at = 0.0
        self._recorded = 0
        self._unwritten: deque[bytes] = deque(maxlen=_KEPT)
        self._complaint = _Complaint()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="usage", daemon=True)
        self._thread.start()

    def record(self, record: UsageRecord) -> None:
        """Keep a record. When this returns it survives the death of the process (see journal.py). Never raises."""
        try:
            line = encode(record)
        except Exception:  # no stream shall fail over its bill
            logger.exception("a usage record cannot be written down and is lost")
            return
        with self._lock:
            self._recorded += len(self._unwritten) < _KEPT  # else the oldest makes room, which is lost
            self._unwritten.append(line)
            self._write_down()
        if not self._wake.is_set():
            self._wake.set()

    @property
    def pending(self) -> int:
        """Records of this process that not every sink has had yet."""
        return self._recorded - min(lane.delivered for lane in self._lanes)

    def close(self, timeout: float = 10.0) -> None:
        """Deliver what is there, within `timeout` seconds; what is left waits in the folder for the next process."""
        self._closing.set()
        self._wake.set()
        self._thread.join(timeout)
        if self._thread.is_alive():  # it waits for a sink; the process ends without it
            logger.warning("%d usage records were not delivered; they are kept for the next start", self.pending)
            return
        for lane in self._lanes:
            lane.sink.close()
        self._journal.abandon()

    def _write_down(self) -> None:
        """Into the journal with what waits, in the order in which it came. With the lock."""
        waiting = self._unwritten
        try:
            while waiting:
                self._journal.append(waiting[0])
                waiting.popleft()
        except OSError as error:
            if self._complaint.due():
                logger.error(
                    "the usage journal in %s cannot be written (%s): the last %d records are kept in memory only",
                    self._journal.folder,
                    error.strerror,
                    len(waiting),
                )

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        complaint = _Complaint()
        while True:
            self._wake.clear()
            closing = self._closing.is_set()
            try:
                behind = self._pass(closing=closing)
            except Exception:
                behind = True
                if complaint.due():
                    logger.exception("usage records could not be delivered")
            if closing:
                return
            if self._wake.wait(_RETRY_FIRST if behind else _IDLE):
                self._closing.wait(_GATHER)

    def _pass(self, *, closing: bool) -> bool:
        """Deliver what is in the folder; whether anything is left that cannot be delivered now."""
        if self._unwritten or closing:
            with self._lock:
                self._write_down()
                if closing:
                    self._journal.close()
        behind = bool(self._unwritten)
        # One that fails is out until the next pass, so that nobody gets the newer segments first. At the end all are asked.
        ready = [lane for lane in self._lanes if closing or not lane.waiting]
        look_for_leftovers = closing or time.monotonic() >= self._leftovers_at
        left = False
        for segment in self._journal.segments():
            if self._journal.holds(segment):
                # Asked before it is read: what is no longer written to then has all its lines.
                whole = segment != self._journal.current
                progress = self._own.setdefault(segment, _Progress(segment, own=True))
                delivered = self._deliver(progress, ready)
                behind |= not delivered
                if whole and delivered:
                    self._journal.discard(segment)
                    self._own.pop(segment).remove()
            elif look_for_leftovers:
                with adopted(segment) as mine:
                    if mine:
                        left |= not self._adopt(segment, ready)
        if look_for_leftovers:
            self._leftovers_at = time.monotonic() + (_RETRY_FIRST if left else _IDLE)
        return behind or left

    def _adopt(self, segment: Path, ready: list[_Lane]) -> bool:
        """Deliver what a dead process left; whether all of it is delivered."""
        progress = _Progress(segment)
        if not self._deliver(progress, ready):
            return False
        torn = segment.stat().st_size - progress.most
        if torn > 0:
            logger.warning("the last line of a usage journal was torn by a crash and is dropped (%d bytes)", torn)
        segment.unlink(missing_ok=True)
        progress.remove()
        return True

    def _deliver(self, progress: _Progress, ready: list[_Lane]) -> bool:
        """Bring the sinks that are ready as far as the segment goes; whether all sinks have all of it. Those that fail
        are taken out of `ready`."""
        for lane in list(ready):
            try:
                while (count := self._deliver_batch(lane, progress)) > 0:
                    if progress.own:
                        lane.delivered += count
            except Exception as error:  # a sink may be anybody's
                lane.failed(error)
                ready.remove(lane)
        return len(ready) == len(self._lanes)

    def _deliver_batch(self, lane: _Lane, progress: _Progress) -> int:
        """Lines that this sink has now had, 0 at the end of the segment. Raises what the sink raises."""
        offset = progress.offsets.get(lane.sink.name, 0)
        lines, after = read(progress.segment, offset, _BATCH)
        if lines:
            records = _decoded(lines)
            if records:
                lane.deliver(records)
                lane.recovered()
            progress.advance(lane.sink.name, after)
        return len(lines)


def _decoded(lines: Sequence[bytes]) -> list[UsageRecord]:
    records = []
    for number, line in enumerate(lines, 1):
        if not number % _SLICE:
            time.sleep(0)
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            records.append(decode(line))
    if len(records) < len(lines):
        logger.warning("%d lines of a usage journal are no records and are dropped", len(lines) - len(records))
    return records


class _Lane:
    """One sink, what it has had of this process's records, and when it is tried again after it failed."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.delivered = 0
        self._wait = 0.0
        self._until = 0.0

    @property
    def waiting(self) -> bool:
        return time.monotonic() < self._until

    def deliver(self, records: Sequence[UsageRecord]) -> None:
        """As the sink's own, but that a record which the sink refuses for ever is left out."""
        try:
            self.sink.deliver(records)
        except ValueError as error:
            if len(records) == 1:
                logger.error("%s refuses usage record %s: %s", self.sink.name, records[0].record_id, error)
                return
            for record in records:
                self.deliver([record])

    def failed(self, error: Exception) -> None:
        if not self._wait:  # once for each outage
            known = isinstance(error, OSError)
            logger.warning("usage records wait for the %s: %s", self.sink.name, error, exc_info=not known)
        self._wait = min(_RETRY_MAX, self._wait * 2 or _RETRY_FIRST)
        self._until = time.monotonic() + self._wait

    def recovered(self) -> None:
        if self._wait:
            logger.info("the %s takes usage records again", self.sink.name)
            self._wait = 0.0


class _Progress:
    """How far each sink has come in one segment, in bytes; kept in a file beside it, for whoever has to go on."""

    def __init__(self, segment: Path, *, own: bool = False) -> None:
        self.segment = segment
        self.own = own
        self.offsets: dict[str, int] = {}
        self._path = segment.with_suffix(".progress")
        if not own:
            with contextlib.suppress(OSError, msgspec.DecodeError):  # then nothing was delivered, as far as is known
                self.offsets = msgspec.json.decode(self._path.read_bytes(), type=dict[str, int])

    @property
    def most(self) -> int:
        return max(self.offsets.values(), default=0)

    def advance(self, sink: str, offset: int) -> None:
        self.offsets[sink] = offset
        temporary = self._path.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(OSError):  # the disk is full: after a crash this batch would be delivered again
            temporary.write_text(json.dumps(self.offsets))
            temporary.replace(self._path)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


class _Complaint:
    """Whether to complain again."""

    def __init__(self) -> None:
        self._last: float | None = None

    def due(self) -> bool:
        now = time.monotonic()
        if self._last is not None and now - self._last < _COMPLAIN_EVERY:
            return False
        self._last = now
        return True
