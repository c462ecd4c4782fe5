from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.framing import FRAMINGS, Frame
from headrace.tape import answer
from headrace.tape.answer import Ending, Step
from headrace.tape.faults import Faults
from headrace.tape.recording import Piece

PIECES = [
    Piece(0.5, Frame(b'{"n":1}', "one")),
    Piece(0.75, None, b": comment\n\n"),
    Piece(1.0, Frame(b'{"n":2}')),
    Piece(1.5, Frame(b'{"n":3}'), b'data:{"n":3}\r\n\r\n'),
]
E1, E2, E3 = b'event: one\ndata: {"n":1}\n\n', b'data: {"n":2}\n\n', b'data:{"n":3}\r\n\r\n'
COMMENT = b": comment\n\n"
LAST_CHUNK = b"0\r\n\r\n"


def play(speed: float = 1.0, *, chunked: bool = True, framing: str = "sse", **faults: Any) -> list[Step]:
    return list(answer.stream(PIECES, FRAMINGS[framing], Faults(**faults), speed, chunked=chunked))


def bodies(steps: list[Step]) -> list[tuple[float, bytes]]:
    """Time and content of every chunk after the head; the last chunk has no content."""
    return [(step.at, _content(step.data)) for step in steps[1:]]


def _content(chunk: bytes) -> bytes:
    if not chunk:
        return b""
    size, _, rest = chunk.partition(b"\r\n")
    assert len(rest) == int(size, 16) + 2
    return rest[:-2]


def test_plain() -> None:
    steps = play()
    head = steps[0]
    assert head.at == 0.0
    assert head.data.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"content-type: text/event-stream\r\n" in head.data
    assert head.data.endswith(b"transfer-encoding: chunked\r\n\r\n")
    assert bodies(steps) == [(0.5, E1), (0.75, COMMENT), (1.0, E2), (1.5, E3), (1.5, b"")]
    assert steps[-1] == Step(1.5, LAST_CHUNK, Ending.COMPLETE)
    assert all(step.ending is None for step in steps[:-1])


def test_delays_do_not_scale_and_the_rhythm_does() -> None:
    steps = play(2.0, delay=3.0, first_delay=4.0)
    assert [step.at for step in steps] == [3.0, 7.25, 7.375, 7.5, 7.75, 7.75]


def test_speed_zero_is_at_once() -> None:
    assert [step.at for step in play(0.0, delay=3.0)] == [3.0] * 6


def test_http_10_ends_with_the_connection() -> None:
    steps = play(chunked=False)
    assert b"transfer-encoding" not in steps[0].data
    assert b"connection: close\r\n" in steps[0].data
    assert b"".join(step.data for step in steps[1:]) == E1 + COMMENT + E2 + E3
    assert steps[-1].ending is Ending.CLOSE
    assert play(chunked=False, cut=1, cut_clean=True)[-1].ending is Ending.CLOSE


@pytest.mark.parametrize(
    ("faults", "ending"),
    [
        ({"cut": 2}, Ending.CLOSE),
        ({"cut": 2, "cut_clean": True}, Ending.COMPLETE),
        ({"reset": 2}, Ending.RESET),
        ({"silence": 2}, Ending.SILENCE),
        ({"silence": 3, "reset": 2}, Ending.RESET),
    ],
)
def test_breaking_off(faults: dict[str, Any], ending: Ending) -> None:
    steps = play(**faults)
    assert [content for _, content in bodies(steps)] == [E1, COMMENT, E2, b""]
    assert steps[-1].ending is ending
    assert steps[-1].at == 1.5, "it breaks off when the next event would have come"
    assert steps[-1].data == (LAST_CHUNK if ending is Ending.COMPLETE else b"")


