"""PlainSteps: what stream writers do with the events that their format has no frame for.

The rule: a count is kept for the end, and what cannot be told is named. A format that has a frame for one of these events
has a step of its own instead. Steps are plain methods, which a writer's table of steps names.
"""

from __future__ import annotations

from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.events import Event
from headrace.model.usage import Usage


class PlainSteps:
    """The writer has these two."""

    lost: set[str]
    _usage: Usage | None

    def _on_usage(self, event: ev.UsageReport, frames: list[Frame]) -> None:
        self._usage = event.usage if self._usage is None else self._usage.merge(event.usage)

    def _on_progress(self, event: ev.Progress, frames: list[Frame]) -> None:
        self.lost.add("progress")

    def _on_opaque(self, event: ev.Opaque, frames: list[Frame]) -> None:
        if event.content:
            self.lost.add(event.name or "vendor event")

    def _on_nothing(self, event: Event, frames: list[Frame]) -> None:
        """Nothing to write: the block itself has been named as lost."""
