"""LLM-005's stream, read: strict about order where seq is given, tolerant of unknown fields and unknown event types.

LLM-005's own example numbers only some events, so an event without a seq is allowed for, and takes one place; a seq beyond
that is a gap, one that is not beyond the last a repetition, and both are ProtocolErrors that say so. Which block content
belongs to follows writer.py's rules, told backwards. `done` and `error` are the terminal markers.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from headrace.formats.base import ReaderOptions
from headrace.formats.json import decode_payload
from headrace.formats.standard.extensions import WireExtensions, from_wire
from headrace.formats.standard.reader import OpenBlock, StandardReader, choice_of, kind_of, part_of
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.errors import ErrorCode, ErrorInfo, ProtocolError
from headrace.model.events import BlockKind, Event
from headrace.model.stop import StopReason

from .errors import VENDOR, read_error, read_object
from .words import read_finish, read_usage_object
from .writer import REASONING


class _Frame(Struct):
    type: str = ""
    seq: int | None = None
    data: Any = None


class _Top(Struct):
    """Fields of start and done, which have no `data`."""

    id: str = ""
    model: str = ""
    created: int | float = 0
    extensions: WireExtensions | None = None
    routing: dict[str, Any] | None = None
    choices: Any = None


_decoder = msgspec.json.Decoder(_Frame)
_top = msgspec.json.Decoder(_Top)
_anything = msgspec.json.Decoder(dict[str, Any])
_TYPES = frozenset({"start", "delta", "tool_call", "reasoning", "progress", "usage", "error", "done"})


class GatewayReader(StandardReader):
    """StreamReader of the gateway format."""

    vendor: ClassVar[str] = VENDOR
    text_type: ClassVar[str] = "delta"

    def __init__(self, options: ReaderOptions) -> None:
        super().__init__(options)
        self._unnumbered = 0  # events without a seq since the last that had one
        self._current: dict[int, OpenBlock] = {}
        self._tools: dict[tuple[int, str], OpenBlock] = {}
        self._told: set[int] = set()  # tool blocks with arguments
        self._complete: set[tuple[int, str]] = set()
        self._choices: set[int] = set()
        self._called: set[int] = set()

    def read_slowly(self, frame: Frame, events: list[Event]) -> str:
        what = f"an event of {self.name}"
        fields = decode_payload(frame.data, _decoder, what)
        kind = fields.type or frame.event
        if not kind:
            raise ProtocolError(f"{self.name} sent an event without a type")
        self._check_seq(fields.seq, kind)
        if kind not in _TYPES:
            return kind
        if kind == "start" and self.started:
            raise ProtocolError(f"{self.name} sent a second start")
        if kind not in ("start", "error") and not self.started:
            raise ProtocolError(f"{self.name} sent {kind} before start")
        data = fields.data
        if data is None and kind in ("error", "usage"):
            data = decode_payload(frame.data, _anything, what)
            data = data.get("error", data) if kind == "error" else data.get("usage", data)
        if kind not in ("start", "done") and not isinstance(data, dict):
            raise ProtocolError(f"{self.name} sent {kind} without an object as data")
        _READ[kind](self, data, frame, events)
        return kind

    def _check_seq(self, seq: int | None, kind: str) -> None:
        if seq is None:
            self._unnumbered += 1
            self.hot = -1  # the template counts every event
            return
        due, latest = self.due, self.due + self._unnumbered
        if due <= seq <= latest:
            self.due = seq + 1
            self._unnumbered = 0
            return
        if seq < due:
            raise ProtocolError(f"{self.name} sent {kind} with seq {seq} again; {due} was due")
        self.due = seq + 1
        self._unnumbered = 0
        raise ProtocolError(f"{self.name} sent {kind} with seq {seq}; {latest} was due, events are missing")

    def _on_start(self, data: Any, frame: Frame, events: list[Event]) -> None:
        top = decode_payload(frame.data, _top, f"the start of {self.name}")
        self.started = True
        created = int(top.created) if 0 <= top.created < 2**63 else 0
        events.append(ev.Start(id=top.id, model=top.model, created=created, extensions=from_wire(top.extensions)))

    def _on_delta(self, data: dict[str, Any], frame: Frame, events: list[Event]) -> None:
        block = self._read_content(data, events, reasoning=False)
        if block.kind is BlockKind.TEXT and len(data) == 1 and data.get("content"):
            plain = self.template.learn(frame.data, self.due - 1, data["content"], ("data", "content"))
            self.hot = block.number if plain and not self._unnumbered else -1
        else:
            self.hot = -1

    def _on_reasoning(self, data: dict[str, Any], frame: Frame, events: list[Event]) -> None:
        self._read_content(data, events, reasoning=True)
        self.hot = -1

    def _read_content(self, data: dict[str, Any], events: list[Event], *, reasoning: bool) -> OpenBlock:
        text = data.get("content")
        if text is not None and not isinstance(text, str):
            raise ProtocolError(f"{self.name} sent content that is not a string")
        text = text or ""
        extensions = data.get("extensions")
        extensions = extensions if isinstance(extensions, dict) else {}
        choice = choice_of(data)
        part = part_of(data)
        kind = kind_of(data, reasoning, extensions)
        block = None if part is not None else self._continued(data, choice, kind, reasoning, bool(text))
        described = part is not None
        if block is None:
            self._make_room(data, choice, events)
            block = self.open_block(events, kind, choice, part=part, extensions=extensions)
            self._choices.add(choice)
        self._current[choice] = block
        self.add_content(events, block, text, data, extensions, described=described)
        return block

    def _continued(
        self, data: dict[str, Any], choice: int, kind: BlockKind, reasoning: bool, has_text: bool
    ) -> OpenBlock | None:
        """The open block that this content goes on with, or None."""
        number = data.get("block")
        if isinstance(number, int):
            return self.open.get(number)
        block = self._current.get(choice)
        if block is None or block.number not in self.open or block.kind is BlockKind.TOOL_CALL:
            return None
        if block.kind is kind or (not has_text and reasoning == (block.kind in REASONING)):
            return block
        return None

    def _make_room(self, data: dict[str, Any], choice: int, events: list[Event]) -> None:
        """A block begins: unless it says otherwise, those before it in its choice have ended, but for tool calls."""
        if data.get("parallel") is True:
            return
        for block in list(self.open.values()):
            if block.choice == choice and block.kind is not BlockKind.TOOL_CALL:
                self.close_block(events, block)

    def _on_tool_call(self, data: dict[str, Any], frame: Frame, events: list[Event]) -> None:
        self.hot = -1
        id, name, fragment, whole = (data.get(key) for key in ("id", "name", "arguments_delta", "arguments"))
        for value in (id, name, fragment, whole):
            if value is not None and not isinstance(value, str):
                raise ProtocolError(f"{self.name} sent a tool_call whose id, name or arguments are not strings")
        choice = choice_of(data)
        key = (choice, id or "")
        if id and key in self._complete:
            return
        block = self._tools.get(key) if id else self._unnamed(choice)
        if block is None:
            extensions = data.get("extensions")
            self._make_room(data, choice, events)
            block = self.open_block(
                events,
                BlockKind.TOOL_CALL,
                choice,
                part={},
                extensions=extensions if isinstance(extensions, dict) else None,
                id=id or f"call_{len(self._complete) + len(self._tools)}",
                name=name or "",
            )
            self._tools[key] = block
            self._choices.add(choice)
            self._called.add(choice)
        self._current[choice] = block
        if fragment:
            self._told.add(block.number)
            events.append(ev.ToolDelta(block.number, fragment))
        if data.get("complete") is True:
            if block.number not in self._told:
                events.append(ev.ToolDelta(block.number, whole or "{}"))
            self._tools = {key: tool for key, tool in self._tools.items() if tool is not block}
            self._complete.add(key)
            self.close_block(events, block)

    def _unnamed(self, choice: int) -> OpenBlock | None:
        """The tool call that a fragment without an id goes on with."""
        block = self._current.get(choice)
        return block if block and block.kind is BlockKind.TOOL_CALL and block.number in self.open else None

    def _on_progress(self, data: dict[str, Any], frame: Frame, events: list[Event]) -> None:
        message, percent, extensions = (data.get(name) for name in ("message", "percent", "extensions"))
        events.append(
            ev.Progress(
                message=message if isinstance(message, str) else "",
                percent=float(percent) if isinstance(percent, int | float) and not isinstance(percent, bool) else None,
                extensions=from_wire(extensions) if isinstance(extensions, dict) else None,
            )
        )

    def _on_usage(self, data: dict[str, Any], frame: Frame, events: list[Event]) -> None:
        usage = read_usage_object(data)
        if usage is not None:
            events.append(ev.UsageReport(self.merge_usage(usage)))

    def _on_error(self, data: dict[str, Any], frame: Frame, events: list[Event]) -> None:
        self.ended = True
        events.append(ev.Error(read_object(data, self.options.provider, ErrorCode.PROVIDER_UNAVAILABLE)))

    def _on_done(self, data: Any, frame: Frame, events: list[Event]) -> None:
        top = decode_payload(frame.data, _top, f"the end of {self.name}")
        said = decode_payload(frame.data, _anything, f"the end of {self.name}")
        self.ended = True
        for block in list(self.open.values()):
            self.close_block(events, block, complete=block.kind is not BlockKind.TOOL_CALL)
        events.extend(self._finishes(said, top.choices))
        usage = read_usage_object(said.get("usage"))
        if usage is not None:
            self.merge_usage(usage)
        events.append(ev.End(usage=self.usage, extensions=from_wire(top.extensions), routing=top.routing))

    def _finishes(self, said: dict[str, Any], listed: Any) -> list[ev.Finish]:
        finishes: dict[int, ev.Finish] = {}
        for fields in [{"index": 0, **_without(said, "extensions")}, *(listed if isinstance(listed, list) else ())]:
            if isinstance(fields, dict):
                index = choice_of({"choice": fields.get("index")})
                finish = read_finish(fields, index)
                if finish is not None:
                    finishes[index] = finish
        for index in self._choices - finishes.keys():  # that the stream ended is all that is known
            reason = StopReason.TOOL_USE if index in self._called else StopReason.OTHER
            finishes[index] = ev.Finish(choice=index, reason=reason)
        return [finishes[index] for index in sorted(finishes)]

    def read_leftover(self, leftover: bytes) -> ErrorInfo | None:
        info = read_error(200, {}, leftover)
        info.provider = info.provider or self.options.provider or None
        return info if info.vendor or info.type else None


_READ = {
    "start": GatewayReader._on_start,
    "delta": GatewayReader._on_delta,
    "reasoning": GatewayReader._on_reasoning,
    "tool_call": GatewayReader._on_tool_call,
    "progress": GatewayReader._on_progress,
    "usage": GatewayReader._on_usage,
    "error": GatewayReader._on_error,
    "done": GatewayReader._on_done,
}


def _without(fields: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name}
