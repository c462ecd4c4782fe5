from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.framing import Frame, FramingError, SSEDecoder, SSEEncoder
from headrace.framing.sse import MAX_LEFTOVER_BYTES
from tests.fixtures import FixtureRow, fixture_bytes, fixture_params
from tests.framing.cutting import assert_same_at_all_cuts, cuts_of, run, single_bytes, soup, touched_bytes

BOM = b"\xef\xbb\xbf"


class Reference:
    """The standard's algorithm, as plainly as it can be written: the whole stream at once, line by line."""

    def __init__(self, stream: bytes, *, max_frame: int = 8 << 20, extra_fields: frozenset[str] = frozenset()) -> None:
        self.frames: list[Frame] = []
        self.comments = 0
        self.retry: int | None = None
        self.error: str | None = None
        self._extra_fields = extra_fields
        self._id: str | None = None
        self._clear()
        stream = stream.removeprefix(BOM)
        ends = list(re.finditer(rb"\r\n|\n|\r", stream))
        start = held = 0
        for end in ends:
            line = stream[start : end.start()]
            start = end.end()
            if not line:
                self._dispatch()
                held = 0
                continue
            if held + len(line) > max_frame:
                self.error = "too_large"
                return
            if self._field(line):
                held += len(line) + 1
        if start < len(stream) and held + len(stream) - start > max_frame:
            self.error = "too_large"

    def _clear(self) -> None:
        self._data: list[bytes] = []
        self._event = ""
        self._extras: dict[str, list[bytes]] = {}

    def _dispatch(self) -> None:
        if self._data:
            self.frames.append(Frame(b"\n".join(self._data), self._event, self._id))
        for name, lines in self._extras.items():
            self.frames.append(Frame(b"\n".join(lines), name, self._id))
        self._clear()

    def _field(self, line: bytes) -> bool:
        if line[0] == ord(":"):
            self.comments += 1
            return False
        name, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        field = name.decode("utf-8", "replace")
        text = value.decode("utf-8", "replace")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._event = text
        elif field == "id":
            self._id = self._id if "\0" in text else text
        elif field == "retry":
            if re.fullmatch(rb"[0-9]{1,18}", value):
                self.retry = int(value)
            return False
        elif field in self._extra_fields:
            self._extras.setdefault(field, []).append(value)
        else:
            return False
        return True


