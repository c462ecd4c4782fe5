"""Answers as they go over the wire: steps of (time, bytes), in order, and how they end. No I/O.

A stream's pieces become steps in a chain of generators: faults that count events, the framing, faults that touch bytes,
the HTTP body, faults that touch the wire. Each is a small generator of its own, so any of them combine, and a stream
under way costs a few suspended frames, however long it is.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from functools import partial
from http import HTTPStatus
from typing import NamedTuple

from headrace.framing import Encoder, Frame, Framing
from headrace.tape.faults import Faults
from headrace.tape.recording import Piece

GARBAGE = b"\xff\xfe\x00<html><h1>502 Bad Gateway</h1>\xc3\x28\x80\n\n"
"""What the fault `garbage` sends: neither an event, nor JSON, nor UTF-8."""

DRIP_GAP = 0.001
"""Seconds between two bytes of the fault `drip`."""

Headers = Sequence[tuple[str, str]]


class _Plain:
    """The encoder of a body that has no framing."""

    def prologue(self) -> bytes:
        return b""

    def encode(self, frames: Iterable[Frame]) -> bytes:
        return b"".join(frame.data for frame in frames)

    def keepalive(self) -> bytes:
        return b"\n"

    def epilogue(self) -> bytes:
        return b""


class Ending(Enum):
    """What happens to the connection after the last step."""

    COMPLETE = "the answer is whole; the connection may be used again"
    CLOSE = "the connection is closed (FIN)"
    RESET = "the connection is reset (RST)"
    SILENCE = "the connection stays open, and nothing more is sent"


class Step(NamedTuple):
    """Bytes to be sent `at` seconds after the request, and then the end, if this is the end."""

    at: float
    data: bytes
    ending: Ending | None = None


def whole(status: int, body: bytes, *, headers: Headers = (), delay: float = 0.0) -> Iterator[Step]:
    """An answer of known length, in JSON."""
    fields = [("content-type", "application/json"), ("content-length", str(len(body))), *headers]
    yield Step(delay, _head(status, fields) + body, Ending.COMPLETE)


def hang() -> Iterator[Step]:
    """No answer at all."""
    yield Step(0.0, b"", Ending.SILENCE)


def body(at: float, data: bytes, faults: Faults, speed: float, *, chunked: bool) -> Iterator[Step]:
    """A whole JSON body with faults: it counts as one event, which comes `at` seconds after the request."""
    return _answer((Piece(at, Frame(data)),), _Plain(), "application/json", faults, speed, chunked)


def stream(pieces: Iterable[Piece], framing: Framing, faults: Faults, speed: float, *, chunked: bool) -> Iterator[Step]:
    """A stream in a framing, with faults. `chunked` False: for callers of HTTP/1.0, whose body ends with the connection."""
    return _answer(pieces, framing.encoder(), framing.media_type, faults, speed, chunked)


def _answer(
    pieces: Iterable[Piece], encoder: Encoder, media_type: str, faults: Faults, speed: float, chunked: bool
) -> Iterator[Step]:
    start = faults.delay + faults.first_delay
    steps = _encoded(_with_event_faults(pieces, faults), encoder, faults.comment, start, speed)
    for touch in _byte_faults(faults):
        steps = touch(steps)
    fields = [("content-type", media_type), ("cache-control", "no-cache")]
    if faults.gzip:
        fields.append(("content-encoding", "gzip"))
    fields.append(("transfer-encoding", "chunked") if chunked else ("connection", "close"))
    steps = _with_head(_head(200, fields), faults.delay, _chunks(steps) if chunked else _until_close(steps))
    if faults.drip:
        steps = _drip(steps, DRIP_GAP / speed if speed else 0.0)
    return steps


# -- faults that count events ----------------------------------------------------------------------------------------


def _with_event_faults(pieces: Iterable[Piece], faults: Faults) -> Iterator[tuple[Piece, Ending | None]]:
    stop, ending = _stop(faults)
    count = 0
    last = Piece(0.0, None, b"")
    if faults.garbage == 0:
        yield last._replace(raw=GARBAGE), None
    for piece in pieces:
        if piece.frame is None:
            yield piece, None
            continue
        if count == stop:
            yield piece, ending
            return
        count += 1
        last = piece
        yield (_malformed(piece) if count == faults.malformed else piece), None
        if count == faults.garbage:
            yield Piece(piece.at, None, GARBAGE), None
    if faults.duplicate_terminal:
        yield last, None
    if count == stop:
        yield last, ending


def _stop(faults: Faults) -> tuple[int | None, Ending | None]:
    """After how many events the stream breaks off, and how. Where several are asked for, the first to come."""
    stops = [
        (faults.cut, Ending.COMPLETE if faults.cut_clean else Ending.CLOSE),
        (faults.reset, Ending.RESET),
        (faults.silence, Ending.SILENCE),
    ]
    return min(
        ((count, ending) for count, ending in stops if count is not None),
        key=lambda stop: stop[0],
        default=(None, None),
    )


def _malformed(piece: Piece) -> Piece:
    frame = piece.frame or Frame(b"")
    half = frame.data[: max(1, len(frame.data) // 2)]
    return Piece(piece.at, Frame(half, frame.event, frame.id))


# -- framing ---------------------------------------------------------------------------------------------------------


def _encoded(
    pieces: Iterable[tuple[Piece, Ending | None]], encoder: Encoder, comment: int, start: float, speed: float
) -> Iterator[Step]:
    count = 0
    at = start
    if prologue := encoder.prologue():
        yield Step(at, prologue)
    for piece, ending in pieces:
        at = start + (piece.at / speed if speed else 0.0)
        if ending is not None:
            yield Step(at, b"", ending)
            return
        data = piece.raw
        if data is None:
            data = encoder.encode((piece.frame,)) if piece.frame is not None else b""
        if piece.frame is not None and comment:
            if count % comment == 0:
                yield Step(at, encoder.keepalive())
            count += 1
        yield Step(at, data)
    if epilogue := encoder.epilogue():
        yield Step(at, epilogue)


# -- faults that touch bytes -----------------------------------------------------------------------------------------

_Touch = Callable[[Iterator[Step]], Iterator[Step]]

_EVENT_LINE = re.compile(rb"^event:[^\r\n]*(?:\r\n|\r|\n)", re.MULTILINE)
_FIELD_SPACE = re.compile(rb"^(data|event|id): ", re.MULTILINE)


def _byte_faults(faults: Faults) -> Iterator[_Touch]:
    """The faults that were asked for, in the order they are applied."""
    if faults.eventless:
        yield partial(_changed, change=lambda data: _EVENT_LINE.sub(b"", data))
    if faults.nospace:
        yield partial(_changed, change=lambda data: _FIELD_SPACE.sub(rb"\1:", data))
    if faults.crlf or faults.cr:
        line_end = b"\r\n" if faults.crlf else b"\r"
        yield partial(
            _changed,
            change=lambda data: data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", line_end),
        )
    if faults.coalesce > 1:
        yield partial(_coalesced, count=faults.coalesce)
    if faults.gzip:
        yield _compressed
    if faults.split:
        yield partial(_cut_up, size=faults.split)


def _changed(steps: Iterator[Step], change: Callable[[bytes], bytes]) -> Iterator[Step]:
    for step in steps:
        yield step._replace(data=change(step.data))


def _coalesced(steps: Iterator[Step], count: int) -> Iterator[Step]:
    held = b""
    number = 0
    at = 0.0
    for step in steps:
        if number == count or (step.ending is not None and held):
            yield Step(at, held)
            held, number = b"", 0
        if step.ending is not None:
            yield step
            return
        at = step.at
        held += step.data
        number += 1
    if held:
        yield Step(at, held)


def _compressed(steps: Iterator[Step]) -> Iterator[Step]:
    compressor = zlib.compressobj(wbits=31)
    at = 0.0
    for step in steps:
        at = step.at
        if step.ending is not None:
            yield step._replace(data=compressor.flush()) if step.ending is Ending.COMPLETE else step
            return
        yield Step(at, compressor.compress(step.data) + compressor.flush(zlib.Z_SYNC_FLUSH))
    yield Step(at, compressor.flush())


def _cut_up(steps: Iterator[Step], size: int) -> Iterator[Step]:
    for step in steps:
        for start in range(0, len(step.data), size):
            yield Step(step.at, step.data[start : start + size])
        if step.ending is not None:
            yield step._replace(data=b"")


# -- HTTP ------------------------------------------------------------------------------------------------------------


def _head(status: int, fields: Headers) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Error"
    lines = [f"HTTP/1.1 {status} {phrase}", "server: headrace-replay", *(f"{name}: {value}" for name, value in fields)]
    return "\r\n".join([*lines, "\r\n"]).encode("latin-1")


def _with_head(head: bytes, at: float, steps: Iterator[Step]) -> Iterator[Step]:
    yield Step(at, head)
    yield from steps


def _chunks(steps: Iterator[Step]) -> Iterator[Step]:
    """The chunked transfer coding, one chunk a step."""
    at = 0.0
    for step in steps:
        at = step.at
        chunk = b"%x\r\n%b\r\n" % (len(step.data), step.data) if step.data else b""
        if step.ending is Ending.COMPLETE:
            chunk += b"0\r\n\r\n"
        yield step._replace(data=chunk)
        if step.ending is not None:
            return
    yield Step(at, b"0\r\n\r\n", Ending.COMPLETE)


def _until_close(steps: Iterator[Step]) -> Iterator[Step]:
    """The body of HTTP/1.0, which ends with the connection."""
    at = 0.0
    for step in steps:
        at = step.at
        yield step._replace(ending=Ending.CLOSE) if step.ending is Ending.COMPLETE else step
        if step.ending is not None:
            return
    yield Step(at, b"", Ending.CLOSE)


def _drip(steps: Iterator[Step], gap: float) -> Iterator[Step]:
    at = 0.0
    for step in steps:
        for byte in step.data:
            at = max(at + gap, step.at)
            yield Step(at, bytes((byte,)))
        if step.ending is not None:
            yield Step(max(at, step.at), b"", step.ending)
