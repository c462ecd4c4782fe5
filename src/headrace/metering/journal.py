"""A crash-safe spool: records are in it before anybody hears of them, and leave it when every sink has them.

`append` is one `write` to a file of this process. What was written survives the death of the process (kill -9 too), since
the kernel holds it; it does not wait for the disk, so a power cut or a crash of the machine can lose the last seconds
(the kernel writes back within some 30 s). That is the trade-off: a `fsync` for each record would cost every answer
milliseconds.

A folder holds any number of segments, `PID-TIME-NUMBER.ndjson`. A segment belongs to the process that has it locked
(flock, which dies with its process); `leftovers` are those of the dead, and anybody may drain them.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

logger = logging.getLogger("headrace.metering")

SEGMENT_BYTES = 16 * 1024 * 1024
_SUFFIX = ".ndjson"


class Journal:
    """`folder` is made where it does not exist. One instance a process."""

    def __init__(self, folder: Path, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.folder = folder
        self._segment_bytes = segment_bytes
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._number = 0
        self._descriptor = -1
        self._size = 0
        self.current: Path
        """The segment that is written to."""
        self._rotate()

    def append(self, line: bytes) -> None:
        """Add one line (without its line break). Raises OSError where the disk does not take it, and adds nothing then."""
        data = line + b"\n"
        if self._size + len(data) > self._segment_bytes and self._size:
            self._rotate()
        written = os.write(self._descriptor, data)
        if written != len(data):  # the disk is full: what is torn is overwritten by the next
            os.ftruncate(self._descriptor, self._size)
            raise OSError(28, "no space left for the usage journal")
        self._size += written

    def close(self) -> None:
        """Give the segment up; it is a leftover from now on."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _rotate(self) -> None:
        self.close()
        name = f"{os.getpid()}-{time.time_ns()}-{self._number}{_SUFFIX}"
        self._number += 1
        self.current = self.folder / name
        self._descriptor = os.open(self.current, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._size = 0

    def segments(self) -> list[Path]:
        """All segments of the folder, the oldest first."""
        return sorted(self.folder.glob(f"*{_SUFFIX}"), key=_age)


def _age(path: Path) -> tuple[int, str]:
    parts = path.name.split("-")
    return (int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0, path.name)


@contextlib.contextmanager
def adopted(segment: Path) -> Iterator[bool]:
    """Hold a segment that nobody else holds: True, and it is ours until the end of the block; False where it is taken."""
    try:
        descriptor = os.open(segment, os.O_RDONLY)
    except FileNotFoundError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield segment.exists()
    finally:
        os.close(descriptor)


def read(segment: Path, offset: int, limit: int) -> tuple[list[bytes], int]:
    """Up to `limit` whole lines from `offset` on, and the offset after them. A line that is still being written, or was
    torn by a crash, has no line break and is left."""
    with open(segment, "rb") as file:
        file.seek(offset)
        data = file.read(limit * 4096)
    end = data.rfind(b"\n") + 1
    lines = data[:end].split(b"\n")[:-1]
    if len(lines) > limit:
        lines = lines[:limit]
        end = sum(len(line) + 1 for line in lines)
    return lines, offset + end
