from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.framing import Frame, FramingError, NDJSONDecoder, NDJSONEncoder
from tests.fixtures import FixtureRow, fixture_bytes, fixture_params
from tests.framing.cutting import assert_same_at_all_cuts, cuts_of, run, single_bytes, soup, touched_bytes


@pytest.mark.parametrize(
    ("stream", "values"),
    [
        (b"", []),
        (b'{"a":1}\n{"b":2}\n', [b'{"a":1}', b'{"b":2}']),
        (b'{"a":1}\r\n{"b":2}\r\n', [b'{"a":1}', b'{"b":2}']),
        (b'\n\n{"a":1}\n \t\r\n\n', [b'{"a":1}']),
        (b' {"a": "\\n"} \n', [b'{"a": "\\n"}']),
        (b'{"a":1}\n{"b":2}', [b'{"a":1}', b'{"b":2}']),
        (b'{"a":1}\n{"b":2}\r', [b'{"a":1}', b'{"b":2}']),
        ('{"a":"x\u2028\u0085y"}\n'.encode(), ['{"a":"x\u2028\u0085y"}'.encode()]),
        (b'{"a":"x\ry"}\n', [b'{"a":"x\ry"}']),
        (b"not looked into\n", [b"not looked into"]),
        (b"  ", []),
    ],
)
def test_lines_become_frames(stream: bytes, values: list[bytes]) -> None:
    assert assert_same_at_all_cuts(stream, NDJSONDecoder) == [Frame(value) for value in values]


@pytest.mark.parametrize("last", [b'{"b":', b'{"b":"', b"tru", b'{"b":1}}', b"[" * 100_000, b"error"])
def test_a_last_line_that_is_not_complete_is_an_error(last: bytes) -> None:
    decoder = NDJSONDecoder()
    assert decoder.feed(b'{"a":1}\n' + last) == [Frame(b'{"a":1}')]
    with pytest.raises(FramingError, match=f"a line of {len(last)} bytes") as caught:
        decoder.eof()
    assert caught.value.reason == "truncated"


def test_a_frame_does_not_wait_for_the_next_line() -> None:
    decoder = NDJSONDecoder()
    assert decoder.feed(b'{"a":1}\r') == []
    assert decoder.feed(b"\n") == [Frame(b'{"a":1}')]


SOUP = [b"{}", b"[1]", b'"', b"{", b"}", b"\n", b"\r\n", b"\r", b" ", b"\n\n", b"12", "é\u2028".encode(), b"\xff"]


@given(st.data(), soup(SOUP), st.sampled_from([1, 4, 9, 8 << 20]))
def test_same_under_any_cut(data: st.DataObject, stream: bytes, max_frame: int) -> None:
    *lines, last = stream.split(b"\n")
    frames: list[Frame] = []
    error = None
    for line in lines:
        if len(line) > max_frame:
            error = "too_large"
            break
        if line.strip():
            frames.append(Frame(line.strip()))
    else:
        if len(last) > max_frame:
            error = "too_large"
        elif last.strip():
            try:
                json.loads(last)
                frames.append(Frame(last.strip()))
            except ValueError:
                error = "truncated"
    if error is None and b"\xff" in last:
        return  # what is complete JSON but for its UTF-8 is the format's to judge
    for pieces in ([stream], single_bytes(stream), data.draw(cuts_of(stream))):
        assert run(NDJSONDecoder(max_frame), pieces) == (frames, error)


@pytest.mark.parametrize("row", fixture_params(framing="ndjson-raw"))
def test_recorded_streams(row: FixtureRow) -> None:
    stream = fixture_bytes(row.file)
    frames = assert_same_at_all_cuts(stream, NDJSONDecoder)
    assert [json.loads(frame.data) for frame in frames] == [json.loads(line) for line in stream.split(b"\n") if line]
    assert len(frames) > 2
    assert run(NDJSONDecoder(), [NDJSONEncoder().encode(frames)]) == (frames, None)


@pytest.mark.parametrize("read", [1, 7, 10_000])
def test_too_large(read: int) -> None:
    stream = b"{}\n" + b"[" * 2000
    decoder = NDJSONDecoder(1000)
    frames: list[Frame] = []
    with pytest.raises(FramingError, match=r"limit of 1000 bytes.*max_frame") as caught:  # noqa: PT012 - any of the calls
        for position in range(0, len(stream), read):
            assert position <= 1003 + read
            frames += decoder.feed(stream[position : position + read])
        decoder.eof()
    assert caught.value.reason == "too_large"
    assert frames == [Frame(b"{}")]


def test_a_line_is_touched_a_constant_number_of_times() -> None:
    def work(size: int) -> int:
        return touched_bytes(NDJSONDecoder, ("_line",), b"[" * size + b"\n[]\n")

    assert work(10_000) >= 10_000
    assert work(80_000) <= 8.1 * work(10_000)


def test_encoder() -> None:
    encoder = NDJSONEncoder()
    assert encoder.prologue() == encoder.epilogue() == b""
    assert encoder.encode([Frame(b'{"a":1}'), Frame(b"{}", "event", "id")]) == b'{"a":1}\n{}\n'
    assert encoder.encode([]) == b""
    assert run(NDJSONDecoder(), [encoder.keepalive() * 3]) == ([], None)


@pytest.mark.parametrize("data", [b"", b" ", b"\n"])
def test_encoder_refuses_what_is_no_line(data: bytes) -> None:
    with pytest.raises(ValueError, match="may not be empty"):
        NDJSONEncoder().encode([Frame(data)])


@pytest.mark.parametrize("data", [b'{\n"a":1}', b'{"a":1}\r', b'[\r\n  {"a": 1}\n]'])
def test_pretty_printed_json_becomes_one_line(data: bytes) -> None:
    (line, rest) = NDJSONEncoder().encode([Frame(data)]).split(b"\n")
    assert rest == b""
    assert json.loads(line) == json.loads(data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(st.data(), st.lists(json_values, max_size=6))
def test_what_is_encoded_comes_back(data: st.DataObject, values: list[object]) -> None:
    frames = [Frame(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")) for value in values]
    stream = NDJSONEncoder().encode(frames)
    assert run(NDJSONDecoder(), data.draw(cuts_of(stream))) == (frames, None)
