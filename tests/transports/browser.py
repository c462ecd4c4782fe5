"""A real browser: Debian's Chromium, without a window, on a page that reports to the test what its script found."""

from __future__ import annotations

import contextlib
import http.server
import json
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless",
    "--no-sandbox",  # the tests may run as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE = 60.0
"""Seconds for the browser to start and the page to report."""


class Page:
    """`origin`: where it is served. `report` waits for what its script sent to /report, as JSON."""

    def __init__(self, port: int, reports: queue.SimpleQueue[Any]) -> None:
        self.origin = f"http://127.0.0.1:{port}"
        self._reports = reports

    def report(self) -> Any:
        try:
            return self._reports.get(timeout=PATIENCE)
        except queue.Empty:
            raise AssertionError(f"the page reported nothing within {PATIENCE:g} s") from None


@contextlib.contextmanager
def served(script: str, modules: Path | None = None, imports: Mapping[str, str] | None = None) -> Iterator[Page]:
    """A page with this module script; its function `report(value)` tells the test. `imports`: names of modules, and where
    they are below the folder `modules`."""
    import_map = {"imports": {name: f"/modules/{file}" for name, file in (imports or {}).items()}}
    reports: queue.SimpleQueue[Any] = queue.SimpleQueue()
    html = (
        "<!doctype html><meta charset=utf-8><title>test</title>"
        f"<script type=importmap>{json.dumps(import_map)}</script><script type=module>"
        "const report = (value) => fetch('/report', {method: 'POST', body: JSON.stringify(value)});"
        "addEventListener('error', (e) => report({error: e.message}));"
        "addEventListener('unhandledrejection', (e) => report({error: String(e.reason)}));"
        f"{script}</script>"
    ).encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name is the base class's
            content, kind = (html, "text/html") if self.path == "/" else (None, "text/javascript")
            if modules is not None and self.path.startswith("/modules/"):
                file = modules / self.path.removeprefix("/modules/")
                content = file.read_bytes() if file.is_file() else None
            self.send_response(404 if content is None else 200)
            self.send_header("content-type", kind)
            self.end_headers()
            if content is not None:
                self.wfile.write(content)

        def do_POST(self) -> None:  # as above
            reports.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield Page(server.server_port, reports)
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def visiting(page: Page, profile: Path) -> Iterator[Page]:
    """Chromium on this page; `profile` is a folder of its own."""
    if CHROMIUM is None:
        pytest.fail("chromium is not installed: apt-get install chromium (make test does it where it may)")
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-port=0", page.origin + "/"]
    browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield page
    finally:
        browser.terminate()
        try:
            browser.wait(10)
        except subprocess.TimeoutExpired:
            browser.kill()
            browser.wait()
