"""Reading an Anthropic Messages stream (DOSSIER 3): `AnthropicStreamReader`.

The rule: the JSON's own `type` decides (the name of the frame only where it has none), `message_stop` alone ends the
stream, and what is unknown passes opaque. Compatible servers are met half-way: a block without a start is opened at its
first delta (tool calls excepted: nobody could name them), blocks left open are closed before the message ends, the last
stop_reason that says something wins, and `Finish` therefore waits for `message_stop`. A second `message_start` is either
the very same one again, which is ignored, or a retry behind the provider, which abandons the blocks that are open.

A frame stands for its events (`origin`) while its block's index is the block's number in our count and no other block is
open; from the first deviation on the blocks are told anew. Text, thinking and tool arguments have a short cut: a frame
with the same bytes before the text as the one before it, and nothing but closing braces and blanks behind it, is the
same object with another text. That is exact, and learned only from a frame that was read the long way and proves it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from headrace.formats.base import FrameReader, ReaderOptions
from headrace.formats.json import decode_payload
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.content import Citation
from headrace.model.errors import ErrorCode, ErrorInfo, ProtocolError
from headrace.model.events import BlockKind, BlockStart, Event

from .blocks import json_value
from .errors import error_in
from .starts import told
from .usage import UsageTally
from .words import VENDOR, extras, read_stop

_OBJECT = msgspec.json.Decoder(dict[str, Any])
_decode_text = msgspec.json.Decoder(str).decode
_BLANKS = b" \t\r\n"
_UNLEARNED = b"\xff"  # no JSON begins so

_MESSAGE_FIELDS = frozenset(
    {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "stop_details", "usage"}
)
_MESSAGE_DELTA_FIELDS = frozenset({"type", "delta", "usage"})
_STOP_FIELDS = frozenset({"stop_reason", "stop_sequence"})

_Make = Callable[[int, Any], Event]

_DELTAS: dict[str, tuple[BlockKind, str, type, _Make]] = {
    # delta type: (kind of block, field, its type, event)
    "text_delta": (BlockKind.TEXT, "text", str, ev.TextDelta),
    "thinking_delta": (BlockKind.REASONING, "thinking", str, ev.ReasoningDelta),
    "input_json_delta": (BlockKind.TOOL_CALL, "partial_json", str, ev.ToolDelta),
    "signature_delta": (BlockKind.REASONING, "signature", str, ev.SignatureDelta),
    "citations_delta": (BlockKind.TEXT, "citation", dict, ev.CitationDelta),
}
_LEARNED = frozenset({"text_delta", "thinking_delta", "input_json_delta"})

_OPAQUE_FIELDS: dict[str, tuple[tuple[str, str], ...]] = {
    # delta type in an opaque block: (field of the delta, field of the block that it is appended to)
    "input_json_delta": (("partial_json", "input"),),
    "text_delta": (("text", "text"),),
    "thinking_delta": (("thinking", "thinking"),),
    "signature_delta": (("signature", "signature"),),
    "compaction_delta": (("content", "content"), ("encrypted_content", "encrypted_content")),
}


class _Open:
    """A block between its start and its stop."""

    __slots__ = ("block", "fragments", "held", "kind", "passes")

    def __init__(self, block: int, kind: BlockKind, *, passes: bool = False, held: str = "") -> None:
        self.block = block
        self.kind = kind
        self.passes = passes
        """Whether its frames may stand for its events."""
        self.held = held
        """A tool call's whole input from its start: counts only if no delta brings it again."""
        self.fragments: list[str] | None = [] if kind is BlockKind.TOOL_CALL else None


