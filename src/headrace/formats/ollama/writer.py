"""The writer of Ollama's streams, for callers of /api/chat and /api/generate.

The rule: a line for each delta, with the same model and time on all of them; tool calls whole, in the order in which they
began, since the format has no pieces of them; one last line with `done`, and on it every count and duration as a number.
Official clients split lines at every character that Unicode calls a line end, so those are escaped.
A stream that fails ends with a line `{"error": ...}` and no `done`. What the format has no word for is named in `lost`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.formats.base import WriterOptions
from headrace.formats.json import encode
from headrace.formats.lost import foreign
from headrace.formats.steps import PlainSteps
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.events import BlockKind, Event, ReasoningDelta, TextDelta
from headrace.model.stop import StopReason
from headrace.model.usage import Usage

from .arguments import json_object
from .errors import write_error
from .lines import Dialect, on_one_line
from .words import VENDOR, write_counts, write_stop, write_time


class _Block:
    """A block under way; of another choice than the first, or of a kind that is left out, where `kept` is False."""

    __slots__ = ("kept", "pieces", "start", "url")

    def __init__(self, start: ev.BlockStart, kept: bool) -> None:
        self.start = start
        self.kept = kept
        self.pieces: list[str] = []  # of arguments, or of an image
        self.url = ""


_LOST_KINDS = {BlockKind.REDACTED_REASONING: "redacted_reasoning"}
_STATELESS = frozenset({TextDelta, ReasoningDelta})


class OllamaStreamWriter(PlainSteps):
    """Writes one stream in one of the two dialects."""

    def __init__(self, dialect: Dialect, options: WriterOptions) -> None:
        self.lost: set[str] = set()
        self._dialect = dialect
        self._options = options
        self._head = b""
        self._text = b""
        self._thinking = b""
        self._blocks: dict[int, _Block] = {}
        self._calls: dict[
            int, dict[str, Any] | None
        ] = {}  # whole calls that wait for one that began before; None: open
        self._count = 0  # calls that were sent
        self._finish: ev.Finish | None = None
        self._usage: Usage | None = None
        self._passed: Frame | None = None

    def write(self, events: Sequence[Event]) -> list[Frame]:
        frames: list[Frame] = []
        passthrough = self._options.passthrough
        for event in events:
            origin: Frame | None = event.origin if passthrough else None  # type: ignore[attr-defined]  # all have one
            if origin is None:
                self._step(event, frames)
            else:
                self._pass(event, origin, frames)
        return frames

    def _pass(self, event: Event, origin: Frame, frames: list[Frame]) -> None:
        """Send the provider's own line on, once, and keep the state as if it had been written here."""
        if origin is not self._passed:
            self._passed = origin
            frames.append(origin)
        if type(event) not in _STATELESS:
            lost = set(self.lost)
            self._step(event, [])
            self.lost = lost

    def _step(self, event: Event, frames: list[Frame]) -> None:
        _STEPS[type(event)](self, event, frames)

    # The steps: each writes what its event says.

    def _on_start(self, event: ev.Start, frames: list[Frame]) -> None:
        self._usage = event.usage
        model, created = event.model or self._options.model, event.created or self._options.created
        self._head = on_one_line(encode({"model": model, "created_at": write_time(created)}))[:-1] + b","
        self._text = self._head + self._dialect.text
        self._thinking = self._head + self._dialect.thinking

    def _on_block_start(self, event: ev.BlockStart, frames: list[Frame]) -> None:
        kept = event.choice == 0
        if not kept:
            self.lost.add("choices")
        elif event.type is BlockKind.OPAQUE:
            self.lost.add(event.role or "opaque")
        elif event.type in _LOST_KINDS:
            self.lost.add(_LOST_KINDS[event.type])
        elif event.type is BlockKind.TOOL_CALL:
            self._calls[event.block] = None
        self._blocks[event.block] = _Block(event, kept)

    def _on_text(self, event: ev.TextDelta | ev.RefusalDelta, frames: list[Frame]) -> None:
        if not self._blocks[event.block].kept:
            return
        if event.logprobs:
            self._line(self._dialect.content(event.text), frames, logprobs=event.logprobs)
        elif event.text:
            frames.append(Frame(self._text + on_one_line(encode(event.text)) + self._dialect.tail))

    def _on_reasoning(self, event: ev.ReasoningDelta, frames: list[Frame]) -> None:
        if event.text and self._blocks[event.block].kept:
            frames.append(Frame(self._thinking + on_one_line(encode(event.text)) + self._dialect.tail))

    def _on_signature(self, event: ev.SignatureDelta, frames: list[Frame]) -> None:
        if event.signature and self._blocks[event.block].kept:
            self.lost.add("reasoning.signature")

    def _on_tool(self, event: ev.ToolDelta, frames: list[Frame]) -> None:
        self._blocks[event.block].pieces.append(event.arguments)

    def _on_media(self, event: ev.MediaDelta, frames: list[Frame]) -> None:
        block = self._blocks[event.block]
        block.pieces.append(event.data)
        block.url = event.url or block.url

    def _on_citation(self, event: ev.CitationDelta, frames: list[Frame]) -> None:
        if self._blocks[event.block].kept:
            self.lost.add("citations")

    def _on_block_stop(self, event: ev.BlockStop, frames: list[Frame]) -> None:
        block = self._blocks.pop(event.block)
        if not block.kept:
            return
        self.lost.update(foreign(block.start.extensions, VENDOR))
        self.lost.update(foreign(event.extensions, VENDOR))
        if block.start.type is BlockKind.MEDIA:
            self._image(block, frames)
        elif block.start.type is BlockKind.TOOL_CALL:
            self._stop_call(block, event.complete, frames)

    def _image(self, block: _Block, frames: list[Frame]) -> None:
        family = block.start.media_type.partition("/")[0]
        data = "".join(block.pieces)
        if family == "image" and data and not block.url:
            self._line(self._dialect.content(images=[data]), frames)
        else:
            self.lost.add(family or "media")

    def _stop_call(self, block: _Block, complete: bool, frames: list[Frame]) -> None:
        arguments = json_object("".join(block.pieces)) if complete else None
        if arguments is None:
            self.lost.add("tool_call.incomplete")
            del self._calls[block.start.block]
        else:
            self._calls[block.start.block] = {"name": block.start.name, "arguments": arguments, "id": block.start.id}
        for number in list(self._calls):
            whole = self._calls[number]
            if whole is None:
                break
            del self._calls[number]
            self._send_call(number, whole, frames)

    def _send_call(self, number: int, call: dict[str, Any], frames: list[Frame]) -> None:
        written = {
            "id": call["id"] or f"call_{self._options.request_id}_{number}",
            "function": {"index": self._count, "name": call["name"], "arguments": call["arguments"]},
        }
        self._count += 1
        self._line(self._dialect.content(tool_calls=[written]), frames)

    def _on_finish(self, event: ev.Finish, frames: list[Frame]) -> None:
        if event.choice:
            self.lost.add("choices")
            return
        self._finish = event
        if event.stop_sequence is not None:
            self.lost.add("stop_sequence")

    def _on_error(self, event: ev.Error, frames: list[Frame]) -> None:
        for number, call in self._calls.items():  # whole ones that had to wait for one that will not come
            if call is not None:
                self._send_call(number, call, frames)
        frames.append(Frame(on_one_line(write_error(event.error))))

    def _on_end(self, event: ev.End, frames: list[Frame]) -> None:
        finish = self._finish
        usage = event.usage if event.usage is not None else self._usage
        frames.append(
            Frame(
                self._head
                + encode(
                    {
                        **self._dialect.content(),
                        "done": True,
                        "done_reason": write_stop(finish.reason if finish else StopReason.OTHER),
                        **write_counts(usage, own_fields(finish.extensions if finish else None)),
                    }
                )[1:]
            )
        )

    def _line(self, content: dict[str, Any], frames: list[Frame], **fields: Any) -> None:
        frames.append(Frame(self._head + on_one_line(encode({**content, "done": False, **fields})[1:])))


