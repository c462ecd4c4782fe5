"""One HTTP/1.1 connection to a provider: socket bytes in, a handler's callbacks out.

This is the hot path of every stream. A socket read costs one pass of the parser (whose body callback is a bare
`list.append`) and one call of the handler with all body bytes of that read; no task, queue or future is involved.
A handler is called only after the parser has returned, so it may abort, pause or send anew from any callback.

The trade-off for that shape: one exchange at a time (no pipelining), and a connection that saw anything out of the
ordinary is closed and not nursed.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import traceback
from typing import Any, Protocol, cast

import httptools

from .errors import UpstreamError, UpstreamErrorKind
from .headers import Headers
from .pool import Route

MAX_HEAD_BYTES = 64 * 1024
"""Bound of an answer's header fields, trailers included."""

MAX_DRY_BYTES = 2 * MAX_HEAD_BYTES
"""Bound of any run of reads that brings no body: an unfinished field, interim answers, chunk extensions without end."""

SMALL_BODY_BYTES = 64 * 1024
"""A request body below this size is copied behind its head, so that both leave in one packet or one TLS record."""

_logger = logging.getLogger("headrace.upstream")

# Where the answer is. In _HEAD_DONE the head has been parsed and the handler does not know of it yet.
_HEAD, _HEAD_DONE, _BODY, _COMPLETE = range(4)


class ResponseHandler(Protocol):
    """Takes one answer. Exactly one of `response_ended` and `response_failed` comes, last; neither after an abort."""

    def response_started(self, status: int, headers: Headers) -> None:
        """The final head (status 200 and up) is here."""

    def data_received(self, data: bytes) -> None:
        """All body bytes of one socket read."""

    def response_ended(self) -> None:
        """The body is complete by HTTP's own framing: its length, its last chunk, or EOF where it has neither."""

    def response_failed(self, error: UpstreamError) -> None:
        """The exchange failed, before or after it started."""


class ActiveExchange(Protocol):
    """What a connection asks of the exchange that it carries."""

    def response_begun(self) -> None:
        """A head has arrived: the request will not be sent again."""

    def detach(self) -> None:
        """The exchange is over; let go of everything."""

    def retry(self) -> None:
        """The connection was stale: send the request again, on a fresh one."""


class Owner(Protocol):
    """What a connection asks of the client that made it."""

    def connection_free(self, connection: Connection) -> None:
        """An exchange ended cleanly and the connection can carry another."""

    def connection_closed(self, connection: Connection) -> None:
        """The connection is gone."""


