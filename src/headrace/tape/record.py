"""Recording files: what a provider sent, with the time of every frame, as JSON lines.

The first line is the header, `{"tape": 1, "format", "framing", "created", "description"}`. Each further line is a frame,
`{"at", "event", "id", "data"}` (`event` and `id` only where there are any; `base64` in place of `data` where that is
not UTF-8), or bytes that formed no frame, `{"at", "raw"}` in base64. `at` counts seconds from the request. The
trade-off: comments and line ends are not kept, so that a recording can be read, cut and edited by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Any, TypeVar

import msgspec

from headrace.formats import PROVIDED
from headrace.framing import FRAMINGS, Frame, FramingError, SSEDecoder
from headrace.tape.recording import Piece, Recording, RecordingError

VERSION = 1


class Header(msgspec.Struct, kw_only=True):
    """The first line of a recording file."""

    tape: int
    format: str
    framing: str = "sse"
    created: int = 0
    """Unix seconds of the recording."""
    description: str = ""


class _Line(msgspec.Struct, kw_only=True, omit_defaults=True):
    at: Annotated[float, msgspec.Meta(ge=0)]
    event: str = ""
    id: str | None = None
    data: str | None = None
    base64: bytes | None = None
    raw: bytes | None = None


class Recorder:
    """Writes one answer down while it arrives. `write` takes the bytes of whole lines (a file's `write`, say)."""

    def __init__(
        self,
        write: Callable[[bytes], object],
        *,
        format: str,
        framing: str = "sse",
        created: int = 0,
        description: str = "",
    ) -> None:
        if format not in PROVIDED or framing not in FRAMINGS:
            raise ValueError(f"cannot record {format} over {framing}: choose from {[*PROVIDED]} and {[*FRAMINGS]}")
        self._write = write
        self._decoder = FRAMINGS[framing].decoder(**PROVIDED[format].framing_options)
        self._broken = False
        self._last = 0.0
        self._line(
            Header(tape=VERSION, format=format, framing=framing, created=created, description=description),
        )

    def feed(self, data: bytes, at: float) -> None:
        """Bytes of the body as they came, `at` seconds after the request was sent."""
        self._last = at
        if self._broken:
            self._line(_Line(at=at, raw=data))
            return
        try:
            frames = self._decoder.feed(data)
        except FramingError:
            self._broken = True
            self._line(_Line(at=at, raw=data))
            return
        self._frames(frames, at)

    def eof(self) -> None:
        """The body has ended. What it left without a frame is written down too."""
        if self._broken:
            return
        try:
            self._frames(self._decoder.eof(), self._last)
        except FramingError:
            return
        if isinstance(self._decoder, SSEDecoder) and (leftover := self._decoder.leftover()):
            self._line(_Line(at=self._last, raw=leftover))

    def _frames(self, frames: list[Frame], at: float) -> None:
        for frame in frames:
            try:
                line = _Line(at=at, event=frame.event, id=frame.id, data=frame.data.decode())
            except UnicodeDecodeError:
                line = _Line(at=at, event=frame.event, id=frame.id, base64=frame.data)
            self._line(line)

    def _line(self, value: msgspec.Struct) -> None:
        self._write(msgspec.json.encode(value) + b"\n")


def is_recording(data: bytes) -> bool:
    """Whether these are the bytes of a recording file, by their first line."""
    try:
        head: Any = msgspec.json.decode(data.partition(b"\n")[0])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(head, dict) and "tape" in head


def read_recording(data: bytes, name: str) -> Recording:
    """A recording from the bytes of its file. Raises RecordingError, naming the line that is wrong."""
    lines = data.split(b"\n")
    header = _decode(lines[0], Header, name, 1)
    if header.tape != VERSION:
        raise RecordingError(f"{name}: a recording of version {header.tape}; this program reads version {VERSION}")
    if header.format not in PROVIDED:
        raise RecordingError(f"{name}: format {header.format!r} is not one of {', '.join(PROVIDED)}")
    if header.framing not in FRAMINGS:
        raise RecordingError(f"{name}: framing {header.framing!r} is not one of {', '.join(FRAMINGS)}")
    pieces = [
        _piece(_decode(line, _Line, name, number), f"{name}, line {number}")
        for number, line in enumerate(lines[1:], 2)
        if line
    ]
    if any(later.at < earlier.at for earlier, later in pairwise(pieces)):
        raise RecordingError(f"{name}: the times (`at`) must not go backwards")
    leftover = b"".join(piece.raw or b"" for piece in pieces if piece.frame is None)
    return Recording(name, header.format, tuple(pieces), header.framing, header.description, leftover)


_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def _decode(line: bytes, type: type[_Struct], name: str, number: int) -> _Struct:
    try:
        return msgspec.json.decode(line, type=type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordingError(f"{name}, line {number}: {error}") from None


def _piece(line: _Line, where: str) -> Piece:
    if line.raw is not None:
        return Piece(line.at, None, line.raw)
    if line.data is None and line.base64 is None:
        raise RecordingError(f"{where}: one of data, base64 and raw is required")
    data = line.data.encode() if line.data is not None else line.base64 or b""
    return Piece(line.at, Frame(data, line.event, line.id))
