"""Runs one engine stream between an ASGI `send` and the upstream HTTP client.

The rule of the hot path: bytes that one read brought from the provider go to the caller in the same call, without a
task, a queue or a wake-up between. ASGI's `send` is a coroutine; the driver steps it itself. As long as the server can
take the bytes it finishes without suspending; when it suspends, the caller's buffer is full: a task then carries it on,
and the engine, told that the caller is blocked, stops reading from the provider until it is done.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

from headrace import engine
from headrace.model.errors import ErrorCode, ErrorInfo, GatewayError
from headrace.serve.stepping import Done, step
from headrace.upstream import Client, Exchange, Headers, HttpRequest, UpstreamError, UpstreamErrorKind

logger = logging.getLogger("headrace.serve")

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

_UNAVAILABLE = ErrorCode.PROVIDER_UNAVAILABLE
_UPSTREAM_ERRORS: dict[UpstreamErrorKind, tuple[ErrorCode, str]] = {
    # kind: (code, what the caller is told)
    "connect": (_UNAVAILABLE, "cannot be reached"),
    "connect_timeout": (ErrorCode.TIMEOUT, "did not take the connection in time"),
    "dns": (_UNAVAILABLE, "cannot be reached: its host name does not resolve"),
    "tls": (_UNAVAILABLE, "cannot be reached: the TLS handshake failed"),
    "proxy": (_UNAVAILABLE, "cannot be reached through the proxy"),
    "reset": (_UNAVAILABLE, "broke the connection before its answer was complete"),
    "truncated": (_UNAVAILABLE, "closed the connection in the middle of its answer"),
    "protocol": (_UNAVAILABLE, "sent an answer that breaks the rules of HTTP"),
}


def upstream_error(error: UpstreamError, provider: str) -> ErrorInfo:
    """What failed below the provider's format, in the gateway's words.

    Addresses, proxies and system errors are the operator's business: they go to the log, not to the caller.
    """
    code, what = _UPSTREAM_ERRORS[error.kind]
    logger.warning("%s: %s", provider, error.message)
    return ErrorInfo(code=code, type=f"upstream_{error.kind}", message=f"{provider} {what}", provider=provider)


def _unusable(provider: str, error: Exception) -> ErrorInfo:
    logger.error("%s: the request could not be sent: %s", provider, error)
    return ErrorInfo(
        code=ErrorCode.INTERNAL_ERROR,
        type="misconfigured_provider",
        message=f"{provider} is configured wrongly: the request could not be sent. The gateway's log says why",
        provider=provider,
    )


class Call:
    """What a candidate's request needs beyond the request itself. `lost`: what of it could not be said."""

    __slots__ = ("client", "connect_timeout", "lost", "provider", "proxy", "request")

    def __init__(
        self,
        provider: str,
        client: Client,
        request: HttpRequest,
        connect_timeout: float,
        proxy: str | None,
        lost: tuple[str, ...] = (),
    ) -> None:
        self.provider = provider
        self.client = client
        self.request = request
        self.connect_timeout = connect_timeout
        self.proxy = proxy
        self.lost = lost


class Clock(Protocol):
    """Wakes drivers whose deadline has passed."""

    def add(self, driver: StreamDriver) -> None: ...

    def remove(self, driver: StreamDriver) -> None: ...


class _Leg:
    """One attempt: the upstream client's ResponseHandler."""

    __slots__ = ("_driver", "exchange", "number", "provider")

    def __init__(self, driver: StreamDriver, number: int, provider: str) -> None:
        self._driver = driver
        self.number = number
        self.provider = provider
        self.exchange: Exchange | None = None

    def response_started(self, status: int, headers: Headers) -> None:
        driver = self._driver
        driver.stream.upstream_headers(self.number, status, dict(headers), driver.now())
        driver.pump()

    def data_received(self, data: bytes) -> None:
        driver = self._driver
        out = driver.stream.upstream_data(self.number, data, driver.now())
        if not out:
            driver.pump()
        elif driver.direct is not None and driver.direct(out):
            return
        elif not driver.write_body(out):
            driver.pump()  # the caller is blocked now, which has consequences

    def response_ended(self) -> None:
        self.exchange = None
        driver = self._driver
        driver.stream.upstream_ended(self.number, driver.now())
        driver.pump()

    def response_failed(self, error: UpstreamError) -> None:
        self.exchange = None
        driver = self._driver
        driver.stream.upstream_failed(self.number, upstream_error(error, self.provider), driver.now())
        driver.pump()


