"""Requests as messages: what a caller says on a WebSocket (docs/websocket.md) and to `headrace stdio`.

A message is a JSON object with a `type`:

    {"type": "request", "id": "a", "model": ..., "messages": [...]}   the fields of a request beside type and id
    {"type": "cancel", "id": "a"}                                      ends that stream with an error event
    {"type": "pause", "id": "a"}, {"type": "resume", "id": "a"}        backpressure of that stream alone
    {"type": "auth", "key": "..."}                                     the caller's key, where it came by no other way

Back come the events of the connection's format, each with `id` added. A failure is an event of its stream, also before it
has begun; what is no message at all is the connection's business (BadMessage).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headrace.formats import Format
from headrace.framing import Encoder
from headrace.framing.websocket import MessageEncoder
from headrace.model.errors import ErrorCode, GatewayError
from headrace.serve.calls import Calls, IdInUse, StreamCall

_MAX_ID = 200

AUTH_FIRST = 'Send {"type":"auth","key":"..."} before anything else'


class BadMessage(Exception):
    """What came is no message; its text says why. `syntax`: it is not even JSON, or no object."""

    def __init__(self, reason: str, *, syntax: bool = False, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
        super().__init__(reason)
        self.syntax = syntax
        self.code = code


class Messages:
    """What the messages of one connection do. `authenticated`: the caller needs no key, or has shown it; `knock` is called
    when it has."""

    def __init__(self, calls: Calls, format: Format, *, authenticated: bool, knock: Callable[[], None]) -> None:
        self.calls = calls
        self.authenticated = authenticated
        self._format = format
        self._knock = knock

    def take(self, message: dict[str, Any]) -> None:
        """Raises BadMessage."""
        kind = message.pop("type", None)
        if kind == "auth":
            self._authenticate(message.get("key"))
            return
        if not self.authenticated:
            raise BadMessage(AUTH_FIRST, code=ErrorCode.UNAUTHENTICATED)
        act = _ACTS.get(kind) if isinstance(kind, str) else None
        if act is None:
            raise BadMessage(f"type must be one of auth, {', '.join(_ACTS)}")
        id = message.pop("id", None)
        if not isinstance(id, str) or not 0 < len(id) <= _MAX_ID:
            raise BadMessage(f"id must be a string of 1 to {_MAX_ID} characters")
        act(self, id, message)

    def _authenticate(self, key: Any) -> None:
        """Harmless where it is not needed."""
        try:
            self.authenticate(key)
        except GatewayError as error:
            raise BadMessage(error.info.message, code=error.info.code) from None

    def authenticate(self, key: Any) -> None:
        """Take this key for the caller's. Raises GatewayError where it is none."""
        headers = {"authorization": f"Bearer {key}"} if isinstance(key, str) else {}
        authenticate(self.calls, headers)
        self.calls.headers.update(headers)
        if not self.authenticated:
            self.authenticated = True
            self._knock()

    def _request(self, id: str, fields: dict[str, Any]) -> None:
        try:
            self.calls.begin(_MessageCall(self.calls, id, self._format), fields)
        except IdInUse:
            raise BadMessage(f"id {id!r} belongs to a request that still runs") from None

    def _cancel(self, id: str, fields: dict[str, Any]) -> None:
        self.calls.cancel(id)

    def _pause(self, id: str, fields: dict[str, Any]) -> None:
        self.calls.pause(id)

    def _resume(self, id: str, fields: dict[str, Any]) -> None:
        self.calls.resume(id)


_ACTS: dict[str, Callable[[Messages, str, dict[str, Any]], None]] = {
    "request": Messages._request,
    "cancel": Messages._cancel,
    "pause": Messages._pause,
    "resume": Messages._resume,
}
"""What a message of each type does."""


class _MessageCall(StreamCall):
    __slots__ = ()

    id: str

    def _envelope(self) -> Encoder:
        return MessageEncoder(self.id, self._pipe.frame)


def read_object(text: bytes) -> dict[str, Any]:
    """The object that a message is. Raises BadMessage."""
    try:
        message = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage(f"A message is no JSON: {error}", syntax=True) from None
    if not isinstance(message, dict):
        raise BadMessage("A message must be a JSON object with a type", syntax=True)
    return message


def authenticate(calls: Calls, headers: dict[str, str]) -> None:
    """Whether a caller with these headers may use the gateway. Raises GatewayError where not."""
    service = calls.services.enter()
    try:
        service.inference.runtime.authenticate(headers)
    finally:
        service.leave()
