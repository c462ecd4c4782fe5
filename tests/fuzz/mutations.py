"""Inputs that are nearly well formed: seeds with bytes moved about, or with other JSON values in their places."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

_VALUE = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null|\{\}|\[\]')
"""JSON values that hold no others; names of members are among the strings."""

_OTHERS = (
    b"null true false 0 -1 1 255 10001 1e3 1e999 -0.0 9007199254740993 123456789012345678901234567890 "
    b'"" "x" "0" "\\ud800" "\xc3\xa9" "\xff" {} [] [null] [{}] [[]] {"a":null} {"type":"x"} [0,"x"] '
    b'"text" "error" "index" "content" "function" "stop" "end_turn" "[DONE]"'
).split(b" ")
_BYTES = (
    *(b"\n", b"\n\n", b"\r", b"data: ", b"data: [DONE]\n\n", b"event: error\n", b":"),
    *(b"\x00", b"\xff", b"\xef\xbb\xbf", b"\x1e"),
)


def _cut(data: bytearray, dice: random.Random, seeds: Sequence[bytes]) -> None:
    place = dice.randint(0, len(data))
    del data[place : place + dice.randint(1, 40)]


def _double(data: bytearray, dice: random.Random, seeds: Sequence[bytes]) -> None:
    place = dice.randint(0, len(data))
    data[place:place] = data[place : place + dice.randint(1, 400)]


def _flip(data: bytearray, dice: random.Random, seeds: Sequence[bytes]) -> None:
    if data:
        data[dice.randrange(len(data))] = dice.randrange(256)


def _insert(data: bytearray, dice: random.Random, seeds: Sequence[bytes]) -> None:
    place = dice.randint(0, len(data))
    data[place:place] = dice.choice(_BYTES + tuple(_OTHERS))


def _splice(data: bytearray, dice: random.Random, seeds: Sequence[bytes]) -> None:
    other = dice.choice(seeds)
    data[dice.randint(0, len(data)) :] = other[dice.randint(0, len(other)) :]


def _end(data: bytearray, dice: random.Random, seeds: Sequence[bytes]) -> None:
    del data[dice.randint(0, len(data)) :]


def _value(data: bytearray, dice: random.Random, seeds: Sequence[bytes]) -> None:
    """Another value in place of one; or another name."""
    values = list(_VALUE.finditer(data))
    if values:
        found = dice.choice(values)
        data[found.start() : found.end()] = dice.choice(_OTHERS)


def _member(data: bytearray, dice: random.Random, seeds: Sequence[bytes]) -> None:
    """A line is left out, doubled, or put elsewhere: an event of the stream, mostly."""
    lines = bytes(data).splitlines(keepends=True)
    if len(lines) > 1:
        line = lines.pop(dice.randrange(len(lines)))
        for _ in range(dice.randint(0, 2)):
            lines.insert(dice.randint(0, len(lines)), line)
        data[:] = b"".join(lines)


_CHANGES: tuple[Callable[[bytearray, random.Random, Sequence[bytes]], None], ...] = (
    _cut,
    _double,
    _flip,
    _insert,
    _splice,
    _end,
    _value,
    _value,
    _value,
    _value,
    _member,
    _member,
)


def mutated(dice: random.Random, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds after a few changes, or now and then as it is."""
    data = bytearray(dice.choice(seeds))
    for _ in range(dice.choice((0, 1, 1, 1, 2, 2, 3, 5))):
        dice.choice(_CHANGES)(data, dice, seeds)
    return bytes(data)
