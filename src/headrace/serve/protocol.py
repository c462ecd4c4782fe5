"""uvicorn's HTTP/1.1 protocol with bounds on the request's head, JSON refusals, and a short way for inference requests.

uvicorn leaves the size and the duration of a request's head unbounded, answers broken HTTP in plain text, and ASGI has
no word for "drop this caller now" (here an extension in the scope, `headrace.abort`). All three are added around the
public callbacks of its httptools protocol. Inference requests do not go through ASGI at all but through an `Exchange`,
unless they are pipelined behind another request of their connection.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headrace.serve.exchange import Exchange, Services
from headrace.serve.negotiation import PLACES

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


MAX_PIPELINED = 8
"""Requests that may wait behind another of their connection before nothing more is read from it."""


class GatewayProtocol(HttpToolsProtocol):
    """One caller's connection. What all connections share are class attributes, set by `serving`."""

    head_bytes: ClassVar[int]
    head_seconds: ClassVar[float]
    services: ClassVar[Services]

    _awaiting_head = True
    _head_size = 0
    _head_timer: asyncio.TimerHandle | None = None
    _exchange: Exchange | None = None
    """The latest; it may be over."""
    _receiving: Exchange | None = None
    """That which the message being parsed belongs to; None: ASGI's way."""

    @classmethod
    def serving(cls, services: Services, *, head_bytes: int, head_seconds: float) -> type[GatewayProtocol]:
        """A protocol class for these services, with these bounds."""
        shared = {"services": services, "head_bytes": head_bytes, "head_seconds": head_seconds}
        return type("ServingProtocol", (cls,), shared)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self.access_log = False  # uvicorn's lines show addresses, in which the hub's callers have their keys
        plain = transport.get_extra_info("sslcontext") is None
        self._descriptor: int = transport.get_extra_info("socket").fileno() if plain else -1
        # The clock of the first request starts with the connection; that of later ones with their first byte, as the
        # time between requests is the keep-alive timeout's.
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        if self._exchange is not None:
            self._exchange.caller_gone()
            self._exchange = self._receiving = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._awaiting_head:
            self._head_size += len(data)
        super().data_received(data)
        if self._awaiting_head and self._head_size:
            self._arm()  # a head that came in one piece, as most do, needs no timer
            if self._head_size > self.head_bytes:
                self._refuse(431)
        elif self._receiving is not None and self._receiving.reading:
            self._receiving.wait_for_body()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        extensions: dict[str, Any] = {"headrace.abort": self.transport.abort}
        self.scope["extensions"] = extensions

    def on_headers_complete(self) -> None:
        received, self._head_size = self._head_size, 0
        self._receiving = None
        self._awaiting_head = False
        self._disarm()
        # What came so far holds the head; only where it is too much, it matters how much of it is body.
        if received <= self.head_bytes or self._size_of_head() <= self.head_bytes:
            if not self._begin_exchange():
                super().on_headers_complete()
                if len(self.pipeline) <= MAX_PIPELINED:
                    self.flow.resume_reading()  # uvicorn stops at the first that has to wait, and misses the caller's leaving
            return
        app, self.app = self.app, _refuse_head
        try:
            super().on_headers_complete()
        finally:
            self.app = app

    def _begin_exchange(self) -> bool:
        """Whether this is an inference request that nothing stands before; it has begun, then."""
        before, parser = self.cycle, self.parser
        if parser.get_method() != b"POST" or not (before is None or before.response_complete):
            return False
        if parser.should_upgrade() and self._should_upgrade():
            return False  # a WebSocket's handshake, though a wrong one
        path, query = _split(self.url)
        places = PLACES.find(path, query)
        if not places:
            return False
        self._exchange = self._receiving = exchange = Exchange(
            self,
            self.services.enter(),
            places[0],
            path,
            self.headers,
            keep_alive=parser.should_keep_alive(),
            old=parser.get_http_version() == "1.0",
            descriptor=self._descriptor,
        )
        self.cycle = exchange  # type: ignore[assignment]  # with all of a cycle that is looked at
        exchange.head_received(expects_continue=self.expect_100_continue)
        return True

    def on_body(self, body: bytes) -> None:
        if self._receiving is not None:
            self._receiving.body_received(body)
        else:
            super().on_body(body)

    def _size_of_head(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def on_message_complete(self) -> None:
        self._awaiting_head = True
        if self._receiving is not None:
            self._receiving.body_complete()
        else:
            super().on_message_complete()

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


def _split(url: bytes) -> tuple[str, str]:
    """Path, percent-decoded, and query, which is not."""
    if url[:1] == b"/" and b"?" not in url and b"%" not in url and b"#" not in url:
        return url.decode("latin-1"), ""
    parsed = httptools.parse_url(url)
    path = (parsed.path or b"/").decode("latin-1")
    return unquote(path), (parsed.query or b"").decode("latin-1")


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
