"""The short cut of both readers: frames that differ from the last one in their seq and one piece of text.

A template is the bytes around the two. A frame with the same bytes around it, the seq that is due, and one JSON string
between is the same object with another text: exact, not a guess. `learn` proves a template before it is used, by putting a
sentinel in place of each and comparing what is decoded; a frame it cannot prove is simply read the long way.
"""

from __future__ import annotations

from typing import Any

import msgspec

_decode_text = msgspec.json.Decoder(str).decode
_decode = msgspec.json.Decoder().decode
_SENTINEL = "\x01headrace\x02"
_SENTINEL_JSON = msgspec.json.encode(_SENTINEL)
_SENTINEL_SEQ = 8_765_432_101_234_567
_MAX_FAILURES = 8


class Template:
    """At most one template at a time, of one stream."""

    __slots__ = ("_before", "_between", "_failures", "_suffix")

    def __init__(self) -> None:
        self._before = b""
        self._between = b""
        self._suffix = b""
        self._failures = 0

    def match(self, data: bytes, seq: int) -> str | None:
        """The text, or None where the frame has another structure."""
        prefix = b"%b%d%b" % (self._before, seq, self._between)
        if not data.startswith(prefix) or not data.endswith(self._suffix):
            return None
        try:
            return _decode_text(data[len(prefix) : -len(self._suffix)])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def learn(self, data: bytes, seq: int, text: str, path: tuple[str, str]) -> bool:
        """Take this frame, whose only news are seq and the text at `path`. False where it is not fit for it."""
        if self._failures > _MAX_FAILURES:
            return False
        made = _split(data, seq, text, path)
        if made is None:
            self._failures += 1
            return False
        self._before, self._between, self._suffix = made
        return True


def _split(data: bytes, seq: int, text: str, path: tuple[str, str]) -> tuple[bytes, bytes, bytes] | None:
    outer, inner = path
    name = b'"%b":' % inner.encode()
    digits = b"%d" % seq
    at_text = data.find(name)
    at_seq = data.find(b'"seq":')
    if at_text < 0 or at_seq < 0 or at_seq > at_text:
        return None
    start = at_text + len(name)
    if data[start : start + 1] == b" ":
        start += 1
    after_seq = at_seq + len(b'"seq":')
    if data[after_seq : after_seq + 1] == b" ":
        after_seq += 1
    stop = _end_of_string(data, start)
    if stop is None or not data.startswith(digits, after_seq):
        return None
    before, between, suffix = data[:after_seq], data[after_seq + len(digits) : start], data[stop:]
    try:
        original: Any = _decode(data)
        probe: Any = _decode(b"%b%d%b%b%b" % (before, _SENTINEL_SEQ, between, _SENTINEL_JSON, suffix))
        if probe["seq"] != _SENTINEL_SEQ or probe[outer][inner] != _SENTINEL or original[outer][inner] != text:
            return None
        probe["seq"] = seq
        probe[outer][inner] = text
    except (msgspec.DecodeError, LookupError, TypeError):
        return None
    return (before, between, suffix) if probe == original and suffix else None


def _end_of_string(data: bytes, start: int) -> int | None:
    """The place after the JSON string that begins at `start`."""
    if data[start : start + 1] != b'"':
        return None
    place = start + 1
    while (place := data.find(b'"', place)) >= 0:
        backslashes = 0
        while data[place - 1 - backslashes] == 0x5C:
            backslashes += 1
        place += 1
        if backslashes % 2 == 0:
            return place
    return None
