"""The SignalR hub on a WebSocket."""

from __future__ import annotations

from typing import ClassVar

from websockets.frames import CloseCode

from headrace.serve.calls import Calls
from headrace.serve.hub import TICK, Hub
from headrace.serve.hub_http import Negotiations, token_headers, value_of
from headrace.serve.websocket import Session, WebSocketConnection


class HubSession(Session):
    """One connection. What all of them share are class attributes, set by `serving`."""

    keyless = False
    negotiations: ClassVar[Negotiations]

    def __init__(self, connection: WebSocketConnection, calls: Calls, *, query: str, authenticated: bool) -> None:
        super().__init__(connection, calls, query=query, authenticated=authenticated)
        self._loop = connection.loop
        self._id = value_of(query, "id")
        self._hub = Hub(calls, most=connection.max_message, close=self._close, now=self._loop.time())
        self._timer = self._loop.call_later(TICK, self._tick)

    @classmethod
    def serving(cls, negotiations: Negotiations) -> type[HubSession]:
        """A session class that knows the ids which were given out."""
        return type("ServingHub", (cls,), {"negotiations": negotiations})

    @classmethod
    def headers(cls, query: str) -> dict[str, str]:
        return token_headers(query)

    @classmethod
    def admit(cls, query: str, now: float) -> None:
        cls.negotiations.use(value_of(query, "id"), now)

    def authenticated(self) -> bool:
        return True

    def take(self, text: bytes) -> None:
        self._hub.receive(text, self._loop.time())

    def farewell(self) -> None:
        self._hub.shutdown()

    def lost(self) -> None:
        self._timer.cancel()
        self._hub.caller_gone()
        self.negotiations.release(self._id)

    def _close(self) -> None:
        self._timer.cancel()
        self.connection.close(CloseCode.NORMAL_CLOSURE, "")

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK, self._tick)
        self._hub.tick(self._loop.time())
