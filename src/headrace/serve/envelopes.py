"""Events inside a message of another protocol: a fixed text before each, another after it. And what a stream's last events
say of its end, for protocols that have an answer of their own for that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from headrace.framing import Frame

_TAIL = 2
"""Events that tell how a stream ended: llm-stream has one more after its error."""

_ENVELOPE = frozenset({"type", "seq", "v"})
"""Fields of an event that say nothing of what it tells."""


class Envelope:
    """Encoder of one stream. `frame` makes a message of a JSON text."""

    def __init__(self, head: bytes, tail: bytes, frame: Callable[[bytes], bytes]) -> None:
        self._head = head
        self._tail = tail
        self._frame = frame
        self._latest: deque[bytes] = deque(maxlen=_TAIL)
        self._usage: bytes | None = None

    def prologue(self) -> bytes:
        """Messages stand for themselves: b""."""
        return b""

    def encode(self, frames: Iterable[Frame]) -> bytes:
        pieces = []
        for frame in frames:
            self._latest.append(frame.data)
            if frame.event == "usage" or (not frame.event and b'"usage"' in frame.data):
                self._usage = frame.data
            pieces.append(self._frame(self._head + frame.data + self._tail))
        return b"".join(pieces)

    def keepalive(self) -> bytes:
        """The connection shows signs of life for all its streams: b""."""
        return b""

    def epilogue(self) -> bytes:
        """What is said at the end is the call's business: b""."""
        return b""

    @property
    def error(self) -> dict[str, Any] | None:
        """The error that the stream ended with: `code`, `message` and what else its format tells."""
        for event in self._events():
            found = event.get("data") if "data" in event else event.get("error")
            if event.get("type") == "error" or "type" not in event:
                return found if isinstance(found, dict) else _without_envelope(event)
        return None

    @property
    def outcome(self) -> dict[str, Any]:
        """What the last event of a stream that did not fail says, usage among it."""
        fields: dict[str, Any] = {}
        if self._usage is not None and (usage := _decode(self._usage)).get("type") == "usage":
            fields["usage"] = usage["data"] if "data" in usage else _without_envelope(usage)
        for event in self._events()[-1:]:
            fields |= _without_envelope(event)
        return fields

    def _events(self) -> list[dict[str, Any]]:
        return [_decode(data) for data in self._latest]


def _without_envelope(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in _ENVELOPE}


def error_of(body: bytes) -> dict[str, Any]:
    """The error object in the body of a refusal (`Format.write_error`)."""
    found = _decode(body)
    error = found.get("error", found)
    return error if isinstance(error, dict) else found


def _decode(data: bytes) -> dict[str, Any]:
    return msgspec.json.decode(data, type=dict[str, Any])
