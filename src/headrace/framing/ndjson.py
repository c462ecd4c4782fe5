"""Newline-delimited JSON (application/x-ndjson): `NDJSONDecoder` and `NDJSONEncoder`.

The rule: one JSON value a line, ended by LF or CRLF; lines of nothing but white space are skipped. A frame is a line
without the white space around it, and has neither event nor id. The decoder does not look into the JSON, with one
exception: a last line without line end (the sender died, or is careless) counts only if it is complete.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headrace.framing.base import FrameDecoder
from headrace.framing.frame import MAX_FRAME_BYTES, Frame, FramingError

_SPACE = b" \t\r"


class NDJSONDecoder(FrameDecoder):
    """Decoder of one NDJSON body. `max_frame` bounds a line, in bytes without its LF."""

    def __init__(self, max_frame: int = MAX_FRAME_BYTES) -> None:
        super().__init__(max_frame)
        self._line = bytearray()  # a line whose end has not come

    def _decode(self, data: bytes, frames: list[Frame]) -> None:
        if self._line:
            self._line += data
            if b"\n" not in data:
                self._check_size(self._line)
                return
            data = bytes(self._line)
            self._line.clear()
        lines = data.split(b"\n")
        rest = lines.pop()
        for line in lines:
            self._check_size(line)
            value = line.strip(_SPACE)
            if value:
                frames.append(Frame(value))
        self._check_size(rest)
        self._line += rest

    def _finish(self, frames: list[Frame]) -> None:
        last = bytes(self._line).strip(_SPACE)
        self._line.clear()
        if not last:
            return
        try:
            msgspec.json.decode(last, type=msgspec.Raw)
        except (msgspec.DecodeError, RecursionError) as error:
            raise FramingError(
                f"the stream ended inside a line of {len(last)} bytes, which is not complete JSON: {error}",
                reason="truncated",
            ) from None
        frames.append(Frame(last))

    def _check_size(self, line: bytes | bytearray) -> None:
        if len(line) > self._max:
            raise self._too_large("a line of the NDJSON stream")


_BLANKS = bytes.maketrans(b"\r\n", b"  ")


class NDJSONEncoder:
    """Encoder of an NDJSON body. A frame's event and id are not carried: NDJSON has no room for them."""

    def prologue(self) -> bytes:
        """NDJSON begins with its first line: b""."""
        return b""

    def encode(self, frames: Iterable[Frame]) -> bytes:
        """The lines of these frames. Raises ValueError for data that is empty.

        Pretty-printed JSON (an SSE event of several `data:` lines, an array's element) becomes one line: a raw line
        end can only stand between JSON's tokens, where a blank means the same.
        """
        parts: list[bytes] = []
        for frame in frames:
            data = frame.data
            if b"\n" in data or b"\r" in data:
                data = data.translate(_BLANKS)
            if not data or data.isspace():
                raise ValueError("an NDJSON line may not be empty")
            parts += (data, b"\n")
        return b"".join(parts)

    def keepalive(self) -> bytes:
        """A blank line, which readers of NDJSON skip."""
        return b"\n"

    def epilogue(self) -> bytes:
        """NDJSON ends with its last line: b""."""
        return b""
