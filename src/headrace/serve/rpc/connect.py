"""LlmGateway over Connect and gRPC-Web, on the HTTP listener: the connectrpc package's protocols, as far as calls of one
message with one answer or a stream of answers need them.

It is a thin layer over ASGI, since connectrpc's server takes its own messages and a generator for each stream: here the
driver's bytes go out as they come, with the envelope around them. The trade-off: gzip is read, not written, as a
compressed stream of small messages is no smaller; gRPC-Web's base64 variant (`-text`) and Connect's GET are not served.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from headrace.formats import Format
from headrace.framing import FramingError
from headrace.framing.connect import CONNECT_FLAGS, GRPC_WEB_FLAGS, EnvelopeDecoder
from headrace.model.errors import ErrorCode, ErrorInfo, GatewayError, InvalidRequest
from headrace.serve.driver import Message, Send, StreamDriver
from headrace.serve.inference import STREAM_HEADERS, CallerLeft, Inference, Receive
from headrace.serve.line import AsgiLine, Headers
from headrace.serve.origins import check_origin
from headrace.serve.rpc import calls, events
from headrace.serve.rpc.events import Codec, EventEncoder, envelope
from headrace.serve.rpc.in_flight import InFlight
from headrace.serve.rpc.status import code_of, error_message, status_details
from headrace.v1 import gateway_pb2 as pb

PREFIX = f"/{calls.SERVICE}/"

_END, _TRAILERS = 0x02, 0x80


class Protocol(NamedTuple):
    """`grpc_web`: else Connect; `enveloped`: messages have envelopes; `binary`: else JSON."""

    grpc_web: bool
    enveloped: bool
    binary: bool

    @property
    def codec(self) -> Codec:
        return events.binary if self.binary else events.json


PROTOCOLS: dict[str, Protocol] = {
    # content type of request and answer
    "application/proto": Protocol(grpc_web=False, enveloped=False, binary=True),
    "application/json": Protocol(grpc_web=False, enveloped=False, binary=False),
    "application/connect+proto": Protocol(grpc_web=False, enveloped=True, binary=True),
    "application/connect+json": Protocol(grpc_web=False, enveloped=True, binary=False),
    "application/grpc-web": Protocol(grpc_web=True, enveloped=True, binary=True),
    "application/grpc-web+proto": Protocol(grpc_web=True, enveloped=True, binary=True),
    "application/grpc-web+json": Protocol(grpc_web=True, enveloped=True, binary=False),
}

_REQUESTS: dict[str, type[Any]] = {
    "Chat": pb.ChatRequest,
    "ChatOnce": pb.ChatRequest,
    "ListModels": pb.ListModelsRequest,
    "Cancel": pb.CancelRequest,
}
_EXPOSED = "x-request-id, traceparent, retry-after, grpc-status, grpc-message, grpc-status-details-bin"
_KEPT_BACK = frozenset(
    {b"content-type", b"content-length", b"www-authenticate", b"cache-control", b"x-accel-buffering"}
)
_GRPC_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_LONGEST = 365 * 86_400.0
_GZIP = 31


async def serve(
    inference: Inference, in_flight: InFlight, scope: Mapping[str, Any], receive: Receive, send: Send
) -> None:
    """Answer one HTTP request whose path begins with PREFIX."""
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    origin = headers.get("origin")
    refused: GatewayError | None = None
    try:
        check_origin(inference.runtime, headers)
    except GatewayError as error:
        refused = error
    cors = _cors(origin) if origin is not None and refused is None else []
    if scope["method"] == "OPTIONS":
        await _plain(send, 204 if refused is None else 403, [*cors, *(_preflight(headers) if refused is None else [])])
        return
    if scope["method"] != "POST":
        await _plain(send, 405, [(b"allow", b"POST, OPTIONS"), *cors])
        return
    method = scope["path"].removeprefix(PREFIX)
    if method not in _REQUESTS:
        message = f"{calls.SERVICE} has no method {method[:100]!r}; it has {', '.join(_REQUESTS)}"
        await _plain(send, 404, cors, {"code": "unimplemented", "message": message})
        return
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    protocol = PROTOCOLS.get(media_type)
    streams = method == "Chat"
    if protocol is None or (not protocol.grpc_web and protocol.enveloped != streams):
        served = [name for name, one in PROTOCOLS.items() if one.grpc_web or one.enveloped == streams]
        hint = "; gRPC itself has a port of its own (server.grpc)" if media_type.startswith("application/grpc") else ""
        message = f"Content-Type {media_type[:100]!r} is not served for {method}: send {', '.join(served)}{hint}"
        extra = [(b"accept-post", ", ".join(served).encode())]
        await _plain(send, 415, [*extra, *cors], {"code": "unimplemented", "message": message})
        return
    call = _Call(AsgiLine(send, scope.get("extensions")), protocol, media_type, cors, streams=streams)
    if refused is not None:
        await call.fail(refused.info)
        return
    if method in ("Chat", "ChatOnce"):
        await call.chat(inference, in_flight, method, headers, receive)
    else:
        await call.other(inference, in_flight, method, headers, receive)


class _Call:
    """One call; the Line of a Chat or ChatOnce. `line` is that of the HTTP exchange."""

    write = None
    cork = None
    tells_status = True

    def __init__(self, line: AsgiLine, protocol: Protocol, media_type: str, cors: Headers, *, streams: bool) -> None:
        self._line = line
        self._protocol = protocol
        self._media_type = media_type
        self._cors = cors
        self._streams = streams
        self._format: Format = calls.GATEWAY
        self._encoder: EventEncoder | None = None
        self._driver: StreamDriver | None = None
        self._status = 0
        self._headers: Headers = []
        self._opened = False
        self._body: list[bytes] = []
        self._over = False
        self.abort = line.abort

    async def chat(
        self, inference: Inference, in_flight: InFlight, method: str, headers: Mapping[str, str], receive: Receive
    ) -> None:
        arrived = calls.arrive(inference, method, headers.items(), self)
        entries, timer = [], None
        try:
            message = await self._read(inference, method, headers, receive)
            timer = self._deadline(headers)
            body = calls.read(inference, arrived, message, stream=self._streams)
        except CallerLeft:
            return
        except Exception as error:
            await inference.refuse(arrived, error)
            return
        try:
            self._format = arrived.answer
            entries = in_flight.add(arrived, self._cancel)
            driver = await inference.proceed(arrived, body)
            if driver is not None:
                self._driver = driver
                await inference.run(driver, receive)
        finally:
            in_flight.remove(entries, self._cancel)
            self._driver = None
            if timer is not None:
                timer.cancel()

    async def other(
        self, inference: Inference, in_flight: InFlight, method: str, headers: Mapping[str, str], receive: Receive
    ) -> None:
        try:
            message = await self._read(inference, method, headers, receive)
            if method == "ListModels":
                answer: Any = calls.list_models(inference, headers)
            else:
                answer = calls.cancel(inference, in_flight, headers, message)
        except CallerLeft:
            return
        except GatewayError as error:
            await self.fail(error.info)
            return
        await self._succeed(answer)

    async def _read(self, inference: Inference, method: str, headers: Mapping[str, str], receive: Receive) -> Any:
        """The call's message. Raises GatewayError."""
        inference.runtime.authenticate(headers)  # before anything is held for strangers
        limit = inference.runtime.config.limits.body_bytes
        body = await inference.receive_body(receive)
        protocol = self._protocol
        if protocol.enveloped:
            body = _unenveloped(body, protocol, limit)
        else:
            body = _decoded(body, headers.get("content-encoding", "identity"), limit)
        message = _REQUESTS[method]()
        name = f"headrace.v1.{message.DESCRIPTOR.name}"
        try:
            if protocol.binary:
                message.ParseFromString(body)
            else:
                json_format.Parse(body, message)
        except DecodeError:
            raise InvalidRequest(f"The message is no {name}", type="invalid_protobuf") from None
        except (json_format.ParseError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequest(f"The message is no {name} in JSON: {error}", type="invalid_json") from None
        return message

    def _deadline(self, headers: Mapping[str, str]) -> asyncio.TimerHandle | None:
        """Raises InvalidRequest."""
        seconds = _timeout(headers, grpc_web=self._protocol.grpc_web)
        return None if seconds is None else asyncio.get_running_loop().call_later(seconds, self._late)

    def _late(self) -> None:
        if self._driver is not None:
            self._driver.cancel(ErrorCode.TIMEOUT, "The deadline of the call has passed")

    def _cancel(self) -> None:
        if self._driver is not None:
            self._driver.cancel(ErrorCode.CANCELLED, "The caller has cancelled the request")

    # --- Line ------------------------------------------------------------------------------------------------------

    def encoder(self) -> EventEncoder:
        self._encoder = EventEncoder(self._format, self._protocol.codec)
        return self._encoder

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = [(name, value) for name, value in message["headers"] if name not in _KEPT_BACK]
            if self._streams and self._status == 200:
                await self._open()
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if not self._opened:
            self._body.append(body)
            if not more:
                await self._whole(b"".join(self._body))
        elif more:
            await self._line.send({"type": "http.response.body", "body": body, "more_body": True})
        else:
            error = self._encoder.error if self._encoder is not None else None
            await self._end(body, error)

    async def refuse(self, answer: Format, info: ErrorInfo, headers: Headers) -> None:
        self._headers = [*headers]
        await self.fail(info)

    async def _whole(self, body: bytes) -> None:
        if self._status == 200:
            await self._succeed(calls.chat_response(body))
        else:
            await self.fail(self._format.read_error(self._status, {}, body))

    # --- how calls end -----------------------------------------------------------------------------------------------

    async def _succeed(self, answer: Any) -> None:
        """Of a call with one answer."""
        data = self._protocol.codec(answer)
        if self._protocol.enveloped:
            await self._open()
            await self._end(envelope(data), None)
        else:
            await self._answer(200, self._media_type, data)

    async def fail(self, info: ErrorInfo) -> None:
        """End with an error before anything else."""
        retry = [] if info.retry_after is None else [(b"retry-after", b"%d" % max(1, round(info.retry_after)))]
        if self._protocol.enveloped:
            self._headers = [*self._headers, *retry]
            await self._open()
            await self._end(b"", info)
        else:
            self._headers = [*(one for one in self._headers if one[0] != b"retry-after"), *retry]
            await self._answer(code_of(info).http, "application/json", json.dumps(_error(info)).encode())

    async def _open(self) -> None:
        self._opened = True
        headers = [(b"content-type", self._media_type.encode()), *self._headers, *STREAM_HEADERS, *self._cors]
        await self._line.send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _end(self, body: bytes, error: ErrorInfo | None) -> None:
        end = _trailers(error) if self._protocol.grpc_web else _end_of_stream(error)
        await self._line.send({"type": "http.response.body", "body": body + end, "more_body": False})

    async def _answer(self, status: int, media_type: str, body: bytes) -> None:
        own = [(b"content-type", media_type.encode()), (b"content-length", b"%d" % len(body))]
        headers = [*own, *self._headers, *self._cors]
        await self._line.send({"type": "http.response.start", "status": status, "headers": headers})
        await self._line.send({"type": "http.response.body", "body": body, "more_body": False})


def _error(info: ErrorInfo) -> dict[str, Any]:
    """An error as Connect has it."""
    detail = base64.b64encode(error_message(info).SerializeToString()).rstrip(b"=").decode()
    details = [{"type": "headrace.v1.Error", "value": detail}]
    return {"code": code_of(info).name, "message": info.message, "details": details}


def _end_of_stream(error: ErrorInfo | None) -> bytes:
    return envelope(b"{}" if error is None else json.dumps({"error": _error(error)}).encode(), _END)


def _trailers(error: ErrorInfo | None) -> bytes:
    if error is None:
        return envelope(b"grpc-status: 0\r\n", _TRAILERS)
    details = base64.b64encode(status_details(error)).rstrip(b"=").decode()
    lines = (
        f"grpc-status: {code_of(error).number}\r\n"
        f"grpc-message: {quote(error.message, safe=' !#$&()*+,/:;=?@[]')}\r\n"
        f"grpc-status-details-bin: {details}\r\n"
    )
    return envelope(lines.encode("ascii"), _TRAILERS)


def _unenveloped(body: bytes, protocol: Protocol, limit: int) -> bytes:
    """The one message of a request. Raises InvalidRequest."""
    decoder = EnvelopeDecoder(limit, flags=GRPC_WEB_FLAGS if protocol.grpc_web else CONNECT_FLAGS)
    try:
        frames = [*decoder.feed(body), *decoder.eof()]
    except FramingError as error:
        if error.reason == "too_large":
            raise _too_large(limit) from None
        raise InvalidRequest(f"The body is not enveloped as it should be: {error}", type="invalid_envelope") from None
    messages = [frame.data for frame in frames if not frame.event]
    if len(messages) != 1:
        what = f"A call has one message, and this body has {len(messages)} in envelopes"
        raise InvalidRequest(what, type="invalid_envelope")
    return messages[0]


def _decoded(body: bytes, coding: str, limit: int) -> bytes:
    """Raises InvalidRequest."""
    if coding in ("identity", ""):
        return body
    if coding != "gzip":
        raise InvalidRequest(f"Content-Encoding {coding[:50]!r} is not understood: gzip is", type="unknown_encoding")
    inflate = zlib.decompressobj(_GZIP)
    try:
        plain = inflate.decompress(body, limit + 1)
    except zlib.error as error:
        raise InvalidRequest(f"The body is no gzip: {error}", type="invalid_encoding") from None
    if len(plain) > limit:
        raise _too_large(limit)
    return plain


def _too_large(limit: int) -> InvalidRequest:
    what = f"The message is larger than the limit of {limit} bytes (limits.body_bytes)"
    return InvalidRequest(what, status=413, type="request_too_large")


def _timeout(headers: Mapping[str, str], *, grpc_web: bool) -> float | None:
    """Seconds that the caller gives the call. Raises InvalidRequest."""
    name, pattern = ("grpc-timeout", r"(\d{1,8})([HMSmun])") if grpc_web else ("connect-timeout-ms", r"(\d{1,10})()")
    said = headers.get(name)
    if said is None:
        return None
    match = re.fullmatch(pattern, said, re.ASCII)
    if match is None:
        raise InvalidRequest(f"{name}: {said[:50]!r} is no time", param=name)
    return min(int(match[1]) * _GRPC_UNITS.get(match[2], 1e-3), _LONGEST)


# --- browsers ------------------------------------------------------------------------------------------------------


def _cors(origin: str) -> Headers:
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", _EXPOSED.encode()),
        (b"vary", b"origin"),
    ]


def _preflight(headers: Mapping[str, str]) -> Headers:
    asked = headers.get("access-control-request-headers", "")
    return [
        (b"access-control-allow-methods", b"POST"),
        (b"access-control-allow-headers", asked.encode("latin-1")),
        (b"access-control-max-age", b"7200"),
    ]


async def _plain(send: Send, status: int, headers: Headers, error: Mapping[str, str] | None = None) -> None:
    body = b"" if error is None else json.dumps(error).encode()
    own = [] if error is None else [(b"content-type", b"application/json")]
    if status != 204:
        own.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": body, "more_body": False})
