from __future__ import annotations

import gzip
import struct
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.framing import EnvelopeDecoder, EnvelopeEncoder, Frame, FramingError
from headrace.framing.connect import CONNECT_FLAGS, GRPC_WEB_FLAGS
from tests.framing.cutting import assert_same_at_all_cuts, cuts_of, run, single_bytes, touched_bytes


def squeezed(data: bytes) -> bytes:
    """The same bytes at any time: cases are named by them."""
    return gzip.compress(data, mtime=0)


def envelope(flags: int, message: bytes) -> bytes:
    return struct.pack("!BI", flags, len(message)) + message


END = envelope(2, b"{}")


@pytest.mark.parametrize(
    ("stream", "frames"),
    [
        (b"", []),
        (bytes.fromhex("000000000d7b2274657874223a224869227d"), [Frame(b'{"text":"Hi"}')]),
        (envelope(0, b"") + envelope(0, b"\x0a\x02Hi"), [Frame(b""), Frame(b"\x0a\x02Hi")]),
        (envelope(0, b"a") + END, [Frame(b"a"), Frame(b"{}", "end")]),
        (envelope(1, squeezed(b"a" * 500)) + END, [Frame(b"a" * 500), Frame(b"{}", "end")]),
        (envelope(3, squeezed(b"{}")), [Frame(b"{}", "end")]),
        (envelope(1, b""), [Frame(b"")]),
        (envelope(0, b"\x00\x00\x00\x00\x02ab"), [Frame(b"\x00\x00\x00\x00\x02ab")]),
    ],
)
def test_envelopes_become_frames(stream: bytes, frames: list[Frame]) -> None:
    assert assert_same_at_all_cuts(stream, EnvelopeDecoder) == frames


def test_trailers_of_grpc_web() -> None:
    trailers = b"grpc-status:0\r\n"
    stream = envelope(0, b"a") + envelope(0x80, trailers)
    assert bytes.fromhex("800000000f") + trailers in stream
    frames = [Frame(b"a"), Frame(trailers, "trailers")]
    assert assert_same_at_all_cuts(stream, lambda: EnvelopeDecoder(flags=GRPC_WEB_FLAGS)) == frames
    packed = envelope(0x81, squeezed(trailers))
    assert run(EnvelopeDecoder(flags=GRPC_WEB_FLAGS), [packed]) == ([Frame(trailers, "trailers")], None)


@pytest.mark.parametrize(
    ("protocol", "flags"),
    [
        (CONNECT_FLAGS, 0x80),
        (CONNECT_FLAGS, 0x82),
        (CONNECT_FLAGS, 0x04),
        (CONNECT_FLAGS, ord("{")),
        (GRPC_WEB_FLAGS, 0x02),
        (GRPC_WEB_FLAGS, 0x40),
    ],
)
def test_flags_of_another_protocol_are_refused(protocol: Mapping[int, str], flags: int) -> None:
    stream = envelope(0, b"a") + envelope(flags, b"{}")
    for pieces in ([stream], single_bytes(stream)):
        assert run(EnvelopeDecoder(flags=protocol), pieces) == ([Frame(b"a")], "malformed")
    with pytest.raises(FramingError, match=f"flags 0x{flags:02x}"):
        EnvelopeDecoder(flags=protocol).feed(envelope(flags, b"{}"))


@pytest.mark.parametrize("more", [b"\x00", envelope(0, b"a"), END])
def test_nothing_may_follow_the_end(more: bytes) -> None:
    stream = END + more
    for pieces in ([stream], single_bytes(stream), [END, more]):
        frames, error = run(EnvelopeDecoder(), pieces)
        assert (frames, error) == ([Frame(b"{}", "end")], "malformed")


@pytest.mark.parametrize("cut", [1, 4, 5, 7])
def test_an_end_inside_an_envelope_is_an_error(cut: int) -> None:
    stream = envelope(0, b"a") + envelope(0, b"abc")[:cut]
    for pieces in ([stream], single_bytes(stream)):
        assert run(EnvelopeDecoder(), pieces) == ([Frame(b"a")], "truncated")


