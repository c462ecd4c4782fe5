"""Amazon's event stream (application/vnd.amazon.eventstream): `EventStreamDecoder` and `EventStreamEncoder`.

One message is `total length, headers length, CRC of these two, headers, payload, CRC of everything before it`, integers
big-endian, CRCs as in zlib. The rule: no length is believed before its CRC was checked, so damaged bytes are an error at
once and never a wait for gigabytes that do not come.

A frame's data is the payload. Its event is the message's `:event-type`; of an exception `exception:` and its
`:exception-type`, of an unmodelled error `error:` and its `:error-code` (its data is then `:error-message`, where there is
no payload). So other framings that carry names can carry these messages, too. Other headers, of which services send
`:content-type` alone, are checked and dropped; a stream has the same few header blocks again and again, and each is read
once.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable

from headrace.framing.base import FrameDecoder
from headrace.framing.frame import MAX_FRAME_BYTES, Frame, FramingError

EXCEPTION = "exception:"
"""What the event of a modelled error begins with."""
ERROR = "error:"
"""What the event of any other error begins with."""

HeaderValue = bool | int | bytes | str
"""Timestamps are milliseconds since 1970, UUIDs 16 bytes."""

_PRELUDE = struct.Struct(">III")
_OVERHEAD = 16
_MAX_CACHED = 64
_MAX_CACHED_BYTES = 512


class EventStreamDecoder(FrameDecoder):
    """Decoder of one event stream. `max_frame` bounds a message, in bytes, lengths and CRCs included."""

    def __init__(self, max_frame: int = MAX_FRAME_BYTES) -> None:
        super().__init__(max_frame)
        self._buffer = bytearray()  # a message whose end has not come
        self._needed = _PRELUDE.size  # so many bytes have to be there before anything can be said
        self._known: dict[bytes, tuple[str, bytes]] = {}  # header blocks seen before: event, and data in place of none

    def _decode(self, data: bytes, frames: list[Frame]) -> None:
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed:
                return
            data = bytes(self._buffer)
            self._buffer.clear()
        position = 0
        while True:
            held = len(data) - position
            self._needed = _PRELUDE.size
            if held < _PRELUDE.size:
                break
            total, headers = self._prelude(data, position)
            if held < total:
                self._needed = total
                break
            frames.append(self._frame(data, position, total, headers))
            position += total
        self._buffer += data[position:]

    def _finish(self, frames: list[Frame]) -> None:
        if self._buffer:
            raise FramingError(
                f"the event stream ended inside a message, after {len(self._buffer)} bytes of it", reason="truncated"
            )

    def _prelude(self, data: bytes, position: int) -> tuple[int, int]:
        """Total length and length of the headers of the message that begins here."""
        total, headers, crc = _PRELUDE.unpack_from(data, position)
        if zlib.crc32(data[position : position + 8]) != crc:
            raise FramingError("the lengths of an event stream message do not match their CRC")
        if headers + _OVERHEAD > total:
            raise FramingError(f"an event stream message of {total} bytes cannot have {headers} bytes of headers")
        if total > self._max:
            raise self._too_large("a message of the event stream")
        return total, headers

    def _frame(self, data: bytes, position: int, total: int, headers: int) -> Frame:
        end = position + total - 4
        if zlib.crc32(memoryview(data)[position:end]) != int.from_bytes(data[end : end + 4]):
            raise FramingError("an event stream message does not match its CRC")
        start = position + _PRELUDE.size
        block = data[start : start + headers]
        known = self._known.get(block)
        if known is None:
            known = _meaning(read_headers(block))
            if len(self._known) < _MAX_CACHED and headers <= _MAX_CACHED_BYTES:
                self._known[block] = known
        event, instead = known
        return Frame(data[start + headers : end] or instead, event)


def _meaning(headers: dict[str, HeaderValue]) -> tuple[str, bytes]:
    """A message's event, and its data where it has no payload."""

    def text(name: str) -> str:
        value = headers.get(name)
        return value if isinstance(value, str) else ""

    kind = text(":message-type")
    if kind == "exception":
        return EXCEPTION + text(":exception-type"), b""
    if kind == "error":
        return ERROR + text(":error-code"), text(":error-message").encode()
    return text(":event-type"), b""


