"""Cutting bytes as a network might, and running decoders over the pieces."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from hypothesis import strategies as st

from headrace.framing import Decoder, Frame, FramingError

Outcome = tuple[list[Frame], str | None]


def run(decoder: Decoder, pieces: Iterable[bytes]) -> Outcome:
    """All frames of a whole stream, and the reason of the error that ended it, if one did."""
    frames: list[Frame] = []
    try:
        for piece in pieces:
            frames += decoder.feed(piece)
        frames += decoder.eof()
    except FramingError as error:
        return frames, error.reason
    return frames, None


def cut(data: bytes, positions: Iterable[int]) -> list[bytes]:
    """`data` in pieces, cut at these positions; equal positions give empty pieces."""
    edges = [0, *sorted(positions), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def single_bytes(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


def many_cuts(data: bytes) -> Iterator[list[bytes]]:
    """Byte by byte, pieces of several sizes, and cut in two at every position (in long data: near every line end)."""
    yield single_bytes(data)
    for size in (2, 3, 5, 7, 16, 64, 1000):
        yield [data[i : i + size] for i in range(0, len(data), size)]
    positions: Iterable[int] = range(len(data) + 1)
    if len(data) > 3000:
        ends = [i for i, byte in enumerate(data) if byte in b"\r\n"][-150:]
        positions = sorted({end + d for end in ends for d in (-1, 0, 1, 2) if 0 <= end + d <= len(data)})
    for position in positions:
        yield [data[:position], data[position:]]


def cuts_of(data: bytes) -> st.SearchStrategy[list[bytes]]:
    """Any cut of `data`, as a Hypothesis strategy."""
    return st.lists(st.integers(0, len(data)), max_size=12).map(lambda positions: cut(data, positions))


def soup(tokens: list[bytes], max_size: int = 40) -> st.SearchStrategy[bytes]:
    """Bytes put together from a grammar's own tokens, in any order."""
    return st.lists(st.sampled_from(tokens), max_size=max_size).map(b"".join)


def assert_same_at_all_cuts(data: bytes, make: Callable[[], Decoder]) -> list[Frame]:
    """The frames of `data`, which no cut changes."""
    whole = run(make(), [data])
    for pieces in many_cuts(data):
        assert run(make(), pieces) == whole
    assert whole[1] is None
    return whole[0]


class CountingBuffer(bytearray):
    """A bytearray that counts the bytes that operations on it touch, to tell linear work from quadratic."""

    touched = 0

    def _whole(self) -> None:
        type(self).touched += len(self)

    def __iadd__(self, other: Any) -> Self:  # type: ignore[misc]  # bytearray.__add__ gives a plain bytearray
        type(self).touched += len(other)
        return super().__iadd__(other)

    def __bytes__(self) -> bytes:
        self._whole()
        return bytes(memoryview(self))

    def __getattribute__(self, name: str) -> Any:
        if name in _SCANS:
            self._whole()
        return super().__getattribute__(name)

    def __contains__(self, item: Any) -> bool:
        self._whole()
        return super().__contains__(item)

    def __getitem__(self, key: Any) -> Any:
        self._whole()
        return super().__getitem__(key)


_SCANS = frozenset(name for name in dir(bytearray) if not name.startswith("_")) - {"append", "clear", "extend", "pop"}


def touched_bytes(make: Callable[[], Decoder], buffers: tuple[str, ...], data: bytes) -> int:
    """How many bytes a decoder touches in its buffers (attributes) when `data` comes byte by byte."""
    decoder = make()
    for name in buffers:
        assert type(getattr(decoder, name)) is bytearray
        setattr(decoder, name, CountingBuffer())
    CountingBuffer.touched = 0
    for piece in single_bytes(data):
        decoder.feed(piece)
    assert all(type(getattr(decoder, name)) is CountingBuffer for name in buffers)
    return CountingBuffer.touched