def test_a_size_beyond_the_bound_is_refused_before_its_bytes_come() -> None:
    decoder = EnvelopeDecoder(1000)
    assert decoder.feed(envelope(0, b"x" * 1000) + b"\x00\x00\x00\x03") == [Frame(b"x" * 1000)]
    with pytest.raises(FramingError, match=r"envelope of 1001 bytes.*limit of 1000 bytes.*max_frame") as caught:
        decoder.feed(b"\xe9")
    assert caught.value.reason == "too_large"


def test_a_compressed_message_keeps_the_bound_when_it_is_expanded() -> None:
    fits, bomb = squeezed(b"x" * 1000), squeezed(b"x" * 1001)
    assert len(bomb) < 1000
    assert run(EnvelopeDecoder(1000), [envelope(1, fits)]) == ([Frame(b"x" * 1000)], None)
    assert run(EnvelopeDecoder(1000), [envelope(1, bomb)]) == ([], "too_large")


@pytest.mark.parametrize(
    "message",
    [b"plain", squeezed(b"abc")[:-1], squeezed(b"abc") + b"x", squeezed(b"a") + squeezed(b"b")],
)
def test_what_is_flagged_as_compressed_must_be_one_gzip_stream(message: bytes) -> None:
    with pytest.raises(FramingError, match="gzip") as caught:
        EnvelopeDecoder().feed(envelope(1, message))
    assert caught.value.reason == "malformed"


def test_a_message_is_touched_a_constant_number_of_times() -> None:
    def work(size: int) -> int:
        return touched_bytes(EnvelopeDecoder, ("_buffer",), envelope(0, b"[" * size) + envelope(0, b"[]"))

    assert work(10_000) >= 10_000
    assert work(80_000) <= 8.1 * work(10_000)


messages = st.lists(st.tuples(st.sampled_from([0, 1]), st.binary(max_size=40)), max_size=6)


@given(st.data(), messages, st.booleans())
def test_same_under_any_cut(data: st.DataObject, parts: list[tuple[int, bytes]], ended: bool) -> None:
    stream = b"".join(envelope(flags, squeezed(message) if flags else message) for flags, message in parts)
    frames = [Frame(message) for _, message in parts]
    if ended:
        stream += END
        frames.append(Frame(b"{}", "end"))
    assert run(EnvelopeDecoder(), data.draw(cuts_of(stream))) == (frames, None)


@given(st.data(), st.binary(max_size=60))
def test_any_bytes_end_the_same_way_under_any_cut(data: st.DataObject, stream: bytes) -> None:
    whole = run(EnvelopeDecoder(50), [stream])
    assert run(EnvelopeDecoder(50), single_bytes(stream)) == whole
    assert run(EnvelopeDecoder(50), data.draw(cuts_of(stream))) == whole


def test_encoder() -> None:
    encoder = EnvelopeEncoder()
    assert encoder.prologue() == encoder.epilogue() == encoder.keepalive() == b""
    frames = [Frame(b"abc", "delta", "id"), Frame(b""), Frame(b"{}", "end")]
    assert encoder.encode(frames) == envelope(0, b"abc") + envelope(0, b"") + END
    assert EnvelopeEncoder(flags=GRPC_WEB_FLAGS).encode([Frame(b"x", "trailers")]) == envelope(0x80, b"x")


@given(st.data(), st.lists(st.binary(max_size=300), max_size=6))
def test_what_is_encoded_comes_back(data: st.DataObject, values: list[bytes]) -> None:
    frames = [*map(Frame, values), Frame(b"{}", "end")]
    stream = EnvelopeEncoder().encode(frames)
    assert run(EnvelopeDecoder(), data.draw(cuts_of(stream))) == (frames, None)
