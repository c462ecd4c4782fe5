"""The client: takes a request, finds or opens a connection for it, and gives the answer to a handler by callbacks.

Only opening a connection is a task (one each, kept here); from then on everything happens in the socket's own
callbacks. One timer serves all idle connections. Works on asyncio's and uvloop's event loops alike.

A request on a pooled connection that closes before any byte of an answer is sent once more on a fresh connection:
a server closes idle connections when it likes, so that close says nothing about the request.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Mapping
from typing import NamedTuple

from .connection import Connection, ResponseHandler, report_failure
from .errors import UpstreamError
from .opening import open_connection
from .pool import IdlePool, Route
from .proxy import ProxySettings, parse_proxy
from .request import Address, HttpRequest, encode_head, parse_url
from .tls import tls_context


class _Sending(NamedTuple):
    """All that is needed to send a request, and to send it again."""

    route: Route
    address: Address
    head: bytes
    body: bytes
    connect_timeout: float


class Exchange:
    """One request and its answer, as the sender holds it.

    References between handler, exchange and connection are cut when the exchange is over, whichever way it ended.
    """

    __slots__ = ("__weakref__", "_client", "_connection", "_handler", "_opening", "_paused", "_sending")

    def __init__(self, client: Client, handler: ResponseHandler, sending: _Sending) -> None:
        self._client = client
        self._handler: ResponseHandler | None = handler
        self._sending: _Sending | None = sending
        self._opening: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._paused = False

    def pause_reading(self) -> None:
        """Take no more bytes from the provider. May be called at any time, before the answer too."""
        if self._handler is not None:
            self._paused = True
            if self._connection is not None:
                self._connection.pause_reading()

    def resume_reading(self) -> None:
        """Take bytes again."""
        if self._handler is not None:
            self._paused = False
            if self._connection is not None:
                self._connection.resume_reading()

    def abort(self) -> None:
        """Close the connection at once, whatever it is doing; no callback comes after this. Nothing happens when the
        exchange is over already."""
        connection, opening = self._connection, self._opening
        self.detach()
        if connection is not None:
            connection.drop()
        elif opening is not None:
            opening.cancel()

    # Called by the connection (see connection.ActiveExchange) and the client

    def response_begun(self) -> None:
        """Let go of the request and its body for the length of the stream."""
        self._sending = None

    def detach(self) -> None:
        """Let go of everything: the exchange is over."""
        if self._handler is not None:
            self._client._exchanges.discard(self)
        self._handler = self._connection = self._opening = self._sending = None

    def retry(self) -> None:
        """Send the request again, on a fresh connection."""
        self._connection = None
        self._client._open(self)

    def fail(self, error: UpstreamError) -> None:
        """End an exchange that has no connection."""
        handler = self._handler
        if handler is not None:
            self.detach()
            report_failure(handler, error)

    def _start(self, connection: Connection) -> None:
        handler, sending = self._handler, self._sending
        assert handler is not None
        assert sending is not None
        self._connection = connection
        self._opening = None
        connection.begin(self, handler, sending.head, sending.body, paused=self._paused)


class Client:
    """An HTTP/1.1 client for streams, with a keep-alive pool. Make it inside a running event loop; `aclose` it.

    `ssl_context` is the default for `https` (see `tls_context`); `env` is where the proxy variables are read from,
    once, and defaults to the process's environment; `now` is a monotonic clock in seconds.
    """

    def __init__(
        self,
        *,
        max_idle_per_origin: int = 100,
        idle_timeout: float = 60.0,
        ssl_context: ssl.SSLContext | None = None,
        env: Mapping[str, str] | None = None,
        now: Callable[[], float] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._ssl_context = ssl_context if ssl_context is not None else tls_context()
        self._proxies = ProxySettings(os.environ if env is None else env)
        self._pool = IdlePool(
            max_per_route=max_idle_per_origin,
            idle_timeout=idle_timeout,
            now=self._loop.time if now is None else now,
        )
        self._idle_timeout = idle_timeout
        self._expiry: asyncio.TimerHandle | None = None
        self._exchanges: set[Exchange] = set()
        self._openings: set[asyncio.Task[None]] = set()
        self._connections: set[Connection] = set()
        self._all_closed: asyncio.Future[None] | None = None
        self._closed = False

    def send(
        self,
        request: HttpRequest,
        handler: ResponseHandler,
        *,
        connect_timeout: float,
        proxy: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> Exchange:
        """Send `request`; its answer comes to `handler`, never from within this call.

        `connect_timeout` (seconds) bounds name lookup, TCP, proxy and TLS together. `proxy` overrides the environment:
        a proxy's URL, or "" for none. `ssl_context` overrides the client's. Raises ValueError where the request or
        the proxy's URL cannot be used, RuntimeError after `aclose`.
        """
        if self._closed:
            raise RuntimeError("the upstream client is closed")
        address = parse_url(request.url)
        via, unusable = None, None
        if proxy is not None:
            via = parse_proxy(proxy) if proxy else None
        else:
            try:
                via = self._proxies.select(address)
            except UpstreamError as error:
                unusable = error.bare()
        context = (ssl_context or self._ssl_context) if address.tls else None
        route = Route(address.tls, address.host, address.port, via, context)
        head = encode_head(
            request,
            address,
            through_proxy=route.through_proxy,
            proxy_authorization=via.authorization if via is not None and route.through_proxy else None,
        )
        exchange = Exchange(self, handler, _Sending(route, address, head, request.body, connect_timeout))
        self._exchanges.add(exchange)
        if unusable is not None:
            self._loop.call_soon(exchange.fail, unusable)
        elif (connection := self._pool.take(route)) is not None:
            exchange._start(connection)
        else:
            self._open(exchange)
        return exchange

    async def aclose(self) -> None:
        """Close every connection and wait until they are closed. Exchanges that still run fail with kind `reset`."""
        self._closed = True
        if self._expiry is not None:
            self._expiry.cancel()
        self._pool.clear()
        openings = list(self._openings)
        for exchange in list(self._exchanges):
            handler = exchange._handler
            exchange.abort()
            if handler is not None:
                report_failure(handler, UpstreamError("reset", "the upstream client was closed"))
        if openings:
            await asyncio.wait(openings)
        if self._connections:
            if self._all_closed is None:
                self._all_closed = self._loop.create_future()
            await self._all_closed

    # Opening a connection

    def _open(self, exchange: Exchange) -> None:
        # Task() and not create_task(): an eager task factory would start it within send().
        task = asyncio.Task(self._establish(exchange), loop=self._loop)
        exchange._opening = task
        self._openings.add(task)
        task.add_done_callback(self._openings.discard)

    async def _establish(self, exchange: Exchange) -> None:
        sending = exchange._sending
        assert sending is not None
        connection = Connection(self, sending.route)
        try:
            await open_connection(connection, sending.connect_timeout)
        except UpstreamError as error:
            failure = error.bare()
        except Exception as error:  # whatever an event loop may raise here, the handler must hear of an end
            failure = UpstreamError("connect", f"cannot connect to {sending.route}: {type(error).__name__}: {error}")
        else:
            if not connection.is_closing():
                self._connections.add(connection)
                exchange._start(connection)
                return
            failure = UpstreamError("reset", f"{sending.route}: the connection was closed as soon as it was open")
        exchange.fail(failure)

    # Called by connections (see connection.Owner)

    def connection_free(self, connection: Connection) -> None:
        """Keep a connection for the next request to the same place."""
        self._pool.put(connection)
        if self._expiry is None:
            self._expiry = self._loop.call_later(self._idle_timeout, self._expire)

    def connection_closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self._pool.remove(connection)
        self._connections.discard(connection)
        if self._all_closed is not None and not self._connections and not self._all_closed.done():
            self._all_closed.set_result(None)

    def _expire(self) -> None:
        """Coarse on purpose: a connection may idle for up to one and a half times the limit before this closes it."""
        self._pool.expire()
        self._expiry = self._loop.call_later(self._idle_timeout / 2, self._expire) if len(self._pool) else None
