"""WebSocket at /v1/ws: many requests on one connection, each with an id of the caller's choice.

A message from the caller is a JSON object with a `type`:

    {"type": "request", "id": "a", "model": ..., "messages": [...]}   the fields of a request beside type and id
    {"type": "cancel", "id": "a"}                                      ends that stream with an error event
    {"type": "pause", "id": "a"}, {"type": "resume", "id": "a"}        backpressure of that stream alone
    {"type": "auth", "key": "..."}                                     first, where the handshake could not carry the key

Back come the events of the subprotocol's format (LLM-005 by default, or llm-stream), each with `id` added. A failure is an
event of its stream, also before it has begun. Bytes that break the rules close the connection with a code and a reason.

The handshake, fragments, control frames and masks are the `websockets` package's; events go out as the bytes that the
stream's encoder made.
"""

from __future__ import annotations

import asyncio
import http
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar
from urllib.parse import urlsplit

import msgspec
from uvicorn.config import Config as UvicornConfig
from uvicorn.server import ServerState
from websockets.datastructures import Headers as HandshakeHeaders
from websockets.exceptions import NegotiationError
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request as Handshake
from websockets.http11 import Response
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from headrace.formats import FORMATS, Format
from headrace.formats.base import IN_THE_BODY, WriterOptions
from headrace.formats.locate import Place
from headrace.framing import Encoder
from headrace.framing.websocket import MessageEncoder, text_message
from headrace.model.errors import ErrorCode, ErrorInfo, GatewayError, InvalidRequest
from headrace.model.events import Error
from headrace.serve.driver import Message, StreamDriver
from headrace.serve.exchange import Service, Services
from headrace.serve.line import Headers

logger = logging.getLogger("headrace.serve")

PATH = "/v1/ws"

SUBPROTOCOLS: dict[str, str] = {FORMATS[name].profile: name for name in ("gateway", "llm_stream")}
"""Which format a subprotocol stands for; the first is that of callers who ask for none."""

KEY_SUBPROTOCOL = "headrace-key."
"""Browsers can set no header, but offer subprotocols: one that begins so holds the caller's key. It is never selected."""

MAX_REQUESTS = 1024
"""Requests in flight on one connection."""

AUTH_SECONDS = 10.0
"""For the first message, where the handshake had no key."""

CLOSE_SECONDS = 5.0
"""For the caller to answer a close frame."""

PING_EVERY = 20.0
"""Seconds; a connection that answers no ping until the next one is due is closed."""

_MAX_ID = 200
_REASON_BYTES = 123
"""Of a close frame (RFC 6455, 5.5)."""


