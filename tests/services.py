"""Real servers that tests need: Redis and PostgreSQL, started on free ports of 127.0.0.1 and ended with the test."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

_START_SECONDS = 30


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 0.5).close()
            return
        time.sleep(0.02)
    raise RuntimeError(f"{process.args!r} does not listen on {port}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_START_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class RedisServer:
    """One redis-server without persistence; `stop` and `start` as an outage would."""

    def __init__(self) -> None:
        self._program = shutil.which("redis-server")
        if self._program is None:
            pytest.skip("redis-server is not installed (Debian package redis-server)")
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        assert self._program is not None
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(
            [self._program, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tempfile.gettempdir()
        )
        _wait_for(self.port, self._process)

    def stop(self) -> None:
        if self._process is not None:
            _stop(self._process)
            self._process = None


@contextlib.contextmanager
def redis_server() -> Iterator[RedisServer]:
    server = RedisServer()
    try:
        yield server
    finally:
        server.stop()


def _postgres_program(name: str) -> Path | None:
    found = shutil.which(name)
    if found is not None and "postgresql" in str(Path(found).resolve()):
        return Path(found).resolve()
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return versions[-1] if versions else None


def _wait_for_database(pg_isready: Path, port: int) -> None:
    """PostgreSQL listens before it takes connections."""
    end = time.monotonic() + _START_SECONDS
    while subprocess.run([pg_isready, "-q", "-h", "127.0.0.1", "-p", str(port)], check=False).returncode:
        if time.monotonic() > end:
            raise RuntimeError("PostgreSQL does not come up")
        time.sleep(0.02)


@contextlib.contextmanager
def postgres_server() -> Iterator[str]:
    """The URL of an empty database."""
    initdb, postgres = _postgres_program("initdb"), _postgres_program("postgres")
    if initdb is None or postgres is None:
        pytest.skip("PostgreSQL is not installed (Debian package postgresql)")
    # PostgreSQL refuses to run as root, which containers mostly are.
    prefix = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory(prefix="headrace-postgres-") as directory:
        folder = Path(directory)
        if prefix:
            shutil.chown(folder, "postgres", "postgres")
        port = free_port()
        data = folder / "data"
        subprocess.run(
            [*prefix, initdb, "-D", data, "-U", "headrace", "--auth=trust", "--no-sync", "-E", "UTF8"],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=folder,
        )
        process = subprocess.Popen(
            [*prefix, postgres, "-D", data, "-p", str(port), "-k", folder, "-c", "listen_addresses=127.0.0.1", "-F"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
        )
        try:
            _wait_for(port, process)
            _wait_for_database(initdb.with_name("pg_isready"), port)
            yield f"postgresql://headrace@127.0.0.1:{port}/postgres"
        finally:
            _stop(process)
