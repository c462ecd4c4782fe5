"""One inference request on a caller's HTTP/1.1 connection, and its answer, without a task of its own.

ASGI's way costs a task, an event and two coroutines a request, only to wait for a caller who mostly stays. Here the
connection itself tells what happens: the head has come, the body, the caller has gone. Only a request that has to wait
for others before it can be begun (limits that are shared, an answer that is kept for repeats) gets a task for that.

It stands where uvicorn's protocol keeps its request-response cycle, so it has the fields which that looks at.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Iterable
from http import HTTPStatus
from typing import Any, Protocol

from uvicorn.protocols.http.flow_control import FlowControl

from headrace.formats import Format
from headrace.formats.locate import Place
from headrace.model.errors import ErrorInfo
from headrace.serve.driver import Message, StreamDriver
from headrace.serve.inference import Arrived, Inference
from headrace.serve.line import Headers, send_error
from headrace.serve.stepping import Done, step

logger = logging.getLogger("headrace.serve")

_UNSENDABLE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]").search
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_STATUS_LINES = {
    status: f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n".encode("ascii") for status in range(200, 600)
}


class Service(Protocol):
    """What serves the requests of one configuration, and counts them."""

    @property
    def inference(self) -> Inference: ...

    def leave(self) -> None:
        """This request is over."""


class Services(Protocol):
    """Whatever configuration is in force."""

    def enter(self) -> Service:
        """What serves a request that begins now."""


class Connection(Protocol):
    """What an exchange needs of the protocol that it belongs to."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    flow: FlowControl
    tasks: set[asyncio.Task[Any]]

    def on_response_complete(self) -> None: ...


class _Nobody:
    def set(self) -> None:
        """uvicorn wakes the task of a request here."""