class Connection(asyncio.Protocol):
    """A connection along `route`; `begin` gives it an exchange to carry once it is open."""

    __slots__ = (
        "_body_until_eof",
        "_dry_bytes",
        "_exchange",
        "_fault",
        "_fields",
        "_handler",
        "_head",
        "_head_bytes",
        "_informational",
        "_keep_alive",
        "_owner",
        "_parser",
        "_paused",
        "_phase",
        "_pieces",
        "_transport",
        "_used",
        "idle_since",
        "on_body",
        "route",
    )

    def __init__(self, owner: Owner, route: Route) -> None:
        self.route = route
        self.idle_since = 0.0
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._exchange: ActiveExchange | None = None
        self._handler: ResponseHandler | None = None
        self._used = False
        self._paused = False
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append  # the parser's callback, without a Python frame of our own
        self._reset()
        self._parser: Any = httptools.HttpResponseParser(self)

    def _reset(self) -> None:
        """Make ready for the next answer."""
        self._phase = _HEAD
        self._fields: list[tuple[str, str]] = []
        self._head: tuple[int, Headers] | None = None
        self._head_bytes = 0
        self._dry_bytes = 0
        self._informational = False
        self._keep_alive = False
        self._body_until_eof = False
        self._fault: UpstreamError | None = None

    # What the client and the exchange do with a connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def is_closing(self) -> bool:
        """Whether the connection can carry nothing more."""
        return self._transport is None or self._transport.is_closing()

    def begin(
        self, exchange: ActiveExchange, handler: ResponseHandler, head: bytes, body: bytes, *, paused: bool
    ) -> None:
        """Send a request and report its answer to `handler`. The connection must be open and idle."""
        assert self._transport is not None
        assert self._exchange is None
        self._exchange = exchange
        self._handler = handler
        if paused:
            self.pause_reading()
        if len(body) < SMALL_BODY_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))

    def pause_reading(self) -> None:
        """Stop taking bytes from the socket, so that TCP slows the provider down."""
        if not self._paused and not self.is_closing():
            self._paused = True
            cast(asyncio.Transport, self._transport).pause_reading()

    def resume_reading(self) -> None:
        """Take bytes again."""
        if self._paused and not self.is_closing():
            self._paused = False
            cast(asyncio.Transport, self._transport).resume_reading()

    def drop(self) -> None:
        """Close at once and forget the exchange without a word to its handler."""
        self._exchange = self._handler = None
        self._parser = None  # it holds our bound methods: a reference cycle
        if self._transport is not None:
            self._transport.abort()

    # The socket's callbacks

    def data_received(self, data: bytes) -> None:
        handler = self._handler
        if handler is None:
            self.drop()  # bytes that nobody asked for: whose answer would they be?
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._note_parser_error(error)
        pieces = self._pieces
        if self._phase == _BODY and pieces and self._fault is None:
            # The usual read in the midst of a stream.
            body = b"".join(pieces)
            pieces.clear()
            self._dry_bytes = 0
            try:
                handler.data_received(body)
            except Exception as error:
                self._handler_raised(error)
            return
        if not pieces:
            self._dry_bytes += len(data)
            if self._dry_bytes > MAX_DRY_BYTES and self._phase in (_HEAD, _BODY) and self._fault is None:
                self._set_fault("protocol", f"more than {MAX_DRY_BYTES} bytes without any of the body")
        self._report()

    def _report(self) -> None:
        """Tell the handler all that this read brought, in order."""
        exchange, handler = self._exchange, self._handler
        assert exchange is not None
        assert handler is not None
        try:
            if self._head is not None:
                (status, headers), self._head = self._head, None
                if self._phase == _HEAD_DONE:
                    self._phase = _BODY
                exchange.response_begun()
                handler.response_started(status, headers)
            if self._pieces and self._exchange is not None:
                body = b"".join(self._pieces)
                self._pieces.clear()
                self._dry_bytes = 0
                handler.data_received(body)
        except Exception as error:
            self._handler_raised(error)
        if self._exchange is None:
            return  # aborted from a callback
        if self._phase == _COMPLETE:
            self._end()
        elif self._fault is not None:
            self._fail(self._fault)

    def eof_received(self) -> None:
        self._closed_by_peer(None)  # returning None lets the transport close itself

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed_by_peer(exc)
        self._transport = None
        self._owner.connection_closed(self)

    def _closed_by_peer(self, exc: Exception | None) -> None:
        exchange = self._exchange
        if exchange is None:
            self.drop()
            return
        received = self._phase != _HEAD or self._dry_bytes > 0
        if self._phase == _BODY and self._body_until_eof and exc is None:
            self._end()
        elif self._used and not received:
            self.drop()
            exchange.retry()
        elif exc is not None:
            kind: UpstreamErrorKind = "tls" if isinstance(exc, ssl.SSLError) else "reset"
            self._fail(UpstreamError(kind, f"{self.route}: the connection broke: {exc}", bytes_received=received))
        elif received:
            message = f"{self.route}: the connection was closed in the middle of the answer"
            self._fail(UpstreamError("truncated", message, bytes_received=True))
        else:
            self._fail(UpstreamError("reset", f"{self.route}: the connection was closed without an answer"))

    # The parser's callbacks. Errors raised here come out of feed_data as HttpParserError

    def on_message_begin(self) -> None:
        if self._phase == _COMPLETE:
            self._keep_alive = False
            raise self._set_fault("protocol", "bytes after the end of the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > MAX_HEAD_BYTES:
            raise self._set_fault("protocol", f"more than {MAX_HEAD_BYTES} bytes of header fields")
        if self._phase == _HEAD:  # else it is a trailer, and nothing that a provider sends there is for us
            self._fields.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        headers, self._fields = Headers(self._fields), []
        if status < 200:
            if not 100 <= status < 200 or status == 101:
                raise self._set_fault("protocol", f"status {status}, which nobody asked for")
            self._informational = True
            return
        encoding = headers.get("content-encoding")
        if encoding is not None and encoding.strip().lower() not in ("", "identity"):
            raise self._set_fault(
                "protocol",
                f"Content-Encoding {encoding!a}, although only identity was asked for (Accept-Encoding)",
            )
        transfer = headers.get_all("transfer-encoding")
        if transfer and [value.strip().lower() for value in transfer] != ["chunked"]:
            raise self._set_fault("protocol", f"Transfer-Encoding {', '.join(transfer)!a}, where only chunked is known")
        if self._parser.get_http_version() not in ("1.1", "1.0"):
            raise self._set_fault("protocol", f"HTTP version {self._parser.get_http_version()}")
        if status == 407 and self.route.through_proxy:
            raise self._set_fault("proxy", "the proxy answered 407: the user and password in its URL are not accepted")
        self._keep_alive = self._parser.should_keep_alive()
        self._body_until_eof = not transfer and "content-length" not in headers
        self._head = (status, headers)
        self._phase = _HEAD_DONE

    def on_message_complete(self) -> None:
        if self._informational:
            self._informational = False
        else:
            self._phase = _COMPLETE

    def _note_parser_error(self, error: Exception) -> None:
        if self._phase == _COMPLETE:
            self._keep_alive = False  # the answer is whole; what follows it is of no use
        elif self._fault is None:
            self._set_fault("protocol", f"not a valid HTTP/1.1 answer: {error}")

    def _set_fault(self, kind: UpstreamErrorKind, message: str) -> UpstreamError:
        self._fault = UpstreamError(kind, f"{self.route}: {message}", bytes_received=True)
        return self._fault

    # The end of an exchange

    def _end(self) -> None:
        """The answer is complete. The connection is free before the handler hears, so that it may send at once."""
        exchange, handler, transport = self._exchange, self._handler, self._transport
        assert exchange is not None
        assert handler is not None
        assert transport is not None
        exchange.detach()
        # A provider may answer before it has read the whole request: what is left of that would precede the next one.
        if self._keep_alive and not transport.is_closing() and not transport.get_write_buffer_size():
            self._exchange = self._handler = None
            self._used = True
            self._reset()
            self.resume_reading()
            self._owner.connection_free(self)
        else:
            self.drop()
        try:
            handler.response_ended()
        except Exception as error:
            _log_handler_error(error)

    def _fail(self, error: UpstreamError) -> None:
        exchange, handler = self._exchange, self._handler
        assert exchange is not None
        assert handler is not None
        exchange.detach()
        self.drop()
        report_failure(handler, error)

    def _handler_raised(self, error: Exception) -> None:
        _log_handler_error(error)
        if self._exchange is not None:
            message = f"{self.route}: the answer's handler raised {type(error).__name__}"
            self._fail(UpstreamError("protocol", message, bytes_received=True))


def report_failure(handler: ResponseHandler, error: UpstreamError) -> None:
    """Call `response_failed`; an exception from it is logged and goes no further."""
    try:
        handler.response_failed(error)
    except Exception as raised:
        _log_handler_error(raised)


def _log_handler_error(error: Exception) -> None:
    """Type and place, without the exception's own text: that may quote a prompt or an answer."""
    place = "".join(traceback.format_tb(error.__traceback__))
    _logger.error("a response handler raised %s\n%s", type(error).__name__, place)
