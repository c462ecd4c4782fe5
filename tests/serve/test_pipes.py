"""Lines of standard input, and the two threads over real pipes."""

from __future__ import annotations

import asyncio
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.serve.pipes import HIGH, Input, Lines, Output, TooLong


def shown(lines: list[bytes | TooLong]) -> list[bytes | None]:
    return [None if isinstance(line, TooLong) else line for line in lines]


TEXT = b'{"a":1}\n\n  \r\n{"b":\xe2\x80\xa82}\r\n' + b"x" * 20 + b"\n" + b"y" * 16 + b"\nlast"
LINES = [b'{"a":1}', b'{"b":\xe2\x80\xa82}', None, b"y" * 16, b"last"]


@given(st.lists(st.integers(0, len(TEXT)), max_size=8))
def test_lines_however_they_are_cut(cuts: list[int]) -> None:
    lines = Lines(16)
    found: list[bytes | TooLong] = []
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(TEXT)], strict=True):
        if piece := TEXT[start:end]:
            found += lines.feed(piece)
    assert shown(found + lines.feed(b"")) == LINES


def test_a_line_without_an_end_is_not_kept() -> None:
    lines = Lines(1000)
    for _ in range(1000):
        assert lines.feed(b"z" * 1000) == []
        assert sum(map(len, lines._pieces)) <= 1000
    assert shown(lines.feed(b"\nok\n")) == [None, b"ok"]


async def test_input_is_read_when_it_is_asked_for() -> None:
    read, write = os.pipe()
    came: asyncio.Queue[bytes] = asyncio.Queue()
    source = Input(read, came.put_nowait)
    os.write(write, b"one")
    source.more()
    assert await asyncio.wait_for(came.get(), 20) == b"one"
    os.write(write, b"two")
    os.close(write)
    assert came.empty()
    source.more()
    assert await asyncio.wait_for(came.get(), 20) == b"two"
    source.more()
    assert await asyncio.wait_for(came.get(), 20) == b""
    os.close(read)


async def test_output_says_when_it_is_full_and_when_no_more() -> None:
    read, write = os.pipe()
    drained, lost = asyncio.Event(), asyncio.Event()
    output = Output(write, drained.set, lost.set)
    piece = b"p" * 4096
    count = 0
    while not output.full:
        output.put(piece)
        count += 1
    assert output.size <= HIGH + len(piece) + HIGH
    taken = 0
    while taken < count * len(piece):
        taken += len(await asyncio.to_thread(os.read, read, 65536))
    await asyncio.wait_for(drained.wait(), 20)
    assert not output.full
    assert output.size == 0
    os.close(read)
    output.put(piece)
    await asyncio.wait_for(lost.wait(), 20)
    output.put(piece)
    assert output.size == 0
    os.close(write)


@pytest.mark.parametrize("most", [1, 5])
def test_the_limit_is_of_the_line_without_its_end(most: int) -> None:
    lines = Lines(most)
    assert shown(lines.feed(b"a" * most + b"\n" + b"a" * (most + 1) + b"\n")) == [b"a" * most, None]
