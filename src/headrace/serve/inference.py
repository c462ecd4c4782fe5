"""The inference paths: one HTTP request from its headers to its settled end.

Everything that can be wrong with a request is found before the provider is asked, and answered with a 4xx whose body
is in the caller's format. After that the stream is the driver's; this coroutine only waits for the caller to leave.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace import engine
from headrace.access.idempotency import HEADER, Busy, Replay, fingerprint
from headrace.access.keys import Key
from headrace.access.limits import Grant, Refusal
from headrace.formats import Format
from headrace.formats.base import WriterOptions
from headrace.formats.locate import Place
from headrace.model.errors import ErrorCode, ErrorInfo, GatewayError, InvalidRequest
from headrace.model.request import Request
from headrace.serve.checks import message_check
from headrace.serve.driver import Call, Message, Send, StreamDriver
from headrace.serve.line import AsgiLine, Kept, Line
from headrace.serve.meter import RequestMeter
from headrace.serve.negotiation import Negotiated, negotiate, request_format
from headrace.serve.plans import Planned
from headrace.serve.records import log, owner, usage_record, used_cost, used_tokens
from headrace.serve.runtime import Runtime
from headrace.serve.stepping import Done, step
from headrace.serve.ticker import Ticker
from headrace.upstream import TraceContext

logger = logging.getLogger("headrace.serve")

Receive = Callable[[], Awaitable[Message]]

STREAM_HEADERS = [
    # intermediaries must neither store, transform (compress) nor collect a stream (DOSSIER 14.3, P-08)
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class CallerLeft(Exception):
    """The caller closed the connection while its request was still being read."""


@dataclass(slots=True)
class Arrived:
    """A request from its head on, as far as it has been read. `common`: headers of every answer to it."""

    line: Line
    path: str
    place: Place
    headers: Mapping[str, str]
    request_id: str
    trace: TraceContext
    common: list[tuple[bytes, bytes]]
    answer: Format
    """Of errors, too: the path's own until Content-Type and Accept have been read."""
    negotiated: Negotiated
    key: Key | None = None
    request: Request | None = None


