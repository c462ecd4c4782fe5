"""WebSocket text messages (RFC 6455): `MessageEncoder`, for the side that does not mask, which is the server's.

The rule: a frame is a JSON object, and becomes one unfragmented text message that begins with the id of the stream it
belongs to, as many streams share a connection. Handshake, control frames and the other direction are the connection's.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable

import msgspec

from headrace.framing.frame import Frame

_TEXT = 0x81  # final fragment, opcode 1


def text_message(payload: bytes) -> bytes:
    """One text message: its header (RFC 6455, 5.2) and its payload, UTF-8."""
    size = len(payload)
    if size < 126:
        return bytes((_TEXT, size)) + payload
    if size < 65536:
        return struct.pack("!BBH", _TEXT, 126, size) + payload
    return struct.pack("!BBQ", _TEXT, 127, size) + payload


class MessageEncoder:
    """Encoder of the stream `id`. A first frame that has an `id` of its own (the provider's) shows it as `answer_id`.

    `frame` makes a message of a JSON object: that of a WebSocket, or what another connection of many streams has instead.
    """

    def __init__(self, id: str, frame: Callable[[bytes], bytes] = text_message) -> None:
        self._frame = frame
        self._head = b'{"id":' + msgspec.json.encode(id)
        self._first = True

    def prologue(self) -> bytes:
        """Messages stand for themselves: b""."""
        return b""

    def encode(self, frames: Iterable[Frame]) -> bytes:
        """The messages of these frames. Raises ValueError for data that is no JSON object."""
        pieces = []
        for frame in frames:
            data = frame.data
            if self._first:
                self._first = False
                data = _renamed(data)
            if data[:1] != b"{":
                data = data.lstrip()
                if data[:1] != b"{":
                    raise ValueError("a message of a stream must be a JSON object")
            rest = data[1:]
            separator = b"" if rest.lstrip()[:1] == b"}" else b","
            pieces.append(self._frame(self._head + separator + rest))
        return b"".join(pieces)

    def keepalive(self) -> bytes:
        """The connection has pings for all its streams: b""."""
        return b""

    def epilogue(self) -> bytes:
        """b""."""
        return b""


def _renamed(data: bytes) -> bytes:
    try:
        fields = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return data
    if not isinstance(fields, dict) or "id" not in fields:
        return data
    return msgspec.json.encode({"answer_id" if name == "id" else name: value for name, value in fields.items()})
