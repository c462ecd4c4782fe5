"""The SignalR hub over HTTP: negotiation, and the transports of callers who get no WebSocket through: server-sent events and
long polling, both with POST for the other direction (TransportProtocols.md of ASP.NET Core).

A connection of that kind outlives its requests, so it lives here: what is to be sent waits in it, and a GET takes it. It
ends when its event stream is closed, when nobody polls any more, or with a DELETE. The trade-off: its requests must all
reach this process. Where several workers share the port they do not, and only WebSockets are offered.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from headrace.formats import FORMATS
from headrace.model.errors import ErrorCode, ErrorInfo, GatewayError, InvalidRequest
from headrace.serve.calls import Calls
from headrace.serve.driver import Message, Send
from headrace.serve.exchange import Services
from headrace.serve.hub import TICK, Hub
from headrace.serve.origins import check_origin
from headrace.serve.pages import method_not_allowed
from headrace.serve.runtime import Runtime

PATH = "/hub"
NEGOTIATE = "/hub/negotiate"

NEGOTIATED_SECONDS = 60.0
"""For a caller to connect with the id that it was given."""

MAX_NEGOTIATED = 10_000
"""Ids that wait for their caller; the oldest go first."""

POLL_SECONDS = 20.0
"""A poll for which there is nothing ends empty after this; sooner than the hub takes its caller for gone."""

HIGH, PILE = 64 * 1024, 1024 * 1024
"""Bytes that wait for a reader: above the first streams wait, above the second nothing more is taken from the caller."""

Receive = Callable[[], Awaitable[Message]]

_VERSION = 1
_BLANKS = bytes.maketrans(b"\r\n", b"  ")


class Served(Services, Protocol):
    """What the hub needs of the application."""

    @property
    def runtime(self) -> Runtime: ...


class Negotiations:
    """The ids that were given out. `shared`: others give out ids, too, of which this process does not know."""

    def __init__(self, *, shared: bool) -> None:
        self.shared = shared
        self._waiting: OrderedDict[str, float] = OrderedDict()
        self._used: set[str] = set()

    def give(self, now: float) -> str:
        """A new id: whoever has it is taken for the caller that it was given to."""
        while self._waiting and (len(self._waiting) >= MAX_NEGOTIATED or now >= next(iter(self._waiting.values()))):
            self._waiting.popitem(last=False)
        id = secrets.token_urlsafe(24)
        self._waiting[id] = now + NEGOTIATED_SECONDS
        return id

    def use(self, id: str, now: float) -> None:
        """A connection begins with this id, or with "", which needs none. Raises GatewayError: 404, 409."""
        if not id:
            return
        if id in self._used:
            raise _refusal(409, "connection_id_in_use", "There is a connection with this id already")
        known = self._waiting.pop(id, None)
        if not self.shared and (known is None or now >= known):
            raise unknown_id()
        self._used.add(id)

    def release(self, id: str) -> None:
        """Its connection has ended."""
        self._used.discard(id)


class Hubs:
    """All of /hub but WebSockets, as ASGI sees it. One an application, whatever its configuration comes to be."""

    def __init__(self, served: Served, *, workers: int) -> None:
        self._served = served
        self._connections: dict[str, _Connection] = {}
        self._ending = False
        self.negotiations = Negotiations(shared=workers > 1)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        request = Request(dict(scope), receive)
        allowed: dict[str, str] = {}
        try:
            allowed = self._origin(request)
            answer = await self._answer(request, send, allowed)
        except GatewayError as error:
            info = error.info
            body = FORMATS["gateway"].write_error(info)
            answer = Response(body, status_code=info.http_status, media_type="application/json")
        except ClientDisconnect:
            return
        if answer is not None:
            answer.headers.update(allowed)
            await answer(request.scope, receive, send)

    def shutdown(self) -> None:
        """The process is about to end."""
        self._ending = True
        for connection in list(self._connections.values()):
            connection.hub.shutdown()

    def forget(self, connection: _Connection) -> None:
        if self._connections.get(connection.id) is connection:
            del self._connections[connection.id]
            self.negotiations.release(connection.id)

    # --- requests --------------------------------------------------------------------------------------------------

    def _origin(self, request: Request) -> dict[str, str]:
        """Headers that let the page which asks read the answer. Raises GatewayError where it may not ask at all."""
        origin = request.headers.get("origin")
        if origin is None:
            return {}
        check_origin(self._served.runtime, request.headers)
        return {"access-control-allow-origin": origin, "access-control-allow-credentials": "true", "vary": "Origin"}

    async def _answer(self, request: Request, send: Send, allowed: dict[str, str]) -> Response | None:
        """None where it has been sent."""
        method, path = request.method, request.url.path
        if method == "OPTIONS":
            asked = request.headers.get("access-control-request-headers", "")
            answer = {"access-control-allow-methods": "GET, POST, DELETE", "access-control-max-age": "600"}
            return Response(status_code=204, headers={**answer, "access-control-allow-headers": asked})
        act = _ACTS.get((path, method))
        if act is None:
            return method_not_allowed(method, path, ", ".join(verb for place, verb in _ACTS if place == path))
        caller = {**_headers(request), **token_headers(request.url.query)}
        self._served.runtime.authenticate(caller)
        return await act(self, request, caller, send, allowed)

    async def _negotiate(
        self, request: Request, caller: dict[str, str], send: Send, allowed: dict[str, str]
    ) -> Response | None:
        asked = value_of(request.url.query, "negotiateVersion")
        version = min(int(asked), _VERSION) if asked.isascii() and asked.isdigit() and len(asked) < 10 else 0
        if self._ending:
            return JSONResponse({"error": "The gateway is shutting down"})
        token = self.negotiations.give(asyncio.get_running_loop().time())
        names = ["WebSockets"] if self.negotiations.shared else ["WebSockets", "ServerSentEvents", "LongPolling"]
        fields: dict[str, Any] = {
            "negotiateVersion": version,
            "connectionId": secrets.token_urlsafe(12) if version else token,
            "availableTransports": [{"transport": name, "transferFormats": ["Text"]} for name in names],
        }
        if version:
            fields["connectionToken"] = token
        return JSONResponse(fields)

    async def _get(
        self, request: Request, caller: dict[str, str], send: Send, allowed: dict[str, str]
    ) -> Response | None:
        """An event stream, or a poll."""
        id = _id(request)
        connection = self._connections.get(id)
        streams = "text/event-stream" in request.headers.get("accept", "")
        if connection is None:
            if self.negotiations.shared:
                raise unknown_id()
            self.negotiations.use(id, asyncio.get_running_loop().time())
            abort = request.scope.get("extensions", {}).get("headrace.abort") if streams else None
            connection = _Connection(self, self._served, id, caller, streams=streams, cut=abort)
            self._connections[id] = connection
            if self._ending:
                connection.hub.shutdown()
            if not streams:
                return Response(media_type="text/plain")  # the first poll only tells that the connection is there
        elif streams or connection.streams:
            raise _refusal(409, "connection_id_in_use", "There is a connection with this id already")
        if streams:
            await connection.stream(request.receive, send, allowed)
            return None
        return await connection.poll(request.receive)

    async def _post(
        self, request: Request, caller: dict[str, str], send: Send, allowed: dict[str, str]
    ) -> Response | None:
        connection = self._known(request)
        limit = self._served.runtime.config.limits.body_bytes
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > limit:
                message = f"The body is larger than the limit of {limit} bytes (limits.body_bytes)"
                raise InvalidRequest(message, status=413, type="request_too_large")
        if connection.waiting > PILE:
            raise _refusal(429, "not_read", "What was sent before is not read: nothing more is taken until it is")
        connection.hub.receive(body, connection.loop.time())
        return Response(status_code=200, media_type="text/plain")

    async def _delete(
        self, request: Request, caller: dict[str, str], send: Send, allowed: dict[str, str]
    ) -> Response | None:
        self._known(request).hub.end(None)
        return Response(status_code=202, media_type="text/plain")

    def _known(self, request: Request) -> _Connection:
        """Raises GatewayError."""
        connection = self._connections.get(_id(request))
        if connection is None:
            raise unknown_id()
        return connection


_Act = Callable[[Hubs, Request, dict[str, str], Send, dict[str, str]], Awaitable[Response | None]]

_ACTS: dict[tuple[str, str], _Act] = {
    (NEGOTIATE, "POST"): Hubs._negotiate,
    (PATH, "GET"): Hubs._get,
    (PATH, "POST"): Hubs._post,
    (PATH, "DELETE"): Hubs._delete,
}


class _Connection:
    """One caller's connection; a Pipe whose bytes wait for a GET. `cut` drops the connection of an event stream."""

    def __init__(
        self,
        hubs: Hubs,
        served: Served,
        id: str,
        caller: dict[str, str],
        *,
        streams: bool,
        cut: Callable[[], object] | None,
    ) -> None:
        self.id = id
        self.streams = streams
        self.loop = asyncio.get_running_loop()
        self.tasks: set[asyncio.Task[None]] = set()
        self.waiting = 0
        self._pieces: list[bytes] = []
        self._some = asyncio.Event()
        self._sending = False
        self._closed = False
        self._cut = cut
        self._hubs = hubs
        self._polls = 0
        calls = Calls(self, served, PATH, self._call_over)
        calls.headers = caller
        most = served.runtime.config.limits.body_bytes
        self.hub = Hub(calls, most=most, close=self._close, now=self.loop.time())
        self._timer = self.loop.call_later(TICK, self._tick)

    # --- Pipe ------------------------------------------------------------------------------------------------------

    @property
    def write_paused(self) -> bool:
        return self._sending or self.waiting > HIGH

    def frame(self, message: bytes) -> bytes:
        if not self.streams:
            return message
        if b"\n" in message or b"\r" in message:
            message = message.translate(_BLANKS)  # between JSON's tokens, where a blank means the same
        return b"data: " + message + b"\n\n"

    def write(self, data: bytes) -> None:
        if not self._closed:
            self._pieces.append(data)
            self.waiting += len(data)
            self._some.set()

    def abort(self) -> None:
        if self._cut is not None:
            self._cut()
        self.gone()

    # --- its life --------------------------------------------------------------------------------------------------

    def gone(self) -> None:
        """Nobody takes what waits here any more."""
        self._close()
        self._pieces.clear()
        self.waiting = 0
        self.hub.caller_gone()
        self._hubs.forget(self)

    def _close(self) -> None:
        """What waits may still be taken, and that was it."""
        self._closed = True
        self._some.set()
        self._timer.cancel()
        if not self.streams:
            # The last poll is told that the end has come; where there is none, nobody remains to be told.
            self.loop.call_later(POLL_SECONDS, self._hubs.forget, self)

    def _call_over(self) -> None:
        self.hub.close_when_idle()

    def _tick(self) -> None:
        self._timer = self.loop.call_later(TICK, self._tick)
        self.hub.tick(self.loop.time())

    def _take(self) -> bytes:
        data = b"".join(self._pieces)
        self._pieces.clear()
        self.waiting = 0
        if not self._closed:
            self._some.clear()
        return data

    def _flow(self) -> None:
        self.hub.calls.open_gates()

    # --- what takes from it ----------------------------------------------------------------------------------------

    async def stream(self, receive: Receive, send: Send, allowed: dict[str, str]) -> None:
        """The event stream, until the hub closes it or its caller does."""
        headers = {"content-type": "text/event-stream", "cache-control": "no-cache, no-transform"}
        headers |= {"x-accel-buffering": "no", **allowed}
        raw = [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]
        writing = self.loop.create_task(self._write_stream(send, raw))
        leaving = self.loop.create_task(_left(receive))
        try:
            await asyncio.wait((writing, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            writing.cancel()
            self.gone()
        if not writing.cancelled() and writing.done() and (error := writing.exception()) is not None:
            raise error

    async def _write_stream(self, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b":\n\n", "more_body": True})  # or the head waits for more
        while True:
            await self._some.wait()
            closing = self._closed
            if data := self._take():
                self._sending = True  # it may have to wait for the reader, and then so do the streams
                await send({"type": "http.response.body", "body": data, "more_body": True})
                self._sending = False
                self._flow()
            elif closing:
                break
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def poll(self, receive: Receive) -> Response:
        """What waits, as soon as there is something; 204 is the end of the connection, or of a poll that another replaces."""
        self._polls += 1
        turn = self._polls
        self._some.set()  # an earlier poll gives way
        await asyncio.sleep(0)
        if not self._pieces and not self._closed:
            self._some.clear()
        self.hub.heard(self.loop.time())
        some, left = self.loop.create_task(_wait(self._some)), self.loop.create_task(_left(receive))
        try:
            await asyncio.wait((some, left), timeout=POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            gone = left.done()
        finally:
            some.cancel()
            left.cancel()
        self.hub.heard(self.loop.time())
        if gone or turn != self._polls:
            return Response(status_code=204)  # what waits is for whoever asks next
        data = self._take()
        if not data and self._closed:
            self._hubs.forget(self)
            return Response(status_code=204)
        self._flow()
        return Response(data, media_type="text/plain")


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def value_of(query: str, name: str) -> str:
    """A parameter of a query; "" where there is none."""
    return parse_qs(query).get(name, [""])[0]


def token_headers(query: str) -> dict[str, str]:
    """The key, where it is in the address, as browsers have to send it with WebSockets and event streams."""
    token = value_of(query, "access_token")
    return {"authorization": f"Bearer {token}"} if token.isascii() and token.isprintable() and token else {}


def unknown_id() -> GatewayError:
    return _refusal(404, "unknown_connection", f"There is no connection with this id. POST {NEGOTIATE} gives one")


def _refusal(status: int, kind: str, message: str) -> GatewayError:
    return GatewayError(ErrorInfo(code=ErrorCode.INVALID_REQUEST, status=status, type=kind, message=message))


def _id(request: Request) -> str:
    id = value_of(request.url.query, "id")
    if not id:
        raise InvalidRequest(f"The id of the connection is missing: POST {NEGOTIATE} gives one", param="id")
    return id


def _headers(request: Request) -> dict[str, str]:
    """Less those of the request itself, as those of the chats to come."""
    own = ("content-length", "content-type", "accept", "connection", "host", "transfer-encoding")
    return {name: value for name, value in request.headers.items() if name not in own}
