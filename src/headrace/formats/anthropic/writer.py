"""Writing an Anthropic Messages stream (DOSSIER 3.9): `AnthropicStreamWriter`.

The rule: indices run from 0 without gaps and one block is open at a time. Whatever comes side by side is put in a row:
a block with something to say takes the wire if it is free, streams live, and keeps the wire until it stops; the others
wait with what they have to say. So nothing empty is ever opened, and only tool calls and what is whole at its start are
opened at once. `message_delta` and `message_stop` come at `End` alone, when usage and stop reason are final. A
signature is sent as one `signature_delta` (clients replace, they do not append), just before its block stops; another
vendor's is sealed (sealing.py). Only choice 0 has a place in this format.

The trade-offs: a block that waits is held in memory until it is its turn, MAX_WAITING at the most; and a tool call that
is abandoned while live is closed as it stands, since the format has no word for that (one that waits is left out).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from headrace.formats.base import WriterOptions
from headrace.formats.json import encode
from headrace.formats.lost import foreign
from headrace.formats.sealing import encode_id, seal
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.content import Extensions
from headrace.model.errors import ProtocolError
from headrace.model.events import BlockKind, BlockStart, Event, TextDelta
from headrace.model.usage import Usage

from .blocks import opaque_block
from .errors import error_object
from .usage import write_usage
from .words import VENDOR, own, write_stop

TOP_FIELDS = frozenset({"context_management", "input_transformations"})
"""What stands in message_delta beside `delta`, and not in it."""

_NOTHING = -1

MAX_WAITING = 8 * 1024 * 1024
"""Bound of what may wait for its turn on the wire while another block is open, in characters."""

_EVENT_SIZE = 64


class _Block:
    """A block of choice 0 that has a place in this format."""

    __slots__ = (
        "complete",
        "head",
        "held",
        "id",
        "kind",
        "number",
        "passes",
        "queue",
        "signature",
        "skeleton",
        "stopped",
        "vendor",
        "waiting",
    )

    def __init__(self, start: BlockStart, skeleton: dict[str, Any], held: str = "") -> None:
        self.number = start.block
        self.kind = start.type
        self.vendor = start.vendor
        self.id = start.id
        self.skeleton = skeleton
        self.held = held
        """A server tool's whole input: sent as a delta unless deltas bring it."""
        self.head = b""
        """Of its delta frames, up to the delta; b"" while it is not on the wire."""
        self.passes = False
        """Whether the frames it was read from are sent on."""
        self.queue: list[Event] = []
        self.signature: list[str] = []
        self.waiting = False
        """Whether it has something to say and another block has the wire."""
        self.stopped = False
        self.complete = True


