"""JSON-RPC 2.0 on a pipe that carries messages both ways (docs/stdio.md).

Methods: `chat` (the request's fields are its params; events come as notifications `chat.event`, then the result), `models`,
`cancel`, `pause`, `resume` (params: the `id` of a chat) and `auth`. The rule of the specification holds: who asks without an
id gets no answer, whatever happens; so a `chat` without one is not carried out at all. Batches are refused, since an answer
to a batch is one array, and streams that run side by side have no such moment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from headrace.formats import Format
from headrace.formats.standard.extensions import OURS_KEY
from headrace.framing import Encoder
from headrace.model.errors import ErrorCode, ErrorInfo, GatewayError
from headrace.serve.calls import IdInUse, StreamCall, WholeCall
from headrace.serve.envelopes import Envelope, error_of
from headrace.serve.messages import AUTH_FIRST, Messages
from headrace.serve.pages import list_of_models

logger = logging.getLogger("headrace.serve")

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603

CODES: dict[str, int] = {
    ErrorCode.INVALID_REQUEST: INVALID_PARAMS,
    ErrorCode.INTERNAL_ERROR: INTERNAL_ERROR,
    ErrorCode.UNAUTHENTICATED: -32001,
    ErrorCode.FORBIDDEN: -32002,
    ErrorCode.MODEL_NOT_FOUND: -32003,
    ErrorCode.BUDGET_EXCEEDED: -32004,
    ErrorCode.QUOTA_EXCEEDED: -32005,
    ErrorCode.PROVIDER_RATE_LIMITED: -32006,
    ErrorCode.PROVIDER_UNAVAILABLE: -32007,
    ErrorCode.TIMEOUT: -32008,
    ErrorCode.CONSUMER_TOO_SLOW: -32009,
    ErrorCode.CANCELLED: -32010,
}
"""The number of each of the gateway's codes; the code itself is in the error's `data`."""
_OTHER = -32000

Id = str | int | float | None


class _Failed(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class JsonRpc:
    """What JSON-RPC says on one connection; its calls run beside those of `messages`, who knows the caller's key."""

    def __init__(self, messages: Messages, format: Format) -> None:
        self._messages = messages
        self._calls = messages.calls
        self._format = format

    def take(self, message: dict[str, Any]) -> None:
        """A message with a member `jsonrpc`. Raises nothing: what is wrong with it is its answer."""
        id = message.get("id")
        try:
            if not _is_id(id):
                id = None
                raise _Failed(INVALID_REQUEST, "id must be a string or a number")
            method, params = message.get("method"), message.get("params", {})
            if message.get("jsonrpc") != "2.0" or not isinstance(method, str):
                raise _Failed(INVALID_REQUEST, 'A request has "jsonrpc": "2.0" and a method')
            act = _METHODS.get(method)
            if act is None:
                raise _Failed(METHOD_NOT_FOUND, f"method must be one of {', '.join(_METHODS)}")
            if not isinstance(params, dict):
                raise _Failed(INVALID_PARAMS, "params must be an object: parameters are named")
            if method != "auth" and not self._messages.authenticated:
                raise GatewayError(ErrorInfo(code=ErrorCode.UNAUTHENTICATED, message=_AUTH_FIRST))
            result = act(self, id if "id" in message else _NOTIFICATION, params)
        except _Failed as failed:
            # A message that is no request at all is answered in any case, with what id it has.
            if "id" in message or failed.code == INVALID_REQUEST:
                self.fail(failed.code, str(failed), id)
        except GatewayError as error:
            if "id" in message:
                self._write(_error(id, error_of(self._format.write_error(error.info))))
        else:
            if result is not None and "id" in message:
                self._write({"jsonrpc": "2.0", "id": id, "result": result})

    def fail(self, code: int, message: str, id: Id = None) -> None:
        """Answer what cannot be carried out."""
        self._write({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})

    def _write(self, message: dict[str, Any]) -> None:
        pipe = self._calls.pipe
        pipe.write(pipe.frame(msgspec.json.encode(message)))

    # --- methods: their result, or None where it comes later -------------------------------------------------------

    def _chat(self, id: Id | _Notification, params: dict[str, Any]) -> None:
        if isinstance(id, _Notification):
            logger.warning("a chat without an id was not carried out: nobody could be told what came of it")
            return
        whole = params.get("stream") is False
        call = (_Whole if whole else _Stream)(self._calls, _key(id), self._format)
        call.rpc_id = id
        try:
            self._calls.begin(call, params)
        except IdInUse:
            # With this id the answer would be the other one's.
            self.fail(INVALID_REQUEST, f"id {id!r} belongs to a request that still runs")

    def _models(self, id: Id | _Notification, params: dict[str, Any]) -> dict[str, Any]:
        service = self._calls.services.enter()
        try:
            return list_of_models(service.inference.runtime.models(self._calls.headers))
        finally:
            service.leave()

    def _cancel(self, id: Id | _Notification, params: dict[str, Any]) -> dict[str, Any]:
        return {"cancelled": self._calls.cancel(_named(params))}

    def _pause(self, id: Id | _Notification, params: dict[str, Any]) -> dict[str, Any]:
        return {"paused": self._calls.pause(_named(params))}

    def _resume(self, id: Id | _Notification, params: dict[str, Any]) -> dict[str, Any]:
        return {"resumed": self._calls.resume(_named(params))}

    def _auth(self, id: Id | _Notification, params: dict[str, Any]) -> dict[str, Any]:
        self._messages.authenticate(params.get("key"))
        return {}


