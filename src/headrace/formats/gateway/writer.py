"""LLM-005's stream, written: start, delta, tool_call, reasoning, progress, usage, then done or error, numbered from 0.

Where LLM-005 leaves room, this is decided:
- Everything it has no word for is a field of `data`, and vendors' own content is in `data.extensions` ("vendor:NAME"):
  `choice` (absent: 0), `refusal` (the content is one), `media`, `part` (what a block is beyond its content), `append`.
- Blocks are not marked; content goes on the block that came before it in its choice if it is of the same kind, else begins
  another, which ends the one before. Where that would be wrong there is a mark: `part` begins a block in any case,
  `parallel` says that the block before goes on too, `block` (a block's number, from 0 in order of first mention) returns to it.
- A tool call is told when it begins, with each fragment, and when it is whole. One that was cut, or whose arguments are no
  JSON, never becomes complete.
- An error that comes before everything is preceded by start: a stream always begins with it.
- done has `usage` and `routing`, and beyond LLM-005 `finish_reason`, `choices` where there are several, and `lost`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from headrace.formats.base import WriterOptions
from headrace.formats.standard.extensions import WireExtensions, to_wire
from headrace.formats.standard.fields import is_json
from headrace.formats.standard.writer import Block, StandardWriter
from headrace.model import events as ev
from headrace.model.events import BlockKind
from headrace.model.usage import Usage

from .errors import VENDOR, error_object
from .words import write_finish, write_usage

REASONING = frozenset({BlockKind.REASONING, BlockKind.REDACTED_REASONING})
"""Kinds of block that travel in reasoning events."""


class GatewayWriter(StandardWriter):
    """StreamWriter of the gateway format."""

    vendor: ClassVar[str] = VENDOR

    def __init__(self, options: WriterOptions) -> None:
        super().__init__(options)
        self._next_number = 0
        self._open: dict[int, Block] = {}  # announced, not stopped, and no tool call
        self._current: dict[int, Block] = {}  # by choice: what a reader takes unmarked content to belong to
        self._finishes: dict[int, ev.Finish] = {}

    def _data(self, kind: str, data: dict[str, Any], extensions: WireExtensions) -> None:
        if extensions:
            data["extensions"] = extensions
        self.emit({"type": kind, "seq": self.seq, "data": data}, kind)

    def expected_head(self) -> bytes:
        return b'{"type":"delta","seq":%d,' % self.seq

    def next_number(self) -> int:
        self._next_number += 1
        return self._next_number - 1

    def start(self, event: ev.Start) -> None:
        fields: dict[str, Any] = {
            "type": "start",
            "seq": self.seq,
            "model": event.model or self.options.model,
            "provider": self.options.provider,
            "request_id": self.request_id,
        }
        created = event.created or self.options.created
        optional = {"id": event.id, "created": created, "extensions": to_wire(event.extensions)}
        fields.update((name, value) for name, value in optional.items() if value)
        self.emit(fields, "start")

    def announced(self, block: Block) -> None:
        if block.kind is not BlockKind.TOOL_CALL:
            self._open[block.start.block] = block

    def opening(self, block: Block) -> tuple[dict[str, Any], WireExtensions]:
        words, extensions = super().opening(block)
        before = self._current.get(block.choice)
        if before is not None and before.kind is block.kind and block.kind is not BlockKind.TOOL_CALL:
            words.setdefault("part", {"type": block.kind.value})
        if any(other is not block and other.choice == block.choice for other in self._open.values()):
            words["parallel"] = True
        return words, extensions

    def content(self, block: Block, text: str, words: dict[str, Any], extensions: WireExtensions) -> None:
        data: dict[str, Any] = {"content": text}
        if block.choice:
            data["choice"] = block.choice
        if block.kind is BlockKind.REFUSAL:
            data["refusal"] = True
        if block.opened and self._current[block.choice] is not block:
            data["block"] = block.number
        block.opened = True
        self._current[block.choice] = block
        kind = "reasoning" if block.kind in REASONING else "delta"
        self._data(kind, {**data, **words}, extensions)
        self._heat(block, kind)

    def _heat(self, block: Block, kind: str) -> None:
        if block.kind is not BlockKind.TEXT and block.kind is not BlockKind.REASONING:
            self.hot = -1
            return
        self.hot = block.start.block
        self.hot_event = kind
        tail = b',"choice":%d}}' % block.choice if block.choice else b"}}"
        self.hot_template = b'{"type":"%b","seq":%%d,"data":{"content":%%b%b' % (kind.encode(), tail)

    def _tool_data(self, block: Block) -> dict[str, Any]:
        start = block.start
        return {"id": start.id or f"call_{block.number}", "name": start.name}

    def _tool_event(self, block: Block, data: dict[str, Any], extensions: WireExtensions | None = None) -> None:
        if block.choice:
            data["choice"] = block.choice
        self._current[block.choice] = block
        self.hot = -1
        self._data("tool_call", data, extensions or {})

    def tool_started(self, block: Block) -> None:
        words, _ = self.opening(block)
        data = {**self._tool_data(block), "arguments_delta": "", "complete": False}
        if "parallel" in words:
            data["parallel"] = True
        self._tool_event(block, data, to_wire(block.start.extensions))

    def tool_delta(self, block: Block, fragment: str) -> None:
        self._tool_event(block, {**self._tool_data(block), "arguments_delta": fragment, "complete": False})

    def stopped(self, block: Block, complete: bool) -> None:
        self._open.pop(block.start.block, None)
        if block.kind is not BlockKind.TOOL_CALL:
            return
        arguments = "".join(block.arguments) or "{}"
        if complete and is_json(arguments):
            self._tool_event(block, {**self._tool_data(block), "arguments": arguments, "complete": True})

    def report_usage(self, usage: Usage) -> None:
        self._data("usage", write_usage(usage, final=False), {})

    def progress(self, event: ev.Progress) -> None:
        data: dict[str, Any] = {"message": event.message}
        if event.percent is not None:
            data["percent"] = event.percent
        self._data("progress", data, to_wire(event.extensions))

    def finish(self, event: ev.Finish) -> None:
        self._finishes[event.choice] = event

    def fail(self, event: ev.Error) -> None:
        self.tell_usage()
        self._data("error", error_object(event.error), {})

    def end(self, event: ev.End) -> None:
        routing = event.routing
        if routing is None:
            routing = {"selected_provider": self.options.provider}
        fields: dict[str, Any] = {
            "type": "done",
            "seq": self.seq,
            "usage": write_usage(self.usage, final=True),
            "routing": routing,
        }
        first = self._finishes.get(0)
        if first is not None:
            fields |= write_finish(first)
        if len(self._finishes) > (first is not None) or (first is not None and first.extensions):
            fields["choices"] = [self._choice(number) for number in sorted(self._finishes)]
        optional = {"lost": self.lost_so_far(), "extensions": to_wire(event.extensions)}
        fields.update((name, value) for name, value in optional.items() if value)
        self.emit(fields, "done")

    def _choice(self, number: int) -> dict[str, Any]:
        finish = self._finishes[number]
        fields = {"index": number, **write_finish(finish)}
        if finish.extensions:
            fields["extensions"] = to_wire(finish.extensions)
        return fields