class AnthropicStreamWriter:
    """Events -> frames of `/v1/messages` with `stream: true`."""

    __slots__ = (
        "_blocks",
        "_finish",
        "_index",
        "_last",
        "_live",
        "_live_head",
        "_options",
        "_owner",
        "_passthrough",
        "_refused",
        "_started",
        "_tool_called",
        "_usage",
        "_waiting",
        "_waiting_size",
        "lost",
    )

    def __init__(self, options: WriterOptions) -> None:
        self.lost: set[str] = set()
        self._options = options
        self._passthrough = options.passthrough
        self._started = False
        self._blocks: dict[int, _Block] = {}  # those that have not stopped, by our number
        self._owner: _Block | None = None  # the block on the wire
        self._waiting: deque[_Block] = deque()
        self._waiting_size = 0  # characters in their queues, and a little for each event
        self._index = 0  # of the next block
        self._live = _NOTHING  # our number of the text block on the wire: the hot path's
        self._live_head = b""
        self._last: Frame | None = None  # frames passed on are shared by events
        self._usage: Usage | None = None
        self._finish: ev.Finish | None = None
        self._tool_called = False
        self._refused = False

    def write(self, events: Sequence[Event]) -> list[Frame]:
        """The frames these events become."""
        frames: list[Frame] = []
        live, steps = self._live, self._STEPS
        for event in events:
            if type(event) is TextDelta and event.block == live and event.text and event.origin is None:
                if event.logprobs:
                    self.lost.add("logprobs")
                frames.append(Frame(self._live_head + encode(event.text) + b"}}", "content_block_delta"))
            else:
                steps[type(event)](self, event, frames)
                live = self._live
        return frames

    # One method an event.

    def _on_start(self, event: ev.Start, frames: list[Frame]) -> None:
        self._started = True
        self._usage = event.usage
        if self._passed(event, frames):
            return
        options = self._options
        message = {
            **self._own(event.extensions),
            "id": event.id or f"msg_{options.request_id or '0'}",
            "type": "message",
            "role": "assistant",
            "model": event.model or options.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": write_usage(event.usage),
        }
        frames.append(_frame("message_start", {"message": message}))

    def _on_block_start(self, event: BlockStart, frames: list[Frame]) -> None:
        if event.choice:
            self.lost.add("choices")
            return
        made = self._make(event)
        if made is None:
            return
        self._blocks[event.block] = made
        if made.kind is BlockKind.REFUSAL:
            self._refused = True
        if event.origin is not None and self._passthrough and event.block == self._index and self._owner is None:
            made.passes = True
            self._take_wire(made)
            self._passed(event, frames)
        elif made.kind not in _LAZY:
            self._claim(made, frames)

    def _on_delta(self, event: Any, frames: list[Frame]) -> None:
        block = self._blocks.get(event.block)
        if block is None:
            return
        if block.passes and self._passed(event, frames):
            return
        if block is self._owner:
            self._say(block, event, frames)
        elif self._says_something(event):
            if self._owner is None:
                self._put_on_wire(block, frames)
                self._say(block, event, frames)
            else:
                self._wait(block, event)
                self._claim(block, frames)

    def _on_block_stop(self, event: ev.BlockStop, frames: list[Frame]) -> None:
        block = self._blocks.pop(event.block, None)
        if block is None:
            return
        block.stopped = True
        block.complete = event.complete
        self.lost.update(foreign(event.extensions, VENDOR))
        if block is self._owner:
            self._finish_block(block, event, frames)
            self._next_from_queue(frames)
        elif block.kind is BlockKind.TOOL_CALL and not event.complete:
            self._waiting.remove(block)
            self.lost.add("tool_call.incomplete")

    def _on_usage(self, event: ev.UsageReport, frames: list[Frame]) -> None:
        self._merge(event.usage)
        self._passed(event, frames)

    def _on_progress(self, event: ev.Progress, frames: list[Frame]) -> None:
        self.lost.add("progress")

    def _on_finish(self, event: ev.Finish, frames: list[Frame]) -> None:
        if event.choice:
            self.lost.add("choices")
        else:
            self._finish = event

    def _on_opaque(self, event: ev.Opaque, frames: list[Frame]) -> None:
        if not (self._started and self._passed(event, frames)) and event.content:
            self.lost.add(f"{event.vendor}.{event.name}")

    def _on_error(self, event: ev.Error, frames: list[Frame]) -> None:
        if not self._passed(event, frames):
            frames.append(_frame("error", error_object(event.error, self._options.request_id)))

    def _on_end(self, event: ev.End, frames: list[Frame]) -> None:
        self._merge(event.usage)
        if self._passed(event, frames):
            return
        finish = self._finish
        said = self._own(finish.extensions if finish else None)
        beside = {key: said.pop(key) for key in list(said) if key in TOP_FIELDS}
        delta = {
            **said,
            "stop_reason": write_stop(
                finish.reason if finish else None,
                finish.raw if finish else None,
                tool_called=self._tool_called,
                refused=self._refused,
            ),
            "stop_sequence": finish.stop_sequence if finish else None,
        }
        frames.append(_frame("message_delta", {**beside, "delta": delta, "usage": write_usage(self._usage)}))
        frames.append(_frame("message_stop", self._own(event.extensions)))

    _Step = Callable[["AnthropicStreamWriter", Any, list[Frame]], None]
    _STEPS: ClassVar[dict[type[Event], _Step]] = {
        ev.Start: _on_start,
        BlockStart: _on_block_start,
        TextDelta: _on_delta,
        ev.RefusalDelta: _on_delta,
        ev.ReasoningDelta: _on_delta,
        ev.SignatureDelta: _on_delta,
        ev.ToolDelta: _on_delta,
        ev.MediaDelta: _on_delta,
        ev.OpaqueDelta: _on_delta,
        ev.CitationDelta: _on_delta,
        ev.BlockStop: _on_block_stop,
        ev.UsageReport: _on_usage,
        ev.Progress: _on_progress,
        ev.Finish: _on_finish,
        ev.Error: _on_error,
        ev.End: _on_end,
        ev.Opaque: _on_opaque,
    }

    # The wire, and who has it.

    def _claim(self, block: _Block, frames: list[Frame]) -> None:
        if self._owner is None:
            self._put_on_wire(block, frames)
        elif not block.waiting:
            block.waiting = True
            self._waiting.append(block)

    def _wait(self, block: _Block, event: Any) -> None:
        self._waiting_size += len(getattr(event, "text", "") or getattr(event, "arguments", "")) + _EVENT_SIZE
        if self._waiting_size > MAX_WAITING:
            raise ProtocolError(f"more than {MAX_WAITING} characters in blocks beside the one that is open")
        block.queue.append(event)

    def _take_wire(self, block: _Block) -> None:
        self._owner = block
        block.head = b'{"type":"content_block_delta","index":%d,"delta":' % self._index
        if block.kind is BlockKind.TEXT:
            self._live = block.number
            self._live_head = block.head + _TEXT_OPENING
        self._index += 1

    def _put_on_wire(self, block: _Block, frames: list[Frame]) -> None:
        frames.append(_frame("content_block_start", {"index": self._index, "content_block": block.skeleton}))
        self._take_wire(block)

    def _next_from_queue(self, frames: list[Frame]) -> None:
        self._owner = None
        self._live = _NOTHING
        while self._waiting and self._owner is None:
            block = self._waiting.popleft()
            self._put_on_wire(block, frames)
            for event in block.queue:
                self._say(block, event, frames)
            block.queue.clear()
            if block.stopped:
                self._finish_block(block, None, frames)
                self._owner = None
                self._live = _NOTHING
        if not self._waiting:
            self._waiting_size = 0

    def _finish_block(self, block: _Block, event: ev.BlockStop | None, frames: list[Frame]) -> None:
        if block.kind is BlockKind.TOOL_CALL and block.complete:
            self._tool_called = True
        if block.passes and event is not None and self._passed(event, frames):
            return
        if block.held:
            self._delta(block, {"type": "input_json_delta", "partial_json": block.held}, frames)
        signature = "".join(block.signature)
        if signature:
            if block.vendor != VENDOR:
                signature = seal(block.vendor, block.id, signature)
            self._delta(block, {"type": "signature_delta", "signature": signature}, frames)
        index = self._index - 1  # the block on the wire is the last that was opened
        frames.append(Frame(b'{"type":"content_block_stop","index":%d}' % index, "content_block_stop"))

    # What is said in a block.

    def _make(self, event: BlockStart) -> _Block | None:
        """The block as its content_block_start will tell it; None where it has no place here."""
        if event.type is BlockKind.MEDIA:
            self.lost.add(event.media_type.partition("/")[0] or "media")
            return None
        if event.type is BlockKind.OPAQUE:
            return self._make_opaque(event)
        return _Block(event, {**self._own(event.extensions), **_SKELETONS[event.type](event, self._options)})

    def _make_opaque(self, event: BlockStart) -> _Block | None:
        payload = event.payload or {}
        if event.vendor != VENDOR or not isinstance(payload.get("type"), str):
            self.lost.add(event.role if event.role in ("server_tool_call", "server_tool_result") else "opaque")
            return None
        skeleton = opaque_block(payload)
        held = ""
        if event.role == "server_tool_call" and skeleton.get("input"):
            held = encode(skeleton["input"]).decode()
            skeleton["input"] = {}
        return _Block(event, skeleton, held)

    def _says_something(self, event: Any) -> bool:
        """Whether a delta is worth a frame. Names what is lost of it."""
        kind = type(event)
        if kind is ev.CitationDelta:
            foreign = event.citation.vendor != VENDOR
            if foreign:
                self.lost.add("citations")
            return not foreign
        if kind in _WITH_LOGPROBS and event.logprobs:
            self.lost.add("logprobs")
        field = _FIELDS.get(kind)
        return field is None or bool(getattr(event, field))

    def _say(self, block: _Block, event: Any, frames: list[Frame]) -> None:
        """One delta of the block that is on the wire."""
        if not self._says_something(event):
            return
        kind = type(event)
        opening = _OPENINGS.get(kind)
        if opening is not None:
            text = getattr(event, _FIELDS[kind])
            frames.append(Frame(block.head + opening + encode(text) + b"}}", "content_block_delta"))
        elif kind is ev.SignatureDelta:
            block.signature.append(event.signature)
        elif kind is ev.CitationDelta:
            self._delta(block, {"type": "citations_delta", "citation": event.citation.payload}, frames)
        else:
            self._say_opaque(block, event, frames)

    def _say_opaque(self, block: _Block, event: ev.OpaqueDelta, frames: list[Frame]) -> None:
        if event.field == "input" and event.text:
            block.held = ""
        if isinstance(event.payload.get("type"), str):
            self._delta(block, event.payload, frames)
        elif event.payload:  # not one of Anthropic's deltas
            self.lost.add("opaque")

    def _delta(self, block: _Block, delta: dict[str, Any], frames: list[Frame]) -> None:
        frames.append(Frame(block.head + encode(delta) + b"}", "content_block_delta"))

    # Passing through, and the rest.

    def _passed(self, event: Any, frames: list[Frame]) -> bool:
        """Whether the frame that the event was read from stands for it; sent once, though several events share it."""
        origin = event.origin
        if not self._passthrough or not isinstance(origin, Frame):
            return False
        if origin is not self._last:
            frames.append(origin)
            self._last = origin
        return True

    def _own(self, extensions: Extensions | None) -> dict[str, Any]:
        """Anthropic's part of the extensions; that of others is lost."""
        self.lost.update(foreign(extensions, VENDOR))
        return dict(own(extensions))

    def _merge(self, usage: Usage | None) -> None:
        if usage is not None:
            self._usage = usage if self._usage is None else self._usage.merge(usage)


