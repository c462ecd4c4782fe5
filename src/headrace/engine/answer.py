"""The caller's side of a stream: events become bytes that wait here until they are handed out, after one head.

The rule: an answer is either a plain HTTP error or the caller's own format from its prologue to its epilogue, never
half of each. `Answer` only makes bytes and counts them; when and whether is decided by the stream (stream.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from headrace.engine.codecs import JSON, caller_encoder, caller_media_type, caller_writer
from headrace.engine.commands import SendHead
from headrace.engine.settings import Caller, Upstream
from headrace.formats.base import StreamWriter, WriterOptions
from headrace.framing import Encoder, Frame
from headrace.model.errors import ErrorInfo
from headrace.model.events import Event

_LAST_RESORT = b'{"error":{"message":"The gateway failed on this request","type":"internal_error"}}'


class Answer:
    """What a caller gets. Times are monotonic seconds."""

    __slots__ = (
        "_encoder",
        "_options",
        "_pieces",
        "_writer",
        "buffered",
        "bytes_out",
        "caller",
        "events",
        "last_sent",
        "status",
        "unsaid",
    )

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self._options = caller.writer_options
        self._writer: StreamWriter | None = None  # made when first needed
        self._encoder: Encoder | None = None
        self._pieces: list[bytes] = []
        self.buffered = 0
        """Bytes that wait."""
        self.status: int | None = None
        """Of the head, once it was made."""
        self.last_sent = math.inf
        """When bytes were made last."""
        self.unsaid = 0
        """Bytes of the provider's that the writer may still hold: all that came since it last made a frame."""
        self.events = 0
        """How many were written."""
        self.bytes_out = 0
        """How many bytes were handed out."""

    @property
    def lost(self) -> frozenset[str]:
        """What could not be carried, of the request and of the answer."""
        lost = frozenset(self._options.lost)
        return lost if self._writer is None else lost | self._writer.lost

    def speaks_for(self, upstream: Upstream, lost: tuple[str, ...]) -> None:
        """What is written from now on is this candidate's answer; `lost` of the request to it."""
        base = self.caller.writer_options
        self._options = WriterOptions(
            request=base.request,
            request_id=base.request_id,
            created=base.created,
            model=upstream.model,
            provider=upstream.provider,
            passthrough=upstream.format is self.caller.format,
            lost=lost or base.lost,
            check=base.check,
        )

    def write(self, events: Sequence[Event], now: float) -> None:
        """Translate events. Raises whatever a faulty codec raises; nothing of them is sent then."""
        self._add(self._encode(events), now)

    def pass_on(self, events: Sequence[Event], now: float) -> bytes:
        """Translate events whose bytes are handed out at once, before any that wait. Some must have been written."""
        writer, encoder = self._writer, self._encoder
        assert writer is not None
        assert encoder is not None
        frames = writer.write(events)
        self.events += len(events)
        if not frames:
            return b""
        self.unsaid = 0
        data = encoder.encode(frames)
        self.last_sent = now
        self.bytes_out += len(data)
        return data

    def _encode(self, events: Sequence[Event]) -> bytes:
        writer, encoder = self._writer, self._encoder
        if writer is None:
            writer = self._writer = caller_writer(self.caller, self._options)
        if encoder is None:
            encoder = self._encoder = caller_encoder(self.caller)
        frames = writer.write(events)
        self.events += len(events)
        if not frames:
            return b""
        self.unsaid = 0
        return encoder.encode(frames)

    def open(self) -> SendHead:
        """Commit to the caller's format. The prologue goes before whatever was written already."""
        prologue = self._encoding().prologue()
        if prologue:
            self._pieces.insert(0, prologue)
            self.buffered += len(prologue)
        self.status = 200
        return SendHead(200, caller_media_type(self.caller), stream=self.caller.stream)

    def close(self, now: float) -> None:
        """Write the epilogue."""
        self._add(self._encoding().epilogue(), now)

    def keepalive(self, now: float) -> bool:
        """Write a sign of life; whether the framing has one. Must be preceded by `open`, or followed by it at once."""
        sign = self._encoding().keepalive()
        self._add(sign, now)
        self.last_sent = now
        return bool(sign)

    def refuse(self, info: ErrorInfo, now: float) -> SendHead:
        """Answer with a plain HTTP error in the caller's format."""
        format = self.caller.format
        body, status, headers = format.write_error(info), format.error_status(info), format.error_headers(info)
        wait = info.retry_after
        if wait is not None and 0 <= wait < math.inf:
            headers = (*headers, ("retry-after", str(math.ceil(wait))))
        self._add(body, now)
        return self._head(status, JSON, headers)

    def break_down(self, now: float) -> SendHead:
        """Answer without the caller's format, which has failed."""
        self.discard()
        own = self.caller.encoder
        plain = own is None or self.caller.tells_status
        self._add(_LAST_RESORT if plain or own is None else own().encode([Frame(_LAST_RESORT)]), now)
        return self._head(500, JSON)

    def hand_out(self) -> bytes:
        """All bytes that wait."""
        pieces = self._pieces
        if not pieces:
            return b""
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self.buffered = 0
        self.bytes_out += len(data)
        return data

    def discard(self) -> None:
        """Forget the bytes that wait."""
        self._pieces.clear()
        self.buffered = 0

    def _encoding(self) -> Encoder:
        if self._encoder is None:
            self._encoder = caller_encoder(self.caller)
        return self._encoder

    def _add(self, data: bytes, now: float) -> None:
        if data:
            self._pieces.append(data)
            self.buffered += len(data)
            self.last_sent = now

    def _head(self, status: int, content_type: str, headers: tuple[tuple[str, str], ...] = ()) -> SendHead:
        self.status = status
        return SendHead(status, content_type, headers)
