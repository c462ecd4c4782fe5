"""The envelope of a stream: `{"bytes": base64 of the model's own event}`, one a message.

The rule: what is inside is Anthropic's reader's and writer's business; of the messages, exceptions alone are read here.
Amazon's Nova models speak Converse inside: that is read as well, since their first event shows it.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import msgspec

from headrace.formats import anthropic, bedrock
from headrace.formats.base import FrameReader, ReaderOptions, WriterOptions
from headrace.formats.bedrock.errors import error_frame, error_in_body, exception_frame, is_error
from headrace.formats.json import decode_payload, encode
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.errors import ProtocolError
from headrace.model.events import Event

_Reader = anthropic.AnthropicStreamReader | bedrock.BedrockStreamReader


class _Chunk(msgspec.Struct):
    bytes: str | None = None


_decode_chunk = msgspec.json.Decoder(_Chunk)
_decode_object = msgspec.json.Decoder(dict[str, Any])


class InvokeStreamReader(FrameReader):
    """Frames of `/model/{model}/invoke-with-response-stream` -> events."""

    __slots__ = ("_ended", "_inner", "_known", "_options")

    def __init__(self, options: ReaderOptions) -> None:
        self._options = options
        self._inner: _Reader = anthropic.AnthropicStreamReader(options)
        self._known = False  # whose events come
        self._ended = False

    def read_frame(self, frame: Frame, events: list[Event]) -> None:
        """Append the events of one frame. Raises ProtocolError."""
        if self._ended:
            return
        if is_error(frame.event):
            self._fail(ev.Error(error_frame(frame, self._options.provider)), events)
            return
        if frame.event not in ("chunk", ""):
            events.append(ev.Opaque(vendor=self._options.vendor or "anthropic", name=frame.event, content=True))
            return
        chunk = decode_payload(frame.data, _decode_chunk, "A chunk").bytes
        if chunk is None:
            self._without_bytes(frame, events)
            return
        try:
            data = base64.b64decode(chunk, validate=True)
        except ValueError:  # binascii's, and that of characters beyond ASCII
            raise ProtocolError("The bytes of a chunk are not base64") from None
        if not self._known:
            self._choose(data)
        self._inner.read_frame(Frame(data), events)

    def eof(self, leftover: bytes = b"") -> list[Event]:
        """What the model's own stream makes of its end."""
        return [] if self._ended else self._inner.eof(leftover)

    def _without_bytes(self, frame: Frame, events: list[Event]) -> None:
        told = error_in_body(decode_payload(frame.data, _decode_object, "A chunk"), self._options.provider)
        if told is None:
            raise ProtocolError("A chunk has no bytes")
        self._fail(ev.Error(told), events)

    def _choose(self, data: bytes) -> None:
        first = decode_payload(data, _decode_object, "A chunk's content")
        if isinstance(first.get("type"), str):
            self._known = True
        elif "messageStart" in first:
            self._known = True
            self._inner = bedrock.BedrockStreamReader(self._options)
        else:
            raise ProtocolError(
                "The model's own events are neither Claude's nor Nova's: use the format `bedrock`, which every model speaks"
            )

    def _fail(self, event: ev.Error, events: list[Event]) -> None:
        self._ended = True
        events.append(event)


class InvokeStreamWriter:
    """Events -> frames of `/model/{model}/invoke-with-response-stream`."""

    __slots__ = ("_inner", "lost")

    def __init__(self, options: WriterOptions) -> None:
        self._inner = anthropic.AnthropicStreamWriter(options)
        self.lost = self._inner.lost

    def write(self, events: Sequence[Event]) -> list[Frame]:
        """The frames these events become. A stream that fails ends in an exception, not in an event of the model's."""
        failed = bool(events) and isinstance(events[-1], ev.Error)
        frames = [
            Frame(b'{"bytes":%b}' % encode(base64.b64encode(frame.data).decode()), "chunk")
            for frame in self._inner.write(events[:-1] if failed else events)
        ]
        last = events[-1] if events else None
        if isinstance(last, ev.Error):
            frames.append(exception_frame(last.error))
        return frames