class Broken(Exception):
    """What the caller sent breaks the rules of the connection; it closes with this code."""

    def __init__(self, code: CloseCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class WebSocketConnection(asyncio.Protocol):
    """One caller's connection. What all connections share are class attributes, set by `serving`."""

    services: ClassVar[Services]
    max_message: ClassVar[int]
    origins: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        config: UvicornConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.loop = _loop or asyncio.get_running_loop()
        self.transport: asyncio.Transport
        self.tasks = server_state.tasks
        self.write_paused = False
        self._connections = server_state.connections
        self._protocol = ServerProtocol(
            subprotocols=[Subprotocol(name) for name in SUBPROTOCOLS],
            select_subprotocol=_select_subprotocol,
            max_size=self.max_message,
            logger=logger,
        )
        self._format: Format = FORMATS["gateway"]
        self._headers: dict[str, str] = {}
        self._authenticated = False
        self._ending = False
        self._calls: dict[str, _Call] = {}
        self._text: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._ponged = True

    @classmethod
    def serving(cls, services: Services, *, max_message: int, origins: tuple[str, ...]) -> type[WebSocketConnection]:
        """A protocol class for these services, with this bound of a message in bytes."""
        return type("ServingWebSocket", (cls,), {"services": services, "max_message": max_message, "origins": origins})

    # --- asyncio ---------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvloop's is no subclass
        self.transport = transport
        self._connections.add(self)  # type: ignore[arg-type]  # uvicorn's type names its own protocols

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        for call in list(self._calls.values()):
            call.caller_gone()
        self._calls.clear()

    def data_received(self, data: bytes) -> None:
        protocol = self._protocol
        protocol.receive_data(data)
        try:
            for event in protocol.events_received():
                if isinstance(event, Handshake):
                    self._shake_hands(event)
                elif isinstance(event, Frame):
                    self._frame_received(event)
        except Broken as error:
            protocol.fail(error.code, _reason(str(error)))
        self._flush()

    def eof_received(self) -> None:
        self._protocol.receive_eof()
        self._flush()

    def pause_writing(self) -> None:
        self.write_paused = True

    def resume_writing(self) -> None:
        self.write_paused = False
        for call in list(self._calls.values()):
            call.open_gate()

    # --- the life of the connection --------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """uvicorn's way to say that the server is about to end: close when nothing is in flight any more."""
        self._ending = True
        self._close_when_idle()

    def write(self, data: bytes) -> None:
        if self._protocol.state is OPEN and not self.transport.is_closing():
            self.transport.write(data)

    def finished(self, call: _Call) -> None:
        self._calls.pop(call.id, None)
        if self._ending:
            self._close_when_idle()

    def _close_when_idle(self) -> None:
        if not self._calls:
            if self._protocol.state is OPEN:
                self._protocol.send_close(CloseCode.GOING_AWAY, "The gateway is shutting down")
                self._flush()
            else:
                self.transport.close()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self.transport.write(data)
            else:
                self.transport.close()  # as the protocol closes first, which servers do
        if self._timer is not None and self._protocol.state is not OPEN:
            self._timer.cancel()
            self._timer = None
            self.loop.call_later(CLOSE_SECONDS, self.transport.abort)

    def _shake_hands(self, handshake: Handshake) -> None:
        refusal = self._refusal(handshake)
        response = refusal if refusal is not None else self._protocol.accept(handshake)
        self._protocol.send_response(response)
        if self._protocol.state is not OPEN:
            return
        chosen = self._protocol.subprotocol
        self._format = FORMATS[SUBPROTOCOLS[chosen] if chosen is not None else "gateway"]
        self._timer = self.loop.call_later(PING_EVERY if self._authenticated else AUTH_SECONDS, self._tick)

    def _refusal(self, handshake: Handshake) -> Response | None:
        """A plain HTTP answer, where the handshake is not for us."""
        path = handshake.path.partition("?")[0]
        if path != PATH:
            return _plain(404, "not_found", f"There is no WebSocket at this path; it is at {PATH}")
        self._headers = _plain_headers(handshake.headers)
        inference = (service := self.services.enter()).inference
        try:
            if inference.runtime.keys is None:
                self._authenticated = True
                origin = self._headers.get("origin")
                if origin is not None and not self._welcome(origin):
                    what = f"Pages of {origin[:200]} may not use this gateway, which asks for no keys. Allow the origin with"
                    return _plain(403, "forbidden_origin", f"{what} server.allowed_origins, or create keys")
                return None
            try:
                inference.runtime.authenticate(self._headers)
                self._authenticated = True
            except GatewayError as error:
                if _has_key(self._headers):
                    return _plain(error.info.http_status, error.info.type or "unauthenticated", error.info.message)
            return None
        finally:
            service.leave()

    def _welcome(self, origin: str) -> bool:
        """Whether a page from there may connect without a key: any page on the caller's machine could, otherwise."""
        host = urlsplit(origin).netloc
        return "*" in self.origins or origin in self.origins or (bool(host) and host == self._headers.get("host"))

    def _tick(self) -> None:
        """Every PING_EVERY seconds; before that, the time to authenticate is over."""
        if not self._authenticated:
            self._protocol.fail(CloseCode.POLICY_VIOLATION, 'No key came: send {"type":"auth","key":"..."} first')
        elif not self._ponged:
            self._protocol.fail(CloseCode.INTERNAL_ERROR, "No answer to a ping")
        else:
            self._ponged = False
            self._protocol.send_ping(b"")
        self._timer = self.loop.call_later(PING_EVERY, self._tick)
        self._flush()

    # --- messages --------------------------------------------------------------------------------------------------

    def _frame_received(self, frame: Frame) -> None:
        if frame.opcode is Opcode.PONG:
            self._ponged = True
        elif frame.opcode is Opcode.BINARY:
            raise Broken(CloseCode.UNSUPPORTED_DATA, "Messages are JSON in text frames, not binary ones")
        elif frame.opcode in (Opcode.TEXT, Opcode.CONT):
            self._text.append(bytes(frame.data))
            if frame.fin:
                text, self._text = b"".join(self._text), []
                self._message(text)

    def _message(self, text: bytes) -> None:
        try:
            message = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Broken(CloseCode.INVALID_DATA, f"A message is no JSON: {error}") from None
        if not isinstance(message, dict):
            raise Broken(CloseCode.INVALID_DATA, "A message must be a JSON object with a type")
        kind = message.pop("type", None)
        if kind == "auth":
            self._authenticate(message.get("key"))
            return
        if not self._authenticated:
            raise Broken(CloseCode.POLICY_VIOLATION, 'Send {"type":"auth","key":"..."} before anything else')
        act = _ACTS.get(kind) if isinstance(kind, str) else None
        if act is None:
            raise Broken(CloseCode.POLICY_VIOLATION, f"type must be one of auth, {', '.join(_ACTS)}")
        id = message.pop("id", None)
        if not isinstance(id, str) or not 0 < len(id) <= _MAX_ID:
            raise Broken(CloseCode.POLICY_VIOLATION, f"id must be a string of 1 to {_MAX_ID} characters")
        act(self, id, message)

    def _authenticate(self, key: Any) -> None:
        """Raises Broken. Harmless where it is not needed."""
        service = self.services.enter()
        try:
            headers = {"authorization": f"Bearer {key}"} if isinstance(key, str) else {}
            service.inference.runtime.authenticate(headers)
        except GatewayError as error:
            raise Broken(CloseCode.POLICY_VIOLATION, error.info.message) from None
        finally:
            service.leave()
        self._headers.update(headers)
        if not self._authenticated:
            self._authenticated = True
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.loop.call_later(PING_EVERY, self._tick)

    def _request(self, id: str, fields: dict[str, Any]) -> None:
        if id in self._calls:
            raise Broken(CloseCode.POLICY_VIOLATION, f"id {id!r} belongs to a request that still runs")
        call = self._calls[id] = _Call(self, id, self._format, self.services.enter(), self._headers)
        if len(self._calls) > MAX_REQUESTS:
            what = f"More than {MAX_REQUESTS} requests run on this connection"
            call.fail(ErrorInfo(code=ErrorCode.QUOTA_EXCEEDED, type="too_many_requests", message=what))
        elif self._ending:
            what = "The gateway is shutting down"
            call.fail(ErrorInfo(code=ErrorCode.PROVIDER_UNAVAILABLE, type="shutting_down", message=what))
        else:
            call.begin(fields)

    def _cancel(self, id: str, fields: dict[str, Any]) -> None:
        """Of a stream that has ended already it means nothing: the two have crossed."""
        call = self._calls.get(id)
        if call is not None:
            call.cancel()

    def _pause(self, id: str, fields: dict[str, Any]) -> None:
        call = self._calls.get(id)
        if call is not None:
            call.paused = True

    def _resume(self, id: str, fields: dict[str, Any]) -> None:
        call = self._calls.get(id)
        if call is not None:
            call.paused = False
            call.open_gate()


_ACTS: dict[str, Callable[[WebSocketConnection, str, dict[str, Any]], None]] = {
    "request": WebSocketConnection._request,
    "cancel": WebSocketConnection._cancel,
    "pause": WebSocketConnection._pause,
    "resume": WebSocketConnection._resume,
}
"""What a message of each type does."""


class _Call:
    """One request on a connection; a Line. It ends with its last piece, or with the connection."""

    __slots__ = ("_connection", "_driver", "_format", "_gate", "_headers", "_over", "_service", "_task", "id", "paused")

    cork = None

    def __init__(
        self,
        connection: WebSocketConnection,
        id: str,
        format: Format,
        service: Service,
        headers: Mapping[str, str],
    ) -> None:
        self._connection = connection
        self.id = id
        self._format = format
        self._service = service
        self._headers = headers
        self._driver: StreamDriver | None = None
        self._task: asyncio.Task[None] | None = None
        self._gate: asyncio.Event | None = None
        self._over = False
        self.paused = False
        """The caller wants no more of this stream for now."""

    def begin(self, fields: dict[str, Any]) -> None:
        tasks = self._connection.tasks
        self._task = self._connection.loop.create_task(self._run(fields))
        tasks.add(self._task)
        self._task.add_done_callback(tasks.discard)

    async def _run(self, fields: dict[str, Any]) -> None:
        """Up to the beginning of the stream; from there on everything comes from the driver."""
        inference = self._service.inference
        place = Place(self._format, self._format.routes[0], IN_THE_BODY)
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self._headers.items()]
        arrived = inference.arrive(place, PATH, raw, self)
        try:
            arrived.key = inference.runtime.authenticate(arrived.headers)
            if fields.get("stream", True) is not True:
                message = "On a WebSocket every answer is a stream: leave stream out, or send the request over HTTP"
                raise InvalidRequest(message, param="stream")
            inference.read(arrived, json.dumps({**fields, "stream": True}).encode())
        except Exception as error:
            await inference.refuse(arrived, error)
            return
        driver = await inference.proceed(arrived, b"")
        if driver is None:
            return
        self._driver = driver
        driver.begin()
        if self._over:
            self._driver = None
            driver.caller_gone()

    def cancel(self) -> None:
        if self._driver is not None:
            self._driver.cancel(ErrorCode.CANCELLED, "The caller has cancelled the request")
        elif self._task is not None and not self._task.done():
            self._task.cancel()
            self.fail(
                ErrorInfo(code=ErrorCode.CANCELLED, type="cancelled", message="The caller has cancelled the request")
            )

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
        return self.paused or self._connection.write_paused

    def _end(self) -> None:
        if self._over:
            return
        self._over = True
        self._driver = None
        self.paused = False
        if self._gate is not None:
            self._gate.set()
        self._service.leave()
        self._connection.finished(self)

    # --- Line ------------------------------------------------------------------------------------------------------

    def encoder(self) -> Encoder:
        return MessageEncoder(self.id)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            return  # events say it all
        while self._blocked and not self._over:
            self._gate = asyncio.Event()
            await self._gate.wait()
            self._gate = None
        if self._over:
            return
        body = message.get("body", b"")
        if body:
            self._connection.write(body)
        if not message.get("more_body", False):
            self._end()

    def write(self, data: bytes) -> bool:
        if self._over or self._blocked:
            return False
        self._connection.write(data)
        return True

    def refuse(self, answer: Format, info: ErrorInfo, headers: Headers) -> Awaitable[None]:
        writer = answer.stream_writer(WriterOptions(request_id=_request_id(headers)))
        return self.send({"type": "http.response.body", "body": self.encoder().encode(writer.write([Error(info)]))})

    def fail(self, info: ErrorInfo) -> None:
        """End the stream before anything of it was read. What the caller does not read just now is gone."""
        writer = self._format.stream_writer(WriterOptions())
        self._connection.write(self.encoder().encode(writer.write([Error(info)])))
        self._end()

    def abort(self) -> None:
        """The caller has left its bytes unread for too long. Those that wait are gone, so the event that says it has no
        `seq`; where the connection itself is stuck, it is cut."""
        connection = self._connection
        if connection.write_paused:
            connection.transport.abort()
            return
        error = {"code": ErrorCode.CONSUMER_TOO_SLOW.value, "message": "The stream was paused for too long"}
        connection.write(text_message(msgspec.json.encode({"id": self.id, "type": "error", "data": error})))
        self._end()


