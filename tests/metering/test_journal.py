"""Segments, whom they belong to, and what a crash leaves."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Any, ClassVar

import pytest

from headrace.metering import journal as journal_module
from headrace.metering.journal import Journal, adopted, read


def lines_of(segment: Path) -> list[bytes]:
    return read(segment, 0, 1_000_000)[0]


def is_free(segment: Path) -> bool:
    with adopted(segment) as mine:
        return mine


def test_a_line_is_in_the_file_when_append_returns(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "deep" / "usage")
    journal.append(b"one")
    journal.append(b"two")
    (segment,) = journal.segments()
    assert segment == journal.current
    assert segment.read_bytes() == b"one\ntwo\n"
    assert segment.stat().st_mode & 0o777 == 0o600
    journal.abandon()


def test_segments_rotate_by_size_and_stay_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path, segment_bytes=100)
    written = [b"%03d" % number * 10 for number in range(20)]
    for line in written:
        journal.append(line)
    segments = journal.segments()
    assert len(segments) == 7
    assert segments[-1] == journal.current
    assert [line for segment in segments for line in lines_of(segment)] == written
    assert all(segment.stat().st_size <= 100 for segment in segments)
    journal.abandon()


def test_a_line_larger_than_a_segment_has_one_of_its_own(tmp_path: Path) -> None:
    journal = Journal(tmp_path, segment_bytes=10)
    journal.append(b"x" * 50)
    journal.append(b"y" * 50)
    assert [lines_of(segment) for segment in journal.segments()] == [[b"x" * 50], [b"y" * 50]]
    journal.abandon()


def test_segments_belong_to_their_journal_until_it_gives_them_up(tmp_path: Path) -> None:
    journal = Journal(tmp_path, segment_bytes=4)
    for line in (b"one", b"two"):
        journal.append(line)
    old, current = journal.segments()
    assert journal.holds(old)
    assert journal.holds(current)
    assert not is_free(old), "full, but not delivered yet"
    assert not is_free(current)
    journal.discard(old)
    assert journal.segments() == [current]
    journal.abandon()
    assert is_free(current)
    with adopted(current) as mine, adopted(current) as theirs:
        assert (mine, theirs) == (True, False)
    current.unlink()
    assert not is_free(current)


def test_what_comes_after_the_end_begins_anew(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    first = journal.current
    journal.close()
    assert journal.current is None
    journal.append(b"late")
    assert journal.current is not None
    assert journal.current != first
    assert lines_of(journal.current) == [b"late"]
    journal.abandon()


def test_lines_are_read_from_where_the_last_reader_stopped(tmp_path: Path) -> None:
    segment = tmp_path / "1-2-0.ndjson"
    segment.write_bytes(b"one\ntwo\nthree\ntor")
    assert read(segment, 0, 2) == ([b"one", b"two"], 8)
    assert read(segment, 8, 2) == ([b"three"], 14)
    assert read(segment, 14, 2) == ([], 14), "torn, or still being written"
    with open(segment, "ab") as file:
        file.write(b"n\n" + b"x" * 10_000_000 + b"\n")
    assert read(segment, 14, 1) == ([b"torn"], 19)
    (large,), end = read(segment, 19, 1)
    assert (len(large), end) == (10_000_000, segment.stat().st_size)


def test_a_full_disk_tears_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path)
    journal.append(b"one")
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
        with pytest.raises(OSError) as raised:
            journal.append(b"two")
        assert raised.value.errno == errno.ENOSPC
    journal.append(b"three")
    assert journal.current is not None
    assert journal.current.read_bytes() == b"one\nthree\n"
    journal.abandon()


def test_a_segment_that_cannot_be_made_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path, segment_bytes=4)
    journal.append(b"one")

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many files")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "rename", refuse)
        with pytest.raises(OSError, match="too many"):
            journal.append(b"two")
    assert list(tmp_path.glob("*.new")) == []
    journal.append(b"two")
    assert [lines_of(segment) for segment in journal.segments()] == [[b"one"], [b"two"]]
    journal.abandon()


def test_a_folder_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        Journal(tmp_path / "file")


def test_a_line_that_is_written_while_it_is_read_is_not_torn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A write is no one step to a reader of the same file: half of it may be there, then the rest."""

    class Growing(io.RawIOBase):
        pieces: ClassVar[list[bytes]] = [b"one\nt", b"", b"wo\nthree\n", b""]

        def readable(self) -> bool:
            return True

        def seekable(self) -> bool:
            return True

        def seek(self, offset: int, whence: int = 0) -> int:
            return offset

        def tell(self) -> int:
            return 0

        def readinto(self, buffer: Any) -> int:
            piece = self.pieces.pop(0) if self.pieces else b""
            buffer[: len(piece)] = piece
            return len(piece)

    monkeypatch.setattr(journal_module, "open", lambda *_: io.BufferedReader(Growing()), raising=False)
    assert read(tmp_path / "any", 0, 100) == ([b"one"], 4)