class Exchange:
    """`old`: the caller speaks HTTP/1.0, to whom an answer of unknown length ends with the connection.

    `descriptor`: of the socket; -1 where it must not be written to but through the transport (TLS).
    """

    __slots__ = (
        "_arrived",
        "_body",
        "_chunked",
        "_connection",
        "_descriptor",
        "_driver",
        "_flow",
        "_gathered",
        "_inference",
        "_late",
        "_left",
        "_old",
        "_service",
        "_size",
        "_started",
        "_transport",
        "disconnected",
        "keep_alive",
        "reading",
        "response_complete",
    )

    message_event = _Nobody()
    encoder = None
    tells_status = False

    def __init__(
        self,
        connection: Connection,
        service: Service,
        place: Place,
        path: str,
        headers: Iterable[tuple[bytes, bytes]],
        *,
        keep_alive: bool,
        old: bool,
        descriptor: int,
    ) -> None:
        self._connection = connection
        self._transport = connection.transport
        self._flow = connection.flow
        self._service = service
        self._inference = service.inference
        self._descriptor = descriptor
        self._old = old
        self._driver: StreamDriver | None = None
        self._body: list[bytes] = []
        self._size = 0
        self._late: asyncio.TimerHandle | None = None
        self._gathered: list[bytes] | None = None
        self._started = False
        self._chunked = False
        self._left: int | None = None
        """Bytes of a body of known length that are still to be written."""
        self.keep_alive = keep_alive and not old
        self.disconnected = False
        self.reading = True
        """Whether more of the body is to come."""
        self.response_complete = False
        self._arrived: Arrived = self._inference.arrive(place, path, headers, self)

    # --- what the caller's connection tells ----------------------------------------------------------------------

    def head_received(self, *, expects_continue: bool) -> None:
        try:
            self._inference.hear(self._arrived)
        except Exception as error:
            self._run(self._inference.refuse(self._arrived, error))
            return
        if expects_continue:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def body_received(self, data: bytes) -> None:
        if self.response_complete:
            return  # refused already; what still comes is of no interest
        self._body.append(data)
        self._size += len(data)
        try:
            self._inference.check_size(self._size)
        except Exception as error:
            self._run(self._inference.refuse(self._arrived, error))

    def body_complete(self) -> None:
        self.reading = False
        self._stop_waiting()
        if self.response_complete:
            return
        inference, arrived = self._inference, self._arrived
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        try:
            inference.read(arrived, body)
            waits = inference.waits(arrived)
        except Exception as error:
            self._run(inference.refuse(arrived, error))
            return
        if waits:
            self._spawn(self._proceed(arrived, body))
        else:
            self._run(self._proceed(arrived, body))

    def wait_for_body(self) -> None:
        """What has come so far is not all; the rest has a time limit, from the first such call on."""
        if self._late is None and not self.response_complete:
            self._late = self._connection.loop.call_later(self._inference.body_seconds, self._body_late)

    def caller_gone(self) -> None:
        """The connection is closed."""
        if self.response_complete or self.disconnected:
            return
        self.disconnected = True
        self._stop_waiting()
        driver, self._driver = self._driver, None
        self._service.leave()
        if driver is not None:
            driver.caller_gone()

    # --- what happens then ---------------------------------------------------------------------------------------

    async def _proceed(self, arrived: Arrived, body: bytes) -> None:
        driver = await self._inference.proceed(arrived, body)
        if driver is None:
            return
        self._driver = driver
        driver.begin()
        if self.response_complete:
            self._driver = None
        elif self.disconnected:
            self._driver = None
            driver.caller_gone()

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _body_late(self) -> None:
        self._late = None
        if not self.response_complete:
            self.keep_alive = False  # the rest of the body could not be told from a request
            self._run(self._inference.refuse(self._arrived, self._inference.late()))

    def _run(self, work: Awaitable[None]) -> None:
        """Do this at once; what of it has to wait, in a task."""
        try:
            rest = step(work)
        except Exception:
            logger.exception("a request could not be answered")
            self.abort()
            return
        if not isinstance(rest, Done):
            self._spawn(rest)

    def _spawn(self, work: Awaitable[None]) -> None:
        tasks = self._connection.tasks
        task = self._connection.loop.create_task(self._guarded(work))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception:
            logger.exception("a request could not be answered")
            self.abort()

    # --- Line: the way of the answer ------------------------------------------------------------------------------

    def abort(self) -> None:
        self._transport.abort()

    def refuse(self, answer: Format, info: ErrorInfo, headers: Headers) -> Awaitable[None]:
        return send_error(self.send, answer, info, headers)

    async def send(self, message: Message) -> None:
        if self._flow.write_paused and not self.disconnected:
            await self._flow.drain()
        if self.disconnected or self.response_complete:
            return
        try:
            if message["type"] == "http.response.start":
                self._start(message["status"], message["headers"])
            else:
                self._send_body(message.get("body", b""), more=message.get("more_body", False))
        except ValueError:
            self.abort()  # the caller shall not wait for what cannot be sent
            raise

    def write(self, data: bytes) -> bool:
        """Where nothing waits in the transport, the piece goes straight to the socket; whatever the socket does not take,
        and all its errors, are the transport's business."""
        if self._flow.write_paused or not self._chunked or self.disconnected or self.response_complete:
            return False
        chunk = b"%x\r\n%b\r\n" % (len(data), data)
        if self._gathered is not None:
            self._gathered.append(chunk)
            return True
        transport = self._transport
        if self._descriptor >= 0 and not transport.get_write_buffer_size() and not transport.is_closing():
            try:
                sent = os.write(self._descriptor, chunk)
            except OSError:
                sent = 0
            if sent == len(chunk):
                return True
            chunk = chunk[sent:]
        transport.write(chunk)
        return True

    def cork(self, on: bool) -> None:
        """Head, first piece and last chunk of a short answer leave in one packet, with one system call."""
        if on:
            if self._gathered is None:
                self._gathered = []
        elif self._gathered is not None:
            pieces, self._gathered = self._gathered, None
            if pieces and not self._transport.is_closing():
                self._transport.write(b"".join(pieces))

    def _start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raises ValueError for a header that cannot be sent."""
        pieces = [_STATUS_LINES[status]]
        for name, value in headers:
            if name == b"content-length":
                self._left = int(value)
            pieces += (name, b": ", value, b"\r\n")
        if _UNSENDABLE(b"".join([piece for piece in pieces[1:] if piece != b"\r\n"])):
            raise ValueError("a header of the answer holds a line break or a control character")
        if self._left is None and not self._old:
            self._chunked = True
            pieces.append(b"transfer-encoding: chunked\r\n")
        self.keep_alive = self.keep_alive and (self._chunked or self._left is not None)
        pieces.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        self._started = True
        self._put(b"".join(pieces))

    def _send_body(self, data: bytes, *, more: bool) -> None:
        """Raises ValueError where it does not fit what has been sent."""
        if not self._started:
            raise ValueError("the body of an answer came before its head")
        if self._chunked:
            chunk = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            self._put(chunk if more else chunk + b"0\r\n\r\n")
        else:
            if self._left is not None:
                self._left -= len(data)
                if self._left < 0 or (self._left and not more):
                    raise ValueError("the answer is not as long as its content-length says")
            self._put(data)
        if not more:
            self._complete()

    def _put(self, data: bytes) -> None:
        if self._gathered is not None:
            self._gathered.append(data)
        elif data:
            self._transport.write(data)

    def _complete(self) -> None:
        self.response_complete = True
        self._driver = None
        del self._arrived  # it refers to this exchange: a cycle
        self._stop_waiting()
        self.cork(False)
        if not self.keep_alive:
            self._transport.close()
        self._service.leave()
        self._connection.on_response_complete()
