from __future__ import annotations

import json

import pytest

from headrace.framing import Frame
from headrace.tape import Piece, Recorder, RecordingError, read_recording

STREAM = (
    b'event: message_start\ndata: {"type":"message_start"}\n\n'
    b": a comment\n\n"
    b'id: 7\ndata: {"text":"M\xc3\xbchle \xe2\x80\xa8"}\n\n'
    b"data: \xff\n\n"
)


def record(*reads: tuple[float, bytes], format: str = "anthropic", framing: str = "sse") -> bytes:
    file = bytearray()
    recorder = Recorder(file.extend, format=format, framing=framing, created=5, description="a day at the mill")
    for at, data in reads:
        recorder.feed(data, at)
    recorder.eof()
    return bytes(file)


def test_round_trip_keeps_frames_and_rhythm() -> None:
    cut = STREAM.index(b"\xbchle")
    recording = read_recording(record((0.25, STREAM[:60]), (0.5, STREAM[60:cut]), (1.75, STREAM[cut:])), "mine")
    assert recording.frames == [
        (0.25, Frame(b'{"type":"message_start"}', "message_start")),
        (1.75, Frame('{"text":"Mühle \u2028"}'.encode(), "", "7")),
        (1.75, Frame(b"\xff", "", "7")),
    ]
    assert (recording.name, recording.format, recording.framing) == ("mine", "anthropic", "sse")
    assert recording.description == "a day at the mill"


def test_the_file_can_be_read_by_hand() -> None:
    lines = record((0.5, STREAM)).split(b"\n")
    assert json.loads(lines[0]) == {
        "tape": 1,
        "format": "anthropic",
        "framing": "sse",
        "created": 5,
        "description": "a day at the mill",
    }
    assert json.loads(lines[1]) == {"at": 0.5, "event": "message_start", "data": '{"type":"message_start"}'}
    assert lines[-1] == b""


def test_a_bare_error_body_is_kept() -> None:
    recording = read_recording(record((0.1, b'data: {"a":1}\n\n{"error": {"code": 499}}')), "mine")
    assert recording.pieces[-1] == Piece(0.1, None, b'{"error": {"code": 499}}\n')
    assert recording.leftover == b'{"error": {"code": 499}}\n'


def test_what_the_framing_cannot_read_is_kept_raw() -> None:
    first = b"x" * (8 * 1024 * 1024 + 1)
    recording = read_recording(record((0.1, first), (0.2, b"more"), framing="ndjson"), "mine")
    assert recording.pieces == (Piece(0.1, None, first), Piece(0.2, None, b"more"))


def test_recording_needs_a_known_format() -> None:
    with pytest.raises(ValueError, match="cannot record morse over sse"):
        Recorder(bytearray().extend, format="morse")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "line 1"),
        (b"{}", "line 1: Object missing required field"),
        (b'{"tape":2,"format":"anthropic"}', "version 2"),
        (b'{"tape":1,"format":"morse"}', "format 'morse' is not one of"),
        (b'{"tape":1,"format":"anthropic","framing":"x"}', "framing 'x' is not one of"),
        (b'{"tape":1,"format":"anthropic"}\n{"at":"soon"}', "line 2: Expected `float`"),
        (b'{"tape":1,"format":"anthropic"}\n{"at":1}', "line 2: one of data, base64 and raw is required"),
        (b'{"tape":1,"format":"anthropic"}\n\n\xff', "line 3"),
        (b'{"tape":1,"format":"anthropic"}\n{"at":2,"data":""}\n{"at":1,"data":""}', "must not go backwards"),
        (b'{"tape":1,"format":"anthropic"}\n{"at":-1,"data":""}', "line 2"),
        (b"[" * 100_000, "line 1"),
    ],
)
def test_what_is_wrong_with_a_recording(data: bytes, message: str) -> None:
    with pytest.raises(RecordingError) as caught:
        read_recording(data, "mine")
    assert str(caught.value).startswith("mine")
    assert message in str(caught.value)
