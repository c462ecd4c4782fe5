"""Time grows with the input and not with its square: eight times the bytes take about eight times as long.

No duration is looked at, only what one is to another; a square would make it sixty-four. The best of several runs counts,
and a pair that another load on the machine has spoilt is measured again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from headrace.formats import PROVIDED
from headrace.formats.base import ReaderOptions
from headrace.framing import FRAMINGS, Frame
from headrace.model import events as ev
from headrace.model.events import BlockKind, BlockStart, Event
from headrace.model.stop import StopReason
from tests.matrix.pipes import write

from .targets import read_all

TIMES = 8
BOUND = 24
"""Between 8, which is linear, and 64, which is quadratic."""
TRIES = 6


def cost(work: Callable[[Any], None], given: Any) -> float:
    """Seconds of CPU, the best of three."""
    best = float("inf")
    for _ in range(3):
        begun = time.process_time()
        work(given)
        best = min(best, time.process_time() - begun)
    return best


def check_linear(make: Callable[[int], Any], work: Callable[[Any], None], size: int) -> None:
    small, large = make(size), make(size * TIMES)
    ratios = []
    for _ in range(TRIES):
        ratios.append(cost(work, large) / max(cost(work, small), 1e-6))
        if ratios[-1] < BOUND:
            return
    pytest.fail(f"{TIMES} times the input took {[round(ratio) for ratio in ratios]} times as long")


def test_a_square_is_found() -> None:
    def work(size: int) -> None:
        for _ in range(size):
            sum(range(size))

    with pytest.raises(pytest.fail.Exception, match="times as long"):
        check_linear(lambda size: size, work, 300)


def feed(framing: str, piece: int) -> Callable[[bytes], None]:
    def work(data: bytes) -> None:
        decoder = FRAMINGS[framing].decoder()
        for place in range(0, len(data), piece):
            decoder.feed(data[place : place + piece])

    return work


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_frame_in_many_pieces(framing: str) -> None:
    def make(size: int) -> bytes:
        return FRAMINGS[framing].encoder().encode([Frame(b'{"a":"' + b"x" * size + b'"}')])

    check_linear(make, feed(framing, 64), 50_000)


@pytest.mark.parametrize("framing", FRAMINGS)
def test_many_frames_at_once(framing: str) -> None:
    def make(size: int) -> bytes:
        encoder = FRAMINGS[framing].encoder()
        return encoder.prologue() + encoder.encode([Frame(b'{"a":1}')] * size)

    check_linear(make, feed(framing, 1 << 30), 2000)


@pytest.mark.parametrize("framing", ["sse", "ndjson", "json_array"])
def test_what_never_becomes_a_frame(framing: str) -> None:
    for unit in (b" ", b"\n", b":", b"data\n", b"[", b"\\", b'"'):
        decoder = FRAMINGS[framing].decoder

        def work(data: bytes, decoder: Callable[[], Any] = decoder) -> None:
            machine = decoder()
            try:
                for place in range(0, len(data), 64):
                    machine.feed(data[place : place + 64])
            except Exception as error:
                assert type(error).__name__ == "FramingError"  # noqa: PT017  # others would be findings, too

        check_linear(unit.__mul__, work, 20_000)


def texts(count: int) -> list[Event]:
    return [BlockStart(block=0, type=BlockKind.TEXT), *(ev.TextDelta(0, "x") for _ in range(count)), ev.BlockStop(0)]


def arguments(count: int) -> list[Event]:
    start = BlockStart(block=0, type=BlockKind.TOOL_CALL, id="c", name="f")
    pieces = ['{"a":"', *("x" for _ in range(count)), '"}']
    return [start, *(ev.ToolDelta(0, piece) for piece in pieces), ev.BlockStop(0)]


def reasoning(count: int) -> list[Event]:
    start = BlockStart(block=0, type=BlockKind.REASONING, vendor="anthropic")
    return [start, *(ev.ReasoningDelta(0, "x") for _ in range(count)), ev.BlockStop(0)]


def calls(count: int) -> list[Event]:
    told: list[Event] = []
    for block in range(count):
        told += [BlockStart(block=block, type=BlockKind.TOOL_CALL, id=f"c{block}", name="f"), ev.ToolDelta(block, "{}")]
        told.append(ev.BlockStop(block))
    return told


def blocks(count: int) -> list[Event]:
    told: list[Event] = []
    for block in range(count):
        told += [BlockStart(block=block, type=BlockKind.TEXT), ev.TextDelta(block, "x"), ev.BlockStop(block)]
    return told


SHAPES = {
    "texts": (texts, 5000),
    "arguments": (arguments, 5000),
    "reasoning": (reasoning, 5000),
    "calls": (calls, 500),
    "blocks": (blocks, 500),
}


def stream(shape: str, size: int) -> list[Event]:
    said = SHAPES[shape][0](size)
    return [ev.Start(id="a", model="m"), *said, ev.Finish(reason=StopReason.END_TURN), ev.End()]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", PROVIDED)
def test_streams(name: str, shape: str) -> None:
    """Written for a caller, and read from a provider."""
    format = PROVIDED[name]

    def work(events: list[Event]) -> None:
        frames = write(name, events).frames
        back = read_all(format.stream_reader(ReaderOptions()), iter([[frame] for frame in frames]))
        assert isinstance(back[-1], ev.End)

    check_linear(lambda size: stream(shape, size), work, SHAPES[shape][1])


@pytest.mark.parametrize("name", PROVIDED)
def test_nesting_is_bounded(name: str) -> None:
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        data = b'{"choices":' + opening * 100_000 + b"1" + closing * 100_000 + b"}"
        events = read_all(PROVIDED[name].stream_reader(ReaderOptions()), iter([[Frame(data)]]))
        assert isinstance(events[-1], ev.Error)
        assert len(json.dumps(str(events))) < 10_000
