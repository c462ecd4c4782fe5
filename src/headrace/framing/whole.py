"""No framing at all: a body that is one message. `WholeDecoder` collects it, `WholeEncoder` sends it as it is.

The rule: a non-streaming body is a stream of one frame, so that whatever works on streams works on it. It is not in
`FRAMINGS`, since it names no media type and nobody can ask for it: it is what is left when nobody asked for a stream.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.framing.base import FrameDecoder
from headrace.framing.frame import Frame

MAX_BODY_BYTES = 32 * 1024 * 1024
"""Default bound of a whole body, in bytes."""


class WholeDecoder(FrameDecoder):
    """Decoder of one whole body: its only frame comes at the end. `max_frame` bounds the body, in bytes."""

    def __init__(self, max_frame: int = MAX_BODY_BYTES) -> None:
        super().__init__(max_frame)
        self._pieces: list[bytes] = []
        self._size = 0

    def _decode(self, data: bytes, frames: list[Frame]) -> None:
        self._size += len(data)
        if self._size > self._max:
            self._pieces.clear()
            raise self._too_large("the body")
        self._pieces.append(data)

    def _finish(self, frames: list[Frame]) -> None:
        frames.append(Frame(b"".join(self._pieces)))
        self._pieces.clear()


class WholeEncoder:
    """Encoder of one whole body: the frame's data, nothing around it."""

    def prologue(self) -> bytes:
        """A body begins with itself: b""."""
        return b""

    def encode(self, frames: Iterable[Frame]) -> bytes:
        """The data of these frames; a whole body is one."""
        return b"".join([frame.data for frame in frames])

    def keepalive(self) -> bytes:
        """Nothing may be sent ahead of a body: b""."""
        return b""

    def epilogue(self) -> bytes:
        """A body ends with itself: b""."""
        return b""