def test_breaking_off_at_the_edges() -> None:
    assert play(cut=0)[1:] == [Step(0.5, b"", Ending.CLOSE)]
    after_all = play(cut=3)
    assert [content for _, content in bodies(after_all)] == [E1, COMMENT, E2, E3, b""]
    assert after_all[-1].ending is Ending.CLOSE
    assert play(cut=4) == play()


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ({"malformed": 2}, [E1, COMMENT, b'data: {"n\n\n', E3]),
        ({"garbage": 2}, [E1, COMMENT, E2, answer.GARBAGE, E3]),
        ({"garbage": 0}, [answer.GARBAGE, E1, COMMENT, E2, E3]),
        ({"duplicate_terminal": True}, [E1, COMMENT, E2, E3, E3]),
        ({"comment": 2}, [b": keepalive\n\n", E1, COMMENT, E2, b": keepalive\n\n", E3]),
        ({"eventless": True}, [b'data: {"n":1}\n\n', COMMENT, E2, E3]),
        ({"nospace": True}, [b'event:one\ndata:{"n":1}\n\n', COMMENT, b'data:{"n":2}\n\n', E3]),
        (
            {"crlf": True},
            [b'event: one\r\ndata: {"n":1}\r\n\r\n', b": comment\r\n\r\n", b'data: {"n":2}\r\n\r\n', E3],
        ),
        (
            {"cr": True},
            [b'event: one\rdata: {"n":1}\r\r', b": comment\r\r", b'data: {"n":2}\r\r', b'data:{"n":3}\r\r'],
        ),
        ({"coalesce": 3}, [E1 + COMMENT + E2, E3]),
        ({"coalesce": 4}, [E1 + COMMENT + E2 + E3]),
        ({"coalesce": 9}, [E1 + COMMENT + E2 + E3]),
        ({"coalesce": 9, "cut": 2}, [E1 + COMMENT + E2]),
    ],
)
def test_faults_of_events_and_bytes(faults: dict[str, Any], expected: list[bytes]) -> None:
    assert [content for _, content in bodies(play(**faults))][:-1] == expected


def test_coalesced_events_come_with_the_last_of_them() -> None:
    assert [at for at, _ in bodies(play(coalesce=3))] == [1.0, 1.5, 1.5]


def test_split() -> None:
    contents = [content for _, content in bodies(play(split=7))][:-1]
    assert b"".join(contents) == E1 + COMMENT + E2 + E3
    assert max(map(len, contents)) == 7
    broken = play(split=7, reset=1)
    assert b"".join(content for _, content in bodies(broken)) == E1 + COMMENT
    assert broken[-1].ending is Ending.RESET


def test_drip() -> None:
    whole = b"".join(step.data for step in play())
    steps = play(drip=True)
    assert b"".join(step.data for step in steps) == whole
    assert max(len(step.data) for step in steps) == 1
    head = whole.index(b"\r\n\r\n") + 4
    assert steps[0].at == pytest.approx(0.001)
    assert steps[head - 1].at == pytest.approx(head * 0.001)
    assert steps[head].at == 0.5, "a byte does not come before its event is due"
    assert steps[-1].ending is Ending.COMPLETE
    assert play(drip=True, reset=1)[-1].ending is Ending.RESET


def test_gzip() -> None:
    steps = play(gzip=True)
    assert b"content-encoding: gzip\r\n" in steps[0].data
    inflate = zlib.decompressobj(wbits=31)
    contents = [inflate.decompress(content) for _, content in bodies(steps)]
    assert contents[:4] == [E1, COMMENT, E2, E3], "each event can be read when it has come"
    assert inflate.eof
    cut = zlib.decompressobj(wbits=31)
    assert b"".join(cut.decompress(content) for _, content in bodies(play(gzip=True, cut=1))) == E1 + COMMENT
    assert not cut.eof


def test_other_framings() -> None:
    pieces = [piece._replace(raw=None) for piece in PIECES if piece.frame is not None]

    def body(framing: str) -> bytes:
        steps: Iterator[Step] = answer.stream(pieces, FRAMINGS[framing], Faults(), 0.0, chunked=False)
        return b"".join(step.data for step in list(steps)[1:])

    assert body("ndjson") == b'{"n":1}\n{"n":2}\n{"n":3}\n'
    assert body("json_array").startswith(b"[")
    assert body("json_array").rstrip().endswith(b"]")


def test_whole_body_is_one_event() -> None:
    steps = list(answer.body(3.0, b'{"answer":42}', Faults(malformed=1), 1.0, chunked=True))
    assert b"content-type: application/json\r\n" in steps[0].data
    assert (steps[0].at, steps[1].at) == (0.0, 3.0)
    assert _content(steps[1].data) == b'{"answ'
    assert list(answer.body(0.0, b"{}", Faults(cut=0), 1.0, chunked=True))[-1] == Step(0.0, b"", Ending.CLOSE)
