"""Which events mean what to the life of a stream: tables, and the few questions the engine asks of an event."""

from __future__ import annotations

from headrace.model import events as ev
from headrace.model.events import BlockKind, Event

TERMINAL: frozenset[type[Event]] = frozenset({ev.End, ev.Error})

NOTED: frozenset[type[Event]] = TERMINAL | {ev.Start, ev.UsageReport, ev.Opaque}
"""Events that a stream in full flow must look at; all others only pass through."""

_SAID: dict[type[Event], tuple[str, ...]] = {
    # the fields of which one must hold something, for a caller to see it
    ev.TextDelta: ("text",),
    ev.RefusalDelta: ("text",),
    ev.ReasoningDelta: ("text",),
    ev.SignatureDelta: ("signature",),
    ev.ToolDelta: ("arguments",),
    ev.MediaDelta: ("data", "transcript", "url"),
    ev.OpaqueDelta: ("payload",),
    ev.CitationDelta: ("citation",),
}

SPOKEN: dict[type[Event], str] = {
    # the field whose text is output that a provider bills
    ev.TextDelta: "text",
    ev.RefusalDelta: "text",
    ev.ReasoningDelta: "text",
    ev.ToolDelta: "arguments",
}

OUTPUT_BLOCKS: frozenset[BlockKind] = frozenset({BlockKind.TOOL_CALL, BlockKind.REDACTED_REASONING, BlockKind.OPAQUE})
"""Kinds of block whose start already holds content."""


def is_life_sign(event: Event) -> bool:
    """Whether an event says no more than that the provider is alive."""
    return type(event) is ev.Opaque and not event.content


def is_visible(event: Event) -> bool:
    """Whether a caller could see this event: from it on, no other candidate can take over."""
    kind = type(event)
    if kind is ev.BlockStart:
        return event.type in OUTPUT_BLOCKS  # type: ignore[attr-defined]  # the type was compared by identity, for speed
    said = _SAID.get(kind)
    return said is not None and any(getattr(event, name) for name in said)


def is_output(event: Event) -> bool:
    """Whether this event ends the wait for the first token: something visible, or the news that nothing will come."""
    return type(event) is ev.Finish or is_visible(event)
