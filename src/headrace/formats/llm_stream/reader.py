"""The draft's stream, read: strict about order and seq, tolerant of unknown fields and unknown event types.

A gap or a repetition in seq is a ProtocolError that says which; reading can go on after it. content.delta opens its index;
tool.call is a block of its own, whole; blocks that got no content.stop are closed by stream.end. A choice finishes when the
stream ends, with the reason of its last content.stop (a call among its blocks outweighs end_turn), or with exactly what
our writer put beside it. `error` is the end: what follows it is ignored.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from headrace.formats.base import ReaderOptions
from headrace.formats.json import decode_payload
from headrace.formats.standard.extensions import WireExtensions, from_wire, split_ours
from headrace.formats.standard.reader import OpenBlock, StandardReader, choice_of, kind_of, part_of
from headrace.formats.standard.usage import read_usage
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.errors import ErrorCode, ErrorInfo, ProtocolError
from headrace.model.events import BlockKind, Event
from headrace.model.stop import StopReason

from . import stops
from .errors import ENVELOPE, VENDOR, read_error, read_fields_of


class _Delta(Struct):
    text: str = ""
    reasoning: str | None = None


class _Frame(Struct):
    type: str = ""
    seq: int | None = None
    v: str = "1.0"
    model: str = ""
    created: int | float = 0
    index: int | None = None
    delta: _Delta | None = None
    stop_reason: str | None = None
    id: str | None = None
    name: str | None = None
    arguments: str | None = None
    input_tokens: int | float | None = None
    output_tokens: int | float | None = None
    extensions: WireExtensions | None = None


class _Envelope(Struct):
    type: str = ""
    seq: int | None = None


_decoder = msgspec.json.Decoder(_Frame)
_envelope = msgspec.json.Decoder(_Envelope)
_anything = msgspec.json.Decoder(dict[str, Any])
_TYPES = frozenset({"stream.start", "content.delta", "content.stop", "tool.call", "usage", "error", "stream.end"})


class _Choice:
    """How a choice may end, as far as is known."""

    __slots__ = ("called", "exact", "finish")

    def __init__(self) -> None:
        self.called = False
        self.exact = False
        self.finish: ev.Finish | None = None


class LlmStreamReader(StandardReader):
    """StreamReader of the draft."""

    vendor: ClassVar[str] = VENDOR
    text_type: ClassVar[str] = "content.delta"

    def __init__(self, options: ReaderOptions) -> None:
        super().__init__(options)
        self._by_index: dict[int, OpenBlock] = {}
        self._stopped: set[int] = set()
        self._empty: dict[int, int] = {}  # index -> choice of blocks that hold nothing but their stop
        self._choices: dict[int, _Choice] = {}

    def read_slowly(self, frame: Frame, events: list[Event]) -> str:
        kind, fields = self._decode(frame)
        self._check_seq(fields.seq, kind)
        if kind not in _TYPES:
            return kind
        if (kind == "stream.start") is self.started:
            raise ProtocolError(
                f"{self.name} sent a second stream.start"
                if self.started
                else f"{self.name} sent {kind} before stream.start"
            )
        _READ[kind](self, fields, frame, events)
        return kind

    def _decode(self, frame: Frame) -> tuple[str, _Frame]:
        what = f"an event of {self.name}"
        try:
            fields = decode_payload(frame.data, _decoder, what)
        except ProtocolError:
            envelope = decode_payload(frame.data, _envelope, what)
            if (envelope.type or frame.event) in _TYPES:
                raise
            fields = _Frame(type=envelope.type, seq=envelope.seq)
        kind = fields.type or frame.event
        if not kind:
            raise ProtocolError(f"{self.name} sent an event without a type")
        return kind, fields

    def _check_seq(self, seq: int | None, kind: str) -> None:
        due = self.due
        if seq == due:
            self.due += 1
            return
        if seq is None:
            raise ProtocolError(f"{self.name} sent {kind} without a seq")
        if seq < due:
            raise ProtocolError(f"{self.name} sent {kind} with seq {seq} again; {due} was due")
        self.due = seq + 1
        raise ProtocolError(f"{self.name} sent {kind} with seq {seq}; {due} was due, events are missing")

    def _on_start(self, fields: _Frame, frame: Frame, events: list[Event]) -> None:
        if fields.v.partition(".")[0] != "1":
            raise ProtocolError(f"{self.name} speaks version {fields.v[:20]!r} of llm-stream; 1.0 is read here")
        self.started = True
        words, others = split_ours(fields.extensions)
        id = words.get("id")
        created = int(fields.created) if 0 <= fields.created < 2**63 else 0
        events.append(
            ev.Start(
                id=id if isinstance(id, str) else "",
                model=fields.model,
                created=created,
                extensions=from_wire(others),
            )
        )

    def _on_delta(self, fields: _Frame, frame: Frame, events: list[Event]) -> None:
        index = self._index(fields)
        delta = fields.delta
        if delta is None:
            raise ProtocolError(f"{self.name} sent content.delta without a delta")
        if index in self._stopped:
            raise ProtocolError(f"{self.name} sent content.delta for index {index} after its content.stop")
        if fields.extensions is None and delta.reasoning is None:
            if not delta.text and index in self._by_index:
                return
            block = self._block(events, index, BlockKind.TEXT)
            if delta.text:
                events.append(ev.TextDelta(block.number, delta.text))
                due = self.due - 1
                plain = self.template.learn(frame.data, due, delta.text, ("delta", "text"))
                self.hot = block.number if plain else -1
            return
        self._rich_delta(index, delta, fields.extensions, events)

    def _rich_delta(self, index: int, delta: _Delta, given: WireExtensions | None, events: list[Event]) -> None:
        words, extensions = split_ours(given)
        progress = words.get("progress")
        if isinstance(progress, dict):
            message, percent = progress.get("message"), progress.get("percent")
            number = isinstance(percent, int | float) and not isinstance(percent, bool)
            events.append(
                ev.Progress(
                    message=message if isinstance(message, str) else "",
                    percent=float(percent) if number and percent is not None else None,
                    extensions=from_wire(extensions),
                )
            )
            extensions = {}
        if words.get("empty") is True:
            self._empty[index] = choice_of(words)
            return
        if isinstance(progress, dict) and not delta.text and not delta.reasoning:
            return
        known = self._by_index.get(index)
        part = part_of(words)
        reasoning = delta.reasoning is not None
        kind = kind_of(words, reasoning, extensions)
        if known is not None and not delta.text and not delta.reasoning:
            kind = known.kind
        if reasoning and delta.text and kind is BlockKind.REASONING:
            # One index for both: reasoning and text are two blocks all the same.
            block = self._block(events, index, kind, words, extensions)
            self.add_content(events, block, delta.reasoning or "", words, extensions, described=part is not None)
            block = self._block(events, index, BlockKind.TEXT, words)
            self.add_content(events, block, delta.text, {}, {}, described=True)
            return
        block = self._block(events, index, kind, words, extensions)
        described = part is not None and known is None
        text = (delta.reasoning or "") if reasoning else delta.text
        self.add_content(events, block, text, words, extensions, described=described)

    def _index(self, fields: _Frame) -> int:
        if fields.index is None:
            raise ProtocolError(f"{self.name} sent {fields.type} without an index")
        return fields.index

    def _block(
        self,
        events: list[Event],
        index: int,
        kind: BlockKind,
        words: dict[str, Any] | None = None,
        extensions: WireExtensions | None = None,
    ) -> OpenBlock:
        """The index's block, opened where it must be. An index that changes its kind begins another block."""
        block = self._by_index.get(index)
        if block is not None:
            if block.kind is kind:
                return block
            self.close_block(events, block)
        words = words or {}
        block = self.open_block(events, kind, choice_of(words), part=part_of(words), extensions=extensions)
        self._by_index[index] = block
        self._choice(block.choice)
        return block

    def _choice(self, number: int) -> _Choice:
        return self._choices.setdefault(number, _Choice())

    def _on_tool_call(self, fields: _Frame, frame: Frame, events: list[Event]) -> None:
        index = self._index(fields)
        missing = [name for name in ("id", "name", "arguments") if getattr(fields, name) is None]
        if missing:
            raise ProtocolError(f"{self.name} sent tool.call without {' and '.join(missing)}")
        words, extensions = split_ours(fields.extensions)
        self._close_index(events, index)
        self._stopped.discard(index)
        block = self.open_block(
            events,
            BlockKind.TOOL_CALL,
            choice_of(words),
            part={},
            extensions=extensions,
            id=fields.id or "",
            name=fields.name or "",
        )
        self._by_index[index] = block
        self._choice(block.choice).called = True
        events.append(ev.ToolDelta(block.number, fields.arguments or "{}"))

    def _close_index(self, events: list[Event], index: int, complete: bool = True) -> None:
        block = self._by_index.pop(index, None)
        if block is not None:
            self.close_block(events, block, complete)

    def _on_stop(self, fields: _Frame, frame: Frame, events: list[Event]) -> None:
        index = self._index(fields)
        word = fields.stop_reason
        if word is None:
            raise ProtocolError(f"{self.name} sent content.stop without a stop_reason")
        if index in self._stopped:
            raise ProtocolError(f"{self.name} sent content.stop for index {index} twice")
        self._stopped.add(index)
        words, extensions = split_ours(fields.extensions)
        block = self._by_index.get(index)
        choice = block.choice if block else self._empty.pop(index, choice_of(words))
        self._close_index(events, index, words.get("incomplete") is not True)
        call = words.get("incomplete_tool_call")
        if isinstance(call, dict):
            self._read_incomplete(events, choice, call)
        state = self._choice(choice)
        state.finish = read_finish(choice, word, words, extensions)
        state.exact = "stop_reason" in words

    def _read_incomplete(self, events: list[Event], choice: int, call: dict[str, Any]) -> None:
        id, name, arguments = (
            value if isinstance(value := call.get(key), str) else "" for key in ("id", "name", "arguments")
        )
        own = call.get("extensions")
        own = own if isinstance(own, dict) else None
        block = self.open_block(events, BlockKind.TOOL_CALL, choice, part={}, extensions=own, id=id, name=name)
        if arguments:
            events.append(ev.ToolDelta(block.number, arguments))
        self.close_block(events, block, complete=False)

    def _on_usage(self, fields: _Frame, frame: Frame, events: list[Event]) -> None:
        words, others = split_ours(fields.extensions)
        unknown = words.get("unknown")
        unknown = unknown if isinstance(unknown, list) else []
        inputs = None if "input_tokens" in unknown else fields.input_tokens
        outputs = None if "output_tokens" in unknown else fields.output_tokens
        events.append(ev.UsageReport(self.merge_usage(read_usage(inputs, outputs, words, others))))

    def _on_error(self, fields: _Frame, frame: Frame, events: list[Event]) -> None:
        said = decode_payload(frame.data, _anything, f"an error of {self.name}")
        self.ended = True
        error = {name: value for name, value in said.items() if name not in ENVELOPE}
        events.append(ev.Error(read_fields_of(error, self.options.provider, ErrorCode.PROVIDER_UNAVAILABLE)))

    def _on_end(self, fields: _Frame, frame: Frame, events: list[Event]) -> None:
        self.ended = True
        words, others = split_ours(fields.extensions)
        for index in list(self._by_index):
            self._close_index(events, index)
        events.extend(_settled(number, self._choices[number]) for number in sorted(self._choices))
        routing = words.get("routing")
        events.append(
            ev.End(
                usage=self.usage,
                extensions=from_wire(others),
                routing=routing if isinstance(routing, dict) else None,
            )
        )

    def read_leftover(self, leftover: bytes) -> ErrorInfo | None:
        info = read_error(200, {}, leftover)
        info.provider = info.provider or self.options.provider or None
        return info if info.vendor or info.type else None


