"""A frame: one message as the framing layer sees it, before anybody asks what it means.

Formats read and write frames; framings turn them into bytes and back. A frame therefore holds what any framing can
carry (payload, an optional event name, an optional id) and nothing about its meaning.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

MAX_FRAME_BYTES = 8 * 1024 * 1024
"""Default bound of one frame's size, in bytes, in every framing."""


class Frame(msgspec.Struct, gc=False):
    """One frame. `event` is "" where the framing or the sender gives no name; `id` is None where there is none.

    gc=False: frames hold only bytes and strings, so no reference cycle can start here, and thousands of them a second
    stay out of the cycle collector's sight.
    """

    data: bytes
    event: str = ""
    id: str | None = None


class FramingError(Exception):
    """The bytes break the framing's rules, or a frame passes the size bound. The decoder is unusable afterwards.

    `reason` is a short machine-readable word: "too_large", "malformed", "truncated".
    """

    def __init__(self, message: str, *, reason: str = "malformed") -> None:
        super().__init__(message)
        self.reason = reason


class Decoder(Protocol):
    """Bytes in, frames out. Any cut of the same bytes gives the same frames."""

    def feed(self, data: bytes) -> list[Frame]:
        """Take the next bytes; return the frames they complete. Raises FramingError."""

    def eof(self) -> list[Frame]:
        """Say that no more bytes come; return the frames that this completes. Raises FramingError if it may not end here."""


class Encoder(Protocol):
    """Frames in, bytes out."""

    def prologue(self) -> bytes:
        """Bytes before the first frame (b"" in most framings)."""

    def encode(self, frames: Iterable[Frame]) -> bytes:
        """The bytes of these frames, in order, ready for one write."""

    def keepalive(self) -> bytes:
        """Bytes that every reader of this framing ignores, to keep idle connections open; b"" where there are none."""

    def epilogue(self) -> bytes:
        """Bytes after the last frame (b"" in most framings)."""
