"""From `record` to every sink, while sinks are down, disks full and processes killed."""

from __future__ import annotations

import errno
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from headrace.metering import FileSink, LedgerSink, Recorder, UsageRecord, open_ledger, recorder
from headrace.metering.journal import Journal
from headrace.metering.record import decode, encode
from tests.metering.samples import record

PATIENCE = 30.0


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"_GATHER": 0.001, "_IDLE": 0.05, "_RETRY_FIRST": 0.01, "_RETRY_MAX": 0.02}.items():
        monkeypatch.setattr(recorder, name, seconds)


def eventually(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.002)


class ListSink:
    """Keeps what it gets. `down`: what it raises instead."""

    def __init__(self, name: str = "list") -> None:
        self.name = name
        self.ids: list[str] = []
        self.down: Exception | None = None
        self.attempts = 0
        self.refused: set[str] = set()
        self.closed = False

    def deliver(self, records: Sequence[UsageRecord]) -> None:
        self.attempts += 1
        if self.down is not None:
            raise self.down
        if refused := self.refused.intersection([one.record_id for one in records]):
            raise ValueError(f"not {refused}")
        self.ids += [one.record_id for one in records]

    def close(self) -> None:
        self.closed = True


def test_every_sink_has_every_record_in_order_and_nothing_is_left(tmp_path: Path) -> None:
    one, two = ListSink("one"), ListSink("two")
    usage = Recorder(tmp_path, [one, two])
    ids = [str(number) for number in range(1000)]
    for number in ids:
        usage.record(record(number))
    eventually(lambda: usage.pending == 0)
    usage.close()
    assert one.ids == two.ids == ids
    assert one.closed
    assert two.closed
    assert list(tmp_path.iterdir()) == []


def test_the_end_delivers_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "_GATHER", PATIENCE)
    sink = ListSink()
    usage = Recorder(tmp_path, [sink])
    for number in range(10):
        usage.record(record(str(number)))
    usage.close()
    assert len(sink.ids) == 10


def test_many_threads_and_many_small_segments(tmp_path: Path) -> None:
    sink = ListSink()
    usage = Recorder(tmp_path, [sink], segment_bytes=2000)
    expected = {f"{thread}-{number}" for thread in range(4) for number in range(1000)}

    def work(thread: int) -> None:
        for number in range(1000):
            usage.record(record(f"{thread}-{number}"))

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    eventually(lambda: usage.pending == 0)
    assert len(list(tmp_path.glob("*.ndjson"))) <= 2, "what is delivered is removed"
    usage.close()
    assert len(sink.ids) == len(expected)
    assert set(sink.ids) == expected


@pytest.mark.parametrize("outage", [OSError("connection refused"), RuntimeError("a bug")])
def test_one_sink_waits_while_the_other_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, outage: Exception
) -> None:
    caplog.set_level(logging.INFO, "headrace.metering")
    up, down = ListSink("up"), ListSink("down")
    usage = Recorder(tmp_path, [down, up], segment_bytes=1000)
    for round_number in range(2):
        down.down = outage
        attempts = down.attempts
        for number in range(50):
            usage.record(record(f"{round_number}-{number}"))
        eventually(lambda: len(up.ids) % 50 == 0 and len(up.ids) > len(down.ids))
        eventually(lambda attempts=attempts: down.attempts > attempts + 3)  # type: ignore[misc]  # a loop's variable
        assert usage.pending == 50
        down.down = None
        eventually(lambda: usage.pending == 0)
    usage.close()
    assert down.ids == up.ids
    assert len(up.ids) == 100
    said = [line.getMessage() for line in caplog.records]
    assert said == [f"usage records wait for the down: {outage}", "the down takes usage records again"] * 2


