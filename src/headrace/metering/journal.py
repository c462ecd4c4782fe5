"""A crash-safe spool: records are in it before anybody hears of them, and leave it when every sink has them.

`append` is one `write` to a file of this process. What was written survives the death of the process (kill -9 too), since
the kernel holds it; it does not wait for the disk, so a power cut or a crash of the machine can lose the last seconds
(the kernel writes back within some 30 s). That is the trade-off: a `fsync` for each record would cost every answer
milliseconds.

A folder holds any number of segments, `PID-TIME-NUMBER.ndjson`. A segment belongs to the process that has it locked: by
flock, which dies with its process and with nothing else. So `adopted` finds those of the dead, and only those. A process
keeps the lock on its full segments until they are discarded. The folder must be on a local file system (flock), and a
process that forks makes its journal after the fork (a child would share the lock).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

SEGMENT_BYTES = 16 * 1024 * 1024
_SUFFIX = ".ndjson"


class Journal:
    """`folder` is made where it does not exist. One instance a process; `append` and `close` are for one thread at a
    time, the others for any. Raises OSError where the folder cannot be used."""

    def __init__(self, folder: Path, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.folder = folder
        self._segment_bytes = segment_bytes
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._number = 0
        self._held: dict[Path, int] = {}
        self._descriptor = -1
        self._size = 0
        self.current: Path | None = None
        """The segment that is written to. One that was and no longer is will not be again."""
        self._rotate()

    def append(self, line: bytes) -> None:
        """Add one line (without its line break). Raises OSError where the disk does not take it, and adds nothing then."""
        data = line + b"\n"
        if self.current is None or (self._size + len(data) > self._segment_bytes and self._size):
            self._rotate()
        written = os.write(self._descriptor, data)
        if written != len(data):
            os.ftruncate(self._descriptor, self._size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size += written

    def _rotate(self) -> None:
        name = f"{os.getpid()}-{time.time_ns()}-{self._number}"
        self._number += 1
        path, unlocked = self.folder / f"{name}{_SUFFIX}", self.folder / f"{name}.new"
        descriptor = os.open(unlocked, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)
        # From here on the thread that reads takes the one before for whole, and this one never.
        self.current = path
        try:
            # Locked before it bears a name that others look for: to them it would be a dead process's.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._held[path] = descriptor
            unlocked.rename(path)
        except OSError:
            self.current = None
            self._held.pop(path, None)
            os.close(descriptor)
            unlocked.unlink(missing_ok=True)
            raise
        self._descriptor, self._size = descriptor, 0

    def holds(self, segment: Path) -> bool:
        """Whether it is one of this process's own."""
        return segment in self._held

    def segments(self) -> list[Path]:
        """All segments of the folder, the oldest first."""
        return sorted(self.folder.glob(f"*{_SUFFIX}"), key=_age)

    def discard(self, segment: Path) -> None:
        """Remove one of this process's own segments, which must not be the current one."""
        assert segment != self.current
        segment.unlink(missing_ok=True)
        os.close(self._held.pop(segment))

    def close(self) -> None:
        """End the current segment. A later `append` begins another."""
        self.current = None

    def abandon(self) -> None:
        """Give up all segments that are left; others may adopt them from now on."""
        self.close()
        while self._held:
            os.close(self._held.popitem()[1])


def _age(path: Path) -> tuple[int, str]:
    parts = path.name.split("-")
    return (int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0, path.name)


@contextlib.contextmanager
def adopted(segment: Path) -> Iterator[bool]:
    """Hold a segment that nobody else holds: True, and it is ours until the end of the block; False where it is taken."""
    try:
        descriptor = os.open(segment, os.O_RDONLY)
    except OSError:  # gone, or another user's
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield segment.exists()  # whoever held it until now may have removed it
    finally:
        os.close(descriptor)


def read(segment: Path, offset: int, limit: int) -> tuple[list[bytes], int]:
    """Up to `limit` whole lines from `offset` on, and the offset after them.

    A line that is still being written, or was torn by a crash, has no line break and is left. Nothing is read after it:
    its other half may have come in the meantime, and would be taken for a line of its own.
    """
    lines: list[bytes] = []
    with open(segment, "rb") as file:
        file.seek(offset)
        for line in islice(file, limit):
            if not line.endswith(b"\n"):
                break
            lines.append(line)
    return [line[:-1] for line in lines], offset + sum([len(line) for line in lines])