class StreamDriver:
    """One request in flight.

    `call` makes the call to a candidate of the stream's plan, when it is needed, and may raise GatewayError; `clock` is
    told of the driver for as long as the stream needs it; `headers` go out with every head this driver sends; `settled`
    is called once with the outcome, before the terminal event's bytes are written; `abort` cuts the caller's connection
    at once; `write`, where the server has it, takes a piece of the body and says whether it did; `cork` gathers what is
    written between True and False into one packet.
    """

    __slots__ = (
        "_abort_caller",
        "_call",
        "_clock",
        "_cork",
        "_dispatch_at",
        "_dispatch_timer",
        "_finished",
        "_head",
        "_headers",
        "_legs",
        "_loop",
        "_send",
        "_settled",
        "_write_fast",
        "_writing",
        "direct",
        "now",
        "stream",
    )

    def __init__(
        self,
        stream: engine.Stream,
        call: Callable[[int], Call],
        send: Send,
        *,
        clock: Clock,
        headers: list[tuple[bytes, bytes]],
        settled: Callable[[engine.Outcome], None],
        abort: Callable[[], object],
        write: Callable[[bytes], bool] | None = None,
        cork: Callable[[bool], None] | None = None,
    ) -> None:
        self.stream = stream
        self._call = call
        self._send = send
        self._clock = clock
        self._headers = headers
        self._settled = settled
        self._abort_caller = abort
        self._write_fast = write
        self._cork = cork
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self._legs: list[_Leg] = []
        self._dispatch_at = math.inf
        self._dispatch_timer: asyncio.TimerHandle | None = None
        self._head: Message | None = None
        self._writing: asyncio.Task[None] | None = None
        self.direct: Callable[[bytes], bool] | None = None
        """`write`, as long as nothing has to go before what it is given."""
        self._finished = False

    # --- the life of the request, called by the application -------------------------------------------------------

    def begin(self) -> None:
        self._clock.add(self)
        self.stream.begin(self.now())
        self.pump()

    def caller_gone(self) -> None:
        """The caller's connection is closed. Harmless after the end."""
        if not self.stream.done:
            self.stream.caller_gone(self.now())
            self.pump()
        if self._writing is not None:
            self._writing.cancel()

    def cancel(self, code: ErrorCode, message: str, status: int = 0) -> None:
        """End the stream with an error in the caller's format."""
        self.stream.cancel(self.now(), code, message, status)
        self.pump()

    def tick(self, now: float) -> None:
        """A deadline of the stream has passed."""
        self.stream.tick(now)
        self.pump()

    # --- the engine's wishes ---------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Obey the engine's commands and hand its bytes to the server until it has neither."""
        stream = self.stream
        cork, corked = self._cork, False
        while True:
            commands = stream.commands()
            if commands and cork is not None and not corked:
                cork(True)
                corked = True
            for command in commands:
                self._obey(command)
            if commands:
                continue  # a call that fails at once brings more of them, and a head goes before its body
            data = stream.data_to_send()
            if not data:
                break
            self.write_body(data)
        if corked and cork is not None:
            cork(False)
        if stream.dispatch_at != self._dispatch_at:
            self._set_dispatch_timer()
        if stream.done:
            self._clock.remove(self)
            self._legs.clear()  # they refer to this driver: a cycle

    def _obey(self, command: engine.Command) -> None:
        if isinstance(command, engine.Connect):
            self._connect(command)
        elif isinstance(command, engine.SendHead):
            headers = [
                (b"content-type", command.content_type.encode("ascii")),
                *((name.encode("ascii"), value.encode("latin-1")) for name, value in command.headers),
                *self._headers,
            ]
            if command.content_type == engine.JSON:
                # Not a stream: the head comes when all of the body waits behind it.
                headers.append((b"content-length", b"%d" % self.stream.buffered))
            self._head = {"type": "http.response.start", "status": command.status, "headers": headers}
        elif isinstance(command, engine.Settle):
            self._settled(command.outcome)
        elif isinstance(command, engine.Finish):
            self._finish()
        elif isinstance(command, engine.Cut):
            self._abort_caller()
        else:
            leg = self._legs[command.attempt]
            if leg.exchange is None:
                return
            if isinstance(command, engine.Pause):
                leg.exchange.pause_reading()
            elif isinstance(command, engine.Resume):
                leg.exchange.resume_reading()
            else:
                leg.exchange.abort()
                leg.exchange = None

    def _connect(self, command: engine.Connect) -> None:
        leg = _Leg(self, command.attempt, "")
        self._legs.append(leg)
        try:
            call = self._call(command.candidate)
            leg.provider = call.provider
            if call.lost:
                self.stream.request_said(command.attempt, call.lost)
            leg.exchange = call.client.send(call.request, leg, connect_timeout=call.connect_timeout, proxy=call.proxy)
        except GatewayError as error:
            self.stream.upstream_failed(command.attempt, error.info, self.now())
        except (ValueError, RuntimeError) as error:
            # A header, address or proxy of the configuration that cannot be used; its message shows no secret.
            self.stream.upstream_failed(command.attempt, _unusable(leg.provider, error), self.now())

    def _set_dispatch_timer(self) -> None:
        """Retries and hedges are not left to the coarse clock of all deadlines."""
        if self._dispatch_timer is not None:
            self._dispatch_timer.cancel()
            self._dispatch_timer = None
        self._dispatch_at = self.stream.dispatch_at
        if self._dispatch_at != math.inf:
            self._dispatch_timer = self._loop.call_at(self._dispatch_at, self._dispatch_due)

    def _dispatch_due(self) -> None:
        self._dispatch_timer = None
        # The timer's resolution is coarser than the clock's: what is due was due when it was set.
        self.tick(max(self.now(), self._dispatch_at))

    def write_body(self, data: bytes) -> bool:
        """Give bytes of the body to the server; whether it can take more at once."""
        if self.direct is not None and self.direct(data):
            return True
        self._flush_head()
        self._write({"type": "http.response.body", "body": data, "more_body": True})
        if self._writing is not None:
            return False
        self.direct = self._write_fast
        return True

    def _finish(self) -> None:
        self._finished = True
        self._flush_head()
        self._write({"type": "http.response.body", "body": b"", "more_body": False})

    def _flush_head(self) -> None:
        head, self._head = self._head, None
        if head is not None:
            self._write(head)

    def _write(self, message: Message) -> None:
        """Give one ASGI message to the server; where it cannot take it now, a task sees it through."""
        if self._writing is not None:
            # Only heads and ends come here: the engine gives no bytes while the caller is blocked.
            self._writing = self._loop.create_task(_after(self._writing, self._send, message))
            self._writing.add_done_callback(self._written)
            return
        try:
            rest = step(self._send(message))
        except Exception as error:
            self._lost_caller(error)
            return
        if isinstance(rest, Done):
            return
        self.direct = None
        self._writing = self._loop.create_task(_carry_on(rest))
        self._writing.add_done_callback(self._written)
        self.stream.caller_blocked(self.now())

    def _written(self, task: asyncio.Task[None]) -> None:
        if task is not self._writing:
            return
        self._writing = None
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._lost_caller(error)
            return
        if not self._finished:
            self.stream.caller_ready(self.now())
            self.pump()

    def _lost_caller(self, error: BaseException) -> None:
        """ASGI servers may raise from `send` when the caller has gone (spec 2.4); it means nothing worse."""
        if not isinstance(error, OSError):
            logger.warning("sending to the caller failed: %s", type(error).__name__)
        self._loop.call_soon(self.caller_gone)


async def _carry_on(rest: Awaitable[None]) -> None:
    await rest


async def _after(previous: asyncio.Task[None], send: Send, message: Message) -> None:
    await previous
    await send(message)