_METHODS: dict[str, Callable[[JsonRpc, Any, dict[str, Any]], dict[str, Any] | None]] = {
    "chat": JsonRpc._chat,
    "models": JsonRpc._models,
    "cancel": JsonRpc._cancel,
    "pause": JsonRpc._pause,
    "resume": JsonRpc._resume,
    "auth": JsonRpc._auth,
}

_AUTH_FIRST = f'{AUTH_FIRST}, or call the method auth with {{"key":"..."}}'


class _Notification:
    """In place of the id of a message that has none."""


_NOTIFICATION = _Notification()


class _Stream(StreamCall):
    __slots__ = ("_latest", "rpc_id")

    rpc_id: Id

    def _envelope(self) -> Encoder:
        id = msgspec.json.encode(self.rpc_id)
        head = b'{"jsonrpc":"2.0","method":"chat.event","params":{"id":' + id + b',"event":'
        self._latest = Envelope(head, b"}}", self._pipe.frame)
        return self._latest

    def _closing(self) -> bytes:
        failure = self._latest.error
        if failure is not None:
            answer = _error(self.rpc_id, failure)
        else:
            answer = {"jsonrpc": "2.0", "id": self.rpc_id, "result": self._latest.outcome}
        return self._pipe.frame(msgspec.json.encode(answer))


class _Whole(WholeCall):
    __slots__ = ("rpc_id",)

    rpc_id: Id

    def _answered(self, body: bytes) -> bytes:
        id = msgspec.json.encode(self.rpc_id)
        return self._pipe.frame(b'{"jsonrpc":"2.0","id":' + id + b',"result":' + body + b"}")

    def _refused(self, body: bytes) -> bytes:
        return self._pipe.frame(msgspec.json.encode(_error(self.rpc_id, error_of(body))))


def _error(id: Id, failure: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request that failed; `failure`: the error object of the connection's format."""
    ours = (failure.get("extensions") or {}).get(OURS_KEY) or {}
    code, message = ours.get("code", failure.get("code", failure.get("type"))), failure.get("message")
    error = {"code": CODES.get(str(code), _OTHER), "message": str(message or code), "data": failure}
    return {"jsonrpc": "2.0", "id": id, "error": error}


def _is_id(id: Any) -> bool:
    return id is None or (isinstance(id, str | int | float) and not isinstance(id, bool))


def _key(id: Id) -> tuple[str, Id]:
    """Among the calls of a connection, some of which have plain strings for ids; 1 and "1" differ."""
    return "json-rpc", id


def _named(params: dict[str, Any]) -> tuple[str, Id]:
    """The call that params name. Raises _Failed."""
    id = params.get("id")
    if id is None or not _is_id(id):
        raise _Failed(INVALID_PARAMS, "id must be that of a chat")
    return _key(id)
