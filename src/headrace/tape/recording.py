"""A recording: what one provider sent in one answer, frame by frame, with the time of each.

The rule: the bytes between two frames are kept where they are known (`Piece.raw`), so that a recording is played in its
own format byte for byte, comments, ids and line ends included. Where only the frames are known they are encoded anew.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.framing import Frame

DEFAULT_GAP = 0.02
"""Seconds between two frames of a stream whose rhythm is not known."""


def slug(name: str) -> str:
    """A stream's name as part of an id: letters, digits and - only."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name)


class RecordingError(ValueError):
    """A file is no recording that could be played. The message names the file and the reason."""


class Piece(NamedTuple):
    """What is sent at one moment of a stream. `frame` None: bytes that form no event (comments, a bare error body)."""

    at: float
    """Seconds since the request."""
    frame: Frame | None
    raw: bytes | None = None
    """The bytes as recorded, framing included; None: encode `frame`."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded answer. `format` and `framing` are names in the registries FORMATS and FRAMINGS."""

    name: str
    format: str
    pieces: tuple[Piece, ...] = field(repr=False)
    framing: str = "sse"
    description: str = ""
    leftover: bytes = field(default=b"", repr=False)
    """What the decoder of the framing found to be no frame at all (a bare error body after the last event)."""

    @property
    def frames(self) -> list[tuple[float, Frame]]:
        """(seconds, frame) of every event, in order."""
        return [(piece.at, piece.frame) for piece in self.pieces if piece.frame is not None]
