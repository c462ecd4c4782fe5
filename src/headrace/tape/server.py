"""The replaying provider: an HTTP server that answers as any served format, from the streams of a library.

Where a request goes decides the format (`PLACES`), the `model` in its body names the stream, faults are asked for in
the header `x-replay` or behind the model's name (see `faults`). The rule: it is as strict as a provider would be. A
request that the format's own reader refuses gets a 400 in the vendor's words, so that a client that sends nonsense
does not pass its tests here.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from headrace.formats import PROVIDED
from headrace.formats.base import Format
from headrace.formats.json import decode_object, encode
from headrace.formats.locate import Locator, Place
from headrace.framing import FRAMINGS, Framing
from headrace.model.errors import ErrorCode, ErrorInfo, GatewayError, InvalidRequest, code_for_status
from headrace.tape import answer as answers
from headrace.tape import faults
from headrace.tape.faults import FaultError
from headrace.tape.http import Connection, HttpRequest
from headrace.tape.library import Library, Stream
from headrace.tape.render import CREATED, Rendering

MAX_REMEMBERED = 10_000
"""How many requests `ReplayServer.requests` keeps; older ones go."""

_MAX_NAMES_SHOWN = 40


PLACES = Locator(PROVIDED.values(), anywhere=True)
"""The paths that are served, behind any prefix."""


@dataclass(slots=True)
class SeenRequest:
    """A request as it reached the server."""

    method: str
    path: str
    headers: dict[str, str] = field(repr=False)
    body: Any = field(repr=False)
    """The JSON, parsed; None where the body is empty or no JSON."""
    at: float
    """The loop's time when it was complete."""


class Tally:
    """A count that one can wait for, with the loop's time of its latest steps."""

    def __init__(self) -> None:
        self.count = 0
        self._times: deque[float] = deque(maxlen=MAX_REMEMBERED)
        self._waiting: list[tuple[int, asyncio.Future[float]]] = []

    def add(self, at: float) -> None:
        self.count += 1
        self._times.append(at)
        for count, future in self._waiting:
            if count == self.count and not future.done():
                future.set_result(at)
        self._waiting = [(count, future) for count, future in self._waiting if not future.done()]

    async def wait(self, count: int) -> float:
        """Wait until there are `count`; the time of that one. Bound it with asyncio.timeout."""
        if self.count < count:
            future: asyncio.Future[float] = asyncio.get_running_loop().create_future()
            self._waiting.append((count, future))
            return await future
        return self._times[count - self.count - 1]


