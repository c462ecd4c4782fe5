from __future__ import annotations

import pytest

from headrace.framing import FRAMINGS, Frame, FramingError


def test_names_and_media_types() -> None:
    assert {name: framing.media_type for name, framing in FRAMINGS.items()} == {
        "sse": "text/event-stream",
        "ndjson": "application/x-ndjson",
        "json_array": "application/json",
        "eventstream": "application/vnd.amazon.eventstream",
        "signalr": "application/x-signalr+json",
        "connect_proto": "application/connect+proto",
        "connect_json": "application/connect+json",
    }
    assert all(framing.name == name for name, framing in FRAMINGS.items())


@pytest.mark.parametrize("name", list(FRAMINGS))
def test_each_framing_reads_what_it_writes(name: str) -> None:
    framing = FRAMINGS[name]
    frames = [Frame(b'{"a":1}'), Frame(b"[]")]
    encoder = framing.encoder()
    stream = encoder.prologue() + encoder.encode(frames[:1]) + encoder.keepalive()
    stream += encoder.encode(frames[1:]) + encoder.epilogue()
    decoder = framing.decoder(extra_fields=frozenset({"error"}))
    assert decoder.feed(stream) + decoder.eof() == frames


TOO_LARGE = {"eventstream": FRAMINGS["eventstream"].encoder().encode([Frame(b"{}")])}
"""Where not any bytes will do."""


@pytest.mark.parametrize("name", list(FRAMINGS))
def test_each_framing_passes_its_options_on(name: str) -> None:
    with pytest.raises(FramingError) as caught:
        FRAMINGS[name].decoder(10).feed(TOO_LARGE.get(name, b"[" + b"x" * 11))
    assert caught.value.reason == "too_large"
    with pytest.raises(ValueError, match="max_frame"):
        FRAMINGS[name].decoder(0)
    assert FRAMINGS[name].encoder() is not FRAMINGS[name].encoder()


def test_extra_fields_reach_the_event_stream() -> None:
    decoder = FRAMINGS["sse"].decoder(extra_fields=frozenset({"error"}))
    assert decoder.feed(b"error: {}\n\n") == [Frame(b"{}", "error")]