class Inference:
    """Handles POST on the inference paths. One instance a configuration.

    `__call__` serves ASGI. A server with a Line of its own tells what comes, as it comes: `arrive` with the head, `hear`,
    `read` with the body, `proceed`; what they raise goes to `refuse`.
    """

    def __init__(self, runtime: Runtime, ticker: Ticker) -> None:
        self.runtime = runtime
        self.ticker = ticker
        self.body_seconds = runtime.config.timeouts.request_body
        """A request's body may take so long to arrive."""

    async def __call__(self, place: Place, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        arrived = self.arrive(place, scope["path"], scope["headers"], AsgiLine(send, scope.get("extensions")))
        try:
            self.hear(arrived)
            self.read(arrived, body := await self.receive_body(receive))
        except CallerLeft:
            return
        except Exception as error:
            await self.refuse(arrived, error)
            return
        driver = await self.proceed(arrived, body)
        if driver is not None:
            await self.run(driver, receive)

    def arrive(self, place: Place, path: str, headers: Iterable[tuple[bytes, bytes]], line: Line) -> Arrived:
        """A request whose head has come (names in any case). Raises nothing."""
        read = _headers(headers)
        request_id = _request_id(read)
        trace = _trace(read)
        name = request_id.encode("latin-1")
        common = [
            (b"x-request-id", name),
            (b"request-id", name),  # where Anthropic's SDKs look for it
            (b"x-amzn-requestid", name),  # and AWS's
            (b"traceparent", trace.traceparent.encode("ascii")),
        ]
        negotiated = negotiate(place.format, None, place.route.framing)
        return Arrived(line, path, place, read, request_id, trace, common, place.format, negotiated)

    def hear(self, arrived: Arrived) -> None:
        """Look at the head: what is asked for, who asks, how much comes. Raises GatewayError."""
        headers = arrived.headers
        arrived.answer = request_format(arrived.answer.name, headers.get("content-type"))
        arrived.negotiated = negotiate(arrived.answer, headers.get("accept"), arrived.place.route.framing)
        arrived.answer = arrived.negotiated.answer
        arrived.key = self.runtime.authenticate(headers)
        announced = headers.get("content-length", "")
        if announced.isdigit():
            self.check_size(int(announced))

    def check_size(self, size: int) -> None:
        """Of a body, as far as it has come. Raises GatewayError 413."""
        limit = self.runtime.config.limits.body_bytes
        if size > limit:
            raise InvalidRequest(
                f"The request body is larger than the limit of {limit} bytes (limits.body_bytes)",
                status=413,
                type="request_too_large",
            )

    def late(self) -> InvalidRequest:
        """The error of a body that did not arrive in time."""
        message = f"The request body did not arrive within {self.body_seconds:g} s"
        return InvalidRequest(message, status=408, type="request_timeout")

    def read(self, arrived: Arrived, body: bytes) -> None:
        """Raises GatewayError for a body that is no request."""
        arrived.request = arrived.negotiated.request.read_request(body, arrived.place.located)

    def waits(self, arrived: Arrived) -> bool:
        """Whether `proceed` has to wait for others, for which it needs a task."""
        limited = arrived.key is not None and arrived.key.limited and self.runtime.state.remembers
        return limited or repeatable(arrived) is not None

    async def proceed(self, arrived: Arrived, body: bytes) -> StreamDriver | None:
        """The driver to begin with; None where the request has its answer already."""
        try:
            repeat = repeatable(arrived)
            if repeat is None:
                return await self._open(arrived)
            await self._answer_once(arrived, repeat, body)
        except Exception as error:
            await self.refuse(arrived, error)
        return None

    async def refuse(self, arrived: Arrived, error: Exception) -> None:
        """Answer with this error, and record that a request was understood and not sent to anybody."""
        if isinstance(error, GatewayError):
            await arrived.line.refuse(arrived.answer, error.info, arrived.common)
            if arrived.request is not None:
                self._record_refusal(error.info, arrived.request, arrived)
            return
        # A fault of ours. The message may hold the caller's text, so only its kind and place are logged.
        where = "".join(traceback.format_tb(error.__traceback__))
        logger.error("request %s failed: %s\n%s", arrived.request_id, type(error).__name__, where)
        await arrived.line.refuse(arrived.answer, INTERNAL, arrived.common)

    async def receive_body(self, receive: Receive) -> bytes:
        """All of it. Raises GatewayError where it is too large or too late, CallerLeft where the caller has gone."""
        stepped = step(receive())
        if isinstance(stepped, Done):
            # A body that came along with its head, as most do, is here without waiting and without a timer.
            body, more = _piece(stepped.value)
            self.check_size(len(body))
            if not more:
                return body
            pieces, rest = [body], receive()
        else:
            pieces, rest = [], stepped
        try:
            async with asyncio.timeout(self.body_seconds):
                size = sum(map(len, pieces))
                while True:
                    piece, more = _piece(await rest)
                    pieces.append(piece)
                    size += len(piece)
                    self.check_size(size)
                    if not more:
                        return b"".join(pieces)
                    rest = receive()
        except TimeoutError:
            raise self.late() from None

    async def _open(self, arrived: Arrived) -> StreamDriver:
        """Plan, admit, and make the driver. Raises GatewayError."""
        runtime, state = self.runtime, self.runtime.state
        request, answer, key, line = arrived.request, arrived.answer, arrived.key, arrived.line
        assert request is not None
        planned = runtime.planner.plan(request, answer, trace=arrived.trace, forwarded=arrived.headers)
        check = await message_check(answer)
        meter = RequestMeter(request, runtime.prices, runtime.endpoints, request.budget)
        headers = list(arrived.common)
        if request.stream:
            headers += STREAM_HEADERS
            headers += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.answer_headers]
        grant: Grant | None = None
        if key is not None:
            key.require(*planned.names(request.model))
            if key.limited:
                grant = await self._admit(key, meter, planned, arrived)
                headers += grant.headers(answer.name)

        def call(candidate: int) -> Call:
            meter.check(planned.plan.candidates[candidate])
            return planned.call(candidate)

        def settled(outcome: engine.Outcome) -> None:
            if grant is not None:
                state.settle(grant, tokens=used_tokens(outcome), cost=used_cost(outcome))
            if state.recorder is not None:
                state.record(
                    usage_record(
                        outcome,
                        request,
                        request_id=arrived.request_id,
                        trace=arrived.trace,
                        route=planned.route,
                        format=answer.name,
                        price_source=meter.price_source,
                        key=owner(key),
                    )
                )
            log(
                outcome,
                request_id=arrived.request_id,
                trace=arrived.trace,
                path=arrived.path,
                stream=request.stream,
                lines=runtime.config.server.access_log,
            )

        caller = engine.Caller(
            format=answer,
            framing=arrived.negotiated.framing,
            stream=request.stream,
            writer_options=WriterOptions(
                request=request,
                request_id=request.request_id or arrived.request_id,
                created=int(time.time()),  # noqa: TID251  # a timestamp for the caller, not a duration
                model=request.model,
                check=check,
            ),
            usage_interval=planned.usage_interval,
            encoder=line.encoder,
            tells_status=line.tells_status,
        )
        return StreamDriver(
            engine.Stream(
                caller=caller, plan=planned.plan, limits=runtime.limits, timeouts=runtime.timeouts, meter=meter
            ),
            call,
            line.send,
            clock=self.ticker,
            headers=headers,
            settled=settled,
            abort=line.abort,
            write=line.write,
            cork=line.cork,
        )

    async def _admit(self, key: Key, meter: RequestMeter, planned: Planned, arrived: Arrived) -> Grant:
        """Reserve what the request may come to. Raises Refused."""
        tokens, cost = meter.worst_case(planned.plan.candidates[0])
        admitted = await self.runtime.state.admit(key, tokens=tokens, cost=cost)
        if isinstance(admitted, Refusal):
            arrived.common.extend(
                (name, value)
                for name, value in admitted.headers(arrived.answer.name)
                if name != b"retry-after"  # the error says it
            )
            raise admitted.error
        meter.limit_cost(admitted.cost_left)
        return admitted

    def _record_refusal(self, info: ErrorInfo, request: Request, arrived: Arrived) -> None:
        if self.runtime.state.recorder is None:
            return
        outcome = engine.Outcome("failed", "", "", error=info, status=arrived.answer.error_status(info))
        self.runtime.state.record(
            usage_record(
                outcome,
                request,
                request_id=arrived.request_id,
                trace=arrived.trace,
                route=None,
                format=arrived.answer.name,
                price_source=None,
                key=owner(arrived.key),
            )
        )

    async def _answer_once(self, arrived: Arrived, repeat: str, body: bytes) -> None:
        """Answer a request that may be a repeat (`Idempotency-Key`): it is carried out once, and goes on to its end even
        where its caller leaves, who may be about to ask again."""
        store = self.runtime.state.idempotency
        scope = arrived.key.id if arrived.key is not None else ""
        accept = arrived.headers.get("accept", "")
        line = arrived.line
        begun = await store.begin(scope, repeat, fingerprint(f"{arrived.path} {accept}", body))
        if isinstance(begun, Replay):
            headers = [*begun.headers, (b"idempotent-replayed", b"true")]
            await line.send({"type": "http.response.start", "status": begun.status, "headers": headers})
            await line.send({"type": "http.response.body", "body": begun.body, "more_body": False})
            return
        if isinstance(begun, Busy):
            raise GatewayError(
                ErrorInfo(
                    code=ErrorCode.INVALID_REQUEST,
                    status=409,
                    type="idempotency_key_in_use",
                    message="The first request with this Idempotency-Key is still running. Try again later",
                    retry_after=begun.retry_after,
                )
            )
        kept = Kept(line.abort)
        arrived.line = kept
        try:
            (await self._open(arrived)).begin()
            await kept.complete.wait()
        except BaseException:
            await store.abandon(begun.token)
            raise
        finally:
            arrived.line = line
        body = b"".join(kept.body)
        await store.finish(begun.token, kept.status, kept.headers, body)
        await line.send({"type": "http.response.start", "status": kept.status, "headers": [*kept.headers]})
        await line.send({"type": "http.response.body", "body": body, "more_body": False})

    async def run(self, driver: StreamDriver, receive: Receive) -> None:
        """Start the stream and wait until it is answered or its caller has gone: `receive` tells of both."""
        try:
            driver.begin()
            while (await receive())["type"] != "http.disconnect":
                pass
        except asyncio.CancelledError:
            driver.cancel(ErrorCode.CANCELLED, "The gateway is shutting down")
            raise
        finally:
            driver.caller_gone()


