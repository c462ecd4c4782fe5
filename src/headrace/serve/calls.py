"""Many requests on one connection: each is a `Call`, a Line of its own; `Calls` are those of a connection that run.

What WebSocket, stdio and the SignalR hub share. A connection is a `Pipe`: it frames messages, takes bytes, and says when it
can take no more. A call knows what its answer looks like (its encoder, what is said at its end), and nothing of the pipe
beyond that. The rule: however a call ends (its last event, a refusal, a cancellation, bytes that nobody read) it ends once,
and leaves its service; where the connection is lost, nothing more is written.

The trade-off: calls of one connection share its buffer, so a caller who reads nothing at all stops all of them; `pause`
stops one.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Protocol

import msgspec

from headrace.formats import Format
from headrace.formats.base import IN_THE_BODY, WriterOptions
from headrace.formats.locate import Place
from headrace.framing import Encoder, Frame
from headrace.model.errors import ErrorCode, ErrorInfo, InvalidRequest
from headrace.model.events import Error
from headrace.serve.driver import Message, StreamDriver
from headrace.serve.exchange import Service, Services
from headrace.serve.inference import Inference
from headrace.serve.line import Headers

MAX_REQUESTS = 1024
"""Requests in flight on one connection."""

CANCELLED = "The caller has cancelled the request"


class Pipe(Protocol):
    """A connection, as its calls see it."""

    loop: asyncio.AbstractEventLoop
    tasks: set[asyncio.Task[None]]
    """Kept until they are done; the process waits for them when it ends."""

    @property
    def write_paused(self) -> bool:
        """Whether bytes pile up: what can wait, waits until `Calls.open_gates` is called."""

    def frame(self, message: bytes) -> bytes:
        """One message, JSON, as it goes over this connection."""

    def write(self, data: bytes) -> None:
        """Send framed messages; where the connection is gone, nothing happens."""

    def abort(self) -> None:
        """Cut the connection: nobody reads from it."""


class IdInUse(Exception):
    """A request came with the id of one that still runs."""


class Calls:
    """The requests in flight on one connection, by the caller's ids.

    `path`: what the log calls the connection. `headers`: of the caller (lower-case names), its key among them; they count
    for requests to come. `over` is called whenever a call has ended.
    """

    def __init__(self, pipe: Pipe, services: Services, path: str, over: Callable[[], None]) -> None:
        self.pipe = pipe
        self.services = services
        self.path = path
        self.headers: dict[str, str] = {}
        self.ending = False
        """The process is about to end: requests to come are refused."""
        self._over = over
        self._running: dict[Hashable, Call] = {}

    def __len__(self) -> int:
        return len(self._running)

    def __contains__(self, id: Hashable) -> bool:
        return id in self._running

    def begin(self, call: Call, fields: dict[str, Any]) -> None:
        """Carry out a request with these fields. Raises IdInUse; every other failure is the call's answer."""
        if call.id in self._running:
            raise IdInUse
        self._running[call.id] = call
        if len(self._running) > MAX_REQUESTS:
            what = f"More than {MAX_REQUESTS} requests run on this connection"
            call.fail(ErrorInfo(code=ErrorCode.QUOTA_EXCEEDED, type="too_many_requests", message=what))
        elif self.ending:
            what = "The gateway is shutting down"
            call.fail(ErrorInfo(code=ErrorCode.PROVIDER_UNAVAILABLE, type="shutting_down", message=what))
        else:
            call.begin(self.services.enter(), fields)

    def cancel(self, id: Hashable) -> bool:
        """Whether it ran. Of a call that has ended already it means nothing: the two have crossed."""
        call = self._running.get(id)
        if call is not None:
            call.cancel()
        return call is not None

    def pause(self, id: Hashable) -> bool:
        call = self._running.get(id)
        if call is not None:
            call.paused = True
        return call is not None

    def resume(self, id: Hashable) -> bool:
        call = self._running.get(id)
        if call is not None:
            call.paused = False
            call.open_gate()
        return call is not None

    def no_more_pauses(self) -> None:
        """Nothing more comes from the caller: what is paused could never go on."""
        for id in list(self._running):
            self.resume(id)

    def open_gates(self) -> None:
        """The connection takes bytes again."""
        for call in list(self._running.values()):
            call.open_gate()

    def caller_gone(self) -> None:
        """The connection is lost."""
        for call in list(self._running.values()):
            call.caller_gone()
        self._running.clear()

    def finished(self, call: Call) -> None:
        self._running.pop(call.id, None)
        self._over()


