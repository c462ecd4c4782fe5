"""Frames of the gateway format and of llm-stream as ChatEvents, each in the 5-byte envelope that gRPC and Connect share.

`EventEncoder` stands where a framing's encoder does: what the format's writer says in JSON is said in protobuf (or in
protobuf's JSON). It notes the error that passes, as the status at the end of the call has to say it again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from google.protobuf import json_format

from headrace.formats import Format
from headrace.formats.gateway.errors import read_object
from headrace.formats.llm_stream.errors import read_fields_of
from headrace.framing import Frame
from headrace.model.errors import ErrorCode, ErrorInfo
from headrace.serve.rpc.messages import fill
from headrace.v1 import gateway_pb2 as pb

_HEADER = struct.Struct(">BI")
_decode = msgspec.json.Decoder(dict[str, Any]).decode

Codec = Callable[[Any], bytes]


def binary(message: Any) -> bytes:
    """A message in protobuf's own encoding."""
    data: bytes = message.SerializeToString()
    return data


def json(message: Any) -> bytes:
    """A message in protobuf's JSON."""
    return json_format.MessageToJson(message, indent=None).encode()


def envelope(data: bytes, flags: int = 0) -> bytes:
    return _HEADER.pack(flags, len(data)) + data


def messages_in(data: bytes) -> Iterable[bytes]:
    """What is in envelopes of ours that are whole."""
    position = 0
    while position < len(data):
        _, size = _HEADER.unpack_from(data, position)
        position += 5
        yield data[position : position + size]
        position += size


class EventEncoder:
    """Encoder of one stream of `format` (gateway or llm_stream). `error`: that which ended it, once it has passed."""

    def __init__(self, format: Format, codec: Codec = binary) -> None:
        self._event = _EVENTS[format.name]
        self._codec = codec
        self.error: ErrorInfo | None = None

    def prologue(self) -> bytes:
        """b""."""
        return b""

    def encode(self, frames: Iterable[Frame]) -> bytes:
        """The envelopes of these frames. Raises msgspec.DecodeError for data that is no JSON object."""
        codec = self._codec
        pieces = []
        for frame in frames:
            event, error = self._event(_decode(frame.data))
            if error is not None:
                self.error = error
            pieces.append(envelope(codec(event)))
        return b"".join(pieces)

    def keepalive(self) -> bytes:
        """HTTP/2 has pings, Connect has nothing: b""."""
        return b""

    def epilogue(self) -> bytes:
        """How a call ends is the transport's to say: b""."""
        return b""


def gateway_event(fields: dict[str, Any]) -> tuple[pb.ChatEvent, ErrorInfo | None]:
    """An event of LLM-005, and the error that it is."""
    kind, seq, data = fields.get("type", ""), fields.get("seq", 0), fields.get("data")
    event = pb.ChatEvent(seq=seq)
    if kind in ("delta", "reasoning") and isinstance(data, dict) and len(data) == 1 and "content" in data:
        part = event.delta if kind == "delta" else event.reasoning
        part.SetInParent()
        part.content = data["content"]
        return event, None
    if kind not in _GATEWAY:
        event.other.type = str(kind)
        json_format.ParseDict(_rest(fields, "type", "seq"), event.other.fields)
        return event, None
    message = getattr(event, kind)
    message.SetInParent()
    if kind in ("start", "done"):
        fill(message, _rest(fields, "type", "seq"))
    else:
        further = _rest(fields, "type", "seq", "data")
        fill(message, {**further, **(data if isinstance(data, dict) else {})})
    error = read_object(data, "", ErrorCode.INTERNAL_ERROR) if kind == "error" and isinstance(data, dict) else None
    return event, error


def llm_stream_event(fields: dict[str, Any]) -> tuple[pb.ChatEvent, ErrorInfo | None]:
    """An event of the draft, and the error that it is."""
    kind = fields.get("type", "")
    event = pb.ChatEvent(seq=fields.get("seq", 0))
    inner = event.llm_stream
    inner.v = fields.get("v", "")
    rest = _rest(fields, "type", "seq", "v")
    name = _LLM_STREAM.get(kind)
    if name is None:
        inner.other.type = str(kind)
        json_format.ParseDict(rest, inner.other.fields)
        return event, None
    message = getattr(inner, name)
    message.SetInParent()
    fill(message, rest)
    return event, read_fields_of(rest, "", ErrorCode.INTERNAL_ERROR) if kind == "error" else None


def _rest(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


_GATEWAY = frozenset({"start", "delta", "tool_call", "reasoning", "progress", "usage", "error", "done"})
_LLM_STREAM = {
    # type: field of LlmStreamEvent
    "stream.start": "stream_start",
    "content.delta": "content_delta",
    "content.stop": "content_stop",
    "tool.call": "tool_call",
    "usage": "usage",
    "error": "error",
    "stream.end": "stream_end",
}
_EVENTS: dict[str, Callable[[dict[str, Any]], tuple[pb.ChatEvent, ErrorInfo | None]]] = {
    "gateway": gateway_event,
    "llm_stream": llm_stream_event,
}
