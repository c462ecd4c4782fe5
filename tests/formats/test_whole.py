"""Whole bodies in the shape of streams."""

from __future__ import annotations

import json

import pytest

from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.formats.whole import WholeReader, WholeWriter
from headrace.framing import Frame
from headrace.model import events as ev
from headrace.model.errors import ErrorCode, ErrorInfo, ProtocolError
from headrace.model.events import BlockKind, Event
from headrace.model.grammar import Grammar
from headrace.model.stop import StopReason
from headrace.model.usage import Usage
from tests.engine.fakes import LINES

BODY = b'{"text": "hello", "tokens": 3}'


def read(body: bytes, *, passthrough: bool = False) -> list[Event]:
    reader = WholeReader(LINES, ReaderOptions(provider="acme", passthrough=passthrough))
    events = reader.read([Frame(body)])
    assert reader.eof() == [], "the body was the end"
    assert reader.read([Frame(b"more")]) == [], "nothing follows the terminal event"
    return events


def test_a_body_is_told_as_a_legal_stream() -> None:
    events = read(BODY)
    grammar = Grammar()
    for event in events:
        grammar.accept(event)
    assert grammar.ended
    assert [event.text for event in events if isinstance(event, ev.TextDelta)] == ["hello"]
    assert isinstance(events[-1], ev.End)
    assert events[-1].usage == Usage(output_tokens=3)


def test_an_error_in_disguise() -> None:
    (error,) = read(b'{"error": "slow down"}')
    assert isinstance(error, ev.Error)
    assert error.error.code is ErrorCode.PROVIDER_RATE_LIMITED


def test_a_body_that_cannot_be_read() -> None:
    reader = WholeReader(LINES, ReaderOptions())
    with pytest.raises(ProtocolError) as caught:
        reader.read([Frame(b"<html>")])
    assert (caught.value.events, caught.value.consumed) == ([], 1)
    (error,) = reader.eof()
    assert isinstance(error, ev.Error)
    assert error.error.type == "upstream_truncated"
    assert reader.eof() == []


def write(events: list[Event], *, passthrough: bool = False) -> bytes:
    writer = WholeWriter(LINES, WriterOptions(provider="acme", passthrough=passthrough))
    frames = [frame for event in events for frame in writer.write([event])]
    assert [*frames] == WholeWriter(LINES, writer._options).write(events), "one call or many"
    (frame,) = frames
    return frame.data


def test_a_stream_is_folded_into_a_body() -> None:
    events = [
        ev.Start(id="1"),
        ev.BlockStart(block=0, type=BlockKind.TEXT),
        ev.TextDelta(0, "hel"),
        ev.TextDelta(0, "lo"),
        ev.BlockStop(0),
        ev.Finish(reason=StopReason.END_TURN),
        ev.UsageReport(Usage(output_tokens=3)),
        ev.End(origin=Frame(b"[DONE]")),
    ]
    expected = {"text": "hello", "tokens": 3, "provider": "acme"}
    assert json.loads(write(events)) == expected
    assert json.loads(write(events, passthrough=True)) == expected, "a stream's last frame is no body"


def test_nothing_comes_before_the_terminal_event() -> None:
    writer = WholeWriter(LINES, WriterOptions())
    assert writer.write([]) == []
    assert writer.write([ev.Start(), ev.BlockStart(block=0, type=BlockKind.TEXT)]) == []


def test_a_stream_that_fails_is_an_error_body() -> None:
    info = ErrorInfo(code=ErrorCode.TIMEOUT, message="too late")
    assert write([ev.Start(), ev.Error(info)]) == LINES.write_error(info)


def test_unchanged_from_whole_to_whole() -> None:
    body = b'{"text":"a",   "unknown": 1}'
    assert write(read(body, passthrough=True), passthrough=True) == body
    assert write(read(body), passthrough=True) != body
