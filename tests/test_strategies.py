"""The strategies make what they promise: legal streams, of every kind."""

from __future__ import annotations

from functools import partial

from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from headrace.model import events as ev
from headrace.model.events import BlockKind, Event
from headrace.model.grammar import Grammar

from .strategies import legal_events


@given(legal_events())
def test_every_example_is_legal_and_ends_once(events: list[Event]) -> None:
    grammar = Grammar()
    for event in events:
        grammar.accept(event)
    assert grammar.ended


def _side_by_side(events: list[Event]) -> bool:
    running = 0
    for event in events:
        running += isinstance(event, ev.BlockStart)
        running -= isinstance(event, ev.BlockStop)
        if running > 1:
            return True
    return False


def test_the_rare_occurs() -> None:
    strategy: st.SearchStrategy[list[Event]] = legal_events()
    # Found is enough: making an example small takes minutes.
    quick = settings(max_examples=2000, database=None, phases=[Phase.generate])
    find(strategy, _side_by_side, settings=quick)
    find(strategy, lambda events: isinstance(events[0], ev.Error), settings=quick)
    find(strategy, lambda events: any(isinstance(e, ev.Finish) and e.choice for e in events), settings=quick)
    for kind in BlockKind:
        find(strategy, partial(_has_kind, kind), settings=quick)


def _has_kind(kind: BlockKind, events: list[Event]) -> bool:
    return any(isinstance(event, ev.BlockStart) and event.type is kind for event in events)
