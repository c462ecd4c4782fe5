"""A TCP proxy that breaks connections on the wire, below what any HTTP server could be asked to do."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass

_READ = 65536


@dataclass(frozen=True)
class Fault:
    """What happens to the bytes that come back from the provider. `after`: so many pass first."""

    after: int = 0
    then: str = "pass"
    """pass, close (an orderly FIN), reset (RST), hang, garbage."""
    drip: int = 0
    """Pass so many bytes at a time, each in a packet of its own."""
    accept: bool = True
    """False: reset the connection as soon as it is made."""


class FaultProxy:
    """Forwards 127.0.0.1:`port` to the target; `faults` are for the next connections in turn, then everything passes."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.port = 0
        self.faults: list[Fault] = []
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def aclose(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        fault = self.faults.pop(0) if self.faults else Fault()
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if not fault.accept:
                _reset(writer)
                return
            upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self._target)
            forth = asyncio.get_running_loop().create_task(_pump(reader, upstream_writer))
            try:
                await _back(upstream_reader, writer, fault)
            finally:
                forth.cancel()
                upstream_writer.close()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            with contextlib.suppress(RuntimeError):  # the loop may be closed
                writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_READ):
            writer.write(data)
            await writer.drain()


async def _back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: Fault) -> None:
    passed = 0
    limit = fault.after if fault.then != "pass" else None
    while limit is None or passed < limit:
        data = await reader.read(_READ if limit is None else limit - passed)
        if not data:
            return
        passed += len(data)
        step = fault.drip or len(data)
        for at in range(0, len(data), step):
            writer.write(data[at : at + step])
            await writer.drain()
            if fault.drip:
                await asyncio.sleep(0)  # a packet of its own
    if fault.then == "reset":
        _reset(writer)
    elif fault.then == "hang":
        await asyncio.get_running_loop().create_future()
    elif fault.then == "garbage":
        writer.write(b"\x00\xff" * 50)
        await writer.drain()
        await asyncio.get_running_loop().create_future()


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
