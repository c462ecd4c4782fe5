"""A live gateway and a live replaying provider, on real sockets, in a thread of their own.

Tests talk to them as any program would. One loop thread serves all of them; what a test starts it stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, TypeVar

import uvicorn
import uvloop

from headrace.config import Config, loads
from headrace.metering import UsageRecord
from headrace.serve.app import Application
from headrace.serve.server import bind, make_server
from headrace.tape import Library, ReplayServer

T = TypeVar("T")
START_SECONDS = 30
PROVIDERS = {
    # provider name: (format, suffix of its base URL); each one is the same replaying server
    "as-openai": ("openai_chat", "/v1"),
    "as-anthropic": ("anthropic", ""),
    "as-llm-stream": ("llm_stream", ""),
    "as-gateway": ("gateway", ""),
}


class LoopThread:
    """An event loop in a thread; `call` runs a coroutine there and waits for its result."""

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="servers", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(START_SECONDS)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(START_SECONDS)
        self.loop.close()


class Records:
    """In place of a recorder: keeps the usage records."""

    def __init__(self) -> None:
        self._records: list[UsageRecord] = []

    def record(self, record: UsageRecord) -> None:
        self._records.append(record)

    def forget(self) -> None:
        self._records.clear()

    def of(self, request_id: str, *, patience: float = START_SECONDS) -> list[UsageRecord]:
        """The records of a request, waiting for the first one."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            found = [record for record in self._records if record.request_id == request_id]
            if found:
                return found
            time.sleep(0.005)
        return []


class LiveGateway:
    """`url` is where it listens; `application` its insides, for tests that look at them."""

    def __init__(self, thread: LoopThread, config: Config, env: Mapping[str, str]) -> None:
        self._thread = thread
        self.records = Records()
        listener = bind("127.0.0.1", 0)
        self.port: int = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._server, self._serving = thread.call(self._start(config, env, listener, self.records))
        application = self._server.config.app
        assert isinstance(application, Application)
        self.application = application

    @staticmethod
    async def _start(
        config: Config, env: Mapping[str, str], listener: Any, records: Any
    ) -> tuple[uvicorn.Server, asyncio.Task[None]]:
        server = make_server(config, env=env, recorder=records)
        serving = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))
        while not server.started:
            if serving.done():
                await serving
            await asyncio.sleep(0.01)
        return server, serving

    def stop(self) -> None:
        self._server.config.timeout_graceful_shutdown = 1  # streams that a test left open are of no interest
        self._server.should_exit = True
        asyncio.run_coroutine_threadsafe(_wait(self._serving), self._thread.loop).result(START_SECONDS)


async def _wait(task: asyncio.Task[None]) -> None:
    await task


def gateway_config(
    replay_url: str,
    extra: str = "",
    *,
    providers: Mapping[str, str] | None = None,
    retries: str = "{attempts: 1}",
    breaker: str = "{enabled: false}",
) -> Config:
    """A provider for each format, all of them the replaying server at `replay_url`; `extra` is more YAML, `providers`
    are more of them (name: YAML).

    Every request is sent once: tests of formats and streams ask for faults, and want to see them.
    """
    lines = [f"retry: {retries}", f"breaker: {breaker}", "providers:"]
    for name, (fmt, suffix) in PROVIDERS.items():
        lines.append(f"  {name}: {{format: {fmt}, base_url: '{replay_url}{suffix}'}}")
    lines += [f"  {name}: {settings}" for name, settings in (providers or {}).items()]
    return loads("\n".join(lines) + "\n" + extra, filename="test.yaml", env={})


@contextlib.contextmanager
def live_gateway(thread: LoopThread, config: Config, env: Mapping[str, str] | None = None) -> Iterator[LiveGateway]:
    gateway = LiveGateway(thread, config, env or {})
    try:
        yield gateway
    finally:
        gateway.stop()


@contextlib.contextmanager
def live_replay(thread: LoopThread, library: Library, **options: Any) -> Iterator[ReplayServer]:
    """A replaying provider that keeps what it is asked (`record=True`) and plays as fast as it can."""
    settings: dict[str, Any] = {"speed": 0.0, "record": True, **options}

    async def start() -> ReplayServer:
        server = ReplayServer(library, **settings)
        await server.start()
        return server

    server = thread.call(start())
    try:
        yield server
    finally:
        thread.call(server.aclose())