def test_a_record_that_a_sink_refuses_does_not_hold_up_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink, other = ListSink(), ListSink("other")
    sink.refused = {"7"}
    usage = Recorder(tmp_path, [sink, other])
    for number in range(20):
        usage.record(record(str(number)))
    usage.close()
    assert sink.ids == [str(number) for number in range(20) if number != 7]
    assert len(other.ids) == 20
    assert "list refuses usage record 7" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_a_sink_that_hangs_does_not_keep_the_process(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hang = threading.Event()

    class Hanging(ListSink):
        def deliver(self, records: Sequence[UsageRecord]) -> None:
            hang.wait(PATIENCE)

    usage = Recorder(tmp_path, [Hanging()])
    usage.record(record("1"))
    usage.close(timeout=0.05)
    assert "1 usage records were not delivered" in caplog.text
    assert len(list(tmp_path.glob("*.ndjson"))) == 1
    hang.set()


def leave(folder: Path, *lines: bytes) -> Path:
    """A segment of a process that is dead."""
    journal = Journal(folder)
    for line in lines:
        journal.append(line)
    assert journal.current is not None
    segment = journal.current
    journal.abandon()
    return segment


def test_what_the_dead_left_is_delivered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole, torn = encode(record("1")), encode(record("2"))
    segment = leave(tmp_path, whole, b"garbage", encode(record("3")))
    with open(segment, "ab") as file:
        file.write(torn[:30])
    sink = ListSink()
    usage = Recorder(tmp_path, [sink])
    eventually(lambda: not segment.exists())
    later = leave(tmp_path, encode(record("4")))
    eventually(lambda: not later.exists())
    usage.close()
    assert sink.ids == ["1", "3", "4"]
    assert "1 lines of a usage journal are no records" in caplog.text
    assert "torn by a crash and is dropped (30 bytes)" in caplog.text
    assert usage.pending == 0
    assert list(tmp_path.iterdir()) == []


def test_the_next_process_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    """Each sink from its own place; and a sink that is new has all of it."""
    usage = Recorder(tmp_path, [done := ListSink("done"), down := ListSink("down")])
    down.down = OSError("down")
    for number in range(5):
        usage.record(record(str(number)))
    eventually(lambda: len(done.ids) == 5)
    usage.close()
    assert down.ids == []
    sinks = [ListSink("done"), ListSink("down"), ListSink("new")]
    again = Recorder(tmp_path, sinks)
    again.close()
    assert [len(sink.ids) for sink in sinks] == [0, 5, 5]
    assert list(tmp_path.iterdir()) == []


def test_what_the_living_write_is_left_to_them(tmp_path: Path) -> None:
    living = Journal(tmp_path)
    living.append(encode(record("theirs")))
    sink = ListSink()
    usage = Recorder(tmp_path, [sink])
    usage.record(record("ours"))
    usage.close()
    assert sink.ids == ["ours"]
    assert list(tmp_path.iterdir()) == [living.current]
    living.abandon()


def test_a_full_disk_costs_no_record_and_no_exception(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = ListSink()
    usage = Recorder(tmp_path, [sink])

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(Journal, "append", full)
        for number in range(10):
            usage.record(record(str(number)))
        assert usage.pending == 10
        errors = [line.getMessage() for line in caplog.records if line.levelno == logging.ERROR]
        assert len(errors) == 1
        assert "No space left" in errors[0]
    eventually(lambda: usage.pending == 0)  # though no other record comes
    usage.record(record("10"))
    usage.close()
    assert sink.ids == [str(number) for number in range(11)]


def test_what_waits_in_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "_KEPT", 5)
    sink = ListSink()
    usage = Recorder(tmp_path, [sink])
    with monkeypatch.context() as disk:
        disk.setattr(Journal, "append", lambda *_: os.stat("/no/such/file"))
        for number in range(20):
            usage.record(record(str(number)))
        assert usage.pending == 5
    usage.close()
    assert sink.ids == ["15", "16", "17", "18", "19"]
    assert usage.pending == 0


def test_what_cannot_be_written_down_raises_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sink = ListSink()
    usage = Recorder(tmp_path, [sink])
    usage.record(record("1", attribution={"a": object()}))
    usage.record(record("2", model="\ud800"))
    usage.close()
    assert sink.ids == ["2"]
    assert "cannot be written down" in caplog.text


def test_a_record_after_the_end_is_kept_for_the_next_start(tmp_path: Path) -> None:
    usage = Recorder(tmp_path, [ListSink()])
    usage.close()
    usage.record(record("late"))
    (segment,) = tmp_path.iterdir()
    assert decode(segment.read_bytes().strip()).record_id == "late"


@pytest.mark.parametrize("names", [[], ["a", "a"]])
def test_sinks_are_told_apart_by_name(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(ValueError, match="no two of the same kind"):
        Recorder(tmp_path, [ListSink(name) for name in names])


# --- other processes --------------------------------------------------------------------------------------------------

CHILD = """
import sys
from pathlib import Path
from headrace.metering import FileSink, LedgerSink, Recorder, recorder
from tests.metering.samples import record

folder, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
recorder._GATHER = 0.001
usage = Recorder(folder / "spool", [LedgerSink(f"sqlite:///{folder}/usage.db"), FileSink(folder / "usage.ndjson")],
                 segment_bytes=20_000)
for number in range(count):
    usage.record(record(f"{name}-{number}"))
    sys.stdout.write(f"{name}-{number}\\n")
    sys.stdout.flush()
usage.close(30)
"""


def child(folder: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder), name, str(count)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def ids_in_ledger(folder: Path) -> list[str]:
    with sqlite3.connect(folder / "usage.db") as connection:
        return [row[0] for row in connection.execute("SELECT record_id FROM headrace_usage")]


@pytest.mark.parametrize("acknowledged", [1, 300, 2500])
def test_a_killed_process_loses_nothing_that_it_acknowledged(tmp_path: Path, acknowledged: int) -> None:
    process = child(tmp_path, "killed", 1_000_000)
    try:
        assert process.stdout is not None
        for _ in range(acknowledged):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read()
    finally:
        process.kill()
        process.wait(PATIENCE)
    printed = {f"killed-{number}" for number in range(acknowledged)} | set(rest.split("\n")[:-1])
    usage = Recorder(
        tmp_path / "spool", [LedgerSink(f"sqlite:///{tmp_path}/usage.db"), FileSink(tmp_path / "usage.ndjson")]
    )
    usage.close(PATIENCE)
    stored = ids_in_ledger(tmp_path)
    assert printed <= set(stored)
    assert len(stored) == len(set(stored))
    assert len(stored) - len(printed) <= 1, "at most the one that was not acknowledged yet"
    lines = (tmp_path / "usage.ndjson").read_bytes().split(b"\n")[:-1]
    assert {decode(line).record_id for line in lines if line.endswith(b"}")} == set(stored)
    assert list((tmp_path / "spool").glob("*.ndjson")) == []


def test_processes_share_a_folder_and_a_ledger(tmp_path: Path) -> None:
    processes = [child(tmp_path, name, 500) for name in ("a", "b", "c")]
    for process in processes:
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    assert sorted(ids_in_ledger(tmp_path)) == sorted(f"{name}-{number}" for name in "abc" for number in range(500))
    lines = (tmp_path / "usage.ndjson").read_bytes().split(b"\n")[:-1]
    assert len(lines) == 1500
    assert list((tmp_path / "spool").iterdir()) == []


def test_a_ledger_that_comes_late(tmp_path: Path) -> None:
    (tmp_path / "later").write_text("in the way of the folder")
    usage = Recorder(tmp_path / "spool", [LedgerSink(f"sqlite:///{tmp_path}/later/usage.db")])
    usage.record(record("1"))
    (tmp_path / "later").unlink()
    eventually(lambda: usage.pending == 0)
    usage.close()
    ledger = open_ledger(f"sqlite:///{tmp_path}/later/usage.db")
    assert ledger.totals("model")[0].requests == 1
    ledger.close()
