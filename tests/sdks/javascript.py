"""The JavaScript SDKs: a Node process for each, which runs the scenarios of js/openai.mjs and js/anthropic.mjs.

A job a line in, an outcome a line out (js/jobs.mjs), since starting Node and loading an SDK takes longer than a scenario.
"""

from __future__ import annotations

import queue
import subprocess
import threading
from pathlib import Path
from typing import IO, Any

import msgspec

from .expected import Outcome

FOLDER = Path(__file__).parent / "js"
TIMEOUT = 60.0
"""Seconds that a scenario may take."""


class NodeProcess:
    """`sdk`: the name of the script; `options` are further arguments. A process that hangs or dies fails its scenario; the
    next one gets a new one."""

    def __init__(self, sdk: str, url: str, *options: str) -> None:
        self._command = ["node", f"{sdk}.mjs", url, *options]
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def run(self, scenario: str, model: str, **request: Any) -> Outcome:
        process = self._process or self._start()
        assert process.stdin is not None
        job = {"scenario": scenario, "model": model, "request": request}
        process.stdin.write(msgspec.json.encode(job) + b"\n")
        process.stdin.flush()
        try:
            line = self._lines.get(timeout=TIMEOUT)
        except queue.Empty:
            self.close()
            raise AssertionError(f"{self._command[1]}: {scenario} of {model} took more than {TIMEOUT:g} s") from None
        if not line:
            self.close()
            raise AssertionError(f"{self._command[1]}: {scenario} of {model} ended the process; see its stderr")
        return msgspec.json.decode(line, type=Outcome)

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(self._command, cwd=FOLDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        self._process, self._lines = process, queue.SimpleQueue()
        threading.Thread(target=_read, args=(process.stdout, self._lines), daemon=True).start()
        return process

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.kill()
            process.wait()
            process.stdin.close()


def _read(stream: IO[bytes], lines: queue.SimpleQueue[bytes]) -> None:
    """Every line, then b"" for the end."""
    with stream:
        for line in stream:
            lines.put(line)
    lines.put(b"")
