"""`StandardWriter`: the walk through a stream's events that the writers of both formats share.

The rule: content goes out as it comes, one frame a delta, numbered without gaps; a block is announced by its first frame,
and what a plain reader has no word for rides along in fields that it ignores. A block that says nothing (no delta, no
id, no extensions) is never announced. Exactly one terminal ending comes, and blocks that are open at an error stay open.

Subclasses say how content, calls and endings look. The first delta of a block is written the long way and leaves a
template, so that each further one costs a formatting of bytes and the encoding of its text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from headrace.formats.base import WriterOptions
from headrace.formats.json import decode_payload, encode
from headrace.formats.lost import foreign
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.content import Extensions
from headrace.model.events import HOLDS_TEXT, BlockKind, Event
from headrace.model.usage import Usage

from .extensions import WireExtensions, put, to_wire

NO_TEMPLATE = b"%d%b"
_DESCRIBED = frozenset({BlockKind.REDACTED_REASONING, BlockKind.MEDIA, BlockKind.OPAQUE})
_decoder = msgspec.json.Decoder(dict[str, Any])


class Block:
    """What a writer knows of one block. `number` is its place among the announced ones, -1 before."""

    __slots__ = ("arguments", "choice", "kind", "number", "opened", "passed", "start")

    def __init__(self, start: ev.BlockStart) -> None:
        self.start = start
        self.kind = start.type
        self.choice = start.choice
        self.number = -1
        self.arguments: list[str] = []
        self.opened = False  # its first frame has been written
        self.passed = False  # a tool call whose own frame was sent on unchanged

    @property
    def announced(self) -> bool:
        return self.number >= 0


def describe(block: Block) -> tuple[dict[str, Any], WireExtensions]:
    """What a block is beyond its content: our word `part`, and vendors' extensions. Both empty where that is nothing."""
    start = block.start
    extensions = to_wire(start.extensions)
    if block.kind is BlockKind.REDACTED_REASONING:
        put(extensions, start.vendor, "redacted", start.data)
    elif block.kind is BlockKind.OPAQUE:
        put(extensions, start.vendor, "block", start.payload or {})
    known = {name: value for name in ("id", "vendor", "media_type", "role") if (value := getattr(start, name))}
    if not known and not extensions and block.kind not in _DESCRIBED:
        return {}, {}
    return {"part": {"type": block.kind.value, **known}}, extensions


