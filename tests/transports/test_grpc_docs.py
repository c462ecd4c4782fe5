"""What docs/grpc.md shows is what happens."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.config import loads
from headrace.model.errors import ErrorCode
from headrace.serve.rpc.status import STATUS_TABLE
from tests.live import LiveGateway, LoopThread, live_gateway
from tests.transports.test_grpc import address

DOCUMENT = (Path(__file__).parents[2] / "docs" / "grpc.md").read_text()


def snippet(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def documented(servers: LoopThread) -> Iterator[LiveGateway]:
    text = snippet("yaml").replace("50051", "0")
    with live_gateway(servers, loads(text, filename="docs.yaml", env={})) as live:
        yield live


def test_the_python_snippet(documented: LiveGateway) -> None:
    script = snippet("python").replace("127.0.0.1:50051", address(documented))
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=True)
    assert b"headrace" in ran.stdout.lower()


def test_the_curl_snippet(documented: LiveGateway) -> None:
    command = (
        snippet("console").removeprefix("$ ").replace("\\\n", " ").replace("http://127.0.0.1:8080", documented.url)
    )
    ran = subprocess.run([*shlex.split(command), "-sS"], capture_output=True, timeout=60, check=True)
    assert b'"content"' in ran.stdout


def test_the_table_of_errors() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (\d+) \|$", DOCUMENT, re.MULTILINE)
    spelled = {"CANCELLED": "canceled"}
    assert {code: (spelled.get(name, name.lower()), int(http)) for code, name, http in rows} == {
        code.value: (STATUS_TABLE[code].name, STATUS_TABLE[code].http) for code in ErrorCode
    }
