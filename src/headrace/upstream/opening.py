"""Opening a connection: TCP, a tunnel through a proxy where one stands between, TLS.

TLS always starts on a TCP connection that is held here (`start_tls`), never within `create_connection`: so the error
says which step failed, and giving up closes the socket at once on every event loop.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Callable
from typing import cast

from .connection import Connection
from .errors import UpstreamError
from .pool import Route
from .proxy import ProxyAddress

MAX_TUNNEL_HEAD_BYTES = 64 * 1024
"""Bound of a proxy's answer to CONNECT."""

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n]*)?\r\n")


async def open_connection(connection: Connection, within: float) -> None:
    """Open `connection` along its route, in `within` seconds at most.

    Raises UpstreamError. Whatever is raised, cancellation too, nothing is left open.
    """
    route = connection.route
    opening = OpeningProtocol()
    try:
        async with asyncio.timeout(within):
            if not route.tls:
                await _open_tcp(lambda: connection, route)
            else:
                await _open_tcp(lambda: opening, route)
                if route.proxy is not None:
                    await opening.open_tunnel(route, route.proxy)
                connection.connection_made(await _start_tls(opening, connection))
    except BaseException as error:
        connection.drop()
        if opening.transport is not None:
            opening.transport.abort()
        if isinstance(error, TimeoutError):
            raise UpstreamError("connect_timeout", f"{route}: no connection within {within:g} s") from None
        raise


async def _open_tcp(protocol: Callable[[], asyncio.Protocol], route: Route) -> None:
    host, port = (route.host, route.port) if route.proxy is None else (route.proxy.host, route.proxy.port)
    try:
        await asyncio.get_running_loop().create_connection(protocol, host, port)
    except (OSError, UnicodeError) as error:
        if route.proxy is not None:
            raise UpstreamError("proxy", f"{route}: cannot connect to the proxy {route.proxy}: {error}") from None
        if isinstance(error, (socket.gaierror, UnicodeError)):
            raise UpstreamError("dns", f"cannot resolve the host name {host!r}: {error}") from None
        raise UpstreamError("connect", f"cannot connect to {route}: {error}") from None


async def _start_tls(opening: OpeningProtocol, connection: Connection) -> asyncio.Transport:
    route, tcp = connection.route, opening.transport
    assert tcp is not None
    assert route.ssl_context is not None
    reason: object = "the connection was closed"
    try:
        if not tcp.is_closing():
            transport = await asyncio.get_running_loop().start_tls(
                tcp, connection, route.ssl_context, server_hostname=route.host
            )
            if transport is not None:
                return transport
    except ssl.SSLCertVerificationError as error:
        reason = f"the certificate is not accepted: {error.verify_message}"
    except (OSError, ValueError) as error:
        reason = error
    raise UpstreamError("tls", f"{route}: no TLS connection: {reason}")


class OpeningProtocol(asyncio.Protocol):
    """Holds a TCP connection between its opening and TLS, and speaks CONNECT on it where a proxy stands between.

    While nobody is to speak, any byte or a close from the other side makes the connection useless; TLS finds out.
    """

    __slots__ = ("_answer", "_waiter", "transport")

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[int] | None = None
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    async def open_tunnel(self, target: Route, proxy: ProxyAddress) -> None:
        """Ask the proxy for a tunnel to `target`. Raises UpstreamError("proxy") where it gives none."""
        assert self.transport is not None
        host = f"[{target.host}]" if ":" in target.host else target.host
        authority = f"{host}:{target.port}"
        head = f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n"
        if proxy.authorization is not None:
            head += f"Proxy-Authorization: {proxy.authorization}\r\n"
        self._waiter = asyncio.get_running_loop().create_future()
        self.transport.write(f"{head}\r\n".encode("latin-1"))
        try:
            status = await self._waiter
        finally:
            self._waiter = None  # an exception in it would hold this frame, and the frame holds us: a cycle
        if status == 407:
            raise UpstreamError(
                "proxy", f"proxy {proxy} answered 407: the user and password in its URL are not accepted"
            )
        if not 200 <= status < 300:
            raise UpstreamError("proxy", f"proxy {proxy} answered {status} instead of opening a tunnel to {authority}")

    def data_received(self, data: bytes) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        self._answer += data
        while (end := self._answer.find(b"\r\n\r\n")) >= 0:
            match = _STATUS_LINE.match(self._answer)
            if match is None:
                break
            status = int(match[1])
            self._answer = self._answer[end + 4 :]
            if status >= 200:
                if status < 300 and self._answer:
                    self._give_up("the proxy sent bytes after opening the tunnel, before TLS began")
                else:
                    waiter.set_result(status)
                return
        if end >= 0 or not b"HTTP/1.".startswith(self._answer[:7]):
            self._give_up("the proxy's answer is not HTTP")
        elif len(self._answer) > MAX_TUNNEL_HEAD_BYTES:
            self._give_up(f"the proxy's answer has a head of more than {MAX_TUNNEL_HEAD_BYTES} bytes")

    def connection_lost(self, exc: Exception | None) -> None:
        self._give_up("the proxy closed the connection without opening a tunnel")

    def _give_up(self, message: str) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(UpstreamError("proxy", message, bytes_received=bool(self._answer)))