_LAZY = frozenset({BlockKind.TEXT, BlockKind.REFUSAL, BlockKind.REASONING})
_WITH_LOGPROBS = frozenset({TextDelta, ev.RefusalDelta})

_FIELDS: dict[type[Event], str] = {
    # what a delta says, in which field
    TextDelta: "text",
    ev.RefusalDelta: "text",
    ev.ReasoningDelta: "text",
    ev.ToolDelta: "arguments",
    ev.SignatureDelta: "signature",
}
_TEXT_OPENING = b'{"type":"text_delta","text":'
_OPENINGS: dict[type[Event], bytes] = {
    # what a delta of one text begins with
    TextDelta: _TEXT_OPENING,
    ev.RefusalDelta: _TEXT_OPENING,
    ev.ReasoningDelta: b'{"type":"thinking_delta","thinking":',
    ev.ToolDelta: b'{"type":"input_json_delta","partial_json":',
}


def _text_skeleton(event: BlockStart, options: WriterOptions) -> dict[str, Any]:
    return {"type": "text", "text": ""}


def _thinking_skeleton(event: BlockStart, options: WriterOptions) -> dict[str, Any]:
    skeleton = {"type": "thinking", "thinking": ""}
    if event.vendor == VENDOR:  # as Anthropic does; elsewhere there may never be a signature
        skeleton["signature"] = ""
    return skeleton


def _redacted_skeleton(event: BlockStart, options: WriterOptions) -> dict[str, Any]:
    data = event.data if event.vendor == VENDOR else seal(event.vendor, event.id, event.data)
    return {"type": "redacted_thinking", "data": data}


def _tool_skeleton(event: BlockStart, options: WriterOptions) -> dict[str, Any]:
    id = encode_id(event.id or f"call_{options.request_id or 'x'}_{event.block}")
    return {"type": "tool_use", "id": id, "name": event.name, "input": {}}


_SKELETONS: dict[BlockKind, Callable[[BlockStart, WriterOptions], dict[str, Any]]] = {
    BlockKind.TEXT: _text_skeleton,
    BlockKind.REFUSAL: _text_skeleton,
    BlockKind.REASONING: _thinking_skeleton,
    BlockKind.REDACTED_REASONING: _redacted_skeleton,
    BlockKind.TOOL_CALL: _tool_skeleton,
}


def _frame(name: str, fields: dict[str, Any]) -> Frame:
    return Frame(encode({"type": name, **{key: value for key, value in fields.items() if key != "type"}}), name)