def _select_subprotocol(_: ServerProtocol, offered: Any) -> Subprotocol | None:
    """The first that we know. Raises NegotiationError where formats are offered, and none that we know."""
    formats = [name for name in offered if not name.startswith(KEY_SUBPROTOCOL)]
    for name in formats:
        if name in SUBPROTOCOLS:
            return Subprotocol(name)
    if formats:
        raise NegotiationError(f"no subprotocol offered is served; served are {', '.join(SUBPROTOCOLS)}")
    if offered:
        # A client that offers only its key fails the handshake unless something of its offer is selected.
        raise NegotiationError(f"offer a format beside the key: {', '.join(SUBPROTOCOLS)}")
    return None


def _plain_headers(given: HandshakeHeaders) -> dict[str, str]:
    """The handshake's headers (lower-case names), less those of the handshake itself; a key that came as a subprotocol
    is where other callers put it."""
    headers: dict[str, str] = {}
    for name, value in given.raw_items():
        lower = name.lower()
        if lower.startswith("sec-websocket-") or lower in ("connection", "upgrade", "content-type", "accept"):
            continue
        headers[lower] = f"{headers[lower]}, {value}" if lower in headers else value
    for offer in ",".join(given.get_all("Sec-WebSocket-Protocol")).split(","):
        name = offer.strip()
        if name.startswith(KEY_SUBPROTOCOL):
            headers["authorization"] = f"Bearer {name.removeprefix(KEY_SUBPROTOCOL)}"
    return headers


def _has_key(headers: Mapping[str, str]) -> bool:
    return any(name in headers for name in ("authorization", "x-api-key", "x-goog-api-key", "api-key"))


def _request_id(headers: Headers) -> str:
    return next((value.decode("latin-1") for name, value in headers if name == b"x-request-id"), "")


def _reason(text: str) -> str:
    """As much of it as a close frame holds."""
    return text.encode()[:_REASON_BYTES].decode(errors="ignore")


def _plain(status: int, kind: str, message: str) -> Response:
    """A refusal in HTTP, where there is no WebSocket yet."""
    body = json.dumps({"error": {"code": kind, "message": message, "type": kind, "retryable": False}}).encode()
    headers = HandshakeHeaders([("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    headers["Connection"] = "close"
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(status, http.HTTPStatus(status).phrase, headers, body)
