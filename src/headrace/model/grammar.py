"""The legal order of a stream's events, as a table, and a checker that walks it.

Readers must produce, and writers may rely on, exactly the sequences this accepts. The checker is for tests and for the
conformance tools; the hot path does not run it.
"""

from __future__ import annotations

from . import events as ev
from .events import BlockKind, Event

_B = BlockKind

DELTAS: dict[type[Event], frozenset[BlockKind]] = {
    # which kinds of block a delta may belong to
    ev.TextDelta: frozenset({_B.TEXT}),
    ev.CitationDelta: frozenset({_B.TEXT}),
    ev.RefusalDelta: frozenset({_B.REFUSAL}),
    ev.ReasoningDelta: frozenset({_B.REASONING}),
    ev.SignatureDelta: frozenset({_B.REASONING}),
    ev.ToolDelta: frozenset({_B.TOOL_CALL}),
    ev.MediaDelta: frozenset({_B.MEDIA}),
    ev.OpaqueDelta: frozenset({_B.OPAQUE}),
}

TRANSITIONS: dict[str, dict[type[Event], str]] = {
    # state: {event: next state}. Whatever is not listed is illegal.
    "idle": {ev.Start: "open", ev.Opaque: "idle", ev.Error: "ended"},
    "open": {
        ev.BlockStart: "open",
        **dict.fromkeys(DELTAS, "open"),
        ev.BlockStop: "open",
        ev.UsageReport: "open",
        ev.Progress: "open",
        ev.Finish: "open",
        ev.Opaque: "open",
        ev.Error: "ended",
        ev.End: "ended",
    },
    "ended": {},
}


class IllegalOrder(Exception):
    """An event came where the grammar does not allow it."""


class Grammar:
    """Walks one stream: `accept` every event in order; raises IllegalOrder at the first that does not fit."""

    def __init__(self) -> None:
        self.state = "idle"
        self._open: dict[int, tuple[BlockKind, int]] = {}
        self._next_block = 0
        self._finished: set[int] = set()

    @property
    def ended(self) -> bool:
        return self.state == "ended"

    def accept(self, event: Event) -> None:
        following = TRANSITIONS[self.state].get(type(event))
        if following is None:
            raise IllegalOrder(f"{type(event).__name__} is not allowed in state {self.state!r}")
        if isinstance(event, ev.BlockStart):
            self._start(event)
        elif isinstance(event, ev.BlockStop):
            self._require_open(event.block)
            del self._open[event.block]
        elif type(event) in DELTAS:
            kind = self._require_open(event.block)  # type: ignore[attr-defined]  # every key of DELTAS has a block
            if kind not in DELTAS[type(event)]:
                raise IllegalOrder(f"{type(event).__name__} in a block of kind {kind.value}")
        elif isinstance(event, ev.Finish):
            self._finish(event)
        elif isinstance(event, ev.End) and self._open:
            raise IllegalOrder(f"End while blocks {sorted(self._open)} are open")
        self.state = following

    def _start(self, event: ev.BlockStart) -> None:
        if event.block != self._next_block:
            raise IllegalOrder(f"block {event.block} starts where {self._next_block} is next")
        if event.choice in self._finished:
            raise IllegalOrder(f"block {event.block} starts in choice {event.choice}, which has finished")
        self._open[event.block] = (event.type, event.choice)
        self._next_block += 1

    def _require_open(self, block: int) -> BlockKind:
        if block not in self._open:
            raise IllegalOrder(f"block {block} is not open")
        return self._open[block][0]

    def _finish(self, event: ev.Finish) -> None:
        if event.choice in self._finished:
            raise IllegalOrder(f"choice {event.choice} finishes twice")
        still_open = sorted(block for block, (_, choice) in self._open.items() if choice == event.choice)
        if still_open:
            raise IllegalOrder(f"choice {event.choice} finishes while its blocks {still_open} are open")
        self._finished.add(event.choice)
