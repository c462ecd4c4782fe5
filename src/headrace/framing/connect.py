"""The envelope of Connect and gRPC-Web: a byte of flags, four of length (big-endian), the message (DOSSIER 9.1, 9.5).

The rule: the flags become the frame's `event`: "" a message, "end" Connect's last envelope (0x02), "trailers" that of
gRPC-Web (0x80); compressed ones (0x01) come out gunzipped. A length beyond the bound is refused when its five bytes are
here, before any of the message, and what is gunzipped keeps the same bound. That the last envelope is missing at the end
is for whoever gives frames their meaning to say: requests have none.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping

from headrace.framing.base import FrameDecoder
from headrace.framing.frame import MAX_FRAME_BYTES, Frame, FramingError

COMPRESSED = 0x01
END = "end"
TRAILERS = "trailers"

CONNECT_FLAGS: Mapping[int, str] = {0x00: "", 0x02: END}
GRPC_WEB_FLAGS: Mapping[int, str] = {0x00: "", 0x80: TRAILERS}
"""The event of each flag byte, but for COMPRESSED. One protocol's last envelope is an error in the other: whoever honours
0x02 there lets a provider forge the end."""

_HEADER = struct.Struct("!BI")
_GZIP = 31  # zlib's wbits for a gzip header and trailer


class EnvelopeDecoder(FrameDecoder):
    """Decoder of envelopes. `max_frame` bounds a message, in bytes, as it is sent and as it comes out.

    `flags` says which protocol it is; after its last envelope nothing may follow.
    """

    def __init__(self, max_frame: int = MAX_FRAME_BYTES, *, flags: Mapping[int, str] = CONNECT_FLAGS) -> None:
        super().__init__(max_frame)
        self._flags = flags
        self._buffer = bytearray()  # an envelope that is not whole
        self._needed = _HEADER.size  # bytes without which no progress can be made
        self._ended = False

    def _decode(self, data: bytes, frames: list[Frame]) -> None:
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed:
                return
            data = bytes(self._buffer)
            self._buffer.clear()
        position, size = 0, len(data)
        self._needed = _HEADER.size
        while size - position >= self._needed:
            flags, length = _HEADER.unpack_from(data, position)
            event = self._check(flags, length)
            self._needed = _HEADER.size + length
            if size - position < self._needed:
                break
            start = position + _HEADER.size
            position += self._needed
            message = data[start:position]
            frames.append(Frame(self._gunzip(message) if flags & COMPRESSED else message, event))
            self._ended = event != ""
            self._needed = _HEADER.size
        if position < size:
            if self._ended:
                raise FramingError("bytes came after the envelope that ends the stream")
            self._buffer += data[position:]

    def _check(self, flags: int, length: int) -> str:
        if length > self._max:
            raise self._too_large(f"an envelope of {length} bytes")
        event = self._flags.get(flags & ~COMPRESSED)
        if event is None:
            raise FramingError(
                f"an envelope has the flags 0x{flags:02x}, of which not all have a meaning here: "
                "is the body really enveloped, and in this protocol?"
            )
        if self._ended:
            raise FramingError("an envelope came after the one that ends the stream")
        return event

    def _gunzip(self, message: bytes) -> bytes:
        if not message:
            return b""
        inflate = zlib.decompressobj(_GZIP)
        try:
            plain = inflate.decompress(message, self._max + 1)
        except zlib.error as error:
            raise FramingError(
                f"an envelope is flagged as compressed and is no gzip ({error}); only gzip is understood"
            ) from None
        if len(plain) > self._max:
            raise self._too_large("a compressed envelope's content")
        if not inflate.eof or inflate.unused_data:
            raise FramingError("a compressed envelope does not end where its gzip stream ends")
        return plain

    def _finish(self, frames: list[Frame]) -> None:
        size = len(self._buffer)
        self._buffer.clear()
        if size:
            raise FramingError(
                f"the stream ended inside an envelope, after {size} of at least {self._needed} bytes",
                reason="truncated",
            )


class EnvelopeEncoder:
    """Encoder of envelopes, uncompressed. An `event` that `flags` has no flag for is not carried, nor is an `id`."""

    def __init__(self, *, flags: Mapping[int, str] = CONNECT_FLAGS) -> None:
        self._flag_of = {event: flag for flag, event in flags.items()}

    def prologue(self) -> bytes:
        """A body begins with its first envelope: b""."""
        return b""

    def encode(self, frames: Iterable[Frame]) -> bytes:
        """The envelopes of these frames. Data may be empty: a protobuf message of nothing but defaults is."""
        parts: list[bytes] = []
        for frame in frames:
            parts += (_HEADER.pack(self._flag_of.get(frame.event, 0), len(frame.data)), frame.data)
        return b"".join(parts)

    def keepalive(self) -> bytes:
        """There is nothing that readers pass over: b""."""
        return b""

    def epilogue(self) -> bytes:
        """The last envelope says how the stream ended, so it is a frame of its own: b""."""
        return b""
