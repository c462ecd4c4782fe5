"""A body as a framing of one frame."""

from __future__ import annotations

import pytest

from headrace.framing import Frame, FramingError
from headrace.framing.whole import WholeDecoder, WholeEncoder


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("body", [b"", b'{"a": 1}\n\n', bytes(range(256))])
def test_a_body_is_one_frame_at_its_end(body: bytes, size: int) -> None:
    decoder = WholeDecoder()
    for at in range(0, len(body), size):
        assert decoder.feed(body[at : at + size]) == []
    assert decoder.eof() == [Frame(body)]
    with pytest.raises(FramingError, match="after the end"):
        decoder.feed(b"more")


def test_a_body_beyond_the_bound() -> None:
    decoder = WholeDecoder(5)
    assert decoder.feed(b"12345") == []
    with pytest.raises(FramingError, match="5 bytes") as caught:
        decoder.feed(b"6")
    assert caught.value.reason == "too_large"
    with pytest.raises(FramingError):
        decoder.eof()


def test_a_body_goes_out_as_it_is() -> None:
    encoder = WholeEncoder()
    assert encoder.encode([Frame(b'{"a":\n1}', "name", "id")]) == b'{"a":\n1}'
    assert encoder.encode([]) == b""
    assert encoder.prologue() + encoder.keepalive() + encoder.epilogue() == b""
