"""Amazon's event stream. botocore's reader is the arbiter of what a message is."""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.framing import EventStreamDecoder, EventStreamEncoder, Frame, FramingError
from headrace.framing.eventstream import read_headers
from tests.fixtures import FixtureRow, fixture_bytes, fixture_params
from tests.framing.cutting import assert_same_at_all_cuts, cuts_of, run, single_bytes, touched_bytes

botocore = pytest.importorskip("botocore.eventstream", reason="botocore is not installed")


def string(name: str, value: str) -> bytes:
    return header(name, 7, struct.pack(">H", len(value.encode())) + value.encode())


def header(name: str, type: int, value: bytes) -> bytes:
    return bytes([len(name.encode())]) + name.encode() + bytes([type]) + value


def message(headers: bytes, payload: bytes) -> bytes:
    lengths = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    whole = lengths + struct.pack(">I", zlib.crc32(lengths)) + headers + payload
    return whole + struct.pack(">I", zlib.crc32(whole))


def arbiter(data: bytes) -> list[Any]:
    """The messages as botocore reads them."""
    buffer = botocore.EventStreamBuffer()
    buffer.add_data(data)
    return list(buffer)


EVENT = bytes.fromhex(
    "0000007a00000051ca2c46650b3a6576656e742d7479706507000b6d65737361676553746f700d3a636f6e74656e742d74797065070010"
    "6170706c69636174696f6e2f6a736f6e0d3a6d6573736167652d747970650700056576656e747b2273746f70526561736f6e223a22656e"
    "645f7475726e227d5fbf09fc"
)
EXCEPTION = bytes.fromhex(
    "0000008800000061de0175f40d3a6d6573736167652d74797065070009657863657074696f6e0f3a657863657074696f6e2d7479706507"
    "00137468726f74746c696e67457863657074696f6e0d3a636f6e74656e742d747970650700106170706c69636174696f6e2f6a736f6e7b"
    "226d657373616765223a22736c6f7720646f776e227d4e43b958"
)
EMPTY = bytes.fromhex("000000100000000005c248eb7d98c8ff")
ERROR = message(
    string(":message-type", "error") + string(":error-code", "Boom") + string(":error-message", "It broke"), b""
)


@pytest.mark.parametrize(
    ("data", "frame"),
    [
        (EMPTY, Frame(b"")),
        (EVENT, Frame(b'{"stopReason":"end_turn"}', "messageStop")),
        (EXCEPTION, Frame(b'{"message":"slow down"}', "exception:throttlingException")),
        (ERROR, Frame(b"It broke", "error:Boom")),
        (message(string(":event-type", "x"), b"{}"), Frame(b"{}", "x")),  # without :message-type
        (message(header(":event-type", 0, b""), b"{}"), Frame(b"{}", "")),
    ],
)
def test_messages_become_frames(data: bytes, frame: Frame) -> None:
    assert assert_same_at_all_cuts(data, EventStreamDecoder) == [frame]
    assert len(arbiter(data)) == 1


def test_frames_become_messages() -> None:
    frames = [
        Frame(b'{"stopReason":"end_turn"}', "messageStop", "7"),
        Frame(b'{"message":"no"}', "exception:validationException"),
        Frame(b"{}", "error:Boom"),
        Frame(b"{}"),
    ]
    encoder = EventStreamEncoder()
    data = encoder.encode(frames[:1]) + encoder.keepalive() + encoder.encode(frames[1:]) + encoder.epilogue()
    assert encoder.prologue() == b""
    assert data.startswith(EVENT)
    assert [(one.headers, one.payload) for one in arbiter(data)] == [
        (
            {":event-type": "messageStop", ":content-type": "application/json", ":message-type": "event"},
            frames[0].data,
        ),
        (
            {
                ":exception-type": "validationException",
                ":content-type": "application/json",
                ":message-type": "exception",
            },
            frames[1].data,
        ),
        ({":error-code": "Boom", ":content-type": "application/json", ":message-type": "error"}, b"{}"),
        ({":content-type": "application/json", ":message-type": "event"}, b"{}"),
    ]
    with pytest.raises(ValueError, match="too long"):
        encoder.encode([Frame(b"{}", "x" * 40_000)])


ALL_TYPES = b"".join(
    (
        header("yes", 0, b""),
        header("no", 1, b""),
        header("byte", 2, struct.pack(">b", -7)),
        header("short", 3, struct.pack(">h", -700)),
        header("integer", 4, struct.pack(">i", -70_000)),
        header("long", 5, struct.pack(">q", -(2**40))),
        header("bytes", 6, b"\x00\x03\x00\xff\x01"),
        string("strïng", "grüße"),
        header("time", 8, struct.pack(">q", 1_750_000_000_123)),
        header("id", 9, uuid.UUID(int=7).bytes),
    )
)


def test_every_type_of_header() -> None:
    (told,) = arbiter(message(ALL_TYPES, b"x"))
    assert read_headers(ALL_TYPES) == told.headers
    assert list(told.headers) == ["yes", "no", "byte", "short", "integer", "long", "bytes", "strïng", "time", "id"]
    data = message(ALL_TYPES + string(":event-type", "e"), b"x")
    assert run(EventStreamDecoder(), single_bytes(data)) == ([Frame(b"x", "e")], None)


