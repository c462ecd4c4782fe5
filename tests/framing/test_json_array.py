from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.framing import Frame, FramingError, JSONArrayDecoder, JSONArrayEncoder
from tests.fixtures import FixtureRow, fixture_bytes, fixture_params
from tests.framing.cutting import assert_same_at_all_cuts, cuts_of, run, single_bytes, soup, touched_bytes


@pytest.mark.parametrize(
    ("stream", "elements"),
    [
        (b"[]", []),
        (b" \r\n[\t]\n ", []),
        (b'[{"a":1},{"b":2}]', [b'{"a":1}', b'{"b":2}']),
        (b'[{"a": 1}\n,\r\n{\n  "b": [2, {}]\n}\n]\n', [b'{"a": 1}', b'{\n  "b": [2, {}]\n}']),
        (b'[{"a":"}],[{"},{"b":"\\"}\\\\"}]', [b'{"a":"}],[{"}', b'{"b":"\\"}\\\\"}']),
        (b'[{"}":{"]":[]}}]', [b'{"}":{"]":[]}}']),
        (b"[[],[[1],[]]]", [b"[]", b"[[1],[]]"]),
        (b'[1, -2.5e3 ,"a]\\",b",true,null]', [b"1", b"-2.5e3", b'"a]\\",b"', b"true", b"null"]),
        (b'[{"a":"\xff"}]', [b'{"a":"\xff"}']),
        (b'{"error":{"code":429,"message":"no [more]"}}\n', [b'{"error":{"code":429,"message":"no [more]"}}']),
        (b'\n{\n "error": {}\n}', [b'{\n "error": {}\n}']),
        (b"[{}]", [b"{}"]),
    ],
)
def test_elements_become_frames(stream: bytes, elements: list[bytes]) -> None:
    assert assert_same_at_all_cuts(stream, JSONArrayDecoder) == [Frame(element) for element in elements]


def test_an_element_does_not_wait_for_its_comma() -> None:
    decoder = JSONArrayDecoder()
    assert decoder.feed(b'[{"a":"') == []
    assert decoder.feed(b'"}') == [Frame(b'{"a":""}')]
    assert decoder.feed(b',"x') == []
    assert decoder.feed(b'"') == [Frame(b'"x"')]
    assert decoder.feed(b",1") == []
    assert decoder.feed(b"2") == []
    assert decoder.feed(b" ") == [Frame(b"12")]
    assert decoder.feed(b"]") == []
    assert decoder.eof() == []


@pytest.mark.parametrize(
    ("stream", "good", "message"),
    [
        (b"[{}] x", 1, "nothing was to come, not b'x'"),
        (b"[{}][{}]", 1, "nothing"),
        (b"{} {}", 1, "nothing"),
        (b"[{} {}]", 1, ", or ]"),
        (b"[1 2]", 1, ", or ]"),
        (b"[{},]", 1, "an element was to come"),
        (b"[,{}]", 0, "an element or ]"),
        (b"[}", 0, "an element or ]"),
        (b"[{}}", 1, ", or ]"),
        (b"<html>", 0, "an array or an object was to come, not b'<'"),
        (b'"text"', 0, "an array or an object"),
        (b'data: {"a":1}\n\n', 0, "an array or an object"),
    ],
)
def test_malformed(stream: bytes, good: int, message: str) -> None:
    for pieces in ([stream], single_bytes(stream)):
        decoder = JSONArrayDecoder()
        frames: list[Frame] = []
        with pytest.raises(FramingError) as caught:  # noqa: PT012 - any of the calls
            for piece in pieces:
                frames += decoder.feed(piece)
            decoder.eof()
        assert caught.value.reason == "malformed"
        assert message in str(caught.value)
        assert len(frames) == good


def test_every_shorter_stream_is_truncated() -> None:
    stream = b'[{"a": "\\"]"} , [1], "x", 12 ]'
    frames, error = run(JSONArrayDecoder(), [stream])
    assert (len(frames), error) == (4, None)
    for size in range(len(stream)):
        shorter, error = run(JSONArrayDecoder(), [stream[:size]])
        assert error == "truncated"
        assert shorter == frames[: len(shorter)]
    assert run(JSONArrayDecoder(), [b'{"error": {}']) == ([], "truncated")


SOUP = [b"[", b"]", b"{", b"}", b",", b'"', b"\\", b" ", b"\n", b"1", b"{}", b'"a"', b',{"a":[1]}', b'"\\"]"', b"\xff"]


