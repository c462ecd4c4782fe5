"""uvicorn's HTTP/1.1 protocol with bounds on the request's head, JSON refusals, and a way to cut a connection.

uvicorn leaves the size and the duration of a request's head unbounded, answers broken HTTP in plain text, and ASGI has
no word for "drop this caller now". All three are added around the public callbacks of its httptools protocol. Three
extensions in the scope offer more than ASGI: `headrace.abort` drops the connection, `headrace.write` writes one piece
of a streaming body with less ado than `send`, which stays the way for everything else, and `headrace.cork` makes one
packet of what is written between `cork(True)` and `cork(False)`.
"""

from __future__ import annotations

import asyncio
import json
import os
from functools import partial
from typing import Any, ClassVar

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

_REFUSALS = {
    # status: (reason phrase, type, message)
    400: ("Bad Request", "invalid_http", "The request is not valid HTTP/1.1"),
    408: ("Request Timeout", "request_timeout", "The request's headers did not arrive in time (timeouts.request_head)"),
    431: (
        "Request Header Fields Too Large",
        "head_too_large",
        "The request line and headers are larger than the limit (limits.head_bytes)",
    ),
}


class GatewayProtocol(HttpToolsProtocol):
    """One caller's connection. Bounds are class attributes, set by `bounded`."""

    head_bytes: ClassVar[int] = 64 * 1024
    head_seconds: ClassVar[float] = 10.0

    _awaiting_head = True
    _head_size = 0
    _head_timer: asyncio.TimerHandle | None = None

    @classmethod
    def bounded(cls, *, head_bytes: int, head_seconds: float) -> type[GatewayProtocol]:
        """A protocol class with these bounds."""
        return type("BoundedProtocol", (cls,), {"head_bytes": head_bytes, "head_seconds": head_seconds})

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        plain = transport.get_extra_info("sslcontext") is None
        self._descriptor: int = transport.get_extra_info("socket").fileno() if plain else -1
        # The clock of the first request starts with the connection; that of later ones with their first byte, as the
        # time between requests is the keep-alive timeout's.
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._awaiting_head:
            self._head_size += len(data)
        super().data_received(data)
        if self._awaiting_head and self._head_size:
            self._arm()  # a head that came in one piece, as most do, needs no timer
            if self._head_size > self.head_bytes:
                self._refuse(431)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._extensions: dict[str, Any] = {"headrace.abort": self.transport.abort}
        self.scope["extensions"] = self._extensions

    def on_headers_complete(self) -> None:
        received, self._head_size = self._head_size, 0
        self._awaiting_head = False
        self._disarm()
        # What came so far holds the head; only where it is too much, it matters how much of it is body.
        if received <= self.head_bytes or self._size_of_head() <= self.head_bytes:
            super().on_headers_complete()
            self.cycle.transport = corked = _Corked(self.transport, self._descriptor)  # type: ignore[assignment]  # all of it that is used
            self._extensions["headrace.write"] = partial(_write_chunk, self.cycle, corked, self.flow)
            self._extensions["headrace.cork"] = corked.cork
            return
        app, self.app = self.app, _refuse_head
        try:
            super().on_headers_complete()
        finally:
            self.app = app

    def _size_of_head(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._awaiting_head = True

    def send_400_response(self, msg: str) -> None:
        self._refuse(400)

    def _arm(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_seconds, self._head_late)

    def _disarm(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_late(self) -> None:
        self._head_timer = None
        if self._head_size:
            self._refuse(408)
        else:
            self.transport.close()  # nothing was asked, so there is nothing to answer

    def _refuse(self, status: int) -> None:
        """Answer below ASGI, where there is no request yet that an application could answer, and close."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            phrase = _REFUSALS[status][0]
            body = _refusal_body(status)
            head = (
                f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode("ascii") + body)
        self.transport.close()


class _Corked:
    """A transport, as far as an answer uses one, that can gather what is written: head, first piece and last chunk of a
    short answer then leave in one packet, with one system call."""

    __slots__ = ("descriptor", "gathered", "is_closing", "transport", "waiting")

    def __init__(self, transport: asyncio.Transport, descriptor: int) -> None:
        self.transport = transport
        self.descriptor = descriptor
        """Of the socket; -1 where it must not be written to but through the transport (TLS)."""
        self.gathered: list[bytes] | None = None
        self.is_closing = transport.is_closing
        self.waiting = transport.get_write_buffer_size

    def write(self, data: bytes) -> None:
        if self.gathered is None:
            self.transport.write(data)
        else:
            self.gathered.append(data)

    def cork(self, on: bool) -> None:
        """Gather from now on, or write what has gathered."""
        if on:
            if self.gathered is None:
                self.gathered = []
        elif self.gathered is not None:
            pieces, self.gathered = self.gathered, None
            if pieces and not self.is_closing():
                self.transport.write(b"".join(pieces))

    def close(self) -> None:
        self.cork(False)
        self.transport.close()


def _write_chunk(cycle: RequestResponseCycle, corked: _Corked, flow: FlowControl, data: bytes) -> bool:
    """Write a piece of a streaming body as ASGI's `send` would, without its coroutine and its message.

    False, and nothing done, where only `send` knows what to do: before the head, while the caller's buffer is full,
    after the end, and for bodies that are not chunked. Where nothing waits in the transport, the piece goes straight to
    the socket; whatever the socket does not take, and all its errors, are the transport's business.
    """
    if flow.write_paused or cycle.disconnected or cycle.response_complete or not cycle.chunked_encoding:
        return False
    chunk = b"%x\r\n%b\r\n" % (len(data), data)
    if corked.descriptor >= 0 and corked.gathered is None and not corked.waiting() and not corked.is_closing():
        try:
            sent = os.write(corked.descriptor, chunk)
        except OSError:
            sent = 0
        if sent == len(chunk):
            return True
        chunk = chunk[sent:]
    corked.write(chunk)
    return True


def _refusal_body(status: int) -> bytes:
    """No format is known yet; this shape is the gateway's and OpenAI's in one."""
    _, kind, message = _REFUSALS[status]
    error = {"code": "invalid_request", "message": message, "type": kind, "retryable": False}
    return json.dumps({"error": error}).encode("ascii")


async def _refuse_head(scope: Any, receive: Any, send: Any) -> None:
    body = _refusal_body(431)
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 431, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
