"""LlmGateway over gRPC: a `grpc.aio` server beside the HTTP listener, on a port of its own (`server.grpc`).

A call is a Line. Its events go from the provider's read into a list, and the call's own coroutine, the one that grpc.aio
makes for each call, writes them: no further task, and no queue but that list. It is bounded; when it is full, reading from
the provider pauses, as with any slow caller. The trade-off against writing at once: a turn of the loop for each burst.

Each worker process has a server of its own on the same port (SO_REUSEPORT). Configurations that come later are used by the
calls that come later; the address, TLS and the bound of a message need a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from headrace.config import Grpc
from headrace.formats import Format
from headrace.model.errors import ErrorCode, ErrorInfo, GatewayError, InvalidRequest
from headrace.serve.driver import Message, StreamDriver
from headrace.serve.exchange import Service, Services
from headrace.serve.inference import INTERNAL
from headrace.serve.line import Headers
from headrace.serve.rpc import calls
from headrace.serve.rpc.events import EventEncoder, messages_in
from headrace.serve.rpc.in_flight import InFlight
from headrace.serve.rpc.status import code_of, status_details
from headrace.v1 import gateway_pb2 as pb

logger = logging.getLogger("headrace.serve")

HIGH_WATER = 64 * 1024
"""Bytes that wait in a call before reading from its provider pauses."""

ABORT_SECONDS = 5.0
"""For a caller that reads nothing to take the status that says so; then its call is reset."""

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_NOT_METADATA = frozenset(
    {b"content-type", b"content-length", b"cache-control", b"x-accel-buffering", b"www-authenticate", b"retry-after"}
)
"""Headers that say something of HTTP; Retry-After goes with the error."""


class GrpcListener:
    """Start it inside the loop that serves, and `stop` it there. `port` is known when it has started."""

    def __init__(self, services: Services, settings: Grpc, in_flight: InFlight, *, max_message: int) -> None:
        self._services = services
        self._settings = settings
        self._max_message = max_message
        self._in_flight = in_flight
        self._ending = False
        self._calls: set[_Call] = set()
        self.port = 0

    async def start(self) -> None:
        """Raises OSError where it cannot listen, or a file of TLS cannot be used."""
        server = self._server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 1),
                ("grpc.max_receive_message_length", self._max_message),
                ("grpc.max_send_message_length", -1),
            ]
        )
        handlers: dict[str, Any] = {
            "Chat": grpc.unary_stream_rpc_method_handler(self._chat),
            "ChatOnce": grpc.unary_unary_rpc_method_handler(self._chat_once),
            "ListModels": grpc.unary_unary_rpc_method_handler(self._list_models),
            "Cancel": grpc.unary_unary_rpc_method_handler(self._cancel),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(calls.SERVICE, handlers),))
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection((calls.SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
        settings = self._settings
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        address = f"{host}:{settings.port}"
        credentials = _credentials(settings)
        try:
            if credentials is None:
                self.port = server.add_insecure_port(address)
            else:
                self.port = server.add_secure_port(address, credentials)
        except RuntimeError:
            raise OSError(f"cannot listen on {address} for gRPC (server.grpc)") from None
        await server.start()
        for name in ("", calls.SERVICE):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    @property
    def busy(self) -> bool:
        return bool(self._calls)

    async def drain(self) -> None:
        """Be ready no more: health checks say so, new calls are refused, what is in flight goes on."""
        self._ending = True
        await self._health.enter_graceful_shutdown()

    async def stop(self, grace: float) -> None:
        """End: what still runs after the grace period is cut off."""
        await self._server.stop(grace)

    # --- methods ---------------------------------------------------------------------------------------------------

    async def _chat(self, data: bytes, context: Any) -> None:
        await self._answer(data, context, "Chat", stream=True)

    async def _chat_once(self, data: bytes, context: Any) -> bytes:
        answer = await self._answer(data, context, "ChatOnce", stream=False)
        return calls.chat_response(answer).SerializeToString()

    async def _answer(self, data: bytes, context: Any, method: str, *, stream: bool) -> bytes:
        if self._ending:
            await _abort(context, calls.SHUTTING_DOWN, [])
        call = _Call(context, self._services.enter(), self._in_flight, stream=stream)
        self._calls.add(call)
        try:
            return await call.run(data, method)
        finally:
            self._calls.discard(call)
            call.over()

    async def _list_models(self, data: bytes, context: Any) -> bytes:
        service = self._services.enter()
        try:
            _parse(pb.ListModelsRequest, data)
            return calls.list_models(service.inference, dict(_headers(context))).SerializeToString()
        except GatewayError as error:
            await _abort(context, error.info, [])
            raise
        finally:
            service.leave()

    async def _cancel(self, data: bytes, context: Any) -> bytes:
        service = self._services.enter()
        try:
            message = _parse(pb.CancelRequest, data)
            answer = calls.cancel(service.inference, self._in_flight, dict(_headers(context)), message)
            return answer.SerializeToString()
        except GatewayError as error:
            await _abort(context, error.info, [])
            raise
        finally:
            service.leave()


class _Call:
    """One Chat or ChatOnce; a Line. `run` is its coroutine, which writes; everything else comes from the driver."""

    cork = None
    tells_status = True

    def __init__(self, context: Any, service: Service, in_flight: InFlight, *, stream: bool) -> None:
        self._context = context
        self._service = service
        self._in_flight = in_flight
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._driver: StreamDriver | None = None
        self._entries: list[tuple[str, str]] = []
        self._format: Format = calls.GATEWAY
        self._encoder: EventEncoder | None = None
        self._pending: list[bytes] = []
        self._size = 0
        self._wake: asyncio.Future[None] | None = None
        self._gate: asyncio.Event | None = None
        self._status = 0
        self._metadata: list[tuple[str, str]] = []
        self._complete = False
        self._error: ErrorInfo | None = None
        self._cut = False

    async def run(self, data: bytes, method: str) -> bytes:
        """Serve the call to its end; the whole answer where it is one. Aborts the call's context for an error."""
        inference = self._service.inference
        arrived = calls.arrive(inference, method, _headers(self._context), self)
        try:
            body = calls.read(inference, arrived, _parse(pb.ChatRequest, data), stream=self._stream)
        except Exception as error:
            await inference.refuse(arrived, error)
        else:
            self._format = arrived.answer
            self._entries = self._in_flight.add(arrived, self.cancel)
            driver = await inference.proceed(arrived, body)
            if driver is not None:
                self._driver = driver
                driver.begin()
        return await self._write_all()

    def cancel(self) -> None:
        """By the caller's call of Cancel."""
        if self._driver is not None:
            self._driver.cancel(ErrorCode.CANCELLED, "The caller has cancelled the request")
        else:
            self._fail(ErrorInfo(code=ErrorCode.CANCELLED, message="The caller has cancelled the request"))

    def over(self) -> None:
        """The call has ended, or its caller has gone."""
        self._in_flight.remove(self._entries, self.cancel)
        self._pending.clear()
        self._cut = self._complete = True
        if self._gate is not None:
            self._gate.set()
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.caller_gone()
        self._service.leave()

    async def _write_all(self) -> bytes:
        """Everything that the driver hands over, to the end."""
        context = self._context
        opened = False
        whole: list[bytes] = []
        while True:
            if not self._pending and not self._complete:
                self._wake = self._loop.create_future()
                await self._wake
                self._wake = None
            if self._metadata and not opened and 200 <= self._status < 300:
                opened = True
                await context.send_initial_metadata(self._metadata)
            pieces, self._pending, self._size = self._pending, [], 0
            if self._gate is not None:
                self._gate.set()
            if not self._stream or not 200 <= self._status < 300:
                whole += pieces
            else:
                for piece in pieces:
                    for message in messages_in(piece):
                        await self._patiently(context.write(message))
            if self._complete and not self._pending:
                break
        info = self._error or (self._encoder.error if self._encoder is not None else None)
        if info is None and self._status >= 300:
            info = self._format.read_error(self._status, {}, b"".join(whole))
        if info is not None:
            metadata = [] if opened else self._metadata
            await self._patiently(_abort(context, info, metadata), seconds=ABORT_SECONDS if self._cut else None)
        return b"".join(whole)

    async def _patiently(self, work: Awaitable[Any], *, seconds: float | None = None) -> None:
        if seconds is None:
            await work
            return
        try:
            async with asyncio.timeout(seconds):
                await work
        except TimeoutError:
            raise asyncio.CancelledError from None  # grpc resets a call whose coroutine ends so

    def _fail(self, info: ErrorInfo) -> None:
        self._error = info
        self._complete = True
        self._awake()

    def _awake(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    # --- Line ------------------------------------------------------------------------------------------------------

    def encoder(self) -> EventEncoder:
        self._encoder = EventEncoder(self._format)
        return self._encoder

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._metadata = _metadata(message["headers"])
            self._awake()
            return
        while self._size > HIGH_WATER and not self._complete:
            self._gate = asyncio.Event()
            await self._gate.wait()
            self._gate = None
        if self._complete:
            return
        body = message.get("body", b"")
        if body:
            self._pending.append(body)
            self._size += len(body)
        if not message.get("more_body", False):
            self._complete = True
        self._awake()

    def write(self, data: bytes) -> bool:
        if self._size > HIGH_WATER or self._complete:
            return False
        self._pending.append(data)
        self._size += len(data)
        self._awake()
        return True

    async def refuse(self, answer: Format, info: ErrorInfo, headers: Headers) -> None:
        self._metadata = _metadata(headers)
        self._fail(info)

    def abort(self) -> None:
        """What waits is not wanted any more: nobody reads it."""
        self._pending.clear()
        self._cut = True
        self._fail(ErrorInfo(code=ErrorCode.CONSUMER_TOO_SLOW, message="The answer was left unread for too long"))


def _headers(context: Any) -> list[tuple[str, str]]:
    """The caller's metadata that is text."""
    metadata = context.invocation_metadata() or ()
    return [(name, value) for name, value in metadata if isinstance(value, str)]


def _metadata(headers: Any) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers if name not in _NOT_METADATA]


def _parse(kind: Callable[[], Any], data: bytes) -> Any:
    """Raises InvalidRequest for bytes that are no message of this kind."""
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError:
        what = f"The message is no headrace.v1.{message.DESCRIPTOR.name}"
        raise InvalidRequest(what, type="invalid_protobuf") from None
    return message


async def _abort(context: Any, info: ErrorInfo, metadata: list[tuple[str, str]]) -> None:
    """End the call with this error. Raises grpc's AbortError."""
    trailing: list[tuple[str, Any]] = [*metadata, ("grpc-status-details-bin", status_details(info))]
    if info.retry_after is not None:
        trailing.append(("retry-after", str(max(1, round(info.retry_after)))))
    await context.abort(_CODES[code_of(info).number], info.message or INTERNAL.message, tuple(trailing))


def _credentials(settings: Grpc) -> Any:
    """Raises OSError for a file that cannot be read."""
    if settings.cert_file is None or settings.key_file is None:
        return None
    pair = (Path(settings.key_file).read_bytes(), Path(settings.cert_file).read_bytes())
    authority = None if settings.client_ca_file is None else Path(settings.client_ca_file).read_bytes()
    return grpc.ssl_server_credentials([pair], authority, require_client_auth=authority is not None)
