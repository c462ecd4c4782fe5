"""A stream of the library as an answer in one format: its pieces in order, its whole body, or the error it opens with.

The rule: a recording in its own format is not touched; everything else is read into events by the format it is in and
written by the format that was asked for, the very codecs of the gateway. Pieces are made one at a time while they are
played, so thousands of streams under way hold no more than their writers.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.formats import PROVIDED
from headrace.formats.base import Format, ReaderOptions, StreamReader, StreamWriter, WriterOptions
from headrace.framing import Frame
from headrace.model.assemble import Assembler
from headrace.model.errors import ErrorCode, ErrorInfo, GatewayError, ProtocolError
from headrace.model.events import End, Error, Event
from headrace.model.request import Request
from headrace.tape.library import Stream
from headrace.tape.recording import Piece, Recording, slug
from headrace.tape.script import Script, ScriptError

CREATED = 1_735_689_600
"""The time that scripted answers carry (Unix seconds): always the same, as everything in them is."""

ERROR_TYPES = {
    "authentication_error": ErrorCode.UNAUTHENTICATED,
    "context_length_exceeded": ErrorCode.INVALID_REQUEST,
    "invalid_request_error": ErrorCode.INVALID_REQUEST,
    "not_found_error": ErrorCode.MODEL_NOT_FOUND,
    "permission_error": ErrorCode.FORBIDDEN,
    "rate_limit_error": ErrorCode.PROVIDER_RATE_LIMITED,
    "rate_limit_exceeded": ErrorCode.PROVIDER_RATE_LIMITED,
    "rate_limited": ErrorCode.PROVIDER_RATE_LIMITED,
    "timeout_error": ErrorCode.TIMEOUT,
}
"""Vendors' words for the fault `error`, beside our own codes; every other word means that the provider is unavailable."""

_CODES = frozenset(ErrorCode)


class Rendering:
    """One stream, as the answer to one request, in one format."""

    def __init__(self, stream: Stream, format: Format, request: Request) -> None:
        self._stream = stream
        self._format = format
        self._request = request
        self._ended = False

    def failure(self) -> tuple[float, ErrorInfo] | None:
        """The error that stands in place of the answer, with its time: the request then gets an HTTP status.

        Raises GatewayError where the script has no answer to the request.
        """
        if isinstance(self._stream, Recording):
            return None
        for at, events in self._timeline():
            return (at, events[0].error) if isinstance(events[0], Error) else None
        return None

    def pieces(self, framing: str = "sse", error_after: tuple[int, str] | None = None) -> Iterator[Piece]:
        """The stream's pieces. `error_after`: (k, type) puts an error in place of everything after k events."""
        stream = self._stream
        own = stream if isinstance(stream, Recording) and stream.format == self._format.name else None
        if error_after is None:
            return _untouched(own, framing) if own is not None else self._written(self._writer())
        writer = self._writer()
        source = self._shadowed(own, framing, writer) if own is not None else self._written(writer)
        return self._broken_off(source, writer, *error_after)

    def whole(self) -> tuple[float, bytes | ErrorInfo]:
        """The body of an answer that is not streamed, or the error it ends in, and when the stream would have ended."""
        assembler = Assembler()
        at = 0.0
        for at, events in self._timeline():  # noqa: B007  # the last time is what is wanted
            assembler.feed(events)
        if assembler.error is not None:
            return at, assembler.error
        return at, self._format.write_response(assembler.response(), self._writer_options())

    def _written(self, writer: StreamWriter) -> Iterator[Piece]:
        for at, events in self._timeline():
            self._ended = isinstance(events[-1], End | Error)
            for frame in writer.write(events):
                yield Piece(at, frame)

    def _shadowed(self, recording: Recording, framing: str, writer: StreamWriter) -> Iterator[Piece]:
        """The recording untouched, while `writer` sees its events, so that it can go on where the recording stops."""
        reader = self._format.stream_reader(ReaderOptions())
        for piece in _untouched(recording, framing):
            if piece.frame is not None:
                events = _events(reader, piece.frame)
                self._ended = self._ended or any(isinstance(event, End | Error) for event in events)
                writer.write(events)
            yield piece

    def _broken_off(self, pieces: Iterator[Piece], writer: StreamWriter, count: int, type_: str) -> Iterator[Piece]:
        """The first `count` events, then an error by the writer of the same events. A shorter stream stays whole."""
        at = 0.0
        while count:
            piece = next(pieces, None)
            if piece is None:
                return
            at = piece.at
            count -= piece.frame is not None
            yield piece
        if self._ended:
            return
        code = ERROR_TYPES.get(type_) or (ErrorCode(type_) if type_ in _CODES else ErrorCode.PROVIDER_UNAVAILABLE)
        info = ErrorInfo(code=code, type=type_, message=f"This error was asked for: {type_}")
        for frame in writer.write([Error(info)]):
            yield Piece(at, frame)

    def _timeline(self) -> Iterator[tuple[float, list[Event]]]:
        if isinstance(self._stream, Script):
            try:
                for at, event in self._stream.events(self._request, self._format.vendor):
                    yield at, [event]
            except ScriptError as error:
                raise GatewayError(ErrorInfo(code=ErrorCode.INVALID_REQUEST, message=str(error))) from None
        else:
            yield from _read(self._stream)

    def _writer(self) -> StreamWriter:
        return self._format.stream_writer(self._writer_options())

    def _writer_options(self) -> WriterOptions:
        request = self._request
        return WriterOptions(
            request=request,
            request_id=request.request_id or f"replay-{slug(self._stream.name)}",
            created=CREATED,
            model=request.model,
            provider="replay",
        )


def _untouched(recording: Recording, framing: str) -> Iterator[Piece]:
    """A recording in its own format; byte for byte where its own framing was asked for, else frame by frame."""
    if framing == recording.framing:
        return iter(recording.pieces)
    return (piece._replace(raw=None) for piece in recording.pieces if piece.frame is not None)


def _read(recording: Recording) -> Iterator[tuple[float, list[Event]]]:
    """The recording's events, as the reader of its format understands them; what it does not is passed over."""
    reader = PROVIDED[recording.format].stream_reader(ReaderOptions())
    at = 0.0
    for piece in recording.pieces:
        at = piece.at
        if piece.frame is not None and (events := _events(reader, piece.frame)):
            yield at, events
    if events := reader.eof(recording.leftover):
        yield at, events


def _events(reader: StreamReader, frame: Frame) -> list[Event]:
    try:
        return reader.read([frame])
    except ProtocolError as error:
        return list(error.events)
