"""Several worker processes on one port, and the process that keeps them: it serves nobody, starts them and replaces them.

Each worker has a listening socket of its own on the same port (SO_REUSEPORT), and Linux deals new connections out among
them by a hash of their addresses. With one socket that all of them inherit, whoever wakes first takes all that wait: of
400 connections at once, four workers got 31, 62, 63 and 244; with a socket each 88, 100, 105 and 107, and half of the
requests were answered a fifth sooner. A stream stays for minutes where it began, so the deal is what counts. Three things
follow from it:

- The kernel does not know who is busy or dead. The supervisor holds every socket too, so that what waits for a worker that
  died is served by its replacement; where that takes more than one attempt, the socket is closed and its share goes to
  the others.
- Two gateways of one user could share a port by accident; therefore the port is first taken without sharing.
- Where the kernel deals out unevenly (macOS, BSD), all still works.

Workers are forked: they get the configuration, secrets included, from memory, and share the memory of the modules. That
is safe because this process has neither threads nor an event loop: signals stay blocked in it and are waited for, a timer
being one of them. A worker ends in an orderly way when the pipe from its supervisor breaks.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import time
from dataclasses import dataclass

from headrace.config import Config
from headrace.serve.reload import POLL_SECONDS, Source
from headrace.serve.server import bind, freeze, raise_file_limit, run

logger = logging.getLogger("headrace.serve")

HEALTHY_SECONDS = 10.0
"""A worker that lived so long is replaced at once; one that died sooner waits, longer each time."""

BACKOFF_FIRST, BACKOFF_MAX = 0.5, 30.0

END_SECONDS = 15.0
"""What workers have, after the grace period, to flush, settle and end, before they are killed."""

_NOT_STARTED = 3
"""A worker's exit status when it could not even start; its log says why."""

_ENDING = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT}
_SIGNALS = {*_ENDING, signal.SIGHUP, signal.SIGCHLD, signal.SIGALRM}


def bind_shared(host: str, port: int, count: int) -> list[socket.socket]:
    """Sockets that listen on one port, which nobody else listens on; port 0 takes a free one. Raises OSError."""
    with bind(host, port) as probe:
        port = probe.getsockname()[1]
    listeners: list[socket.socket] = []
    try:
        for _ in range(count):
            listeners.append(bind(host, port, shared=True))  # noqa: PERF401  # those before one that fails are closed
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def backoff(failures: int) -> float:
    """Seconds before a worker is started again after so many short lives in a row."""
    return min(BACKOFF_FIRST * 2 ** (failures - 1), BACKOFF_MAX) if failures else 0.0


@dataclass(slots=True)
class _Worker:
    """A place for a worker process, and the one that has it. `pid` 0: nobody has; it is filled at `start_at`."""

    number: int
    listener: socket.socket | None
    pid: int = 0
    lives: int = 0
    failures: int = 0
    started: float = 0.0
    start_at: float = 0.0


