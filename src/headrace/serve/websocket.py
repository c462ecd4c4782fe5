"""WebSockets: the connection, whatever is spoken on it. At /v1/ws that is docs/websocket.md (serve/messages.py).

Handshake, fragments, control frames and masks are the `websockets` package's; events go out as the bytes that a stream's
encoder made. Bytes that break the rules close the connection with a code and a reason. What a path speaks is its `Session`.
"""

from __future__ import annotations

import asyncio
import http
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

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

from headrace.formats import FORMATS
from headrace.framing.websocket import text_message
from headrace.model.errors import GatewayError
from headrace.serve.calls import Calls
from headrace.serve.exchange import Services
from headrace.serve.messages import AUTH_FIRST, BadMessage, Messages, read_object
from headrace.serve.origins import check_origin

_frames = logging.getLogger("headrace.serve.websocket")
_frames.setLevel(
    logging.INFO
)  # below that `websockets` shows every frame and every header, prompts and keys among them

PATH = "/v1/ws"

SUBPROTOCOLS: dict[str, str] = {FORMATS[name].profile: name for name in ("gateway", "llm_stream")}
"""Which format a subprotocol stands for; the first is that of callers who ask for none."""

KEY_SUBPROTOCOL = "headrace-key."
"""Browsers can set no header, but offer subprotocols: one that begins so holds the caller's key. It is never selected."""

AUTH_SECONDS = 10.0
"""For the first message, where the handshake had no key."""

CLOSE_SECONDS = 5.0
"""For the caller to answer a close frame."""

PING_EVERY = 20.0
"""Seconds; a connection that answers no ping until the next one is due is closed."""

PILE = 1024 * 1024
"""Bytes of unread answers above which no more messages are read: each may have one."""

_REASON_BYTES = 123
"""Of a close frame (RFC 6455, 5.5)."""