class AnthropicStreamReader(FrameReader):
    """Frames of `/v1/messages` with `stream: true` -> events.

    Quirk `input_includes_cache`: the server counts cached tokens in input_tokens, as OpenAI does.
    """

    __slots__ = (
        "_block",
        "_delta_told",
        "_ended",
        "_fragments",
        "_make",
        "_next",
        "_open",
        "_pass_learned",
        "_passthrough",
        "_prefix",
        "_provider",
        "_quote",
        "_start",
        "_stop",
        "_stop_extras",
        "_stop_sequence",
        "_tally",
        "_vendor",
    )

    def __init__(self, options: ReaderOptions) -> None:
        self._provider = options.provider
        self._passthrough = options.passthrough
        self._vendor = options.vendor or VENDOR
        self._tally = UsageTally(self._vendor, cache_included=bool(options.quirks.get("input_includes_cache")))
        self._start: dict[str, Any] | None = None  # payload of the message_start in force
        self._open: dict[int, _Open] = {}  # by the provider's index
        self._next = 0
        self._stop: str | None = None
        self._stop_sequence: str | None = None
        self._stop_extras: dict[str, Any] = {}
        self._delta_told = False  # a message_delta stands for itself, so message_stop may, too
        self._ended = False
        # The short cut: what a frame must begin with, where its text begins, and what it then means.
        self._prefix = _UNLEARNED
        self._quote = 0
        self._make: _Make = ev.TextDelta
        self._block = 0
        self._fragments: list[str] | None = None
        self._pass_learned = False

    def read_frame(self, frame: Frame, events: list[Event]) -> None:
        """Append the events of one frame. Raises ProtocolError."""
        data = frame.data
        if data.startswith(self._prefix):
            end = data.rfind(b'"') + 1
            if data[end:] == b"}}" or data[end:].translate(None, _BLANKS) == b"}}":
                try:
                    text = _decode_text(data[self._quote : end])
                except (msgspec.DecodeError, UnicodeDecodeError):
                    pass
                else:
                    event = self._make(self._block, text)
                    if self._fragments is not None:
                        self._fragments.append(text)
                    if self._pass_learned:
                        event.origin = _named(frame, "content_block_delta")  # type: ignore[attr-defined]  # deltas have it
                    events.append(event)
                    return
        if not self._ended:
            self._read_any(frame, events)

    def eof(self, leftover: bytes = b"") -> list[Event]:
        """One Error where message_stop has not come: the error that `leftover` tells, or that the stream was cut."""
        if self._ended:
            return []
        self._end()
        if leftover:
            try:
                payload = _OBJECT.decode(leftover)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                payload = {}
            if "error" in payload:
                return [ev.Error(error_in(payload, provider=self._provider))]
        who = self._provider or "The provider"
        return [
            ev.Error(
                ErrorInfo(
                    code=ErrorCode.PROVIDER_UNAVAILABLE,
                    type="upstream_truncated",
                    message=f"{who} closed the stream before message_stop: the answer is cut off",
                    provider=self._provider or None,
                )
            )
        ]

    def _read_any(self, frame: Frame, events: list[Event]) -> None:
        data = frame.data
        if not data.strip() or data == b"[DONE]":  # an event of which only the name came; a sentinel of other formats
            events.append(ev.Opaque(vendor=self._vendor, name=frame.event))
            return
        fit = self._passthrough
        try:
            payload = _OBJECT.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            fit = False  # readable at best after repair
            payload = decode_payload(data, _OBJECT, "An event of the stream")
        name = payload.get("type")
        if not isinstance(name, str) or not name:
            fit = False
            name = "error" if "error" in payload else frame.event
            if not name:
                raise ProtocolError("An event of the stream has no type")
        step = self._STEPS.get(name)
        origin = _named(frame, name) if fit else None
        if step is None:
            events.append(ev.Opaque(vendor=self._vendor, name=name, content=name != "ping", origin=origin))
        else:
            step(self, payload, origin, events, data)

    # One method an event. Each checks first and changes state and `events` only then.

    def _on_message_start(
        self, payload: dict[str, Any], origin: Frame | None, events: list[Event], data: bytes
    ) -> None:
        message = _object(payload, "message", "message_start")
        content = message.get("content")
        begun = [told(block, self._vendor) for block in content] if isinstance(content, list) else []
        if self._start is not None:
            if self._start == payload:
                events.append(ev.Opaque(vendor=self._vendor, name="message_start"))
                return
            self._close_all(events, complete=False)
            self._stop = self._stop_sequence = None
            self._stop_extras = {}
            self._delta_told = False
            usage = self._tally.add(message.get("usage"))
            if usage is not None:
                events.append(ev.UsageReport(usage))
            origin = None
        else:
            id, model = message.get("id"), message.get("model")
            events.append(
                ev.Start(
                    id=id if isinstance(id, str) else "",
                    model=model if isinstance(model, str) else "",
                    usage=self._tally.add(message.get("usage")),
                    extensions=extras(message, _MESSAGE_FIELDS, self._vendor),
                    origin=origin,
                )
            )
        self._start = payload
        for start, deltas, held in begun:  # blocks that are there from the start (programmatic tool calling)
            self._begin(-1, start, deltas, held, origin, events)
            self._close(-1, events, origin)

    def _on_block_start(self, payload: dict[str, Any], origin: Frame | None, events: list[Event], data: bytes) -> None:
        index = _index(payload)
        start, deltas, held = told(_object(payload, "content_block", "content_block_start"), self._vendor)
        self._ensure_started(events)
        if index in self._open:
            self._close(index, events, complete=False)
        if index != self._next or self._open:
            origin = None
        self._begin(index, start, deltas, held, origin, events)

    def _on_block_delta(self, payload: dict[str, Any], origin: Frame | None, events: list[Event], data: bytes) -> None:
        index = _index(payload)
        delta = _object(payload, "delta", "content_block_delta")
        name = delta.get("type")
        if not isinstance(name, str):
            raise ProtocolError("A content_block_delta has no type")
        open_ = self._open.get(index)
        if open_ is None or not open_.passes:
            origin = None
        if open_ is not None and open_.kind is BlockKind.OPAQUE:
            self._opaque_delta(open_.block, name, delta, origin, events)
            return
        known = _DELTAS.get(name)
        if known is None:
            events.append(ev.Opaque(vendor=self._vendor, name=name, content=True, origin=origin))
            return
        kind, field, type_, make = known
        value: Any = delta.get(field)
        if value is None and type_ is str:
            value = ""
        fits = isinstance(value, type_)
        if not fits:
            raise ProtocolError(f"{name}.{field} is not what it should be")
        if open_ is None or open_.kind is not kind:
            open_ = self._open_late(index, kind, name, events)
            origin = None
        if kind is BlockKind.TOOL_CALL:
            if value:
                open_.held = ""
            if open_.fragments is not None:
                open_.fragments.append(value)
        if type_ is dict:
            value = Citation(self._vendor, value)
        event = make(open_.block, value)
        event.origin = origin  # type: ignore[attr-defined]  # deltas have it
        events.append(event)
        if name in _LEARNED and not open_.held:
            self._learn(data, payload, delta, field, open_, make)

    def _on_block_stop(self, payload: dict[str, Any], origin: Frame | None, events: list[Event], data: bytes) -> None:
        index = _index(payload)
        open_ = self._open.get(index)
        if open_ is None:  # nothing to say: what it closes was never opened
            events.append(ev.Opaque(vendor=self._vendor, name="content_block_stop"))
        else:
            self._close(index, events, origin if open_.passes else None)

    def _on_message_delta(
        self, payload: dict[str, Any], origin: Frame | None, events: list[Event], data: bytes
    ) -> None:
        delta = payload.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        self._ensure_started(events)
        stop, sequence = delta.get("stop_reason"), delta.get("stop_sequence")
        if isinstance(stop, str) and stop:
            self._stop = stop
            # A refusal discards what is half sent. Else they are whole, and only their stops are missing.
            self._close_all(events, complete=stop != "refusal")
        if isinstance(sequence, str):
            self._stop_sequence = sequence
        for found in (extras(delta, _STOP_FIELDS), extras(payload, _MESSAGE_DELTA_FIELDS)):
            self._stop_extras |= (found or {}).get(VENDOR, {})
        usage = self._tally.add(payload.get("usage"))
        if usage is not None:
            events.append(ev.UsageReport(usage, origin))
        else:
            events.append(ev.Opaque(vendor=self._vendor, name="message_delta", origin=origin))
        self._delta_told = origin is not None

    def _on_message_stop(self, payload: dict[str, Any], origin: Frame | None, events: list[Event], data: bytes) -> None:
        self._ensure_started(events)
        self._close_all(events)
        events.append(
            ev.Finish(
                reason=read_stop(self._stop),
                raw=self._stop,
                stop_sequence=self._stop_sequence,
                extensions={self._vendor: self._stop_extras} if self._stop_extras else None,
            )
        )
        events.append(
            ev.End(
                usage=self._tally.total(),
                extensions=extras(payload, ("type",), self._vendor),
                origin=origin if self._delta_told else None,
            )
        )
        self._end()

    def _on_error(self, payload: dict[str, Any], origin: Frame | None, events: list[Event], data: bytes) -> None:
        events.append(ev.Error(error_in(payload, provider=self._provider), origin))
        self._end()

    _Step = Callable[["AnthropicStreamReader", dict[str, Any], Frame | None, list[Event], bytes], None]
    _STEPS: ClassVar[dict[str, _Step]] = {
        "message_start": _on_message_start,
        "content_block_start": _on_block_start,
        "content_block_delta": _on_block_delta,
        "content_block_stop": _on_block_stop,
        "message_delta": _on_message_delta,
        "message_stop": _on_message_stop,
        "error": _on_error,
    }

    def _ensure_started(self, events: list[Event]) -> None:
        if self._start is None:
            self._start = {}
            events.append(ev.Start())

    def _begin(
        self,
        index: int,
        start: BlockStart,
        deltas: list[Event],
        held: str,
        origin: Frame | None,
        events: list[Event],
    ) -> None:
        start.block = self._next
        start.origin = origin
        events.append(start)
        for event in deltas:
            event.block = start.block  # type: ignore[attr-defined]  # deltas have it
            event.origin = origin  # type: ignore[attr-defined]
            events.append(event)
        self._open[index] = _Open(start.block, start.type, passes=origin is not None, held=held)
        self._next += 1

    def _open_late(self, index: int, kind: BlockKind, name: str, events: list[Event]) -> _Open:
        """A block whose start never came, or which goes on as another kind."""
        if kind is BlockKind.TOOL_CALL:
            raise ProtocolError(f"{name} for block {index}, which no content_block_start opened as a tool call")
        self._ensure_started(events)
        if index in self._open:
            self._close(index, events)
        vendor = self._vendor if kind is BlockKind.REASONING else ""
        self._begin(index, BlockStart(block=0, type=kind, vendor=vendor), [], "", None, events)
        return self._open[index]

    def _close(self, index: int, events: list[Event], origin: Frame | None = None, *, complete: bool = True) -> None:
        open_ = self._open.pop(index)
        if open_.held:
            events.append(ev.ToolDelta(open_.block, open_.held, origin))
        elif open_.fragments and complete:
            complete = _whole("".join(open_.fragments))
        events.append(ev.BlockStop(open_.block, complete, origin))
        if open_.block == self._block:
            self._prefix = _UNLEARNED

    def _close_all(self, events: list[Event], *, complete: bool = True) -> None:
        for index in list(self._open):
            self._close(index, events, complete=complete)

    def _opaque_delta(
        self, block: int, name: str, delta: dict[str, Any], origin: Frame | None, events: list[Event]
    ) -> None:
        """An event a field: the first carries the delta, the others' payload is empty (it has been told)."""
        payload = delta
        for source, target in _OPAQUE_FIELDS.get(name, ()):
            text = delta.get(source)
            if isinstance(text, str):
                events.append(ev.OpaqueDelta(block, payload, target, text, origin))
                payload = {}
        if payload:
            events.append(ev.OpaqueDelta(block, payload, origin=origin))

    def _learn(
        self, data: bytes, payload: dict[str, Any], delta: dict[str, Any], field: str, open_: _Open, make: _Make
    ) -> None:
        if len(payload) != 3 or len(delta) != 2:
            return
        found = _FIELD[field].search(data)
        if found is None:
            return
        prefix = data[: found.end()]
        try:
            probe = _OBJECT.decode(prefix + b'"}}')
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        if probe != {**payload, "delta": {**delta, field: ""}}:
            return
        self._prefix = prefix
        self._quote = len(prefix) - 1
        self._make = make
        self._block = open_.block
        self._fragments = open_.fragments
        self._pass_learned = open_.passes

    def _end(self) -> None:
        self._ended = True
        self._prefix = _UNLEARNED


_FIELD = {field: re.compile(rb'"%s"\s*:\s*"' % field.encode()) for _, field, _, _ in _DELTAS.values()}


def _named(frame: Frame, name: str) -> Frame:
    """The frame with the event name that Anthropic's clients dispatch on (servers that leave it out, NDJSON)."""
    return frame if frame.event == name else Frame(frame.data, name, frame.id)


def _object(payload: dict[str, Any], field: str, what: str) -> dict[str, Any]:
    value = payload.get(field)
    if not isinstance(value, dict):
        raise ProtocolError(f"{what}.{field} is not an object")
    return value


def _index(payload: dict[str, Any]) -> int:
    index = payload.get("index")
    if isinstance(index, bool) or not isinstance(index, int) or index < 0:
        raise ProtocolError(f"{payload.get('type')}.index is not a number from 0")
    return index


def _whole(arguments: str) -> bool:
    """Whether a call's arguments are a whole JSON text: else the answer ended inside them."""
    return not arguments or json_value(arguments) is not None