# Headers: length of the name, name, type, value.


def _fixed(format: str) -> Callable[[bytes, int], tuple[HeaderValue, int]]:
    packed = struct.Struct(format)

    def read(data: bytes, position: int) -> tuple[HeaderValue, int]:
        return packed.unpack_from(data, position)[0], position + packed.size

    return read


def _sized(data: bytes, position: int) -> tuple[bytes, int]:
    start = position + 2
    end = start + int.from_bytes(data[position:start])
    if end > len(data) or start > len(data):
        raise IndexError
    return data[start:end], end


def _string(data: bytes, position: int) -> tuple[HeaderValue, int]:
    value, end = _sized(data, position)
    return value.decode(), end


_TYPES: tuple[Callable[[bytes, int], tuple[HeaderValue, int]], ...] = (
    # by the type's number
    lambda data, position: (True, position),
    lambda data, position: (False, position),
    _fixed(">b"),
    _fixed(">h"),
    _fixed(">i"),
    _fixed(">q"),
    _sized,
    _string,
    _fixed(">q"),  # a timestamp
    _fixed(">16s"),  # a UUID
)


def read_headers(data: bytes) -> dict[str, HeaderValue]:
    """A message's headers. Raises FramingError (malformed) for what are none, and for one that comes twice."""
    headers: dict[str, HeaderValue] = {}
    position = 0
    try:
        while position < len(data):
            end = position + 1 + data[position]
            name = data[position + 1 : end].decode()
            value, position = _TYPES[data[end]](data, end + 1)
            if name in headers:
                raise FramingError(f"the headers of an event stream message hold {name[:40]!r} twice")
            headers[name] = value
    except (IndexError, struct.error, UnicodeDecodeError):
        raise FramingError(f"{len(data)} bytes of an event stream message are no headers") from None
    return headers


class EventStreamEncoder:
    """Encoder of an event stream whose payloads are JSON. A frame's id is not carried: messages have none."""

    def __init__(self) -> None:
        self._heads: dict[str, bytes] = {}  # header blocks by the frame's event

    def prologue(self) -> bytes:
        """An event stream begins with its first message: b""."""
        return b""

    def encode(self, frames: Iterable[Frame]) -> bytes:
        """The messages of these frames. Raises ValueError for an event that is too long for a header."""
        parts: list[bytes] = []
        for frame in frames:
            headers = self._heads.get(frame.event)
            if headers is None:
                headers = _write_headers(frame.event)
                if len(self._heads) < _MAX_CACHED and len(headers) <= _MAX_CACHED_BYTES:
                    self._heads[frame.event] = headers
            lengths = struct.pack(">II", _OVERHEAD + len(headers) + len(frame.data), len(headers))
            message = b"".join((lengths, zlib.crc32(lengths).to_bytes(4), headers, frame.data))
            parts += (message, zlib.crc32(message).to_bytes(4))
        return b"".join(parts)

    def keepalive(self) -> bytes:
        """There is no message that every reader ignores: b""."""
        return b""

    def epilogue(self) -> bytes:
        """An event stream ends with its last message: b""."""
        return b""


_KINDS = ((EXCEPTION, ":exception-type", "exception"), (ERROR, ":error-code", "error"), ("", ":event-type", "event"))


def _write_headers(event: str) -> bytes:
    """In the order in which services send them."""
    prefix, name, kind = next(row for row in _KINDS if event.startswith(row[0]))
    event = event.removeprefix(prefix)
    named = _header(name, event) if event else b""
    return named + _header(":content-type", "application/json") + _header(":message-type", kind)


def _header(name: str, value: str) -> bytes:
    data = value.encode()
    if len(data) > 0x7FFF:
        raise ValueError("the event of a frame is too long for a header of the event stream")
    return b"%c%b\x07%b%b" % (len(name), name.encode(), len(data).to_bytes(2), data)