class Call(ABC):
    """One request on a connection; a Line. It ends with its last piece, or with the connection."""

    __slots__ = ("_calls", "_driver", "_format", "_gate", "_over", "_pipe", "_service", "_task", "id", "paused")

    cork = None
    tells_status = False
    streams = True
    """Whether the answer is a stream."""

    def __init__(self, calls: Calls, id: Hashable, format: Format) -> None:
        self._calls = calls
        self._pipe = calls.pipe
        self.id = id
        self._format = format
        self._service: Service | None = None
        self._driver: StreamDriver | None = None
        self._task: asyncio.Task[None] | None = None
        self._gate: asyncio.Event | None = None
        self._over = False
        self.paused = False
        """The caller wants no more of this answer for now."""

    def begin(self, service: Service, fields: dict[str, Any]) -> None:
        """By `Calls.begin`."""
        self._service = service
        tasks = self._pipe.tasks
        self._task = self._pipe.loop.create_task(self._run(service.inference, fields))
        tasks.add(self._task)
        self._task.add_done_callback(tasks.discard)

    async def _run(self, inference: Inference, fields: dict[str, Any]) -> None:
        """Up to the beginning of the answer; from there on everything comes from the driver."""
        place = Place(self._format, self._format.routes[0], IN_THE_BODY)
        headers = self._calls.headers
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        arrived = inference.arrive(place, self._calls.path, raw, self)
        body = b""
        try:
            arrived.key = inference.runtime.authenticate(arrived.headers)
            if fields.get("stream", self.streams) is not self.streams:
                raise InvalidRequest(self._wrong_kind(), param="stream")
            body = json.dumps({**fields, "stream": self.streams}).encode()
            inference.read(arrived, body)
        except Exception as error:
            await inference.refuse(arrived, error)
            return
        driver = await inference.proceed(arrived, body)
        if driver is None:
            return
        self._driver = driver
        driver.begin()
        if self._over:
            self._driver = None
            driver.caller_gone()

    def cancel(self) -> None:
        if self._driver is not None:
            self._driver.cancel(ErrorCode.CANCELLED, CANCELLED)
        elif self._task is not None and not self._task.done():
            self._task.cancel()
            self.fail(ErrorInfo(code=ErrorCode.CANCELLED, type="cancelled", message=CANCELLED))

    def caller_gone(self) -> None:
        driver = self._driver
        self._end()
        if driver is not None:
            driver.caller_gone()

    def open_gate(self) -> None:
        """What was in the way of bytes may be there no more."""
        if self._gate is not None and not self._blocked:
            self._gate.set()

    @property
    def _blocked(self) -> bool:
        return self.paused or self._pipe.write_paused

    async def _passage(self) -> bool:
        """Wait until bytes may go out; False: the call is over."""
        while self._blocked and not self._over:
            self._gate = asyncio.Event()
            await self._gate.wait()
            self._gate = None
        return not self._over

    def _end(self) -> None:
        if self._over:
            return
        self._over = True
        self._driver = None
        self.paused = False
        if self._gate is not None:
            self._gate.set()
        if self._service is not None:
            self._service.leave()
        self._calls.finished(self)

    def _wrong_kind(self) -> str:
        if self.streams:
            return "Here every answer is a stream: leave stream out, or send the request over HTTP"
        return "This answer is a whole one: leave stream out"

    @abstractmethod
    def fail(self, info: ErrorInfo) -> None:
        """End the call before anything of its answer came. What the caller does not read just now is gone."""

    # --- Line ------------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def encoder(self) -> Callable[[], Encoder] | None: ...

    @abstractmethod
    async def send(self, message: Message) -> None: ...

    @abstractmethod
    def write(self, data: bytes) -> bool: ...

    @abstractmethod
    def refuse(self, answer: Format, info: ErrorInfo, headers: Headers) -> Awaitable[None]: ...

    def abort(self) -> None:
        """The caller has left its bytes unread for too long. Those that wait are gone; where the connection itself is
        stuck, it is cut."""
        if self._pipe.write_paused:
            self._pipe.abort()
            return
        self._give_up()
        self._end()

    @abstractmethod
    def _give_up(self) -> None:
        """Say that the call's bytes were not read in time."""


