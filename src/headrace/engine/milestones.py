"""Which events mean what to the life of a stream: tables, and the few questions the engine asks of an event."""

from __future__ import annotations

from headrace.model import events as ev
from headrace.model.events import BlockKind, Event

TERMINAL: frozenset[type[Event]] = frozenset({ev.End, ev.Error})

NOTED: frozenset[type[Event]] = TERMINAL | {ev.Start, ev.UsageReport, ev.Opaque}
"""Events that a stream in full flow must look at; all others only pass through."""

OUTPUT: frozenset[type[Event]] = frozenset(
    {
        ev.TextDelta,
        ev.RefusalDelta,
        ev.ReasoningDelta,
        ev.SignatureDelta,
        ev.ToolDelta,
        ev.MediaDelta,
        ev.OpaqueDelta,
        ev.CitationDelta,
        ev.Finish,
    }
)
"""Events that end the wait for the first token: content, or the news that no more will come."""

OUTPUT_BLOCKS: frozenset[BlockKind] = frozenset({BlockKind.TOOL_CALL, BlockKind.REDACTED_REASONING, BlockKind.OPAQUE})
"""Kinds of block whose start already holds content."""


def is_life_sign(event: Event) -> bool:
    """Whether an event says no more than that the provider is alive."""
    return type(event) is ev.Opaque and not event.content


def commits(event: Event) -> bool:
    """Whether this event ends the hold-back: from it on, the caller has a stream (or the error that it is)."""
    return not is_life_sign(event)


def is_output(event: Event) -> bool:
    """Whether this event is the first token where none came before it."""
    if type(event) is ev.BlockStart:
        return event.type in OUTPUT_BLOCKS
    return type(event) in OUTPUT
