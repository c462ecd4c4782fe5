"""Records of the SignalR hub protocol's JSON encoding: `SignalRDecoder` and `SignalREncoder` (DOSSIER 8.2).

The rule: a record is a JSON text followed by the byte 0x1E, which cannot stand raw inside JSON. Where records lie in
WebSocket messages means nothing: one message may hold many of them, and many messages one. The decoder does not look
into the JSON; what the types of records mean, pings among them, is the format's.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.framing.base import FrameDecoder
from headrace.framing.frame import MAX_FRAME_BYTES, Frame, FramingError

SEPARATOR = b"\x1e"
"""ASCII's record separator, which ends each record."""


class SignalRDecoder(FrameDecoder):
    """Decoder of one connection's records. `max_frame` bounds a record, in bytes without its separator."""

    def __init__(self, max_frame: int = MAX_FRAME_BYTES) -> None:
        super().__init__(max_frame)
        self._record = bytearray()  # a record whose separator has not come

    def _decode(self, data: bytes, frames: list[Frame]) -> None:
        if self._record:
            self._record += data
            if SEPARATOR not in data:
                self._check_size(self._record)
                return
            data = bytes(self._record)
            self._record.clear()
        records = data.split(SEPARATOR)
        rest = records.pop()
        for record in records:
            self._check_size(record)
            if not record:
                raise FramingError("a record of the SignalR stream is empty: two separators (0x1E) in a row")
            frames.append(Frame(record))
        self._check_size(rest)
        self._record += rest

    def _finish(self, frames: list[Frame]) -> None:
        size = len(self._record)
        self._record.clear()
        if size:
            raise FramingError(
                f"the SignalR stream ended inside a record, after {size} bytes without the separator (0x1E) that ends it",
                reason="truncated",
            )

    def _check_size(self, record: bytes | bytearray) -> None:
        if len(record) > self._max:
            raise self._too_large("a record of the SignalR stream")


class SignalREncoder:
    """Encoder of records. A frame's event and id are not carried: they stand in the JSON where a hub wants them."""

    def prologue(self) -> bytes:
        """The handshake is the connection's: b""."""
        return b""

    def encode(self, frames: Iterable[Frame]) -> bytes:
        """These frames as records. Raises ValueError for data that is empty or holds a raw 0x1E, which JSON never does."""
        parts: list[bytes] = []
        for frame in frames:
            if not frame.data:
                raise ValueError("a SignalR record may not be empty")
            if SEPARATOR in frame.data:
                raise ValueError("a SignalR record may not hold the byte 0x1E: JSON writes it as \\u001e")
            parts += (frame.data, SEPARATOR)
        return b"".join(parts)

    def keepalive(self) -> bytes:
        """A hub's pings are messages of the connection, which may carry many streams: b""."""
        return b""

    def epilogue(self) -> bytes:
        """A stream ends with a record of its own: b""."""
        return b""