VECTORS: list[tuple[str, bytes, list[Frame]]] = [
    ("bom", BOM + b"data: a\n\n", [Frame(b"a")]),
    ("only one bom", BOM + BOM + b"data: a\n\n", []),
    ("cr", b"data: a\r\rdata: b\r\r", [Frame(b"a"), Frame(b"b")]),
    ("crlf", b"data: a\r\n\r\n", [Frame(b"a")]),
    ("mixed line ends", b"data: a\r\ndata: b\rdata: c\n\r\n", [Frame(b"a\nb\nc")]),
    ("two lines", b"data: a\ndata: b\n\n", [Frame(b"a\nb")]),
    ("field alone", b"data\n\n", [Frame(b"")]),
    ("empty value", b"data:\n\n", [Frame(b"")]),
    ("two empty values", b"data\ndata\n\n", [Frame(b"\n")]),
    ("event without data is forgotten", b"event: x\n\ndata: y\n\n", [Frame(b"y")]),
    ("comment", b":c\n\n", []),
    ("comment inside an event", b"data: a\n: c\ndata: b\n\n", [Frame(b"a\nb")]),
    ("id with NUL", b"id: 1\0\ndata: a\n\n", [Frame(b"a")]),
    (
        "id with NUL keeps the last",
        b"id: 1\ndata: a\n\nid: 2\0\ndata: b\n\n",
        [Frame(b"a", "", "1"), Frame(b"b", "", "1")],
    ),
    ("id persists", b"id: 1\ndata: a\n\ndata: b\n\n", [Frame(b"a", "", "1"), Frame(b"b", "", "1")]),
    ("id without data persists", b"id: 1\n\ndata: b\n\n", [Frame(b"b", "", "1")]),
    ("id reset", b"id: 1\ndata: a\n\nid\ndata: b\n\n", [Frame(b"a", "", "1"), Frame(b"b", "", "")]),
    ("empty id", b"id\ndata: a\n\n", [Frame(b"a", "", "")]),
    ("bad retry", b"retry: 10s\ndata: a\n\n", [Frame(b"a")]),
    ("no blank line at the end", b"data: a\n", []),
    ("no line end at the end", b"data: a", []),
    ("no space", b'data:{"a":1}\n\n', [Frame(b'{"a":1}')]),
    ("one space is removed", b"data:  x\n\n", [Frame(b" x")]),
    ("first colon", b"data: a: b\n\n", [Frame(b"a: b")]),
    (
        "U+2028 and its like end no line",
        "data: x\u2028\u2029\u0085\v\f\x1cy\n\n".encode(),
        [Frame("x\u2028\u2029\u0085\v\f\x1cy".encode())],
    ),
    ("names are case-sensitive", b"Data: a\n\n", []),
    ("names are exact", b" data: a\ndata : b\n\n", []),
    ("two bytes a character", "data: é\n\n".encode(), [Frame("é".encode())]),
    ("named", b"event: x\ndata: y\n\n", [Frame(b"y", "x")]),
    ("name after data", b"data: y\nevent: x\n\n", [Frame(b"y", "x")]),
    ("last name counts", b"event: a\nevent: b\ndata: y\n\n", [Frame(b"y", "b")]),
    ("name does not persist", b"event: x\ndata: y\n\ndata: z\n\n", [Frame(b"y", "x"), Frame(b"z")]),
    ("bad UTF-8 in a name", b"event: \xff\xc3\ndata: y\n\n", [Frame(b"y", "\ufffd\ufffd")]),
    ("bad UTF-8 in data is kept", b"data: \xff\n\n", [Frame(b"\xff")]),
    ("unknown field", b"error: x\ndata: y\n\n", [Frame(b"y")]),
    ("blank lines", b"\n\n\n\ndata: y\n\n\n\n\ndata: z\n\n\n", [Frame(b"y"), Frame(b"z")]),
]


@pytest.mark.parametrize(("stream", "frames"), [v[1:] for v in VECTORS], ids=[v[0] for v in VECTORS])
def test_vectors(stream: bytes, frames: list[Frame]) -> None:
    assert Reference(stream).frames == frames
    assert assert_same_at_all_cuts(stream, SSEDecoder) == frames
    after_good = b"data: first\n\n" + stream.removeprefix(BOM)
    assert assert_same_at_all_cuts(after_good, SSEDecoder) == [Frame(b"first"), *Reference(after_good).frames[1:]]


def test_an_event_does_not_wait_for_the_lf_of_a_cut_crlf() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"data: a\r\n\r") == [Frame(b"a")]
    assert decoder.feed(b"\n") == []
    assert decoder.feed(b"data: b\r") == []
    assert decoder.feed(b"") == []
    assert decoder.feed(b"\n") == []
    assert decoder.feed(b"\r") == [Frame(b"b")]
    assert decoder.feed(b"\ndata: c\r\n\r\n") == [Frame(b"c")]


@pytest.mark.parametrize(
    ("line", "retry"),
    [
        (b"retry: 1500", 1500),
        (b"retry:0", 0),
        (b"retry: 10s", None),
        (b"retry:", None),
        (b"retry: -1", None),
        (b"retry:  1", None),
        ("retry: ٣".encode(), None),
        (b"retry: " + b"9" * 5000, None),
    ],
)
def test_retry(line: bytes, retry: int | None) -> None:
    decoder = SSEDecoder()
    assert decoder.feed(line + b"\n\ndata: a\n\n") == [Frame(b"a")]
    assert decoder.retry == retry