def repeatable(arrived: Arrived) -> str | None:
    """The request's idempotency key, where it has one that is kept: streams are never answered from a store."""
    request = arrived.request
    if request is None or request.stream:
        return None
    given = arrived.headers.get(HEADER) or request.metadata.get("idempotency_key")
    return given if isinstance(given, str) and given else None


INTERNAL = ErrorInfo(
    code=ErrorCode.INTERNAL_ERROR,
    type="internal_error",
    message="The gateway failed on this request. Its log holds the details under the x-request-id of this answer",
)


def _headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Lower-case names; repeated headers joined with commas (RFC 9110, 5.2)."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in raw:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _piece(message: Message) -> tuple[bytes, bool]:
    """A piece of the body, and whether more follows."""
    if message["type"] == "http.disconnect":
        raise CallerLeft
    return message.get("body", b""), message.get("more_body", False)


def _request_id(headers: Mapping[str, str]) -> str:
    """The caller's x-request-id where it is a sane token, else one of ours."""
    given = headers.get("x-request-id", "")
    if 0 < len(given) <= 128 and given.isascii() and given.isprintable() and " " not in given:
        return given
    return f"req_{os.urandom(12).hex()}"


def _trace(headers: Mapping[str, str]) -> TraceContext:
    return TraceContext.parse(headers.get("traceparent", ""), headers.get("tracestate", "")) or TraceContext.new()
