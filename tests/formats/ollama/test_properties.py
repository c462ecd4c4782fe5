"""Whatever a server may send: a legal stream of events with one ending, or a ProtocolError and the lines after it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.base import ReaderOptions
from headrace.formats.ollama import FORMAT
from headrace.formats.ollama.words import read_time, write_time
from headrace.framing.frame import Frame
from headrace.model.errors import ProtocolError
from headrace.model.events import Event

from .helpers import checked

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def one_of(*likely: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(likely) | ANYTHING


CALLS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "id": one_of("", "c1", None),
            "function": st.fixed_dictionaries({}, optional={"name": one_of("f", ""), "arguments": one_of({}, "{}")}),
        },
    ),
    max_size=2,
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "role": one_of("assistant"),
        "content": one_of("", "Hi"),
        "thinking": one_of("", "Hm"),
        "tool_calls": CALLS | ANYTHING,
        "images": one_of(["iVBORw0KGgo="]),
    },
)
LINES = st.fixed_dictionaries(
    {},
    optional={
        "model": one_of("m"),
        "created_at": one_of("2026-01-01T00:00:00Z"),
        "message": MESSAGES | ANYTHING,
        "response": one_of("", "Hi"),
        "done": one_of(True, False),
        "done_reason": one_of("stop"),
        "error": one_of(None, "", "Gone", {"message": "Gone"}),
        "logprobs": one_of([]),
        "eval_count": one_of(3),
        "total": one_of(3),
        "completed": one_of(1),
    },
)


@pytest.mark.parametrize("passthrough", [False, True])
@given(lines=st.lists(LINES.map(json.dumps).map(str.encode) | st.binary(max_size=12), max_size=5))
def test_any_lines(passthrough: bool, lines: list[bytes]) -> None:
    reader = FORMAT.stream_reader(ReaderOptions(passthrough=passthrough))
    events: list[Event] = []
    for line in lines:
        try:
            events += reader.read([Frame(line)])
        except ProtocolError as error:
            events += error.events
    checked([*events, *reader.eof()])


@given(
    text=st.text(max_size=40)
    | st.from_regex(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?", fullmatch=True)
)
def test_any_time(text: str) -> None:
    assert read_time(text) >= 0


@given(seconds=st.integers(0, 2**40))
def test_times_come_back(seconds: int) -> None:
    written = write_time(seconds)
    assert read_time(written) == (seconds if seconds < 253_402_300_800 else 0)