@settings(max_examples=500)
@given(st.data(), soup(SOUP), st.sampled_from([b"[", b"[{},", b"{", b""]), st.sampled_from([1, 3, 8, 8 << 20]))
def test_same_under_any_cut(data: st.DataObject, stream: bytes, start: bytes, max_frame: int) -> None:
    stream = start + stream
    whole = run(JSONArrayDecoder(max_frame), [stream])
    assert all(len(frame.data) <= max_frame for frame in whole[0])
    for pieces in (single_bytes(stream), data.draw(cuts_of(stream))):
        assert run(JSONArrayDecoder(max_frame), pieces) == whole


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(st.data(), st.lists(json_values, max_size=6), st.sampled_from([None, 2]))
def test_agrees_with_a_whole_json_parser(data: st.DataObject, values: list[object], indent: int | None) -> None:
    stream = json.dumps(values, indent=indent, ensure_ascii=False).encode("utf-8", "replace")
    frames, error = run(JSONArrayDecoder(), data.draw(cuts_of(stream)))
    assert error is None
    assert [json.loads(frame.data) for frame in frames] == json.loads(stream)


@given(st.data(), st.lists(json_values, max_size=6))
def test_what_is_encoded_comes_back(data: st.DataObject, values: list[object]) -> None:
    frames = [Frame(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")) for value in values]
    encoder = JSONArrayEncoder()
    stream = encoder.prologue() + b"".join(encoder.encode([f]) + encoder.keepalive() for f in frames)
    stream += encoder.epilogue()
    assert json.loads(stream) == [json.loads(frame.data) for frame in frames]
    assert run(JSONArrayDecoder(), data.draw(cuts_of(stream))) == (frames, None)


@pytest.mark.parametrize("row", fixture_params(framing="json-array-raw"))
def test_recorded_streams(row: FixtureRow) -> None:
    stream = fixture_bytes(row.file)
    frames = assert_same_at_all_cuts(stream, JSONArrayDecoder)
    assert [json.loads(frame.data) for frame in frames] == json.loads(stream)
    assert len(frames) > 1


def test_deep_nesting_is_bounded_by_size_only() -> None:
    deep = b"[" * 200_000 + b"]" * 200_000
    assert run(JSONArrayDecoder(), [b"[" + deep + b"]"]) == ([Frame(deep)], None)


@pytest.mark.parametrize("start", [b"[", b'["', b"[1", b'[{"a":"\\"', b"{"])
@pytest.mark.parametrize("read", [1, 7, 10_000])
def test_too_large(start: bytes, read: int) -> None:
    stream = start + b"{" * 2000
    decoder = JSONArrayDecoder(1000)
    with pytest.raises(FramingError, match=r"limit of 1000 bytes.*max_frame") as caught:  # noqa: PT012 - any of the calls
        for position in range(0, len(stream), read):
            assert position <= 1010 + read
            decoder.feed(stream[position : position + read])
    assert caught.value.reason == "too_large"


def test_the_limit_is_exact_and_for_one_element() -> None:
    stream = b'[ {"a": 1} , \n\n {"a": 2} ]'
    assert run(JSONArrayDecoder(8), single_bytes(stream))[1] is None
    assert run(JSONArrayDecoder(7), single_bytes(stream)) == ([], "too_large")
    assert run(JSONArrayDecoder(7), [stream]) == ([], "too_large")


@pytest.mark.parametrize("start", [b"[", b'["', b"[1"])
def test_an_element_is_touched_a_constant_number_of_times(start: bytes) -> None:
    def work(size: int) -> int:
        return touched_bytes(JSONArrayDecoder, ("_element",), start + b"[" * size)

    assert work(10_000) >= 10_000
    assert work(80_000) <= 8.1 * work(10_000)


def test_encoder() -> None:
    encoder = JSONArrayEncoder()
    assert encoder.prologue() == b"["
    assert encoder.encode([]) == b""
    assert encoder.encode([Frame(b"{}", "event", "id"), Frame(b"1")]) == b"{},\n1"
    assert encoder.encode([Frame(b"2")]) == b",\n2"
    assert encoder.epilogue() == b"]\n"
    for nothing in (b"", b" "):
        with pytest.raises(ValueError, match="empty"):
            encoder.encode([Frame(nothing)])