def test_a_retry_without_line_end_may_be_cut() -> None:
    decoder = SSEDecoder()
    assert run(decoder, [b"retry: 15"]) == ([], None)
    assert decoder.retry is None


def test_comments_are_counted_as_they_come() -> None:
    decoder = SSEDecoder()
    decoder.feed(b": OPENROUTER PROCESSING\n")
    assert decoder.comments == 1
    decoder.feed(b"\n:\n: ping - 2025\n\ndata: a: b\n\n")
    assert decoder.comments == 3


def test_extra_fields_come_out_under_their_name() -> None:
    stream = b'id: 7\nerror: {"code":500}\n\ndata: x\nerror: a\nerror:b\n\nerror\n\ndata: y\n\n'
    frames = assert_same_at_all_cuts(stream, lambda: SSEDecoder(extra_fields=frozenset({"error"})))
    assert frames == [
        Frame(b'{"code":500}', "error", "7"),
        Frame(b"x", "", "7"),
        Frame(b"a\nb", "error", "7"),
        Frame(b"", "error", "7"),
        Frame(b"y", "", "7"),
    ]
    with pytest.raises(ValueError, match="data"):
        SSEDecoder(extra_fields=frozenset({"data"}))


SOUP = [
    *(b"data: ", b"data:", b"data", b"event: ", b"event:x\n", b"id: ", b"id", b"retry: ", b"error: ", b"error", b":"),
    *(b"data: x\n\n", b"data: yz\n\ndata: y\n\n", b"event: n\ndata: x\n\n", b"event: n\n", b": c\n\n"),
    *(
        b"\n",
        b"\n\n",
        b"\r",
        b"\r\n",
        b"\r\n\r\n",
        b" ",
        b"x",
        b"7",
        b'{"a":1}',
        b"\0",
        b"\xff",
        "é\u2028".encode(),
        BOM,
    ),
]


@settings(max_examples=1000)
@given(
    st.data(),
    soup(SOUP),
    st.sampled_from([5, 9, 14, 40, 8 << 20]),
    st.sampled_from([frozenset(), frozenset({"error"})]),
)
def test_agrees_with_the_standard_under_any_cut(
    data: st.DataObject, stream: bytes, max_frame: int, extra_fields: frozenset[str]
) -> None:
    reference = Reference(stream, max_frame=max_frame, extra_fields=extra_fields)
    for pieces in ([stream], single_bytes(stream), data.draw(cuts_of(stream))):
        decoder = SSEDecoder(max_frame, extra_fields=extra_fields)
        assert run(decoder, pieces) == (reference.frames, reference.error)
        assert decoder.retry == reference.retry
        if reference.error is None:
            last_line = re.split(rb"[\r\n]", stream.removeprefix(BOM))[-1]
            assert decoder.comments == reference.comments + last_line.startswith(b":")
            with_blank_line = Reference(stream + b"\n\n", extra_fields=extra_fields)
            assert reference.frames + decoder.unfinished() == with_blank_line.frames


@pytest.mark.parametrize("row", fixture_params(framing="sse-raw"))
def test_recorded_streams(row: FixtureRow) -> None:
    stream = fixture_bytes(row.file)
    frames = assert_same_at_all_cuts(stream, SSEDecoder)
    assert frames == Reference(stream).frames
    lines_ended_by_cr = stream.replace(b"\r\n", b"\n").replace(b"\n", b"\r")
    assert run(SSEDecoder(), [lines_ended_by_cr]) == (frames, None)
    decoder = SSEDecoder()
    decoder.feed(stream)
    decoder.eof()
    frames += decoder.unfinished()
    assert frames or json.loads(decoder.leftover())["error"]
    assert run(SSEDecoder(), [SSEEncoder().encode(frames)]) == (frames, None)


