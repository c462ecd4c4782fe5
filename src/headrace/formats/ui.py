"""UIWriter: what streams for user interfaces have in common, whose clients render parts as they grow.

The rule: choices but the first are left out, empty deltas are not sent, and what a frame says before and after its text is
made once for each block. What begins and ends a part, and what an event without text becomes, is each protocol's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from headrace.formats.base import WriterOptions
from headrace.formats.json import encode
from headrace.formats.steps import PlainSteps
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.events import Event, TextDelta
from headrace.model.usage import Usage


class UIBlock:
    """A part that is open. `head`: of its deltas, up to the text."""

    __slots__ = ("head", "signature", "start")

    def __init__(self, start: ev.BlockStart, head: bytes) -> None:
        self.start = start
        self.head = head
        self.signature: list[str] = []


B = TypeVar("B", bound=UIBlock)


class UIWriter(PlainSteps, Generic[B]):
    """Writes one stream."""

    steps: ClassVar[Mapping[type[Event], Callable[[Any, Any, list[Frame]], None]]]
    """The method for each event: of the class, not of each instance, as bound methods would be reference cycles."""

    def __init__(self, options: WriterOptions) -> None:
        self.lost: set[str] = set()
        self._options = options
        self._blocks: dict[int, B] = {}
        self._usage: Usage | None = None
        self._finish: ev.Finish | None = None
        self._model = ""
        self._started = False

    def write(self, events: Sequence[Event]) -> list[Frame]:
        frames: list[Frame] = []
        blocks = self._blocks
        for event in events:
            if type(event) is TextDelta and event.logprobs is None and event.block in blocks:
                if event.text:
                    frames.append(Frame(blocks[event.block].head + encode(event.text) + b"}"))
            else:
                self.steps[type(event)](self, event, frames)
        return frames

    def _begin(self, event: ev.Start) -> None:
        self._started = True
        self._usage = event.usage
        self._model = event.model or self._options.model

    def _on_delta(self, event: Any, frames: list[Frame]) -> None:
        block = self._blocks.get(event.block)
        if block is None:
            return
        if getattr(event, "logprobs", None):
            self.lost.add("logprobs")
        text = event.arguments if isinstance(event, ev.ToolDelta) else event.text
        if text:
            frames.append(Frame(block.head + encode(text) + b"}"))

    def _on_signature(self, event: ev.SignatureDelta, frames: list[Frame]) -> None:
        block = self._blocks.get(event.block)
        if block is not None:
            block.signature.append(event.signature)

    def _on_finish(self, event: ev.Finish, frames: list[Frame]) -> None:
        if not event.choice:
            self._finish = event

    def _emit(self, type: str, frames: list[Frame], **fields: Any) -> None:
        frames.append(Frame(encode({"type": type, **fields})))


def counts(usage: Usage) -> dict[str, int]:
    """Token counts under the names that both protocols have for them; what nobody said is left out."""
    said = {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.total_tokens,
        "reasoningTokens": usage.reasoning_tokens,
        "cachedInputTokens": usage.cached_tokens,
    }
    return {name: count for name, count in said.items() if count is not None}
