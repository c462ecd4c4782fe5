"""Runs one engine stream between an ASGI `send` and the upstream HTTP client.

The rule of the hot path: bytes that one read brought from the provider go to the caller in the same call, without a
task, a queue or a wake-up between. ASGI's `send` is a coroutine; the driver steps it itself. As long as the server can
take the bytes it finishes without suspending; when it suspends, the caller's buffer is full: a task then carries it on,
and the engine, told that the caller is blocked, stops reading from the provider until it is done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from headrace import engine
from headrace.model.errors import ErrorCode, ErrorInfo
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
    """What a candidate's request needs beyond the request itself."""

    __slots__ = ("client", "connect_timeout", "provider", "proxy", "request")

    def __init__(
        self, provider: str, client: Client, request: HttpRequest, connect_timeout: float, proxy: str | None
    ) -> None:
        self.provider = provider
        self.client = client
        self.request = request
        self.connect_timeout = connect_timeout
        self.proxy = proxy


class StreamDriver:
    """One request in flight. Also the upstream client's ResponseHandler.

    `headers` go out with every head this driver sends; `settled` is called once with the outcome; `abort` cuts the
    caller's connection at once; `write`, where the server has it, takes a piece of the body and says whether it did.
    """

    __slots__ = (
        "_abort_caller",
        "_calls",
        "_exchange",
        "_finished",
        "_head",
        "_headers",
        "_loop",
        "_provider",
        "_send",
        "_settled",
        "_write_fast",
        "_writing",
        "stream",
    )

    def __init__(
        self,
        stream: engine.Stream,
        calls: Sequence[Call],
        send: Send,
        *,
        headers: list[tuple[bytes, bytes]],
        settled: Callable[[engine.Outcome], None],
        abort: Callable[[], object],
        write: Callable[[bytes], bool] | None = None,
    ) -> None:
        self.stream = stream
        self._calls = calls
        self._send = send
        self._headers = headers
        self._settled = settled
        self._abort_caller = abort
        self._write_fast = write
        self._loop = asyncio.get_running_loop()
        self._exchange: Exchange | None = None
        self._provider = ""
        self._head: Message | None = None
        self._writing: asyncio.Task[None] | None = None
        self._finished = False

    # --- the life of the request, called by the application -------------------------------------------------------

    def begin(self) -> None:
        self.stream.begin(self._loop.time())
        self._pump()

    def caller_gone(self) -> None:
        """The caller's connection is closed. Harmless after the end."""
        if not self.stream.done:
            self.stream.caller_gone(self._loop.time())
            self._pump()
        if self._writing is not None:
            self._writing.cancel()

    def cancel(self, code: ErrorCode, message: str) -> None:
        """End the stream with an error in the caller's format."""
        self.stream.cancel(self._loop.time(), code, message)
        self._pump()

    def tick(self, now: float) -> None:
        """A deadline of the stream has passed."""
        self.stream.tick(now)
        self._pump()

    # --- ResponseHandler: what the upstream client reports ---------------------------------------------------------

    def response_started(self, status: int, headers: Headers) -> None:
        self.stream.upstream_headers(status, dict(headers), self._loop.time())
        self._pump()

    def data_received(self, data: bytes) -> None:
        self.stream.upstream_data(data, self._loop.time())
        self._pump()

    def response_ended(self) -> None:
        self._exchange = None
        self.stream.upstream_ended(self._loop.time())
        self._pump()

    def response_failed(self, error: UpstreamError) -> None:
        self._exchange = None
        self.stream.upstream_failed(upstream_error(error, self._provider), self._loop.time())
        self._pump()

    # --- the engine's wishes ---------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Obey the engine's commands and hand its bytes to the server until it has neither."""
        stream = self.stream
        while True:
            commands = stream.commands()
            for command in commands:
                self._obey(command)
            data = stream.data_to_send()
            if data:
                self._write_body(data)
                if stream.flowing and self._writing is None:
                    return  # in full flow there is nothing else to do
            elif not commands:
                return

    def _obey(self, command: engine.Command) -> None:
        if isinstance(command, engine.Connect):
            call = self._calls[command.candidate]
            self._provider = call.provider
            try:
                self._exchange = call.client.send(
                    call.request, self, connect_timeout=call.connect_timeout, proxy=call.proxy
                )
            except (ValueError, RuntimeError) as error:
                # A header, address or proxy of the configuration that cannot be used; its message shows no secret.
                self.stream.upstream_failed(_unusable(call.provider, error), self._loop.time())
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
        elif isinstance(command, engine.Finish):
            self._finish()
        elif isinstance(command, engine.Settle):
            self._settled(command.outcome)
            if not self._finished:
                # The answer was cut and must look cut, or the caller does not read; it may have gone already.
                self._abort_caller()
        elif self._exchange is not None:
            if isinstance(command, engine.Pause):
                self._exchange.pause_reading()
            elif isinstance(command, engine.Resume):
                self._exchange.resume_reading()
            elif isinstance(command, engine.Abort):
                self._exchange.abort()
                self._exchange = None

    def _write_body(self, data: bytes) -> None:
        if self._head is None and self._writing is None and self._write_fast is not None and self._write_fast(data):
            return
        self._flush_head()
        self._write({"type": "http.response.body", "body": data, "more_body": True})

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
        self._writing = self._loop.create_task(_carry_on(rest))
        self._writing.add_done_callback(self._written)
        self.stream.caller_blocked(self._loop.time())

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
            self.stream.caller_ready(self._loop.time())
            self._pump()

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