def own_fields(extensions: dict[str, Any] | None) -> dict[str, Any]:
    """What Ollama's own extensions hold."""
    own = (extensions or {}).get(VENDOR)
    return own if isinstance(own, dict) else {}


_STEPS: dict[type[Event], Callable[[OllamaStreamWriter, Any, list[Frame]], None]] = {
    ev.Start: OllamaStreamWriter._on_start,
    ev.BlockStart: OllamaStreamWriter._on_block_start,
    ev.TextDelta: OllamaStreamWriter._on_text,
    ev.RefusalDelta: OllamaStreamWriter._on_text,
    ev.ReasoningDelta: OllamaStreamWriter._on_reasoning,
    ev.ToolDelta: OllamaStreamWriter._on_tool,
    ev.SignatureDelta: OllamaStreamWriter._on_signature,
    ev.MediaDelta: OllamaStreamWriter._on_media,
    ev.OpaqueDelta: OllamaStreamWriter._on_nothing,
    ev.CitationDelta: OllamaStreamWriter._on_citation,
    ev.BlockStop: OllamaStreamWriter._on_block_stop,
    ev.UsageReport: OllamaStreamWriter._on_usage,
    ev.Progress: OllamaStreamWriter._on_progress,
    ev.Finish: OllamaStreamWriter._on_finish,
    ev.Error: OllamaStreamWriter._on_error,
    ev.End: OllamaStreamWriter._on_end,
    ev.Opaque: OllamaStreamWriter._on_opaque,
}
