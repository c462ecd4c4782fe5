"""Every target under Hypothesis: arbitrary bytes, and seeds that were changed a little."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model import events as ev
from headrace.model.events import BlockKind, BlockStart
from headrace.model.grammar import IllegalOrder

from .mutations import mutated
from .targets import TARGETS, Finding, check_events

EACH = pytest.mark.parametrize("name", TARGETS)


@EACH
def test_seeds(name: str) -> None:
    seeds = TARGETS[name].seeds()
    assert any(seeds)
    for seed in seeds:
        TARGETS[name].run(seed)


@EACH
@settings(max_examples=30, deadline=None)
@given(data=st.binary(max_size=3000))
def test_arbitrary_bytes(name: str, data: bytes) -> None:
    TARGETS[name].run(data)


@EACH
@settings(max_examples=120, deadline=None)
@given(number=st.integers(0, 2**32))
def test_nearly_well_formed(name: str, number: int) -> None:
    target = TARGETS[name]
    target.run(mutated(random.Random(number), target.seeds()))


def test_illegal_events_are_found() -> None:
    start, block = ev.Start(), BlockStart(block=0, type=BlockKind.TEXT)
    with pytest.raises(Finding):
        check_events([start], ())
    for events in ([start, start], [block], [start, block, ev.End()], [start, ev.TextDelta(0, "x")]):
        with pytest.raises(IllegalOrder):
            check_events(events, ())
