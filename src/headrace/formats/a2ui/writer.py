"""A2UI beside the gateway's own events, written: each valid message of the model's text is a frame of its own.

The frame holds the message and nothing else: `event: a2ui` where the framing names events, else a line without a `type`.
Everything else is as in the gateway format, numbered there without gaps: the text around the messages, calls, usage, the
end. What is wrong with a message is told in `a2ui-error`, {"code", "message", "path", "surfaceId"}, and the message left out.
Only the first choice is looked through: two answers side by side would build one interface.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headrace.formats.base import WriterOptions
from headrace.formats.gateway.writer import GatewayWriter
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.events import BlockKind, Event

from .messages import Problem, Sifter, Surfaces

EVENT = "a2ui"
ERROR_EVENT = "a2ui-error"


class _Beside(GatewayWriter):
    """The gateway's events, and one more."""

    def tell(self, event: str, data: dict[str, Any]) -> list[Frame]:
        self.frames = []
        self._data(event, data, {})
        return self.frames


class A2UIWriter:
    """StreamWriter of a2ui."""

    def __init__(self, options: WriterOptions) -> None:
        self._beside = _Beside(options)
        self._surfaces = Surfaces(options.check)
        self._texts: dict[int, Sifter] = {}

    @property
    def lost(self) -> set[str]:
        return self._beside.lost

    @lost.setter
    def lost(self, names: set[str]) -> None:
        self._beside.lost = names

    def write(self, events: Sequence[Event]) -> list[Frame]:
        """The frames of these events, in order."""
        frames: list[Frame] = []
        for event in events:
            if isinstance(event, ev.TextDelta) and event.block in self._texts:
                if event.logprobs:
                    frames += self._beside.write([ev.TextDelta(event.block, "", event.logprobs)])
                self._tell(event.block, self._texts[event.block].feed(event.text), frames)
                continue
            if isinstance(event, ev.BlockStart) and event.type is BlockKind.TEXT and not event.choice:
                self._texts[event.block] = Sifter(self._surfaces)
            elif isinstance(event, ev.BlockStop) and event.block in self._texts:
                self._tell(event.block, self._texts.pop(event.block).end(), frames)
            elif isinstance(event, ev.Error):
                for block, sifter in self._texts.items():
                    self._tell(block, (sifter.held(),), frames)
            frames += self._beside.write([event])
        return frames

    def _tell(self, block: int, found: Iterable[str | bytes | Problem], frames: list[Frame]) -> None:
        for one in found:
            if isinstance(one, str):
                frames += self._beside.write([ev.TextDelta(block, one)])
            elif isinstance(one, bytes):
                frames.append(Frame(one, EVENT))
            else:
                frames += self._beside.tell(ERROR_EVENT, one.fields())