class Broken(Exception):
    """What the caller sent breaks the rules of the connection; it closes with this code."""

    def __init__(self, code: CloseCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Session(ABC):
    """What is spoken on one connection. `query`: of the address that it was opened at."""

    keyless: ClassVar[bool]
    """Whether a caller may connect without the key that it needs, and show it later."""

    def __init__(self, connection: WebSocketConnection, calls: Calls, *, query: str, authenticated: bool) -> None:
        self.connection = connection
        self.calls = calls

    @classmethod
    def headers(cls, query: str) -> dict[str, str]:
        """What the address says in place of headers."""
        return {}

    @classmethod  # noqa: B027  # most have nothing to object
    def admit(cls, query: str, now: float) -> None:
        """The handshake is good as far as the caller goes. Raises GatewayError where something else is not."""

    @abstractmethod
    def authenticated(self) -> bool:
        """Whether the caller has shown what key it needs."""

    @abstractmethod
    def take(self, text: bytes) -> None:
        """A message has come. Raises Broken."""

    def lost(self) -> None:
        """The connection is gone."""
        self.calls.caller_gone()

    def farewell(self) -> None:
        """Close the connection because the process ends; nothing runs any more."""
        self.connection.close(CloseCode.GOING_AWAY, "The gateway is shutting down")


class Events(Session):
    """/v1/ws: requests as messages, and their events."""

    keyless = True

    def __init__(self, connection: WebSocketConnection, calls: Calls, *, query: str, authenticated: bool) -> None:
        super().__init__(connection, calls, query=query, authenticated=authenticated)
        chosen = connection.subprotocol
        self._messages = Messages(
            calls,
            FORMATS[SUBPROTOCOLS[chosen] if chosen is not None else "gateway"],
            authenticated=authenticated,
            knock=connection.keep_time,
        )

    def authenticated(self) -> bool:
        return self._messages.authenticated

    def take(self, text: bytes) -> None:
        try:
            self._messages.take(read_object(text))
        except BadMessage as bad:
            raise Broken(CloseCode.INVALID_DATA if bad.syntax else CloseCode.POLICY_VIOLATION, str(bad)) from None


class WebSocketConnection(asyncio.Protocol):
    """One caller's connection. What all connections share are class attributes, set by `serving`."""

    services: ClassVar[Services]
    max_message: ClassVar[int]
    sessions: ClassVar[Mapping[str, type[Session]]]

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
            logger=_frames,
        )
        self._headers: dict[str, str] = {}
        self._session: Session | None = None
        self._ending = False
        self._text: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._ponged = True

    @classmethod
    def serving(
        cls,
        services: Services,
        *,
        max_message: int,
        sessions: Mapping[str, type[Session]],
    ) -> type[WebSocketConnection]:
        """A protocol class for these services, with this bound of a message in bytes. `sessions`: what is spoken where."""
        shared = {"services": services, "max_message": max_message, "sessions": sessions}
        return type("ServingWebSocket", (cls,), shared)

    # --- asyncio ---------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvloop's is no subclass
        self.transport = transport
        self._connections.add(self)  # type: ignore[arg-type]  # uvicorn's type names its own protocols

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._session is not None:
            self._session.lost()

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
        if self.write_paused and self.transport.get_write_buffer_size() > PILE and not self.transport.is_closing():
            self.transport.pause_reading()

    def eof_received(self) -> None:
        self._protocol.receive_eof()
        self._flush()

    def pause_writing(self) -> None:
        self.write_paused = True

    def resume_writing(self) -> None:
        self.write_paused = False
        self.transport.resume_reading()
        if self._session is not None:
            self._session.calls.open_gates()

    # --- the life of the connection --------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """uvicorn's way to say that the server is about to end: close when nothing is in flight any more."""
        self._ending = True
        if self._session is not None:
            self._session.calls.ending = True
        self._close_when_idle()

    @property
    def subprotocol(self) -> str | None:
        """Which one the handshake has chosen."""
        return self._protocol.subprotocol

    def frame(self, message: bytes) -> bytes:
        return text_message(message)

    def write(self, data: bytes) -> None:
        if self._protocol.state is OPEN and not self.transport.is_closing():
            self.transport.write(data)

    def abort(self) -> None:
        self.transport.abort()

    def close(self, code: CloseCode, reason: str) -> None:
        """In order: what was written goes out first."""
        if self._protocol.state is OPEN:
            self._protocol.send_close(code, reason)
            self._flush()

    def keep_time(self) -> None:
        """The caller has authenticated: from now on there are pings."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(PING_EVERY, self._tick)

    def _call_over(self) -> None:
        if self._ending:
            self._close_when_idle()

    def _close_when_idle(self) -> None:
        session = self._session
        if session is not None and session.calls:
            return
        if session is not None and self._protocol.state is OPEN:
            session.farewell()
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
        path, _, query = handshake.path.partition("?")
        kind = self.sessions.get(path)
        if kind is None:
            known = ", ".join(self.sessions)
            self._protocol.send_response(
                _plain(404, "not_found", f"There is no WebSocket at this path; they are at {known}")
            )
            return
        self._headers = {**_plain_headers(handshake.headers), **kind.headers(query)}
        authenticated = False
        refusal = None
        try:
            self._check_caller()
            authenticated = True
        except GatewayError as error:
            if not kind.keyless or _has_key(self._headers) or error.info.http_status != 401:
                refusal = _refusal(error)
        response = refusal if refusal is not None else self._protocol.accept(handshake)
        if response.status_code == http.HTTPStatus.SWITCHING_PROTOCOLS:
            try:
                kind.admit(query, self.loop.time())
            except GatewayError as error:
                response = _refusal(error)
        self._protocol.send_response(response)
        if self._protocol.state is not OPEN:
            return
        calls = Calls(self, self.services, path, self._call_over)
        calls.headers = self._headers
        calls.ending = self._ending
        self._session = kind(self, calls, query=query, authenticated=authenticated)
        self._timer = self.loop.call_later(PING_EVERY if authenticated else AUTH_SECONDS, self._tick)

    def _check_caller(self) -> None:
        """Raises GatewayError where the caller, by its headers, may not use the gateway."""
        service = self.services.enter()
        try:
            runtime = service.inference.runtime
            if runtime.keys is not None:
                runtime.authenticate(self._headers)
            check_origin(runtime, self._headers)
        finally:
            service.leave()

    def _tick(self) -> None:
        """Every PING_EVERY seconds; before that, the time to authenticate is over."""
        assert self._session is not None
        if not self._session.authenticated():
            self._protocol.fail(CloseCode.POLICY_VIOLATION, f"No key came. {AUTH_FIRST}")
        elif not self._ponged:
            self._protocol.fail(CloseCode.INTERNAL_ERROR, "No answer to a ping")
        else:
            self._ponged = False
            self._protocol.send_ping(b"")
        self._timer = self.loop.call_later(PING_EVERY, self._tick)
        self._flush()

    def _frame_received(self, frame: Frame) -> None:
        if frame.opcode is Opcode.PONG:
            self._ponged = True
        elif frame.opcode is Opcode.BINARY:
            raise Broken(CloseCode.UNSUPPORTED_DATA, "Messages are JSON in text frames, not binary ones")
        elif frame.opcode in (Opcode.TEXT, Opcode.CONT):
            self._text.append(bytes(frame.data))
            if frame.fin:
                text, self._text = b"".join(self._text), []
                assert self._session is not None
                self._session.take(text)


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


def _reason(text: str) -> str:
    """As much of it as a close frame holds."""
    return text.encode()[:_REASON_BYTES].decode(errors="ignore")


def _refusal(error: GatewayError) -> Response:
    return _plain(error.info.http_status, error.info.type or error.info.code.value, error.info.message)


def _plain(status: int, kind: str, message: str) -> Response:
    """A refusal in HTTP, where there is no WebSocket yet."""
    body = json.dumps({"error": {"code": kind, "message": message, "type": kind, "retryable": False}}).encode()
    headers = HandshakeHeaders([("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    headers["Connection"] = "close"
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(status, http.HTTPStatus(status).phrase, headers, body)