@pytest.mark.parametrize(
    "headers",
    [
        header("x", 10, b""),
        header("x", 255, b""),
        header("x", 7, b""),
        header("x", 7, b"\x00"),
        header("x", 7, b"\x00\x02a"),
        header("x", 7, b"\x00\x01\xff"),
        header("x", 6, b"\xff\xff"),
        header("x", 5, b"\x00"),
        header("x", 9, b"\x00" * 15),
        b"\x05abc",
        b"\x03abc",
        b"\x01\xff\x00",
        header("x", 0, b"") + header("x", 1, b""),
    ],
)
def test_headers_that_are_none(headers: bytes) -> None:
    good = message(b"", b"{}")
    for pieces in ([good + message(headers, b"{}")], single_bytes(good + message(headers, b"{}"))):
        assert run(EventStreamDecoder(), pieces) == ([Frame(b"{}")], "malformed")


@pytest.mark.parametrize("place", range(len(EVENT)))
def test_any_damaged_byte_is_noticed(place: int) -> None:
    damaged = bytearray(EVENT)
    damaged[place] ^= 0x20
    for pieces in ([EVENT + damaged + EVENT], single_bytes(EVENT + bytes(damaged) + EVENT)):
        frames, error = run(EventStreamDecoder(), pieces)
        assert (len(frames), error) == (1, "malformed")


def test_a_wrong_length_is_no_wait() -> None:
    """The lengths are believed only with their CRC: no more than twelve bytes are waited for."""
    with pytest.raises(FramingError, match="lengths"):
        EventStreamDecoder().feed(b"\x00\x7f" + EVENT[2:12])


def test_headers_longer_than_the_message() -> None:
    lengths = struct.pack(">II", 20, 5)
    data = lengths + struct.pack(">I", zlib.crc32(lengths)) + b"x" * 8
    with pytest.raises(FramingError, match="cannot have 5 bytes of headers"):
        EventStreamDecoder().feed(data)


def test_every_shorter_stream_is_truncated() -> None:
    stream = EVENT + EXCEPTION
    for size in range(len(stream)):
        frames, error = run(EventStreamDecoder(), [stream[:size]])
        assert error == (None if size in (0, len(EVENT)) else "truncated")
        assert len(frames) == (size >= len(EVENT))


def test_the_limit_is_exact_and_for_one_message() -> None:
    stream = EVENT + EVENT
    assert run(EventStreamDecoder(len(EVENT)), single_bytes(stream))[1] is None
    assert run(EventStreamDecoder(len(EVENT) - 1), single_bytes(stream)) == ([], "too_large")
    with pytest.raises(FramingError, match="max_frame"):
        EventStreamDecoder(1000).feed(message(b"", b"x" * 1000)[:12])


texts = st.text(max_size=12)
frames = st.builds(
    Frame,
    st.binary(min_size=1, max_size=40),
    st.sampled_from(["", "chunk", "contentBlockDelta", "exception:x", "error:y"]) | texts,
)


@settings(max_examples=200)
@given(st.data(), st.lists(frames, max_size=6))
def test_what_is_encoded_comes_back_under_any_cut(data: st.DataObject, sent: list[Frame]) -> None:
    stream = EventStreamEncoder().encode(sent)
    assert run(EventStreamDecoder(), data.draw(cuts_of(stream))) == (sent, None)
    assert [one.payload for one in arbiter(stream)] == [frame.data for frame in sent]


@settings(max_examples=300)
@given(st.data(), st.binary(max_size=200) | st.binary(max_size=60).map(lambda tail: EVENT + tail))
def test_any_bytes_are_frames_or_an_error(data: st.DataObject, stream: bytes) -> None:
    whole = run(EventStreamDecoder(), [stream])
    assert run(EventStreamDecoder(), single_bytes(stream)) == whole
    assert run(EventStreamDecoder(), data.draw(cuts_of(stream))) == whole


@settings(max_examples=300)
@given(st.binary(max_size=60))
def test_any_headers_are_read_as_botocore_reads_them(block: bytes) -> None:
    try:
        told = read_headers(block)
    except FramingError:
        return  # botocore reads what is cut off as something shorter
    assert arbiter(message(block, b""))[0].headers == told


@pytest.mark.parametrize("row", fixture_params(framing="binary", provider="bedrock"))
def test_recorded_streams(row: FixtureRow) -> None:
    data = fixture_bytes(row.file)
    if "broken" in row.file:
        assert run(EventStreamDecoder(), [data]) == ([], "malformed")
        assert run(EventStreamDecoder(), single_bytes(data)) == ([], "malformed")
        return
    read = assert_same_at_all_cuts(data, EventStreamDecoder)
    told = arbiter(data)
    assert [(frame.event, frame.data) for frame in read] == [(one.headers[":event-type"], one.payload) for one in told]
    assert all(isinstance(json.loads(frame.data), dict) for frame in read)
    assert EventStreamEncoder().encode(read) == data


def test_a_message_is_touched_a_constant_number_of_times() -> None:
    def work(size: int) -> int:
        return touched_bytes(EventStreamDecoder, ("_buffer",), message(b"", b"x" * size))

    assert work(10_000) >= 10_000
    assert work(80_000) <= 8.1 * work(10_000)