@pytest.mark.parametrize(
    ("stream", "leftover"),
    [
        (b'{"error":{"code":400}}', b'{"error":{"code":400}}\n'),
        (b'data: {"a":1}\n\n{\n  "error": {\n    "code": 499\n  }\n}\n', b'{\n  "error": {\n    "code": 499\n  }\n}\n'),
        (b"[\r\n  null,\r\nnull\r\n]\r\n", b"[\n  null,\nnull\n]\n"),
        (b"<html>\n<p>Bad gateway\n", b"<html>\n<p>Bad gateway\n"),
        (b"upstream connect error: reset\n", b"upstream connect error: reset\n"),
        (b"unknown: field\nx-other_one: 2\n: comment\n\ndata: a\n\n", b""),
        (b"data: a\n\n", b""),
        (b"data: a", b""),
        (b"dat", b"dat\n"),
        (b"\xef\xbb", b"\xef\xbb\n"),
        (b"", b""),
    ],
)
def test_leftover_is_what_was_no_sse(stream: bytes, leftover: bytes) -> None:
    for pieces in ([stream], single_bytes(stream)):
        decoder = SSEDecoder()
        run(decoder, pieces)
        assert decoder.leftover() == leftover


def test_leftover_is_bounded() -> None:
    decoder = SSEDecoder()
    for _ in range(100):
        decoder.feed(b'{"line": "' + b"x" * 1000 + b'"}\n')
    assert len(decoder.leftover()) == MAX_LEFTOVER_BYTES


def test_unfinished_is_what_the_missing_blank_line_would_have_dispatched() -> None:
    decoder = SSEDecoder()
    assert run(decoder, [b"data: a\n\nevent: x\ndata: b\nda", b"ta: c"]) == ([Frame(b"a")], None)
    assert decoder.unfinished() == [Frame(b"b\nc", "x")]
    decoder = SSEDecoder()
    assert run(decoder, [b"data: a\n\nevent: x\n"]) == ([Frame(b"a")], None)
    assert decoder.unfinished() == []


@pytest.mark.parametrize(
    "endless",
    [
        b"data: ",
        b"data: x\n",
        b"event: ",
        b"id: ",
        b"id: 1\n",
        b": ",
        b"unknown: ",
        b"error: x\n",
        b"error: ",
        b"{",
        b"data",
    ],
)
@pytest.mark.parametrize("read", [1, 7, 100_000])
def test_too_large(endless: bytes, read: int) -> None:
    limit = 1000
    start = b"data: fine\n\n"
    filler = endless if endless.endswith(b"\n") else b"x"
    stream = start + endless + filler * (limit * 2)
    decoder = SSEDecoder(limit, extra_fields=frozenset({"error"}))
    frames: list[Frame] = []
    taken = 0
    with pytest.raises(FramingError, match=r"limit of 1000 bytes.*max_frame") as caught:  # noqa: PT012 - any of the calls
        for position in range(0, len(stream), read):
            frames += decoder.feed(stream[position : position + read])
            taken = position
        decoder.eof()
    assert caught.value.reason == "too_large"
    assert frames == [Frame(b"fine")]
    assert taken <= limit + len(start) + read
    with pytest.raises(FramingError, match="limit of 1000 bytes"):
        decoder.feed(b"data: a\n\n")
    with pytest.raises(FramingError, match="limit of 1000 bytes"):
        decoder.eof()


def test_the_limit_is_exact() -> None:
    line = b"data: " + b"x" * 94
    for pieces in ([line + b"\n\n"], single_bytes(line + b"\n\n")):
        assert run(SSEDecoder(100), pieces) == ([Frame(b"x" * 94)], None)
        assert run(SSEDecoder(99), pieces) == ([], "too_large")


def test_comments_do_not_add_up_to_a_frame() -> None:
    decoder = SSEDecoder(100)
    for _ in range(1000):
        assert decoder.feed(b": keepalive\n") == []
    assert decoder.feed(b"data: a\n\n") == [Frame(b"a")]
    assert decoder.comments == 1000


def test_nothing_is_taken_after_the_end() -> None:
    decoder = SSEDecoder()
    decoder.feed(b"data: a\n\n")
    decoder.eof()
    with pytest.raises(FramingError, match="after the end"):
        decoder.feed(b"data: b\n\n")


