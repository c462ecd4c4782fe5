"""A gateway in processes of its own, as its operator runs it: a configuration file, signals, a log, an exit code."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.gateway.client import Connection
from tests.gateway.test_serving import CALLERS

COMMAND = [sys.executable, "-c", "from headrace.cli import main; main()", "serve"]
PATIENCE = 30.0
"""Seconds after which a test gives up."""

LONG = "replay/long"
"""A stream of half a minute, of which nobody here waits for the end."""

STARTED = re.compile(r"worker (\d+) started \(pid (\d+)\)")


def wait_for(condition: Callable[[], Any], what: object) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.01)


class Process:
    """One `headrace serve`, in a process group of its own, listening on `port`."""

    def __init__(self, folder: Path, config: str, *options: str) -> None:
        self.file = folder / "headrace.yaml"
        self.write(config)
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*COMMAND, "--config", str(self.file), "--port", "0", *options],
                stderr=log,
                env={**os.environ, "XDG_STATE_HOME": str(folder)},
                start_new_session=True,
            )
        self.pid = self._process.pid
        self.port = 0

    def write(self, config: str) -> None:
        """Replace the configuration file, at once as a whole."""
        new = self.file.with_suffix(".new")
        new.write_text(config)
        new.replace(self.file)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def wait_for_log(self, text: str, count: int = 1) -> None:
        wait_for(lambda: self.log.count(text) >= count, f"{count} times {text!r} in the log")

    @property
    def workers(self) -> dict[int, int]:
        """The process last started for each worker."""
        return {int(number): int(pid) for number, pid in STARTED.findall(self.log)}

    def wait_until_ready(self, workers: int) -> None:
        def listening() -> re.Match[str] | None:
            return re.search(r"listens on http://[^ ]+:(\d+)", self.log)

        wait_for(lambda: listening() or self._process.poll() is not None, "the gateway to listen")
        found = listening()
        assert found, self.log
        self.port = int(found[1])
        if workers > 1:
            wait_for(lambda: len(self.workers) == workers, "all workers")
        wait_for(lambda: self.get("/readyz")[0] == 200, "the gateway to be ready")

    def get(self, path: str) -> tuple[int, Any]:
        with Connection(self.port) as connection:
            return get_on(connection, path)

    def stream(self, caller: str, model: str) -> Connection:
        """A stream of which the head has come. The caller closes it."""
        path, content_type, body = CALLERS[caller]
        connection = Connection(self.port)
        sent = json.dumps({"model": model, "stream": True, **body}).encode()
        connection.send(path, sent, {"content-type": content_type})
        data = connection.sock.recv(12, socket.MSG_PEEK | socket.MSG_WAITALL)  # it stays for `answer`
        assert data == b"HTTP/1.1 200"
        return connection

    @property
    def refuses(self) -> bool:
        """Whether nobody listens any more."""
        with socket.socket() as probe:
            probe.settimeout(PATIENCE)
            return probe.connect_ex(("127.0.0.1", self.port)) != 0

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def exit_code(self) -> int:
        return self._process.wait(PATIENCE)

    def end(self) -> None:
        """Whatever happened, nothing of it is left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(PATIENCE)


def get_on(connection: Connection, path: str) -> tuple[int, Any]:
    connection.send(path, b"", method="GET")
    answer = connection.answer()
    return answer.status, answer.json()


@contextlib.contextmanager
def serving(folder: Path, config: str = "", *, workers: int = 1) -> Iterator[Process]:
    process = Process(folder, config, "--workers", str(workers))
    try:
        process.wait_until_ready(workers)
        yield process
    finally:
        process.end()
