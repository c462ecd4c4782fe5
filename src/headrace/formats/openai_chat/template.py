"""The short cut for what streams mostly hold: frames that differ from one another in one piece of text.

A `Template` is made from a frame that was read the long way: the bytes before and after the text's JSON literal. A later
frame with the same bytes around it, and one JSON string literal between, is the same object with another text: that is
exact, not a guess, and `learn` proves it (it puts a sentinel in the literal's place and compares what is decoded).
A random padding (`obfuscation`) is allowed for as a second literal. The trade-off: the first frames of a stream, and all
frames of servers that change something else in every frame, cost a little more than without it.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

_decode_text = msgspec.json.Decoder(str).decode
_decode_any = msgspec.json.Decoder().decode
_LITERAL = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_SENTINEL = "\x01headrace\x02"
_SENTINEL_LITERAL = msgspec.json.encode(_SENTINEL)
_KEPT = 4
_MAX_PAUSE = 64

Field = Literal["content", "reasoning_content", "reasoning", "arguments"]
_FINDERS = {name: re.compile(b'"' + name.encode() + rb'"[ ]?:[ ]?(' + _LITERAL + b")") for name in Field.__args__}  # type: ignore[attr-defined]  # a Literal lists its values there
_PADDING = re.compile(rb'"obfuscation"[ ]?:[ ]?(' + _LITERAL + b")")


class Template:
    """Frames of one structure. `target` is what the reader tied to it (which choice's which block)."""

    __slots__ = ("_middle", "_prefix", "_start", "_stop", "_suffix", "target", "used")

    def __init__(self, prefix: bytes, middle: bytes, suffix: bytes, target: Any) -> None:
        self._prefix = prefix
        self._middle = middle  # between the text and the padding; b"" where there is no padding
        self._suffix = suffix
        self._start = len(prefix)
        self._stop = -len(suffix)
        self.target = target
        self.used = False

    def match(self, data: bytes) -> str | None:
        """The text, or None where the frame is of another structure (or its text not plainly valid)."""
        if not data.startswith(self._prefix) or not data.endswith(self._suffix):
            return None
        try:
            if not self._middle:
                return _decode_text(data[self._start : self._stop])
            end = data.find(self._middle, self._start)
            if end < 0:
                return None
            _decode_text(data[end + len(self._middle) : self._stop])
            return _decode_text(data[self._start : end])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None


class Templates:
    """The templates of one stream: the last few, the latest used first."""

    __slots__ = ("_kept", "_pause", "_wait")

    def __init__(self) -> None:
        self._kept: list[Template] = []
        self._pause = 0  # frames to let pass before learning again, after templates that were never used
        self._wait = 0

    def match(self, data: bytes) -> tuple[Template, str] | None:
        """The template that fits and the text, from those that are not the latest one."""
        kept = self._kept
        for position in range(1, len(kept)):
            text = kept[position].match(data)
            if text is not None:
                template = kept.pop(position)
                kept.insert(0, template)
                return template, text
        return None

    def learn(self, data: bytes, field: Field, text: str, target: Any) -> Template | None:
        """Take this frame, whose only news is `text` under `field`, as a template. None where it is not fit for it."""
        if self._wait:
            self._wait -= 1
            return None
        if self._kept and not self._kept[0].used:
            self._pause = min(2 * self._pause + 1, _MAX_PAUSE)
        else:
            self._pause = 0
        self._wait = self._pause
        template = _make(data, field, text, target)
        if template is not None:
            self._kept.insert(0, template)
            del self._kept[_KEPT:]
        return template


def _make(data: bytes, field: Field, text: str, target: Any) -> Template | None:
    try:
        original = _decode_any(data)
    except msgspec.DecodeError:
        return None  # JSON that had to be mended (a lone surrogate)
    for found in _FINDERS[field].finditer(data):
        prefix, rest = data[: found.start(1)], data[found.end(1) :]
        try:
            probe = _decode_any(prefix + _SENTINEL_LITERAL + rest)
            place = _place(probe, field)
            if place[field] != _SENTINEL:
                continue
        except (msgspec.DecodeError, LookupError, TypeError):
            continue
        place[field] = text
        if probe != original:
            continue
        padding = _PADDING.search(rest)
        if padding is None:
            return Template(prefix, b"", rest, target)
        middle, suffix = rest[: padding.start(1)], rest[padding.end(1) :]
        return Template(prefix, middle, suffix, target)
    return None


def _place(chunk: Any, field: Field) -> Any:
    """The object of the first choice's delta that holds the field."""
    delta = chunk["choices"][0]["delta"]
    return delta["tool_calls"][0]["function"] if field == "arguments" else delta
