"""A scripted HTTP server and a recording handler: what the upstream client's tests talk to and listen with."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from headrace.upstream import Exchange, Headers, UpstreamError

PATIENCE = 10.0
"""Seconds after which a wait for an event is a failure. Nothing here waits this long when it works."""


class Recorder:
    """Records an exchange's callbacks; `hook(name)` runs inside each of them."""

    def __init__(self, hook: Callable[[str], None] | None = None) -> None:
        self.calls: list[str] = []
        self.status = 0
        self.headers = Headers()
        self.pieces: list[bytes] = []
        self.error: UpstreamError | None = None
        self.hook = hook
        self._changed = asyncio.Event()

    def _record(self, name: str) -> None:
        self.calls.append(name)
        self._changed.set()
        if self.hook is not None:
            self.hook(name)

    def response_started(self, status: int, headers: Headers) -> None:
        self.status, self.headers = status, headers
        self._record("started")

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)
        self._record("data")

    def response_ended(self) -> None:
        self._record("ended")

    def response_failed(self, error: UpstreamError) -> None:
        self.error = error
        self._record("failed")

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def finished(self) -> bool:
        return self.calls[-1:] in (["ended"], ["failed"])

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def done(self) -> Recorder:
        await self.until(lambda: self.finished)
        return self

    async def failure(self) -> UpstreamError:
        await self.done()
        assert self.error is not None, self.calls
        return self.error


class Received(NamedTuple):
    """A request as the server read it."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes

    def values(self, name: str) -> list[str]:
        return [value for field, value in self.headers if field.lower() == name]


class Peer:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self) -> Received:
        head = await self.reader.readuntil(b"\r\n\r\n")
        line, *fields = head[:-4].decode("latin-1").split("\r\n")
        headers = [(name, value) for name, _, value in (field.partition(": ") for field in fields)]
        length = next((int(value) for name, value in headers if name == "Content-Length"), 0)
        return Received(line, headers, await self.reader.readexactly(length))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def closed(self) -> bytes:
        """Wait for the client to close the connection; return what it sent before."""
        data = b""
        with contextlib.suppress(ConnectionError):
            while piece := await self.reader.read(65536):
                data += piece
        return data

    def reset(self) -> None:
        """Close with RST and not with FIN."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Peer], Awaitable[None]]


class Server:
    """Gives the n-th connection to the n-th script; a script's end closes its connection."""

    def __init__(self, scripts: tuple[Script, ...]) -> None:
        self.accepted = 0
        self._scripts = scripts
        self._running: list[asyncio.Task[None]] = []
        self.port = 0

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        index, self.accepted = self.accepted, self.accepted + 1
        assert index < len(self._scripts), "one connection more than expected"
        task = asyncio.current_task()
        assert task is not None
        self._running.append(task)
        try:
            await self._scripts[index](Peer(reader, writer))
        finally:
            writer.close()

    async def finished(self) -> None:
        """Wait until every script has run to its end; raise what one of them raised."""
        await until(lambda: len(self._running) == len(self._scripts))
        async with asyncio.timeout(PATIENCE):
            for task in self._running:
                await task

    def url(self, path: str = "/v1/chat?x=1", host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


@contextlib.asynccontextmanager
async def serving(*scripts: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Run a scripted server; leaving the block waits for all its scripts and passes on their failures."""
    server = Server(scripts)
    listener = await asyncio.start_server(server._accept, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
        await server.finished()
    finally:
        for task in server._running:
            task.cancel()
        listener.close()


def answer(body: bytes = b"hello", head: str = "") -> bytes:
    """A keep-alive answer with a length."""
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body


def answering(*answers: bytes) -> Script:
    """One answer a request, then wait for the client to close."""

    async def script(peer: Peer) -> None:
        for data in answers:
            await peer.request()
            await peer.send(data)
        assert await peer.closed() == b""

    return script


async def turns(count: int = 20) -> None:
    """Let the event loop run: everything that is ready happens."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop run until something inside the code under test, which has no event to wait for, is true."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110  # see above
            await asyncio.sleep(0)


def aborting(exchanges: list[Exchange], at: str) -> Recorder:
    """A recorder that aborts `exchanges[0]` from within the callback named `at`."""

    def hook(name: str) -> None:
        if name == at:
            exchanges[0].abort()

    return Recorder(hook)
