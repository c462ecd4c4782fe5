"""The process's own input and output as the two directions of a connection: lines in, bytes out, each with its thread.

Threads, because they work with whatever the two descriptors are (pipes, files, terminals, sockets), and because an event
loop would have to make them non-blocking, which their other users share: a terminal's or a pipe's other end may be our own
log. The rule: neither thread runs ahead. Input is read when what was read before is dealt with and its answers do not pile
up; output says when it is full (`full`), and the process holds at most what was put before that was heeded.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable

HIGH, LOW = 64 * 1024, 16 * 1024
"""Bytes that wait to be written: above the first the output is full, below the second it is no more."""

_READ = 64 * 1024


class TooLong:
    """In place of a line that was longer than the limit; its bytes are gone."""


class Lines:
    """Cuts bytes into lines without their ends; blank ones are left out. `most` bounds a line, in bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pieces: list[bytes] = []
        self._size = 0
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes | TooLong]:
        """b"" is the end: a last line needs no line end."""
        if not data:
            data = b"\n"
        lines: list[bytes | TooLong] = []
        *ends, rest = data.split(b"\n")
        for piece in ends:
            self._add(piece)
            line = b"".join(self._pieces).strip()
            if self._skipping:
                lines.append(TooLong())
            elif line:
                lines.append(line)
            self._pieces, self._size, self._skipping = [], 0, False
        self._add(rest)
        return lines

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._most:
            self._skipping = True
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)


class Input:
    """Reads `descriptor` and hands what comes to `take`, on the loop; b"" is the end. It waits for `more` after each."""

    def __init__(self, descriptor: int, take: Callable[[bytes], None]) -> None:
        self._descriptor = descriptor
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._wanted = threading.Event()
        # A read that waits cannot be ended from here; the thread ends with the process.
        threading.Thread(target=self._run, name="input", daemon=True).start()

    def more(self) -> None:
        """Read on."""
        self._wanted.set()

    def _run(self) -> None:
        data = b" "
        while data:
            self._wanted.wait()
            self._wanted.clear()
            try:
                data = os.read(self._descriptor, _READ)
            except OSError:  # a terminal that has gone
                data = b""
            try:
                self._loop.call_soon_threadsafe(self._take, data)
            except RuntimeError:  # the loop has ended before
                return


class Output:
    """Writes to `descriptor` what was put, in order. On the loop: `drained` is called when it is full no more, `lost` once,
    when it cannot be written to."""

    def __init__(self, descriptor: int, drained: Callable[[], None], lost: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._drained = drained
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._some = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._broken = False
        self.full = False
        threading.Thread(target=self._run, name="output", daemon=True).start()

    @property
    def size(self) -> int:
        """Bytes that wait."""
        return self._size

    def put(self, data: bytes) -> None:
        """Where it cannot be written to any more, nothing happens."""
        with self._some:
            if self._broken:
                return
            self._waiting.append(data)
            self._size += len(data)
            self.full = self.full or self._size > HIGH
            self._some.notify()

    def _run(self) -> None:
        while True:
            with self._some:
                while not self._waiting:
                    self._some.wait()
                data = memoryview(b"".join(self._waiting))
                self._waiting.clear()
            while data:
                try:
                    written = os.write(self._descriptor, data[:HIGH])
                except OSError:
                    with self._some:
                        self._broken = True
                        self._waiting.clear()
                        self._size = 0
                    self._tell(self._lost)
                    return
                data = data[written:]
                self._told(written)

    def _told(self, written: int) -> None:
        with self._some:
            self._size -= written
            drained = self.full and self._size < LOW
        if drained:
            self._tell(self._flow)

    def _flow(self) -> None:
        self.full = self._size > HIGH
        if not self.full:
            self._drained()

    def _tell(self, what: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(what)
        except RuntimeError:  # the loop has ended before
            return