class ReplayServer:
    """A provider made of a library.

    `speed` multiplies the streams' rhythm (0: as fast as possible). `default_format` is the format of errors where the
    path names none, and of the list of models. `default_stream` answers for names that are not in the library; without
    it they get the vendor's 404. `api_key`, if given, is required where the format expects it. `record` keeps the
    requests in `requests`.
    """

    def __init__(
        self,
        library: Library,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        default_format: str = "anthropic",
        speed: float = 1.0,
        default_stream: str | None = None,
        api_key: str | None = None,
        record: bool = False,
    ) -> None:
        if default_format not in PROVIDED:
            raise ValueError(f"default_format {default_format!r} is not one of {', '.join(PROVIDED)}")
        if default_stream is not None and default_stream not in library:
            raise ValueError(f"default_stream {default_stream!r} is not in the library")
        if not 0 <= speed < float("inf"):
            raise ValueError(f"speed must be 0 or more, not {speed}")
        self.library = library
        self.host = host
        self.port = port
        """The port it listens on; set by `start` where 0 was asked for."""
        self.speed = speed
        self.requests: list[SeenRequest] = []
        """The requests so far, where `record` is set; the latest MAX_REMEMBERED."""
        self.active = 0
        """Answers under way."""
        self._default_format = PROVIDED[default_format]
        self._default_stream = default_stream
        self._api_key = api_key
        self._record = record
        self._started = Tally()
        self._aborted = Tally()
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """Listen. Raises OSError where the address is taken."""
        loop = self._loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self, loop), self.host, self.port, backlog=4096)
        self.port = self._server.sockets[0].getsockname()[1]

    async def aclose(self) -> None:
        """Stop listening and drop every connection. May be called again."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for connection in list(self._connections):
            connection.abort()
        await server.wait_closed()

    async def __aenter__(self) -> ReplayServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def base_url(self) -> str:
        """`http://host:port`; any path may stand before the routes' ends."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def aborted(self) -> int:
        """Answers whose caller had gone before their end."""
        return self._aborted.count

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return len(self._connections)

    async def wait_aborted(self, count: int = 1) -> float:
        """Wait until `count` (1 or more) answers in all were aborted; the loop's time at which that one was noticed."""
        return await self._aborted.wait(count)

    async def wait_started(self, count: int = 1) -> float:
        """Wait until `count` (1 or more) requests in all have come; the loop's time of that one."""
        return await self._started.wait(count)

    # -- what connections ask (http.Owner) ----------------------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        self._connections.add(connection)

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)

    def started(self) -> None:
        self.active += 1
        self._started.add(self._now())

    def ended(self, *, aborted: bool) -> None:
        self.active -= 1
        if aborted:
            self._aborted.add(self._now())

    def answer(self, request: HttpRequest) -> Iterator[answers.Step]:
        """The answer to a request, as steps."""
        path, _, query = request.target.partition("?")
        path = unquote(path).rstrip("/")
        if self._record:
            self._remember(request, path)
        if path.endswith("/models") and request.method == "GET":
            return self._models(request)
        place = _place(PLACES.find(path, query), request.headers.get("content-type", ""))
        if place is None:
            served = ", ".join(f"POST …{end}" for end in PLACES.paths)
            message = f"Nothing is served at {request.method} {path}. Served are GET …/models, {served}."
            return _failure(self._default_format, ErrorInfo(code=ErrorCode.MODEL_NOT_FOUND, message=message))
        format = place.format
        if request.method != "POST":
            message = f"{path} takes POST, not {request.method}."
            return _failure(format, ErrorInfo(code=ErrorCode.INVALID_REQUEST, status=405, message=message))
        if not self._authorized(format, request):
            return _failure(format, _UNAUTHENTICATED)
        try:
            return self._play(place, request)
        except GatewayError as error:
            return _failure(format, error.info)
        except FaultError as error:
            return _failure(format, ErrorInfo(code=ErrorCode.INVALID_REQUEST, message=str(error)))

    # -- one inference ------------------------------------------------------------------------------------------------

    def _play(self, place: Place, request: HttpRequest) -> Iterator[answers.Step]:
        """Raises GatewayError and FaultError for what is wrong with the request."""
        format = place.format
        body = decode_object(request.body)
        model = place.located.model or body.get("model", "")
        if not isinstance(model, str):
            raise InvalidRequest("model must be a string", param="model")
        name, asked = faults.from_model(model)
        wanted = faults.parse({**asked, **faults.from_header(request.headers.get("x-replay", ""))})
        if wanted.hang:
            return answers.hang()
        if wanted.status is not None:
            info = ErrorInfo(
                code=code_for_status(wanted.status),
                status=wanted.status,
                type=_STATUS_TYPES.get(wanted.status),
                message=f"This status was asked for: {wanted.status}",
                retry_after=wanted.retry_after,
            )
            return _failure(format, info, wanted.delay)

        parsed = format.read_request(request.body, place.located)
        parsed.model = name
        rendering = Rendering(self._stream(name), format, parsed)
        speed = self.speed if wanted.speed is None else wanted.speed
        failure = rendering.failure()
        chunked = request.chunked_allowed
        if failure is None and (not parsed.stream or wanted.json):
            at, whole = rendering.whole()
            if isinstance(whole, bytes):
                return answers.body(at, whole, wanted, speed, chunked=chunked)
            failure = at, whole
        if failure is not None:
            at, info = failure
            return _failure(format, info, wanted.delay + (at / speed if speed else 0.0), by_format=True)
        framing = _framing(place, request.headers.get("accept", ""))
        pieces = rendering.pieces(framing.name, wanted.error_after)
        return answers.stream(pieces, framing, wanted, speed, chunked=chunked)

    def _stream(self, name: str) -> Stream:
        stream = self.library.get(name)
        if stream is None and self._default_stream is not None:
            stream = self.library.get(self._default_stream)
        if stream is None:
            near = self.library.near(name)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            names = self.library.names
            listed = ", ".join(names[:_MAX_NAMES_SHOWN]) + (" ..." if len(names) > _MAX_NAMES_SHOWN else "")
            message = f"There is no stream named {name[:100]!r}.{hint} Streams are: {listed}."
            raise GatewayError(ErrorInfo(code=ErrorCode.MODEL_NOT_FOUND, message=message, param="model"))
        return stream

    # -- everything else ------------------------------------------------------------------------------------------------

    def _models(self, request: HttpRequest) -> Iterator[answers.Step]:
        anthropic = "anthropic-version" in request.headers or "x-api-key" in request.headers
        format = PROVIDED["anthropic"] if anthropic else self._default_format
        if not self._authorized(format, request):
            return _failure(format, _UNAUTHENTICATED)
        names = self.library.names
        if format.name == "anthropic":
            return answers.whole(200, encode(_anthropic_list(names)))
        models = [{"id": name, "object": "model", "created": CREATED, "owned_by": "replay"} for name in names]
        return answers.whole(200, encode({"object": "list", "data": models}))

    def _authorized(self, format: Format, request: HttpRequest) -> bool:
        """The key where the format expects it, or as a bearer token, which SDKs of every format may send."""
        key = self._api_key
        if key is None:
            return True
        accepted = [*format.auth_headers(key), ("authorization", f"Bearer {key}")]
        return any(
            hmac.compare_digest(request.headers.get(name.lower(), "").encode(), value.encode())
            for name, value in accepted
            if key in value
        )

    def _remember(self, request: HttpRequest, path: str) -> None:
        try:
            body: Any = decode_object(request.body)
        except InvalidRequest:
            body = None
        self.requests.append(SeenRequest(request.method, path, request.headers, body, request.at))
        del self.requests[:-MAX_REMEMBERED]

    def _now(self) -> float:
        assert self._loop is not None
        return self._loop.time()


