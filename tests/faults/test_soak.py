"""Two thousand streams over a minute, in every caller format, with faults and callers that leave at random: each ends
once, each is recorded once, and nothing is left of them."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.engine.attempt import Attempt
from headrace.serve.driver import StreamDriver
from headrace.tape import Library, ReplayServer
from headrace.upstream.client import Exchange
from tests.gateway.test_life import eventually
from tests.gateway.test_serving import CALLERS
from tests.live import LiveGateway, LoopThread, gateway_config, live_gateway, live_replay

STREAMS = 2_000
SECONDS = 60.0
PATIENCE = 30.0
"""Seconds that one stream may take before the test gives up on it; none takes a tenth of that."""

FAULTS = (
    "", "", "", "status=500", "status=503&retry_after=0", "status=429&retry_after=0", "status=400", "reset=0", "cut=0",
    "cut=3", "cut=9", "cut=9&cut_clean=1", "reset=9", "silence=0", "silence=9", "hang=1", "malformed=1", "malformed=9",
    "error=0:overloaded_error", "error=9:overloaded_error", "delay=0.1", "first_delay=0.1", "split=1", "json=1",
)  # fmt: skip
STREAM_NAMES = ("text", "reasoning", "parallel-tools", "hello", "unicode")
TERMINALS = {
    # the events of a caller's format of which a stream has exactly one
    "openai": re.compile(rb"data: \[DONE\]"),
    "anthropic": re.compile(rb"event: (?:message_stop|error)\n"),
    "llm-stream": re.compile(rb'"type":"stream\.end"'),
    "gateway": re.compile(rb"event: (?:done|error)\n"),
}

ROUTES = """
routes:
  both: {candidates: ['as-openai/text?error=0:overloaded_error', as-anthropic/text], cross_model: true}
  hedged: {candidates: ['as-openai/text?first_delay=0.3', as-anthropic/text], cross_model: true, hedge_after: 50ms}
"""


@pytest.fixture(scope="module")
def provider(servers: LoopThread) -> Iterator[ReplayServer]:
    with live_replay(servers, Library.builtin(), record=False) as server:
        yield server


@pytest.fixture(scope="module")
def gateway(servers: LoopThread, provider: ReplayServer) -> Iterator[LiveGateway]:
    extra = "timeouts: {first_token: 500ms, idle_stream: 500ms}\nlimits: {body_bytes: 1MiB}\n" + ROUTES
    config = gateway_config(provider.base_url, extra, retries="{attempts: 2, backoff: 20ms, backoff_max: 100ms}")
    with live_gateway(servers, config) as live:
        yield live


class Caller:
    """Asks as a random caller would, and says how it ended."""

    def __init__(self, gateway: LiveGateway, rng: random.Random) -> None:
        self._gateway = gateway
        self._rng = rng
        self.endings: Counter[str] = Counter()
        self.wrong: list[str] = []

    async def ask(self, number: int) -> None:
        rng = self._rng
        name = rng.choice(list(CALLERS))
        path, content_type, body = CALLERS[name]
        provider = rng.choice(["as-openai", "as-anthropic", "as-llm-stream", "as-gateway"])
        fault = rng.choice(FAULTS)
        model = (
            rng.choice(["both", "hedged"]) if rng.random() < 0.1 else f"{provider}/{rng.choice(STREAM_NAMES)}?{fault}"
        )
        sent = json.dumps({"model": model.rstrip("?"), "stream": True, **body}).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: t\r\ncontent-type: {content_type}\r\nx-request-id: soak-{number}\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", self._gateway.port)
        try:
            writer.write(f"{head}connection: close\r\ncontent-length: {len(sent)}\r\n\r\n".encode() + sent)
            if rng.random() < 0.1:
                await asyncio.sleep(0.01 + rng.random() * 0.05)
                self.endings["left"] += 1
                return
            received = await asyncio.wait_for(reader.read(-1), PATIENCE)
        finally:
            writer.close()
        status = int(received[9:12])
        terminals = len(TERMINALS[name].findall(received))
        if status == 200 and terminals == 1:
            self.endings["streamed"] += 1
        elif status >= 400 and terminals == 0 and b'"error"' in received:
            self.endings["refused"] += 1
        else:
            self.wrong.append(f"{name} {model}: {status}, {terminals} terminal events, ends {received[-80:]!r}")


def resident() -> int:
    """Memory of this process in KiB."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def objects(kind: type[Any]) -> int:
    gc.collect()
    return sum(type(thing) is kind for thing in gc.get_objects())


@pytest.mark.timeout(300)
def test_soak(gateway: LiveGateway, provider: ReplayServer) -> None:
    rng = random.Random(20260304)
    caller = Caller(gateway, rng)

    async def run(first: int, count: int, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        tasks = []
        for number in range(count):
            await asyncio.sleep(max(0.0, begun + seconds * number / count - loop.time()))
            tasks.append(loop.create_task(caller.ask(first + number)))
        await asyncio.gather(*tasks)

    asyncio.run(run(0, 300, 3.0))  # what is loaded once, is loaded now
    assert eventually(lambda: not gateway.application.live)
    before = resident()
    asyncio.run(run(300, STREAMS, SECONDS))

    assert not caller.wrong, "\n".join(caller.wrong[:10])
    assert sum(caller.endings.values()) == STREAMS + 300
    assert min(caller.endings.values()) > 50, caller.endings

    assert eventually(lambda: not gateway.application.live), "a stream that never ends"
    for number in range(STREAMS + 300):
        assert len(gateway.records.of(f"soak-{number}", patience=2.0)) == 1, f"soak-{number}"

    for kind in (StreamDriver, Attempt, Exchange):
        assert eventually(lambda kind=kind: objects(kind) == 0), f"a {kind.__name__} is left"  # type: ignore[misc]  # bound at once
    for client in gateway.application.runtime._clients.values():
        assert not client._exchanges
        assert all(connection._exchange is None for connection in client._connections), "a connection is still used"
    gateway.records.forget()
    grown = resident() - before
    assert grown < 20_000, f"{grown} KiB more than before"
