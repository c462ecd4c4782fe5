"""One connection of the replay server: HTTP/1.1 requests in, the steps of an answer out, each at its time.

The rule: the wire belongs to the answer. A step is one write, made when the bytes before it have left the process, so
that a reset or a silence comes exactly after them; nothing is added, delayed or joined here. A caller that closes its
side, even half, has gone: it is noticed at once, also while the answer is silent.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, cast

import httptools

from headrace.tape.answer import Ending, Step, whole

MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_PIPELINED = 64

_WRITES_A_TURN = 32
"""How many steps that are due are sent before other connections have their turn."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class HttpRequest:
    """A request as it came. Header names are in lower case; of repeated ones the last counts."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    at: float
    """The loop's time when it was complete."""
    keep_alive: bool = True
    chunked_allowed: bool = True
    """False for HTTP/1.0."""


class Owner(Protocol):
    """What a connection tells its server, and asks of it."""

    def opened(self, connection: Connection) -> None: ...

    def closed(self, connection: Connection) -> None: ...

    def answer(self, request: HttpRequest) -> Iterator[Step]:
        """The answer to a request. Raises nothing but programming errors."""

    def started(self) -> None:
        """An answer has begun."""

    def ended(self, *, aborted: bool) -> None:
        """It is over; `aborted`: the caller had gone before its end."""


class Connection(asyncio.Protocol):
    """The protocol of one connection; asks the owner for answers, one at a time, in the order of the requests."""

    def __init__(self, owner: Owner, loop: asyncio.AbstractEventLoop) -> None:
        self._owner = owner
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[HttpRequest] = deque()
        self._request: HttpRequest | None = None
        self._steps: Iterator[Step] | None = None
        self._next: Step | None = None
        self._timer: asyncio.Handle | None = None
        self._paused = False
        self._target = b""
        self._headers: dict[str, str] = {}
        self._body = bytearray()

    # -- asyncio -----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not subclasses of it
        self._transport.set_write_buffer_limits(high=0)  # pause as soon as the kernel takes no more
        self._owner.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(aborted=True)
        self._transport = None
        self._owner.closed(self)

    def eof_received(self) -> None:
        self.abort()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._steps is not None and self._timer is None:
            self._play()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(400, b"this server speaks HTTP/1.1 only")
        except httptools.HttpParserError:
            self._refuse(400, b"the request is not valid HTTP")

    def abort(self) -> None:
        """Drop the connection, whatever is under way."""
        self._finish(aborted=True)
        if self._transport is not None:
            self._transport.abort()

    # -- httptools ---------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers = {}
        self._body = bytearray()

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._headers.get("expect", "").lower() == "100-continue" and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body += body
        if len(self._body) > MAX_BODY_BYTES:
            self._refuse(413, b"the body is larger than 64 MiB")

    def on_message_complete(self) -> None:
        parser = self._parser
        request = HttpRequest(
            parser.get_method().decode("latin-1"),
            self._target.decode("latin-1"),
            self._headers,
            bytes(self._body),
            self._loop.time(),
            keep_alive=parser.should_keep_alive(),
            chunked_allowed=parser.get_http_version() != "1.0",
        )
        self._body = bytearray()
        if len(self._waiting) == MAX_PIPELINED:
            self.abort()
            return
        self._waiting.append(request)
        if self._steps is None:
            self._answer_next()

    # -- playing -----------------------------------------------------------------------------------------------------

    def _answer_next(self) -> None:
        if not self._waiting or self._transport is None or self._transport.is_closing():
            return
        self._request = self._waiting.popleft()
        self._owner.started()
        self._steps = self._owner.answer(self._request)
        self._play()

    def _play(self) -> None:
        """Send what is due, then wait: for the next step's time, for room, or for the other connections' turn."""
        self._timer = None
        for _ in range(_WRITES_A_TURN):
            if self._steps is None or self._request is None or self._transport is None or self._paused:
                return
            step = self._next or self._take()
            if step is None:
                return
            due = self._request.at + step.at
            if due > self._loop.time():
                self._next = step
                self._timer = self._loop.call_at(due, self._play)
                return
            self._next = None
            if step.data:
                self._transport.write(step.data)
            if step.ending is not None:
                self._end(step.ending)
                return
        self._timer = self._loop.call_soon(self._play)

    def _take(self) -> Step | None:
        """The next step. A defect in what makes them must not look like an answer: the connection is dropped."""
        assert self._steps is not None
        try:
            return next(self._steps, None)
        except Exception as error:
            # The traceback may quote the request, so it is for those who ask for details.
            _log.error(
                "a replayed answer broke off: %s", type(error).__name__, exc_info=_log.isEnabledFor(logging.DEBUG)
            )
            self.abort()
            return None

    def _end(self, ending: Ending) -> None:
        assert self._transport is not None
        assert self._request is not None
        if ending is Ending.SILENCE:
            self._steps = iter(())  # under way, and nothing more to come
            return
        again = ending is Ending.COMPLETE and self._request.keep_alive
        self._finish(aborted=False)
        if again:
            self._answer_next()
        elif ending is Ending.RESET:
            reset = struct.pack("ii", 1, 0)  # linger for no time: close() then sends RST
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            self._transport.abort()
        else:
            self._transport.close()

    def _finish(self, *, aborted: bool) -> None:
        if self._steps is None:
            return
        self._steps = self._next = self._request = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._owner.ended(aborted=aborted)

    def _refuse(self, status: int, message: bytes) -> None:
        """The request cannot be read: say so and close, unless an answer is in the way."""
        if self._steps is not None or self._transport is None:
            self.abort()
            return
        if not self._transport.is_closing():
            for step in whole(status, b'{"error":{"message":"%b"}}' % message, headers=(("connection", "close"),)):
                self._transport.write(step.data)
            self._transport.close()