TOO_SLOW = {"code": ErrorCode.CONSUMER_TOO_SLOW.value, "message": "The stream was paused for too long"}


class StreamCall(Call):
    """A call whose answer is a stream of events. Subclasses say how events are wrapped (`_envelope`) and what is said after
    the last (`_closing`), which knows the latest envelope."""

    __slots__ = ()

    @abstractmethod
    def _envelope(self) -> Encoder:
        """A new encoder of the stream."""

    def _closing(self) -> bytes:
        """What is said when the stream has ended, framed."""
        return b""

    @property
    def encoder(self) -> Callable[[], Encoder]:
        return self._envelope

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            return  # events say it all
        if not await self._passage():
            return
        body, ends = message.get("body", b""), not message.get("more_body", False)
        if ends:
            body += self._closing()
        if body:
            self._pipe.write(body)
        if ends:
            self._end()

    def write(self, data: bytes) -> bool:
        if self._over or self._blocked:
            return False
        self._pipe.write(data)
        return True

    def refuse(self, answer: Format, info: ErrorInfo, headers: Headers) -> Awaitable[None]:
        writer = answer.stream_writer(WriterOptions(request_id=_request_id(headers)))
        return self.send({"type": "http.response.body", "body": self._envelope().encode(writer.write([Error(info)]))})

    def fail(self, info: ErrorInfo) -> None:
        frames = self._format.stream_writer(WriterOptions()).write([Error(info)])
        self._pipe.write(self._envelope().encode(frames) + self._closing())
        self._end()

    def _give_up(self) -> None:
        """The event has no `seq`, as those before it are gone."""
        event = msgspec.json.encode({"type": "error", "data": TOO_SLOW})
        self._pipe.write(self._envelope().encode([Frame(event, "error")]) + self._closing())


class WholeCall(Call):
    """A call whose answer is one body. Subclasses say how it, or an error, is told."""

    __slots__ = ("_body", "_status")

    streams = False
    encoder = None

    def __init__(self, calls: Calls, id: Hashable, format: Format) -> None:
        super().__init__(calls, id, format)
        self._status = 200
        self._body: list[bytes] = []

    @abstractmethod
    def _answered(self, body: bytes) -> bytes:
        """What tells this answer, framed. `body`: JSON in the caller's format."""

    @abstractmethod
    def _refused(self, body: bytes) -> bytes:
        """What tells this error, framed. `body`: JSON as `Format.write_error` makes it."""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            return
        self._body.append(message.get("body", b""))
        if message.get("more_body", False) or not await self._passage():
            return
        body = b"".join(self._body)
        self._pipe.write(self._answered(body) if self._status < 300 else self._refused(body))
        self._end()

    def write(self, data: bytes) -> bool:
        if self._over:
            return False
        self._body.append(data)
        return True

    async def refuse(self, answer: Format, info: ErrorInfo, headers: Headers) -> None:
        if await self._passage():
            self.fail(info)

    def fail(self, info: ErrorInfo) -> None:
        self._pipe.write(self._refused(self._format.write_error(info)))
        self._end()

    def _give_up(self) -> None:
        self._pipe.write(self._refused(msgspec.json.encode({"error": TOO_SLOW})))


def _request_id(headers: Headers) -> str:
    return next((value.decode("latin-1") for name, value in headers if name == b"x-request-id"), "")
