"""How log lines are written: to standard error, some at a time.

A line a request is a system call a request, and as many time stamps to work out. Lines below WARNING are therefore
gathered for a quarter of a second while an event loop runs; a process that is killed in that time loses them (the usage
journal, not the log, is what bills are made of). Warnings and errors are written at once, after all that came before.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TextIO

_GATHER = 0.25
"""Seconds."""

FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


class _Formatter(logging.Formatter):
    """The standard form of a line, with the time's text made once a second."""

    _second = -1
    _text = ""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802  # the library's name
        second = int(record.created)
        if second != self._second:
            self._second = second
            self._text = time.strftime("%Y-%m-%d %H:%M:%S", self.converter(second))
        return f"{self._text},{int(record.msecs):03d}"


class BatchingHandler(logging.StreamHandler[TextIO]):
    """Writes to `stream`; `flush` writes what has gathered."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lines: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self.setFormatter(_Formatter(FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.append(self.format(record) + self.terminator)
        except Exception:
            self.handleError(record)
            return
        if record.levelno >= logging.WARNING:
            self.flush()
        elif self._timer is None:
            try:
                self._timer = asyncio.get_running_loop().call_later(_GATHER, self.flush)
            except RuntimeError:  # no loop in this thread
                self.flush()

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lines, self._lines = self._lines, []
        if lines:
            with contextlib.suppress(OSError, ValueError):  # nobody reads our log any more: no stream shall end for it
                self.stream.write("".join(lines))
        super().flush()


def set_up(stream: TextIO, *, verbose: bool) -> None:
    """Log to `stream`: INFO and above, or everything."""
    # What no line of ours shows need not be found out for each.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.basicConfig(handlers=[BatchingHandler(stream)], level=logging.DEBUG if verbose else logging.INFO)
    if not verbose:
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
