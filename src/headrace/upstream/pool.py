"""Connections that wait for their next request, by where they lead.

The newest is taken first (LIFO): under falling load the rest grow old together and are closed. That order also keeps
each list sorted by age, so the oldest is always at the front and expiry needs no search.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from .proxy import ProxyAddress

if TYPE_CHECKING:
    from .connection import Connection


class Route(NamedTuple):
    """Where a connection leads and how: two requests may share one exactly where all of this is equal."""

    tls: bool
    host: str
    port: int
    proxy: ProxyAddress | None
    ssl_context: ssl.SSLContext | None

    @property
    def through_proxy(self) -> bool:
        """Whether requests go to the proxy itself, in the absolute form, and not through a tunnel."""
        return self.proxy is not None and not self.tls

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class IdlePool:
    """Bounded in number per route and in time. `now` is a monotonic clock in seconds."""

    __slots__ = ("_idle", "_idle_timeout", "_max_per_route", "_now")

    def __init__(self, *, max_per_route: int, idle_timeout: float, now: Callable[[], float]) -> None:
        self._max_per_route = max_per_route
        self._idle_timeout = idle_timeout
        self._now = now
        self._idle: dict[Route, list[Connection]] = {}

    def take(self, route: Route) -> Connection | None:
        """The newest usable connection along `route`, or None."""
        waiting = self._idle.get(route)
        while waiting:
            connection = waiting.pop()
            if not waiting:
                del self._idle[route]
            if not connection.is_closing() and self._now() - connection.idle_since < self._idle_timeout:
                return connection
            connection.drop()
        return None

    def put(self, connection: Connection) -> None:
        """Keep a connection whose exchange is complete, in place of the oldest where there are too many."""
        if self._max_per_route <= 0:
            connection.drop()
            return
        connection.idle_since = self._now()
        waiting = self._idle.setdefault(connection.route, [])
        if len(waiting) >= self._max_per_route:
            waiting.pop(0).drop()
        waiting.append(connection)

    def remove(self, connection: Connection) -> None:
        """Forget a connection that has closed; nothing happens where it is not in the pool."""
        waiting = self._idle.get(connection.route)
        if waiting and connection in waiting:
            waiting.remove(connection)
            if not waiting:
                del self._idle[connection.route]

    def expire(self) -> None:
        """Close the connections that have waited for `idle_timeout`."""
        limit = self._now() - self._idle_timeout
        for route, waiting in list(self._idle.items()):
            kept = [connection for connection in waiting if connection.idle_since > limit]
            expired = waiting[: len(waiting) - len(kept)]
            if kept:
                self._idle[route] = kept
            else:
                del self._idle[route]
            for connection in expired:
                connection.drop()

    def clear(self) -> None:
        """Close every connection."""
        idle, self._idle = self._idle, {}
        for waiting in idle.values():
            for connection in waiting:
                connection.drop()

    def __len__(self) -> int:
        return sum(map(len, self._idle.values()))
