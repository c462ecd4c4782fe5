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
from collections.abc import Awaitable, Callable, Mapping
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
from headrace.serve.driver import Call, Message, Send, StreamDriver
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
    """A request that was read, and everything that came with it. `common`: headers of every answer to it."""

    scope: Mapping[str, Any]
    send: Send
    negotiated: Negotiated
    request: Request
    request_id: str
    trace: TraceContext
    headers: Mapping[str, str]
    common: list[tuple[bytes, bytes]]
    key: Key | None
    direct: bool = True
    """Whether the answer goes straight to the caller's connection."""


class Kept:
    """An ASGI `send` that keeps what it is given, and never waits for anybody."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: tuple[tuple[bytes, bytes], ...] = ()
        self.body: list[bytes] = []
        self.complete = asyncio.Event()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], tuple(message["headers"])
        else:
            self.body.append(message.get("body", b""))
            if not message.get("more_body", False):
                self.complete.set()


class Inference:
    """Handles POST on the inference paths. One instance a process."""

    def __init__(self, runtime: Runtime, ticker: Ticker) -> None:
        self.runtime = runtime
        self.ticker = ticker

    async def __call__(self, place: Place, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        headers = _headers(scope)
        answer = place.format
        request_id = _request_id(headers)
        trace = _trace(headers)
        common = [
            (b"x-request-id", request_id.encode("latin-1")),
            (b"request-id", request_id.encode("latin-1")),  # where Anthropic's SDKs look for it
            (b"x-amzn-requestid", request_id.encode("latin-1")),  # and AWS's
            (b"traceparent", trace.traceparent.encode("ascii")),
        ]
        request: Request | None = None
        key: Key | None = None
        try:
            answer = request_format(answer.name, headers.get("content-type"))
            negotiated = negotiate(answer, headers.get("accept"), place.route.framing)
            answer = negotiated.answer
            key = self.runtime.authenticate(headers)
            body = await self._read_body(headers, receive)
            request = negotiated.request.read_request(body, place.located)
            arrived = Arrived(scope, send, negotiated, request, request_id, trace, headers, common, key)
            repeat = repeatable(arrived)
            if repeat is not None:
                await self._answer_once(arrived, repeat, body, receive)
                return
            driver = await self._open(arrived)
        except CallerLeft:
            return
        except GatewayError as error:
            await send_error(send, answer, error.info, common)
            if request is not None:
                self._record_refusal(error.info, request, answer, request_id, trace, key)
            return
        except Exception as error:
            # A fault of ours. The message may hold the caller's text, so only its kind and place are logged.
            where = "".join(traceback.format_tb(error.__traceback__))
            logger.error("request %s failed: %s\n%s", request_id, type(error).__name__, where)
            await send_error(send, answer, INTERNAL, common)
            return
        await self._run(driver, receive)

    async def _read_body(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        limit = self.runtime.config.limits.body_bytes
        announced = headers.get("content-length", "")
        if announced.isdigit() and int(announced) > limit:
            raise _too_large(limit)
        stepped = step(receive())
        if isinstance(stepped, Done):
            # A body that came along with its head, as most do, is here without waiting and without a timer.
            body, more = self._piece(stepped.value, limit)
            if not more:
                return body
            pieces, rest = [body], receive()
        else:
            pieces, rest = [], stepped
        seconds = self.runtime.config.timeouts.request_body
        try:
            async with asyncio.timeout(seconds):
                size = sum(map(len, pieces))
                while True:
                    piece, more = self._piece(await rest, limit - size)
                    pieces.append(piece)
                    size += len(piece)
                    if not more:
                        return b"".join(pieces)
                    rest = receive()
        except TimeoutError:
            raise InvalidRequest(
                f"The request body did not arrive within {seconds:g} s", status=408, type="request_timeout"
            ) from None

    def _piece(self, message: Message, room: int) -> tuple[bytes, bool]:
        """A piece of the body, and whether more follows."""
        if message["type"] == "http.disconnect":
            raise CallerLeft
        piece = message.get("body", b"")
        if len(piece) > room:
            raise _too_large(self.runtime.config.limits.body_bytes)
        return piece, message.get("more_body", False)

    async def _open(self, arrived: Arrived) -> StreamDriver:
        """Plan, admit, and make the driver. Raises GatewayError."""
        runtime, state = self.runtime, self.runtime.state
        request, answer, key = arrived.request, arrived.negotiated.answer, arrived.key
        planned = runtime.planner.plan(request, answer, trace=arrived.trace, forwarded=arrived.headers)
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
                path=arrived.scope["path"],
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
            ),
            usage_interval=planned.usage_interval,
        )
        extensions = (arrived.scope.get("extensions") or {}) if arrived.direct else {}
        return StreamDriver(
            engine.Stream(
                caller=caller, plan=planned.plan, limits=runtime.limits, timeouts=runtime.timeouts, meter=meter
            ),
            call,
            arrived.send,
            clock=self.ticker,
            headers=headers,
            settled=settled,
            abort=extensions.get("headrace.abort") or _current_task().cancel,
            # Taken out of the scope, which they refer to: no cycle shall wait for the collector.
            write=extensions.pop("headrace.write", None),
            cork=extensions.pop("headrace.cork", None),
        )

    async def _admit(self, key: Key, meter: RequestMeter, planned: Planned, arrived: Arrived) -> Grant:
        """Reserve what the request may come to. Raises Refused."""
        tokens, cost = meter.worst_case(planned.plan.candidates[0])
        admitted = await self.runtime.state.admit(key, tokens=tokens, cost=cost)
        if isinstance(admitted, Refusal):
            arrived.common.extend(
                (name, value)
                for name, value in admitted.headers(arrived.negotiated.answer.name)
                if name != b"retry-after"  # the error says it
            )
            raise admitted.error
        meter.limit_cost(admitted.cost_left)
        return admitted

    def _record_refusal(
        self, info: ErrorInfo, request: Request, answer: Format, request_id: str, trace: TraceContext, key: Key | None
    ) -> None:
        """A request that was understood and not sent to anybody has a record, too."""
        if self.runtime.state.recorder is None:
            return
        outcome = engine.Outcome("failed", "", "", error=info, status=answer.error_status(info))
        self.runtime.state.record(
            usage_record(
                outcome,
                request,
                request_id=request_id,
                trace=trace,
                route=None,
                format=answer.name,
                price_source=None,
                key=owner(key),
            )
        )

    async def _answer_once(self, arrived: Arrived, repeat: str, body: bytes, receive: Receive) -> None:
        """Answer a request that may be a repeat (`Idempotency-Key`): it is carried out once, and goes on to its end even
        where its caller leaves, who may be about to ask again."""
        store = self.runtime.state.idempotency
        scope = arrived.key.id if arrived.key is not None else ""
        accept = arrived.headers.get("accept", "")
        begun = await store.begin(scope, repeat, fingerprint(f"{arrived.scope['path']} {accept}", body))
        if isinstance(begun, Replay):
            headers = [*begun.headers, (b"idempotent-replayed", b"true")]
            await arrived.send({"type": "http.response.start", "status": begun.status, "headers": headers})
            await arrived.send({"type": "http.response.body", "body": begun.body, "more_body": False})
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
        send, kept = arrived.send, Kept()
        arrived.send = kept.send
        arrived.direct = False
        try:
            (await self._open(arrived)).begin()
            await kept.complete.wait()
        except BaseException:
            await store.abandon(begun.token)
            raise
        body = b"".join(kept.body)
        await store.finish(begun.token, kept.status, kept.headers, body)
        await send({"type": "http.response.start", "status": kept.status, "headers": [*kept.headers]})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _run(self, driver: StreamDriver, receive: Receive) -> None:
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
    if arrived.request.stream:
        return None
    given = arrived.headers.get(HEADER) or arrived.request.metadata.get("idempotency_key")
    return given if isinstance(given, str) and given else None


INTERNAL = ErrorInfo(
    code=ErrorCode.INTERNAL_ERROR,
    type="internal_error",
    message="The gateway failed on this request. Its log holds the details under the x-request-id of this answer",
)


async def send_error(send: Send, answer: Format, info: ErrorInfo, headers: list[tuple[bytes, bytes]]) -> None:
    """A whole error answer in the caller's format."""
    body = answer.write_error(info)
    status = answer.error_status(info)
    extra = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.error_headers(info)]
    if info.retry_after is not None:
        extra.append((b"retry-after", b"%d" % max(1, round(info.retry_after))))
    if status == 401:
        extra.append((b"www-authenticate", b"Bearer"))
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
                *extra,
                *headers,
            ],
        }
    )
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _headers(scope: Mapping[str, Any]) -> dict[str, str]:
    """Lower-case names; repeated headers joined with commas (RFC 9110, 5.2)."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _request_id(headers: Mapping[str, str]) -> str:
    """The caller's x-request-id where it is a sane token, else one of ours."""
    given = headers.get("x-request-id", "")
    if 0 < len(given) <= 128 and given.isascii() and given.isprintable() and " " not in given:
        return given
    return f"req_{os.urandom(12).hex()}"


def _trace(headers: Mapping[str, str]) -> TraceContext:
    return TraceContext.parse(headers.get("traceparent", ""), headers.get("tracestate", "")) or TraceContext.new()


def _current_task() -> asyncio.Task[Any]:
    """This request's task: ending it is how ASGI servers without our extension are told to drop a connection."""
    task = asyncio.current_task()
    assert task is not None
    return task


def _too_large(limit: int) -> InvalidRequest:
    return InvalidRequest(
        f"The request body is larger than the limit of {limit} bytes (limits.body_bytes)",
        status=413,
        type="request_too_large",
    )