_STATUS_TYPES = {529: "overloaded_error"}
"""Statuses that stand for one error type of a vendor's own."""

_UNAUTHENTICATED = ErrorInfo(
    code=ErrorCode.UNAUTHENTICATED,
    message="The API key is missing or wrong: send the key that the replay server was started with.",
)


def _place(places: list[Place], content_type: str) -> Place | None:
    """What is asked for. Where several formats share a path, the content type tells which; where one has it, none need."""
    best = [place for place in places if place.route.path == places[0].route.path]
    if len({place.format.name for place in best}) == 1:
        return best[0]
    media_type = content_type.partition(";")[0].strip().lower()
    return next((place for place in best if place.format.media_type == media_type), None)


def _framing(place: Place, accept: str) -> Framing:
    """The framing that the Accept header asks for, where the format has it; else the route's, or the format's own."""
    framings = place.format.framings
    for name in framings:
        if name != "json_array" and FRAMINGS[name].media_type in accept.lower():
            return FRAMINGS[name]
    return FRAMINGS[place.route.framing or framings[0]]


def _failure(format: Format, info: ErrorInfo, delay: float = 0.0, *, by_format: bool = False) -> Iterator[answers.Step]:
    """An HTTP error in the vendor's shape. `by_format`: with the status that the vendor itself would choose."""
    headers = list(format.error_headers(info))
    if info.retry_after is not None:
        headers.append(("retry-after", f"{info.retry_after:g}"))
    status = format.error_status(info) if by_format else info.http_status
    return answers.whole(status, format.write_error(info), headers=headers, delay=delay)


def _anthropic_list(names: list[str]) -> dict[str, Any]:
    models = [
        {"type": "model", "id": name, "display_name": name, "created_at": "2025-01-01T00:00:00Z"} for name in names
    ]
    return {
        "data": models,
        "has_more": False,
        "first_id": names[0] if names else None,
        "last_id": names[-1] if names else None,
    }
