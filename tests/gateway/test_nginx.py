"""Through a real nginx with its default buffering, events arrive one by one, in the provider's rhythm."""

from __future__ import annotations

import itertools
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.test_serving import CALLERS, ask
from tests.live import LiveGateway

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")

CONFIG = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  gzip on; gzip_types *; gzip_min_length 1;
  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{upstream}; }} }}
}}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def nginx(gateway: LiveGateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of an nginx in front of the gateway. Nothing about streams is configured."""
    if NGINX is None:
        pytest.fail("nginx is not installed: apt-get install nginx (make test does it where it may)")
    folder: Path = tmp_path_factory.mktemp("nginx")
    port = free_port()
    (folder / "nginx.conf").write_text(CONFIG.format(folder=folder, port=port, upstream=gateway.port))
    process = subprocess.Popen([NGINX, "-c", str(folder / "nginx.conf"), "-p", str(folder)], stderr=subprocess.PIPE)
    try:
        for _ in range(200):
            if process.poll() is not None:
                pytest.fail(f"nginx ended: {process.stderr.read() if process.stderr else ''!r}")
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait(10)
        if process.stderr is not None:
            process.stderr.close()


@pytest.mark.parametrize("caller", CALLERS)
def test_events_arrive_one_by_one(nginx: int, caller: str) -> None:
    """The measure is the rhythm itself: were they collected anywhere, the first would come with the last."""
    answer = ask(nginx, caller, "as-anthropic/text?speed=1")
    assert answer.status == 200
    assert answer.complete
    assert "content-encoding" not in answer.headers
    arrivals = [at for at, _ in answer.pieces]
    spread = arrivals[-1] - arrivals[0]
    distinct = sum(1 for earlier, later in itertools.pairwise(arrivals) if later - earlier > 0.002)
    assert distinct >= len(answer.sse()) / 3
    # Most of the time passes between the first event and the last, not before the first.
    assert spread > arrivals[0]
