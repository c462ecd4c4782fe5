"""The draft's stream, written: seven event types, `seq` without gaps, exactly one stream.end.

Where the draft leaves room, this is decided:
- A block's content.stop is held back until it is known whether the block was the last of its answer: then it carries the
  answer's stop reason, else end_turn (the model went on). A tool call's is always tool_use, a refusal's content_filter.
  Whatever the closed set cannot say (the provider's own word, a stop sequence) is beside it in `stop_reason` of
  `vendor:headrace`. Every content.stop comes after a content.delta or tool.call of its index.
- An answer without any block is one empty block, marked `empty`, so that its stop reason has a place.
- A call whose arguments are not complete JSON is no tool.call: an empty block, marked `incomplete_tool_call`.
- Progress rides on an empty content.delta of the block that is being written, or is a block of its own, marked `empty`.
- At an error blocks that were being written stay open; a block that had stopped, and whose reason nobody knows, too. A tool
  call that was sent gets its content.stop.
- With several choices, `choice` in `vendor:headrace` says whose a block is (absent: 0).
- An error that comes before everything is preceded by stream.start: the draft's stream begins with it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from headrace.formats.base import WriterOptions
from headrace.formats.json import encode
from headrace.formats.standard.extensions import OURS_KEY, WireExtensions, to_wire
from headrace.formats.standard.fields import is_json
from headrace.formats.standard.usage import cost_of, parts_of
from headrace.formats.standard.writer import Block, StandardWriter
from headrace.model import events as ev
from headrace.model.events import BlockKind, Event
from headrace.model.stop import StopReason
from headrace.model.usage import Usage

from . import stops
from .errors import VENDOR, error_fields

_OWN_WORD = {BlockKind.TOOL_CALL: stops.TOOL_USE, BlockKind.REFUSAL: stops.CONTENT_FILTER}


class _Stop:
    """A content.stop that is held back."""

    __slots__ = ("block", "words")

    def __init__(self, block: Block, words: dict[str, Any]) -> None:
        self.block = block
        self.words = words


class LlmStreamWriter(StandardWriter):
    """StreamWriter of the draft."""

    vendor: ClassVar[str] = VENDOR

    def __init__(self, options: WriterOptions) -> None:
        super().__init__(options)
        self._next_index = 0
        self._open: dict[int, Block] = {}  # announced, not stopped
        self._held: dict[int, _Stop] = {}  # by choice
        self._called: set[int] = set()  # choices with a tool call
        self._finished = False

    def _event(self, kind: str, fields: dict[str, Any], words: dict[str, Any], extensions: WireExtensions) -> None:
        if words:
            ours = extensions.get(OURS_KEY)
            extensions = {**extensions, OURS_KEY: {**(ours if isinstance(ours, dict) else {}), **words}}
        tail = {"extensions": extensions} if extensions else {}
        self.emit({"v": "1.0", "seq": self.seq, "type": kind, **fields, **tail}, kind)

    def expected_head(self) -> bytes:
        return b'{"v":"1.0","seq":%d,' % self.seq

    def next_number(self) -> int:
        self._next_index += 1
        return self._next_index - 1

    def start(self, event: ev.Start) -> None:
        fields: dict[str, Any] = {"request_id": self.request_id} if self.request_id else {}
        fields["model"] = event.model or self.options.model
        fields["created"] = event.created or self.options.created
        words = {"id": event.id, "provider": self.options.provider}
        self._event("stream.start", fields, {k: v for k, v in words.items() if v}, to_wire(event.extensions))

    def announced(self, block: Block) -> None:
        self._release(block.choice)
        self._open[block.start.block] = block

    def content(self, block: Block, text: str, words: dict[str, Any], extensions: WireExtensions) -> None:
        marks: dict[str, Any] = {}
        if block.choice:
            marks["choice"] = block.choice
        if block.kind is BlockKind.REFUSAL:
            marks["refusal"] = True
        reasoning = block.kind is BlockKind.REASONING
        delta = {"text": "", "reasoning": text} if reasoning else {"text": text}
        self._delta(block.number, delta, {**marks, **words}, extensions)
        if reasoning or block.kind is BlockKind.TEXT:
            self._heat(block, marks, reasoning)

    def _delta(self, index: int, delta: dict[str, str], words: dict[str, Any], extensions: WireExtensions) -> None:
        fields = {"index": index, "role": "assistant", "delta": delta}
        self._event("content.delta", fields, words, extensions)

    def _heat(self, block: Block, marks: dict[str, Any], reasoning: bool) -> None:
        self.hot = block.start.block
        self.hot_event = "content.delta"
        field = b'"text":"","reasoning":' if reasoning else b'"text":'
        tail = b',"extensions":{"vendor:headrace":%b}}' % encode(marks) if marks else b"}"
        self.hot_template = (
            b'{"v":"1.0","seq":%%d,"type":"content.delta","index":%d,"role":"assistant","delta":{%b%%b}%b'
            % (block.number, field, tail)
        )

    def tool_started(self, block: Block) -> None:
        """Nothing: nothing partial is sent of a call."""

    def tool_delta(self, block: Block, fragment: str) -> None:
        """Nothing: nothing partial is sent of a call."""

    def stopped(self, block: Block, complete: bool) -> None:
        del self._open[block.start.block]
        words: dict[str, Any] = {"choice": block.choice} if block.choice else {}
        if block.kind is BlockKind.TOOL_CALL and not block.passed:
            self._tool_call(block, complete, words)
        elif not complete:
            words["incomplete"] = True
        if any(other.choice == block.choice for other in self._open.values()):
            self._stop(_Stop(block, words), None)
        else:
            self._release(block.choice)
            self._held[block.choice] = _Stop(block, words)

    def _tool_call(self, block: Block, complete: bool, words: dict[str, Any]) -> None:
        arguments = "".join(block.arguments)
        start = block.start
        call = {"id": start.id or f"call_{block.number}", "name": start.name}
        extensions = to_wire(start.extensions)
        if complete and (not arguments or is_json(arguments)):
            self._called.add(block.choice)
            self._event("tool.call", {"index": block.number, **call, "arguments": arguments or "{}"}, words, extensions)
        else:
            self._delta(block.number, {"text": ""}, {**words, "empty": True}, {})
            words["incomplete_tool_call"] = {**call, "arguments": arguments}
            if extensions:
                words["incomplete_tool_call"]["extensions"] = extensions

    def _stop(self, stop: _Stop, finish: ev.Finish | None) -> None:
        block, words = stop.block, stop.words
        own = None if "incomplete_tool_call" in words else _OWN_WORD.get(block.kind)
        word = own or (stops.WORDS[finish.reason] if finish else stops.END_TURN)
        extensions: WireExtensions = {}
        if finish is not None:
            extensions = to_wire(finish.extensions)
            words = {**words, **finish_words(finish, word, called=block.choice in self._called)}
        self._event("content.stop", {"index": block.number, "stop_reason": word}, words, extensions)

    def _release(self, choice: int, finish: ev.Finish | None = None) -> bool:
        stop = self._held.pop(choice, None)
        if stop is None:
            return False
        self._stop(stop, finish)
        return True

    def finish(self, event: ev.Finish) -> None:
        self._finished = True
        if not self._release(event.choice, event):
            words: dict[str, Any] = {"choice": event.choice} if event.choice else {}
            index = self.next_number()
            self._delta(index, {"text": ""}, {**words, "empty": True}, {})
            word = stops.WORDS[event.reason]
            words.update(finish_words(event, word, called=False))
            fields = {"index": index, "stop_reason": word}
            self._event("content.stop", fields, words, to_wire(event.extensions))

    def report_usage(self, usage: Usage) -> None:
        fields = {"input_tokens": usage.input_tokens or 0, "output_tokens": usage.output_tokens or 0}
        words = {**parts_of(usage), **cost_of(usage)}
        unknown = [name for name in fields if getattr(usage, name) is None]
        if unknown:
            words["unknown"] = unknown
        self._event("usage", fields, words, to_wire(usage.vendor))

    def progress(self, event: ev.Progress) -> None:
        """After a Finish there is no place left that a plain reader could not take for the answer's end."""
        if self._finished:
            self.lost.add("progress")
            return
        words: dict[str, Any] = {"progress": {"message": event.message}}
        if event.percent is not None:
            words["progress"]["percent"] = event.percent
        visible = [block.number for block in self._open.values() if block.kind is not BlockKind.TOOL_CALL]
        if visible:
            self._delta(visible[-1], {"text": ""}, words, to_wire(event.extensions))
            return
        index = self.next_number()
        self._delta(index, {"text": ""}, {**words, "empty": True}, to_wire(event.extensions))
        self._event("content.stop", {"index": index, "stop_reason": stops.END_TURN}, {}, {})

    def fail(self, event: ev.Error) -> None:
        for stop in self._held.values():
            if stop.block.kind is BlockKind.TOOL_CALL and "incomplete_tool_call" not in stop.words:
                self._stop(stop, None)
        self.tell_usage()
        fields = dict(error_fields(event.error, in_stream=True))
        self._event("error", fields, {}, fields.pop("extensions", None) or {})
        self._stream_end({}, {})

    def end(self, event: ev.End) -> None:
        for choice in list(self._held):
            self._release(choice)
        usage = self.usage
        if usage is not None and (usage.input_tokens is None) != (usage.output_tokens is None):
            self.report_usage(usage)
        else:
            self.tell_usage()
        words = {"routing": event.routing} if event.routing is not None else {}
        self._stream_end(words, to_wire(event.extensions))

    def _stream_end(self, words: dict[str, Any], extensions: WireExtensions) -> None:
        lost = self.lost_so_far()
        fields = {"request_id": self.request_id} if self.request_id else {}
        self._event("stream.end", fields, {**words, "lost": lost} if lost else words, extensions)

    def passed(self, event: Event) -> None:
        if type(event) is ev.ToolDelta:
            self._open[event.block].passed = True
        elif type(event) is ev.BlockStop:
            self._held.clear()  # the frame was the content.stop

    def after_passed_error(self) -> None:
        self._stream_end({}, {})


def finish_words(finish: ev.Finish, word: str, *, called: bool) -> dict[str, Any]:
    """What the draft's word does not say of an answer's end. `called`: there is a tool call in it."""
    reason = finish.reason
    words: dict[str, Any] = {}
    if stops.REASONS[word] is not reason or (called and reason is StopReason.END_TURN):
        words["reason"] = reason.value
    if finish.raw is not None and finish.raw != word:
        words["raw"] = finish.raw
    if finish.stop_sequence is not None:
        words["stop_sequence"] = finish.stop_sequence
    return {"stop_reason": words} if words else {}
