"""A non-streaming body in the shape of a stream: `WholeReader` and `WholeWriter`.

The rule: one frame is the whole body. The reader tells a provider's body as events, the writer folds events into the
caller's body; so a caller who wants a stream and a provider who sends none (and the other way round) need no code of
their own. A body goes through unchanged only from whole to whole; a stream's frames never stand for a body.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.formats.base import Format, FrameReader, ReaderOptions, WriterOptions
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.assemble import Assembler, explode
from headrace.model.errors import ErrorCode, ErrorInfo, GatewayError
from headrace.model.events import Event


class WholeReader(FrameReader):
    """Reads a provider's whole body, its only frame, as a StreamReader."""

    __slots__ = ("_ended", "_format", "_options")

    def __init__(self, format: Format, options: ReaderOptions) -> None:
        self._format = format
        self._options = options
        self._ended = False

    def read_frame(self, frame: Frame, events: list[Event]) -> None:
        """Append the body's events, or one Error where it is an error in disguise. Raises ProtocolError."""
        if self._ended:
            return
        try:
            response = self._format.read_response(frame.data, self._options)
        except GatewayError as error:
            events.append(ev.Error(error.info))
        else:
            events.extend(explode(response))
        self._ended = True

    def eof(self, leftover: bytes = b"") -> list[Event]:
        """[] after the body; an Error where none came."""
        if self._ended:
            return []
        self._ended = True
        message = f"{self._options.provider or 'The provider'} ended its answer without a body"
        return [ev.Error(ErrorInfo(code=ErrorCode.PROVIDER_UNAVAILABLE, type="upstream_truncated", message=message))]


class WholeWriter:
    """Writes a caller's whole body as a StreamWriter: one frame, at the terminal event."""

    __slots__ = ("_assembler", "_format", "_options", "lost")

    def __init__(self, format: Format, options: WriterOptions) -> None:
        self._format = format
        self._options = options
        self._assembler = Assembler()
        self.lost: set[str] = set()

    def write(self, events: Sequence[Event]) -> list[Frame]:
        """[] until the terminal event; then the answer's body, or the error's."""
        self._assembler.feed(events)
        if not events:
            return []
        last = events[-1]
        if isinstance(last, ev.Error):
            return [Frame(self._format.write_error(last.error))]
        if not isinstance(last, ev.End):
            return []
        response = self._assembler.response()
        if not isinstance(response.origin, bytes):  # the terminal frame of a stream, which is no body
            response = msgspec.structs.replace(response, origin=None)
        if not response.provider:
            response.provider = self._options.provider
        return [Frame(self._format.write_response(response, self._options))]