class Supervisor:
    """`listeners`: a socket for each worker, of `bind_shared`. `source`: where a new configuration comes from."""

    def __init__(self, config: Config, listeners: list[socket.socket], source: Source) -> None:
        self._config = config
        self._source = source
        self._workers = [_Worker(number, listener) for number, listener in enumerate(listeners, 1)]
        self._address: tuple[str, int] = listeners[0].getsockname()[:2]
        self._lifeline = (-1, -1)
        self._stopping = 0
        """How many signals have asked for the end."""
        self._kill_at: float | None = None
        self._failed = False

    def run(self) -> bool:
        """Until SIGTERM or SIGINT, and until all workers have ended. False where they could not start or end properly."""
        raise_file_limit()
        freeze()
        self._lifeline = os.pipe()
        # SIGCHLD's default is to be ignored, and POSIX lets an ignored signal be dropped though it is blocked.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        while not self._stopping or any(worker.pid for worker in self._workers):
            now = time.monotonic()
            if not self._stopping:
                self._start_due(now)
                if self._source.due(now):
                    self._reload()
            elif self._kill_at is not None and now >= self._kill_at:
                self._kill()
            number = self._wait(now)
            self._reap(time.monotonic())  # first: who died before the signal did not end badly because of it
            if number in _ENDING:
                self._stop()
            elif number == signal.SIGHUP:
                self._source.ask()
        return not self._failed

    def _wait(self, now: float) -> int:
        """The next signal; SIGALRM when there is something to do."""
        if self._stopping:
            times = [] if self._kill_at is None else [self._kill_at]
        else:
            times = [worker.start_at for worker in self._workers if not worker.pid]
            if self._source.watching:
                times.append(now + POLL_SECONDS)
        # 0 would be no timer at all
        signal.setitimer(signal.ITIMER_REAL, max(min(times) - now, 0.001) if times else 0)
        return signal.sigwait(_SIGNALS)

    # --- workers -------------------------------------------------------------------------------------------------------

    def _start_due(self, now: float) -> None:
        for worker in self._workers:
            if worker.pid or now < worker.start_at:
                continue
            try:
                if worker.listener is None:
                    worker.listener = bind(*self._address, shared=True)
                pid = os.fork()
            except OSError as error:
                worker.failures += 1
                worker.start_at = now + backoff(worker.failures)
                logger.error("worker %d cannot be started: %s", worker.number, error.strerror or error)
                continue
            if not pid:
                self._be(worker, worker.listener)
            worker.pid, worker.started = pid, now
            worker.lives += 1
            logger.info("worker %d started (pid %d)", worker.number, pid)

    def _be(self, worker: _Worker, listener: socket.socket) -> None:
        """The life of the worker, in its own process. Never returns: what called us is the supervisor's business."""
        status = 1
        try:
            for other in self._workers:
                if other.listener is not None and other is not worker:
                    other.listener.close()
            reading, writing = self._lifeline
            os.close(writing)
            served = run(self._config, listener, self._source.worker(), lifeline=reading)
            status = 0 if served else _NOT_STARTED
        except BaseException:
            logger.exception("worker %d failed", worker.number)
        finally:
            with contextlib.suppress(Exception):
                logging.shutdown()
            os._exit(status)

    def _reap(self, now: float) -> None:
        for worker in self._workers:
            if not worker.pid:
                continue
            pid, status = os.waitpid(worker.pid, os.WNOHANG)
            if pid:
                worker.pid = 0
                self._ended(worker, pid, os.waitstatus_to_exitcode(status), now)

    def _ended(self, worker: _Worker, pid: int, code: int, now: float) -> None:
        if self._stopping:
            if code:
                self._failed = True
                logger.error("worker %d (pid %d) %s", worker.number, pid, _how(code))
            return
        if code == _NOT_STARTED and worker.lives == 1:
            # Not an accident: the others cannot start either.
            self._failed = True
            self._stop()
            return
        worker.failures = 0 if now - worker.started >= HEALTHY_SECONDS else worker.failures + 1
        delay = backoff(worker.failures)
        worker.start_at = now + delay
        if worker.failures > 1 and worker.listener is not None:
            worker.listener.close()
            worker.listener = None
        logger.error("worker %d (pid %d) %s; another one starts in %g s", worker.number, pid, _how(code), delay)

    # --- signals -------------------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        """The first time: let no one in and let the streams end. The second time: end them."""
        self._stopping += 1
        now = time.monotonic()
        if self._stopping == 1:
            for worker in self._workers:
                if worker.listener is not None:
                    worker.listener.close()
            self._kill_at = now + self._config.server.shutdown_grace + END_SECONDS
            self._tell(signal.SIGTERM)
        else:
            self._kill_at = now + END_SECONDS
            self._tell(signal.SIGQUIT)

    def _reload(self) -> None:
        config = self._source.read()
        if config is not None:
            self._config = config  # of the workers to come
            self._tell(signal.SIGHUP)

    def _kill(self) -> None:
        logger.error("workers that did not end in time are killed")
        self._failed = True
        self._kill_at = None
        self._tell(signal.SIGKILL)

    def _tell(self, number: signal.Signals) -> None:
        for worker in self._workers:
            if worker.pid:  # until it is reaped, nobody else has its pid
                os.kill(worker.pid, number)


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
