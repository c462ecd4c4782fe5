from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.framing import Frame, FramingError, SignalRDecoder, SignalREncoder
from tests.framing.cutting import assert_same_at_all_cuts, cuts_of, run, single_bytes, soup, touched_bytes
from tests.framing.test_ndjson import json_values


@pytest.mark.parametrize(
    ("stream", "records"),
    [
        (b"", []),
        (b"{}\x1e", [b"{}"]),
        (b'{}\x1e{"type":6}\x1e', [b"{}", b'{"type":6}']),
        (b'{"a":"\\u001e"}\x1e', [b'{"a":"\\u001e"}']),
        ('{"a":"x\u2028\u0085\ny"}\x1e'.encode(), ['{"a":"x\u2028\u0085\ny"}'.encode()]),
        (b"\n\x1e \x1e", [b"\n", b" "]),
    ],
)
def test_records_become_frames(stream: bytes, records: list[bytes]) -> None:
    assert assert_same_at_all_cuts(stream, SignalRDecoder) == [Frame(record) for record in records]


def test_a_frame_does_not_wait_for_the_next_record() -> None:
    decoder = SignalRDecoder()
    assert decoder.feed(b'{"type":6}') == []
    assert decoder.feed(b"\x1e") == [Frame(b'{"type":6}')]


@pytest.mark.parametrize("rest", [b"{", b'{"type":3}'])
def test_an_end_inside_a_record_is_an_error(rest: bytes) -> None:
    decoder = SignalRDecoder()
    assert decoder.feed(b"{}\x1e" + rest) == [Frame(b"{}")]
    with pytest.raises(FramingError, match=f"after {len(rest)} bytes") as caught:
        decoder.eof()
    assert caught.value.reason == "truncated"


def test_an_empty_record_is_an_error() -> None:
    assert run(SignalRDecoder(), [b"{}\x1e\x1e{}\x1e"]) == ([Frame(b"{}")], "malformed")


SOUP = [b"{}", b"[1]", b'"', b"{", b"\x1e", b"\x1e\x1e", b"\n", b" ", "é\u2028".encode(), b"\xff"]


@given(st.data(), soup(SOUP), st.sampled_from([1, 4, 9, 8 << 20]))
def test_same_under_any_cut(data: st.DataObject, stream: bytes, max_frame: int) -> None:
    *records, last = stream.split(b"\x1e")
    frames: list[Frame] = []
    error = None
    for record in records:
        if not record or len(record) > max_frame:
            error = "too_large" if record else "malformed"
            break
        frames.append(Frame(record))
    else:
        if last:
            error = "too_large" if len(last) > max_frame else "truncated"
    for pieces in ([stream], single_bytes(stream), data.draw(cuts_of(stream))):
        assert run(SignalRDecoder(max_frame), pieces) == (frames, error)


@pytest.mark.parametrize("read", [1, 7, 10_000])
def test_too_large(read: int) -> None:
    stream = b"{}\x1e" + b"[" * 2000
    decoder = SignalRDecoder(1000)
    frames: list[Frame] = []
    with pytest.raises(FramingError, match=r"limit of 1000 bytes.*max_frame") as caught:  # noqa: PT012 - any of the calls
        for position in range(0, len(stream), read):
            assert position <= 1003 + read
            frames += decoder.feed(stream[position : position + read])
        decoder.eof()
    assert caught.value.reason == "too_large"
    assert frames == [Frame(b"{}")]


def test_a_record_is_touched_a_constant_number_of_times() -> None:
    def work(size: int) -> int:
        return touched_bytes(SignalRDecoder, ("_record",), b"[" * size + b"\x1e[]\x1e")

    assert work(10_000) >= 10_000
    assert work(80_000) <= 8.1 * work(10_000)


def test_encoder() -> None:
    encoder = SignalREncoder()
    assert encoder.prologue() == encoder.epilogue() == encoder.keepalive() == b""
    assert encoder.encode([Frame(b'{"type":6}'), Frame(b"{}", "event", "id")]) == b'{"type":6}\x1e{}\x1e'
    assert encoder.encode([]) == b""


@pytest.mark.parametrize("data", [b"", b"\x1e", b'{"a":"\x1e"}'])
def test_encoder_refuses_what_is_no_record(data: bytes) -> None:
    with pytest.raises(ValueError, match="SignalR record may not"):
        SignalREncoder().encode([Frame(data)])


@given(st.data(), st.lists(json_values, max_size=6))
def test_what_is_encoded_comes_back(data: st.DataObject, values: list[object]) -> None:
    frames = [Frame(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")) for value in values]
    stream = SignalREncoder().encode(frames)
    assert run(SignalRDecoder(), data.draw(cuts_of(stream))) == (frames, None)
