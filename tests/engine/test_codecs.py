"""Choosing decoder and reader, writer and encoder."""

from __future__ import annotations

import pytest

from headrace.engine import Caller
from headrace.engine.codecs import WHOLE, caller_encoder, upstream_shape
from headrace.formats.base import WriterOptions
from headrace.framing import FRAMINGS, Frame
from tests.engine.fakes import LINES, acme


@pytest.mark.parametrize(
    ("content_type", "framing", "asked", "shape"),
    [
        ("text/event-stream", "sse", True, "sse"),
        ("Text/Event-Stream;charset=UTF-8", "sse", True, "sse"),
        ("text/event-stream", "ndjson", False, "sse"),
        ("application/x-ndjson", "sse", True, "ndjson"),
        ("application/jsonl", "sse", True, "ndjson"),
        ("application/json", "json_array", True, "json_array"),
        ("application/json", "json_array", False, WHOLE),
        ("application/json", "sse", True, WHOLE),
        ("application/json", "ndjson", True, WHOLE),
        ("application/problem+json", "json_array", True, WHOLE),
        ("", "ndjson", True, "ndjson"),
        ("", "ndjson", False, WHOLE),
        ("text/plain; charset=utf-8", "sse", True, "sse"),
        ("text/html", "sse", True, None),
        ("text/html", "sse", False, None),
        ("application/xml", "sse", True, None),
        ("garbage", "sse", True, None),
    ],
)
def test_the_shape_of_an_answer(content_type: str, framing: str, asked: bool, shape: str | None) -> None:
    assert upstream_shape(acme(framing=framing), asked, content_type) == shape


@pytest.mark.parametrize("framing", sorted(FRAMINGS))
def test_marks_that_are_no_json_stay_out_of_framings_of_json(framing: str) -> None:
    encoder = caller_encoder(Caller(format=LINES, framing=framing, stream=True, writer_options=WriterOptions()))
    body = encoder.prologue() + encoder.encode([Frame(b'{"a":1}'), Frame(b"[DONE]")]) + encoder.epilogue()
    frames = [frame.data for frame in FRAMINGS[framing].decoder().feed(body)]
    assert frames == [b'{"a":1}', *([b"[DONE]"] if framing == "sse" else [])]