class StandardWriter(ABC):
    """Base of both StreamWriters."""

    vendor: ClassVar[str]

    def __init__(self, options: WriterOptions) -> None:
        self.lost: set[str] = set()
        self.options = options
        request = options.request
        self.request_id = (request.request_id if request else None) or options.request_id
        self.seq = 0
        self.frames: list[Frame] = []
        self.started = False
        self.usage: Usage | None = None
        self._told: Usage | None = None
        self._blocks: dict[int, Block] = {}
        self._waiting: dict[int, Block] = {}  # started, not announced
        self._last_origin: Any = None
        self.hot = -1
        self.hot_event = ""
        self.hot_template = NO_TEMPLATE

    def write(self, events: Sequence[Event]) -> list[Frame]:
        """The frames of these events, in order."""
        frames = self.frames = []
        if self.options.passthrough:
            for event in events:
                self._pass(event)
            return frames
        text, reasoning = ev.TextDelta, ev.ReasoningDelta
        for event in events:
            kind = type(event)
            if (kind is text and event.block == self.hot and event.logprobs is None) or (  # type: ignore[attr-defined]  # kind says so
                kind is reasoning and event.block == self.hot  # type: ignore[attr-defined]
            ):
                if event.text:  # type: ignore[attr-defined]
                    frames.append(Frame(self.hot_template % (self.seq, encode(event.text)), self.hot_event))  # type: ignore[attr-defined]
                    self.seq += 1
                continue
            _STEPS[kind](self, event)
        return frames

    # -- what the formats say each in their own way ---------------------------------------------------------------

    @abstractmethod
    def start(self, event: ev.Start) -> None:
        """The opening frame."""

    @abstractmethod
    def content(self, block: Block, text: str, words: dict[str, Any], extensions: WireExtensions) -> None:
        """A piece of content of an announced block."""

    @abstractmethod
    def tool_started(self, block: Block) -> None: ...

    @abstractmethod
    def tool_delta(self, block: Block, fragment: str) -> None: ...

    @abstractmethod
    def stopped(self, block: Block, complete: bool) -> None:
        """An announced block has stopped."""

    @abstractmethod
    def report_usage(self, usage: Usage) -> None: ...

    @abstractmethod
    def finish(self, event: ev.Finish) -> None: ...

    @abstractmethod
    def progress(self, event: ev.Progress) -> None: ...

    @abstractmethod
    def fail(self, event: ev.Error) -> None:
        """Everything that ends a failed stream."""

    @abstractmethod
    def end(self, event: ev.End) -> None:
        """Everything that ends a whole stream."""

    def announced(self, block: Block) -> None:  # noqa: B027 - a hook; only one format needs it
        """Called when a block has got its number, before its first frame."""

    def opening(self, block: Block) -> tuple[dict[str, Any], WireExtensions]:
        """What must be said of a block when it is announced: our words, and vendors' extensions."""
        return describe(block)

    # -- for subclasses -------------------------------------------------------------------------------------------

    def emit(self, fields: Mapping[str, Any], event: str) -> None:
        """One frame; `fields` hold its seq already."""
        self.frames.append(Frame(encode(fields), event))
        self.seq += 1

    def lost_so_far(self) -> list[str]:
        """What the terminal event has to name."""
        return sorted({*self.options.lost, *self.lost})

    # -- the walk -------------------------------------------------------------------------------------------------

    def _on_start(self, event: ev.Start) -> None:
        self.started = True
        self._note_usage(event.usage)
        self.start(event)

    def _on_block_start(self, event: ev.BlockStart) -> None:
        for waiting in [other for other in self._waiting.values() if other.choice == event.choice]:
            if any(describe(waiting)):
                self._announce_alone(waiting)
        block = self._blocks[event.block] = Block(event)
        if block.kind is BlockKind.TOOL_CALL:
            self._number(block)
            self.tool_started(block)
        else:
            self._waiting[event.block] = block

    def _on_text(self, event: ev.TextDelta | ev.RefusalDelta) -> None:
        if not event.text and not event.logprobs:
            return
        extensions: WireExtensions = {}
        if event.logprobs:
            put(extensions, "openai", "logprobs", event.logprobs)
        self._content(event.block, event.text, {}, extensions)

    def _on_reasoning(self, event: ev.ReasoningDelta) -> None:
        if event.text:
            self._content(event.block, event.text, {}, {})

    def _on_signature(self, event: ev.SignatureDelta) -> None:
        extensions: WireExtensions = {}
        put(extensions, self._blocks[event.block].start.vendor, "signature", event.signature)
        self._content(event.block, "", {}, extensions)

    def _on_citation(self, event: ev.CitationDelta) -> None:
        extensions: WireExtensions = {}
        put(extensions, event.citation.vendor, "citation", event.citation.payload)
        self._content(event.block, "", {}, extensions)

    def _on_media(self, event: ev.MediaDelta) -> None:
        media = {name: value for name in ("data", "transcript", "url") if (value := getattr(event, name))}
        self._content(event.block, "", {"media": media}, to_wire(event.extensions))

    def _on_opaque_delta(self, event: ev.OpaqueDelta) -> None:
        extensions: WireExtensions = {}
        put(extensions, self._blocks[event.block].start.vendor, "delta", event.payload)
        words = {"append": {"field": event.field, "text": event.text}} if event.field else {}
        self._content(event.block, "", words, extensions)

    def _on_tool(self, event: ev.ToolDelta) -> None:
        if event.arguments:
            block = self._blocks[event.block]
            block.arguments.append(event.arguments)
            self.tool_delta(block, event.arguments)

    def _on_block_stop(self, event: ev.BlockStop) -> None:
        if event.extensions:
            self._closing_words(self._blocks[event.block], event.extensions)
        block = self._blocks.pop(event.block)
        if not block.announced:
            if not any(describe(block)):
                del self._waiting[event.block]
                return
            self._announce_alone(block)
        if self.hot == event.block:
            self.hot = -1
        self.stopped(block, event.complete)

    def _closing_words(self, block: Block, extensions: Extensions) -> None:
        """What a vendor says of a block at its end goes with an empty delta."""
        if block.kind in HOLDS_TEXT:
            self._content(block.start.block, "", {}, to_wire(extensions))
        else:
            self.lost.update(foreign(extensions))

    def _on_usage(self, event: ev.UsageReport) -> None:
        self._note_usage(event.usage)
        self.tell_usage()

    def _on_progress(self, event: ev.Progress) -> None:
        self.progress(event)

    def _on_finish(self, event: ev.Finish) -> None:
        self.finish(event)

    def _on_error(self, event: ev.Error) -> None:
        if not self.started:
            self._on_start(ev.Start())
        self.fail(event)

    def _on_end(self, event: ev.End) -> None:
        if event.usage is not None:
            self.usage = event.usage
        self.end(event)

    def _on_opaque(self, event: ev.Opaque) -> None:
        if event.content:
            self.lost.add(f"{event.vendor}.{event.name}" if event.name else event.vendor)

    def tell_usage(self) -> None:
        """Send the counts known so far, where they are whole and news."""
        usage = self.usage
        if usage is None or usage.input_tokens is None or usage.output_tokens is None or usage == self._told:
            return
        self._told = usage
        self.report_usage(usage)

    def _note_usage(self, usage: Usage | None) -> None:
        if usage is not None:
            self.usage = usage if self.usage is None else self.usage.merge(usage)

    def _content(self, number: int, text: str, words: dict[str, Any], extensions: WireExtensions) -> None:
        block = self._blocks[number]
        if not block.announced:
            opening, described = self.opening(block)
            # Two objects of extensions cannot be told apart in one frame, and without text a block must say what it is.
            if (extensions and opening) or (not text and "part" not in opening):
                self._announce_alone(block)
            else:
                del self._waiting[number]
                self._number(block)
                words = {**opening, **words}
                extensions = extensions or described
        self.content(block, text, words, extensions)

    def _announce_alone(self, block: Block) -> None:
        del self._waiting[block.start.block]
        words, extensions = self.opening(block)
        self._number(block)
        self.content(block, "", {"part": {"type": block.kind.value}, **words}, extensions)

    def _number(self, block: Block) -> None:
        self.announced(block)
        block.number = self.next_number()

    @abstractmethod
    def next_number(self) -> int: ...

    # -- passing frames on ----------------------------------------------------------------------------------------

    def _pass(self, event: Event) -> None:
        origin: Frame | None = getattr(event, "origin", None)
        if origin is None:
            _STEPS[type(event)](self, event)
            return
        if origin is not self._last_origin:
            self._last_origin = origin
            self.frames.append(self._renumbered(origin))
            self.seq += 1
        if type(event) is ev.TextDelta and event.block == self.hot:
            return
        # Walk all the same, so that composed frames can follow; what the walk says has been said by the frame.
        frames, seq = self.frames, self.seq
        self.frames = []
        _STEPS[type(event)](self, event)
        self.passed(event)
        self.frames, self.seq = frames, seq
        if type(event) is ev.Error:
            self.after_passed_error()

    def passed(self, event: Event) -> None:  # noqa: B027 - a hook; only one format needs it
        """Called after an event whose frame was sent on unchanged."""

    def after_passed_error(self) -> None:  # noqa: B027 - a hook; only one format needs it
        """What follows an error frame that was sent on unchanged."""

    def _renumbered(self, frame: Frame) -> Frame:
        """The frame, unchanged where its seq is the one that is due and its payload has one line; else written anew."""
        one_line = b"\n" not in frame.data and b"\r" not in frame.data
        if one_line and frame.data.startswith(self.expected_head()):
            return frame
        fields = decode_payload(frame.data, _decoder, "a frame")
        if one_line and fields.get("seq") == self.seq:
            return frame
        head = {} if "seq" in fields else {"type": fields.get("type")}
        return Frame(encode({**head, **fields, "seq": self.seq}), frame.event)

    @abstractmethod
    def expected_head(self) -> bytes:
        """How frames begin that mostly come, with the seq that is due."""


_STEPS: dict[type[Event], Callable[[Any, Any], None]] = {
    ev.Start: StandardWriter._on_start,
    ev.BlockStart: StandardWriter._on_block_start,
    ev.TextDelta: StandardWriter._on_text,
    ev.RefusalDelta: StandardWriter._on_text,
    ev.ReasoningDelta: StandardWriter._on_reasoning,
    ev.SignatureDelta: StandardWriter._on_signature,
    ev.ToolDelta: StandardWriter._on_tool,
    ev.MediaDelta: StandardWriter._on_media,
    ev.OpaqueDelta: StandardWriter._on_opaque_delta,
    ev.CitationDelta: StandardWriter._on_citation,
    ev.BlockStop: StandardWriter._on_block_stop,
    ev.UsageReport: StandardWriter._on_usage,
    ev.Progress: StandardWriter._on_progress,
    ev.Finish: StandardWriter._on_finish,
    ev.Error: StandardWriter._on_error,
    ev.End: StandardWriter._on_end,
    ev.Opaque: StandardWriter._on_opaque,
}