@pytest.mark.parametrize("line", [b"data: ", b": ", b"unknown: "])
def test_one_long_line_is_touched_a_constant_number_of_times(line: bytes) -> None:
    def work(size: int) -> int:
        return touched_bytes(SSEDecoder, ("_line", "_data"), line + b"x" * size + b"\n\ndata: a\n\n")

    assert work(10_000) >= 10_000
    assert work(80_000) <= 8.1 * work(10_000)


def test_many_lines_are_touched_a_constant_number_of_times() -> None:
    def work(lines: int) -> int:
        return touched_bytes(SSEDecoder, ("_line", "_data"), b"data: x\n" * lines + b"\n")

    assert work(16_000) <= 8.1 * work(2_000)


def test_event_names_from_outside_do_not_fill_the_memory() -> None:
    decoder = SSEDecoder()
    for number in range(1000):
        assert decoder.feed(b"event: n%d\ndata: x\n\n" % number) == [Frame(b"x", f"n{number}")]
    long_name = "n" * 10_000
    assert decoder.feed(f"event: {long_name}\ndata: x\n\n".encode()) == [Frame(b"x", long_name)]
    assert len(decoder._names) <= 64


@pytest.mark.parametrize(
    ("frame", "encoded"),
    [
        (Frame(b'{"a":1}'), b'data: {"a":1}\n\n'),
        (Frame(b"{}", "ping"), b"event: ping\ndata: {}\n\n"),
        (Frame(b"{}", "ping", "7"), b"id: 7\nevent: ping\ndata: {}\n\n"),
        (Frame(b"{}", "", ""), b"id: \ndata: {}\n\n"),
        (Frame(b""), b"data: \n\n"),
        (Frame(b" a"), b"data:  a\n\n"),
        (Frame(b"a\nb\r\nc\rd\n"), b"data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n"),
    ],
)
def test_encoder(frame: Frame, encoded: bytes) -> None:
    encoder = SSEEncoder()
    assert encoder.prologue() + encoder.encode([frame]) + encoder.epilogue() == encoded
    assert encoder.encode([frame, frame]) == encoded * 2
    assert encoder.encode([]) == b""


def test_nul_may_stand_in_a_name_but_not_in_an_id() -> None:
    """What a decoder lets through can be sent on; readers would drop an id with NUL."""
    assert SSEDecoder().feed(SSEEncoder().encode([Frame(b"{}", "a\0b")])) == [Frame(b"{}", "a\0b")]
    with pytest.raises(ValueError, match="NUL"):
        SSEEncoder().encode([Frame(b"{}", "", "a\0b")])


@pytest.mark.parametrize("bad", ["a\nb", "a\rb", "\ud800"])
def test_encoder_refuses_what_would_break_a_line(bad: str) -> None:
    for frame in (Frame(b"{}", bad), Frame(b"{}", "", bad)):
        with pytest.raises(ValueError, match=r"event name|id of an SSE|id|surrogates"):
            SSEEncoder().encode([frame])


def test_keepalive_is_a_comment() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"data: a\n\n" + SSEEncoder().keepalive() + b"data: b\n\n") == [Frame(b"a"), Frame(b"b")]
    assert decoder.comments == 1


_text = st.text(st.characters(exclude_characters="\r\n\0", codec="utf-8"), max_size=8)


@given(st.data(), st.lists(st.tuples(st.binary(max_size=20), _text, _text), max_size=6))
def test_what_is_encoded_comes_back(data: st.DataObject, contents: list[tuple[bytes, str, str]]) -> None:
    stream = SSEEncoder().encode(Frame(*content) for content in contents)
    back = [Frame(re.sub(rb"\r\n|\r", b"\n", payload), event, id_) for payload, event, id_ in contents]
    assert run(SSEDecoder(), data.draw(cuts_of(stream))) == (back, None)
