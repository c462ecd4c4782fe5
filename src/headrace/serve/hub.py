"""SignalR's hub protocol in JSON, for callers (docs/signalr.md): what records mean, whatever carries them.

A hub's connection is a Pipe. Records come in through `receive`, time through `tick`; what goes out is written to the pipe.
Methods: `Chat` streams (each item an event of LLM-005), `ChatOnce` and `ListModels` have a result. The rule for what is wrong:
an invocation that can be named ends with a Completion that says so; what leaves in doubt who meant what (no JSON, no type, an
id in use) closes the connection with a Close that says so. Record types that the protocol may get one day are passed over.

A ping is never answered with a ping: two sides that did so would never stop. Ours go out by the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headrace.formats import FORMATS
from headrace.framing import Encoder, FramingError, SignalRDecoder
from headrace.framing.signalr import SEPARATOR
from headrace.model.errors import GatewayError
from headrace.serve.calls import Calls, IdInUse, StreamCall, WholeCall
from headrace.serve.envelopes import Envelope, error_of
from headrace.serve.pages import list_of_models

INVOCATION, STREAM_ITEM, COMPLETION, STREAM_INVOCATION, CANCEL_INVOCATION, PING, CLOSE = range(1, 8)

HANDSHAKE_SECONDS = 15.0
PING_EVERY = 15.0
SILENCE_SECONDS = 30.0
"""A caller that says nothing for so long, not even a ping, has gone."""

TICK = 1.0
"""Seconds between two looks at the clock."""

_MAX_ID = 200
_VERSION = 1
_PING = b'{"type":6}'


class _Unclear(Exception):
    """What came leaves in doubt what was meant; its text goes into a Close."""


class Hub:
    """One connection. `most`: bytes of a record. `close` ends the connection in order, when all that was written has gone
    out. `now`: seconds of the clock that `tick` and `receive` go by."""

    def __init__(self, calls: Calls, *, most: int, close: Callable[[], None], now: float) -> None:
        self.calls = calls
        self.closed = False
        self._close_pipe = close
        self._decoder = SignalRDecoder(most)
        self._most = most
        self._shaken = False
        self._heard = self._pinged = self._begun = now

    # --- what happens to it ----------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> None:
        """Bytes have come; where records lie in them does not matter."""
        self._heard = now
        try:
            for piece in (data, b""):  # a framing error behind good records is told by the next call
                for frame in self._decoder.feed(piece):
                    if self.closed:
                        return
                    self._record(frame.data)
        except FramingError as error:
            too_large = f"A record is larger than the limit of {self._most} bytes (limits.body_bytes)"
            self.end(too_large if error.reason == "too_large" else f"This is not SignalR: {error}")
        except _Unclear as error:
            self.end(str(error))

    def heard(self, now: float) -> None:
        """The caller has shown that it is there."""
        self._heard = now

    def tick(self, now: float) -> None:
        """Time has passed."""
        if self.closed:
            return
        if not self._shaken:
            if now - self._begun >= HANDSHAKE_SECONDS:
                self.end('No handshake came: send {"protocol":"json","version":1} and the byte 0x1E')
            return
        if now - self._heard >= SILENCE_SECONDS:
            self.end(f"Nothing was heard for {SILENCE_SECONDS:g} s, not even a ping", reconnect=True)
        elif now - self._pinged >= PING_EVERY and not self.calls.pipe.write_paused:
            self._pinged = now
            self._write(_PING)

    def shutdown(self) -> None:
        """The process is about to end: what runs goes on, nothing else begins, and then that was it."""
        self.calls.ending = True
        self.close_when_idle()

    def close_when_idle(self) -> None:
        if self.calls.ending and not self.calls:
            self.end("The gateway is shutting down", reconnect=True)

    def caller_gone(self) -> None:
        """The connection is lost."""
        self.closed = True
        self.calls.caller_gone()

    def end(self, error: str | None, *, reconnect: bool = False) -> None:
        """Close the connection, and say why."""
        if self.closed:
            return
        self.closed = True
        self.calls.caller_gone()
        if not self._shaken:
            self._write(msgspec.json.encode({"error": error}))
        elif error is not None:
            self._write(msgspec.json.encode({"type": CLOSE, "error": error, "allowReconnect": reconnect}))
        self._close_pipe()

    # --- records ---------------------------------------------------------------------------------------------------

    def _write(self, record: bytes) -> None:
        pipe = self.calls.pipe
        pipe.write(pipe.frame(record + SEPARATOR))

    def _record(self, data: bytes) -> None:
        """Raises _Unclear."""
        try:
            record = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _Unclear(f"A record is no JSON: {error}") from None
        if not isinstance(record, dict):
            raise _Unclear("A record must be a JSON object")
        if not self._shaken:
            self._shake_hands(record)
            return
        kind = record.get("type")
        if not isinstance(kind, int) or isinstance(kind, bool):
            raise _Unclear("A record has a type, which is a number")
        act = _ACTS.get(kind)
        if act is not None:
            act(self, record)

    def _shake_hands(self, record: dict[str, Any]) -> None:
        protocol, version = record.get("protocol"), record.get("version")
        if protocol != "json":
            raise _Unclear(f"Requested protocol {str(protocol)[:50]!r} is not available. Use 'json'")
        if version != _VERSION or isinstance(version, bool):
            raise _Unclear(f"Version {str(version)[:50]} of the protocol is not available. Use {_VERSION}")
        self._shaken = True
        self._write(b"{}")

    def _invoked(self, record: dict[str, Any]) -> None:
        id = _id_of(record) if record.get("invocationId") is not None else None
        if id is None:
            _target(record)
            return  # its caller does not want to know what came of it, and nothing else would: no method here has effects
        self._begin(id, record, _RESULTS, _STREAMS, "is a stream: use stream(), not invoke()")

    def _stream_invoked(self, record: dict[str, Any]) -> None:
        self._begin(_id_of(record), record, _STREAMS, _RESULTS, "is no stream: use invoke(), not stream()")

    def _begin(
        self, id: str, record: dict[str, Any], methods: dict[str, _Method], others: dict[str, _Method], wrong: str
    ) -> None:
        name = _target(record)
        if id in self.calls:
            raise _Unclear(f"invocationId {id!r} belongs to an invocation that still runs")
        method = methods.get(name.lower())
        if method is None:
            known = ", ".join(sorted(_NAMES))
            other = name.lower() in others
            self._complete(
                id, error=f"{name} {wrong}" if other else f"Unknown hub method {name[:100]!r}. There are {known}"
            )
            return
        if record.get("streamIds"):
            self._complete(id, error=f"{name} takes no streams")
            return
        try:
            method(self, id, record.get("arguments"))
        except _Wrong as error:
            self._complete(id, error=str(error))

    def _complete(self, id: str, **outcome: Any) -> None:
        self._write(msgspec.json.encode({"type": COMPLETION, "invocationId": id, **outcome}))

    def _cancelled(self, record: dict[str, Any]) -> None:
        self.calls.cancel(_id_of(record))

    def _pinged_us(self, record: dict[str, Any]) -> None:
        """That it came is all there is to it."""

    def _closed_by_caller(self, record: dict[str, Any]) -> None:
        self.end(None)

    # --- methods ---------------------------------------------------------------------------------------------------

    def _chat(self, id: str, arguments: Any) -> None:
        self._call(_Stream(self.calls, id, FORMATS["gateway"]), "Chat", arguments)

    def _chat_once(self, id: str, arguments: Any) -> None:
        self._call(_Result(self.calls, id, FORMATS["gateway"]), "ChatOnce", arguments)

    def _call(self, call: _Stream | _Result, name: str, arguments: Any) -> None:
        if not isinstance(arguments, list) or len(arguments) != 1 or not isinstance(arguments[0], dict):
            raise _Wrong(f"{name} takes one argument: the request, an object as in the body of POST /v1/chat")
        try:
            self.calls.begin(call, arguments[0])
        except IdInUse:
            raise _Unclear(f"invocationId {call.id!r} belongs to an invocation that still runs") from None

    def _list_models(self, id: str, arguments: Any) -> None:
        if arguments not in ([], None):
            raise _Wrong("ListModels takes no arguments")
        service = self.calls.services.enter()
        try:
            models = list_of_models(service.inference.runtime.models(self.calls.headers))
        except GatewayError as error:
            raise _Wrong(f"{error.info.code.value}: {error.info.message}") from None
        finally:
            service.leave()
        self._complete(id, result=models["data"])


class _Wrong(Exception):
    """An invocation cannot be carried out; its text goes into its Completion."""


_Method = Callable[[Hub, str, Any], None]

_STREAMS: dict[str, _Method] = {"chat": Hub._chat}
_RESULTS: dict[str, _Method] = {"chatonce": Hub._chat_once, "listmodels": Hub._list_models}
_NAMES = ("Chat", "ChatOnce", "ListModels")
"""As .NET's hubs have it, the case of a method's name does not matter."""

_ACTS: dict[int, Callable[[Hub, dict[str, Any]], None]] = {
    INVOCATION: Hub._invoked,
    STREAM_INVOCATION: Hub._stream_invoked,
    CANCEL_INVOCATION: Hub._cancelled,
    PING: Hub._pinged_us,
    CLOSE: Hub._closed_by_caller,
}
"""Of the other types, items and completions belong to streams of the caller, which no method takes."""


class _Stream(StreamCall):
    __slots__ = ("_latest",)

    def _envelope(self) -> Encoder:
        head = b'{"type":2,"invocationId":' + msgspec.json.encode(self.id) + b',"item":'
        frame = self._pipe.frame
        self._latest = Envelope(head, b"}" + SEPARATOR, frame)
        return self._latest

    def _closing(self) -> bytes:
        failure = self._latest.error
        outcome = {} if failure is None else {"error": _words(failure)}
        return _completion(self, msgspec.json.encode({"type": COMPLETION, "invocationId": self.id, **outcome}))


class _Result(WholeCall):
    __slots__ = ()

    def _answered(self, body: bytes) -> bytes:
        head = b'{"type":3,"invocationId":' + msgspec.json.encode(self.id) + b',"result":'
        return _completion(self, head + body + b"}")

    def _refused(self, body: bytes) -> bytes:
        error = _words(error_of(body))
        return _completion(self, msgspec.json.encode({"type": COMPLETION, "invocationId": self.id, "error": error}))


def _completion(call: _Stream | _Result, record: bytes) -> bytes:
    return call._pipe.frame(record + SEPARATOR)


def _words(failure: dict[str, Any]) -> str:
    """A Completion's error is one text: the code, which programs look for, and the message."""
    code = failure.get("code") or failure.get("type") or "internal_error"
    return f"{code}: {failure.get('message') or 'the request has failed'}"


def _id_of(record: dict[str, Any]) -> str:
    id = record.get("invocationId")
    if not isinstance(id, str) or not 0 < len(id) <= _MAX_ID:
        raise _Unclear(f"invocationId must be a string of 1 to {_MAX_ID} characters")
    return id


def _target(record: dict[str, Any]) -> str:
    target = record.get("target")
    if not isinstance(target, str):
        raise _Unclear("An invocation has a target, which is a string")
    return target