_READ = {
    "stream.start": LlmStreamReader._on_start,
    "content.delta": LlmStreamReader._on_delta,
    "tool.call": LlmStreamReader._on_tool_call,
    "content.stop": LlmStreamReader._on_stop,
    "usage": LlmStreamReader._on_usage,
    "error": LlmStreamReader._on_error,
    "stream.end": LlmStreamReader._on_end,
}


def read_finish(choice: int, word: str, words: dict[str, Any], extensions: WireExtensions) -> ev.Finish:
    """A choice's end, from a stop_reason and what stands beside it."""
    finish = ev.Finish(
        choice=choice,
        reason=stops.REASONS.get(word, StopReason.OTHER),
        raw=word,
        extensions=from_wire(extensions),
    )
    exact = words.get("stop_reason")
    if isinstance(exact, dict):
        raw, sequence = exact.get("raw"), exact.get("stop_sequence")
        finish.reason = stops.reason_named(exact.get("reason")) or finish.reason
        finish.raw = raw if isinstance(raw, str) else word
        finish.stop_sequence = sequence if isinstance(sequence, str) else None
    return finish


def _settled(number: int, state: _Choice) -> ev.Finish:
    finish = state.finish
    if finish is None:  # no content.stop ever came; that the stream ended is all that is known
        reason = StopReason.TOOL_USE if state.called else StopReason.OTHER
        return ev.Finish(choice=number, reason=reason)
    if state.called and finish.reason is StopReason.END_TURN and not state.exact:
        finish.reason = StopReason.TOOL_USE
    return finish
