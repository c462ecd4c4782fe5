"""One JSON array, streamed element by element (application/json): `JSONArrayDecoder` and `JSONArrayEncoder`.

The rule: an element is a frame as soon as its last byte is there (objects, arrays and strings; numbers and literals
with the byte after them), exactly as it was sent, without the white space around it. A top-level object in the array's
place is one frame: that is how a bare error body comes. The scanner counts brackets and knows strings, no more: it
neither recurses nor checks the JSON inside an element, whose reader does that anyway.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable

from headrace.framing.base import FrameDecoder
from headrace.framing.frame import MAX_FRAME_BYTES, Frame, FramingError

_NOT_SPACE = re.compile(rb"[^ \t\n\r]")


class _State(enum.Enum):
    """Where the scanner stands. The value says what may come next, for error messages."""

    START = "an array or an object"
    FIRST = "an element or ]"
    ELEMENT = "an element"
    AFTER = ", or ]"
    END = "nothing"
    NESTED = "the rest of an object or array"  # in an element, outside of its strings
    STRING = "the rest of a string"
    ESCAPE = "an escaped character"
    SCALAR = "the rest of a number or literal"


_INSIDE = {
    _State.NESTED: re.compile(rb'["\[\]{}]'),
    _State.STRING: re.compile(rb'["\\]'),
    _State.ESCAPE: re.compile(rb".", re.DOTALL),
    _State.SCALAR: re.compile(rb"[ \t\n\r,\]]"),
}
"""In the states inside an element: the byte to look for next. All before it belongs to the element."""


class JSONArrayDecoder(FrameDecoder):
    """Decoder of one streamed array. `max_frame` bounds an element, in bytes; nesting has no bound of its own."""

    def __init__(self, max_frame: int = MAX_FRAME_BYTES) -> None:
        super().__init__(max_frame)
        self._state = _State.START
        self._in_array = False
        self._depth = 0  # open brackets of the element under way
        self._element = bytearray()  # what earlier reads brought of it

    def _decode(self, data: bytes, frames: list[Frame]) -> None:
        position = 0
        while position < len(data):
            if self._state not in _INSIDE:
                position = self._seek_element(data, position)
                continue
            end = self._seek_end(data, position)
            self._element += data[position:end]
            if len(self._element) > self._max:
                raise self._too_large("an element of the JSON array")
            if end is None:
                return
            frames.append(Frame(bytes(self._element)))
            self._element.clear()
            self._state = _State.AFTER if self._in_array else _State.END
            position = end

    def _finish(self, frames: list[Frame]) -> None:
        if self._state is not _State.END:
            raise FramingError(
                f"the stream ended before its JSON did: {self._state.value} was to come", reason="truncated"
            )

    def _seek_element(self, data: bytes, position: int) -> int:
        """Pass white space and one byte of the array's own punctuation, or stop at an element's first byte."""
        match = _NOT_SPACE.search(data, position)
        if match is None:
            return len(data)
        byte, state = match.group(), self._state
        if state is _State.START and byte == b"[":
            self._in_array = True
            self._state = _State.FIRST
        elif state is _State.START and byte == b"{":
            self._state = _State.NESTED
            return match.start()
        elif state is _State.AFTER and byte == b",":
            self._state = _State.ELEMENT
        elif state in (_State.AFTER, _State.FIRST) and byte == b"]":
            self._state = _State.END
        elif state in (_State.FIRST, _State.ELEMENT) and byte not in b",:]}":
            # A string at the top is an element of depth 0, ended by its quote as an object is by its bracket.
            self._state = _State.NESTED if byte in b'[{"' else _State.SCALAR
            return match.start()
        else:
            raise FramingError(f"malformed JSON array: {state.value} was to come, not {byte!r}")
        return match.end()

    def _seek_end(self, data: bytes, position: int) -> int | None:
        """Where the element under way ends in `data`, None if it goes on. `position` is inside of it, or its start."""
        while match := _INSIDE[self._state].search(data, position):
            position = match.end()
            byte = match.group()
            if self._state is _State.SCALAR:
                return match.start()
            if self._state is _State.ESCAPE:
                self._state = _State.STRING
            elif self._state is _State.STRING:
                self._state = _State.ESCAPE if byte == b"\\" else _State.NESTED
            elif byte == b'"':
                self._state = _State.STRING
            else:
                self._depth += 1 if byte in b"[{" else -1
            if self._state is _State.NESTED and not self._depth:
                return position
        return None


class JSONArrayEncoder:
    """Encoder of one streamed array. A frame's event and id are not carried: an array has no room for them.

    An element's comma goes out with the element after it, so that `epilogue` closes the array properly at any point.
    """

    def __init__(self) -> None:
        self._separator = b""

    def prologue(self) -> bytes:
        """The opening bracket."""
        return b"["

    def encode(self, frames: Iterable[Frame]) -> bytes:
        """The elements of these frames, with the commas before them. Raises ValueError for data that is empty."""
        parts: list[bytes] = []
        for frame in frames:
            if not frame.data or frame.data.isspace():
                raise ValueError("an element of a JSON array may not be empty")
            parts += (self._separator, frame.data)
            self._separator = b",\n"
        return b"".join(parts)

    def keepalive(self) -> bytes:
        """White space, which JSON allows between elements."""
        return b"\n"

    def epilogue(self) -> bytes:
        """The closing bracket."""
        return b"]\n"
