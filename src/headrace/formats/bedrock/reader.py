"""Reading a ConverseStream stream (DOSSIER 7.2): `BedrockStreamReader`.

The rule: a message's name decides, and what it holds where a framing carries no names; every payload's padding (`p`) is
ignored. Text and reasoning have no start: the first delta of a new index opens its block, and a delta of another kind
opens the next one. Blocks whose stop never comes are closed when the message stops.

The end is `metadata` after `messageStop`, or EOF after it: usage comes last, but not with every model. Where `metadata`
came first, `messageStop` is the end. EOF before `messageStop` is a stream that was cut, whatever came before.

A frame stands for its events (`origin`) while its block's index is the block's number in our count and no other block is
open.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from headrace.formats.anthropic.blocks import json_value
from headrace.formats.base import FrameReader, ReaderOptions
from headrace.formats.json import decode_payload, encode
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.content import Citation
from headrace.model.errors import ErrorCode, ErrorInfo, ProtocolError
from headrace.model.events import BlockKind, BlockStart, Event
from headrace.model.usage import Usage

from .errors import error_frame, error_in_body, is_error
from .sealing import streamed_redacted
from .usage import read_usage
from .words import VENDOR, extended, media_type, read_stop


class _ToolUse(msgspec.Struct, rename="camel"):
    tool_use_id: str
    name: str
    type: str | None = None


class _Image(msgspec.Struct):
    format: str


class _Beginning(msgspec.Struct, rename="camel"):
    tool_use: _ToolUse | None = None
    tool_result: dict[str, Any] | None = None
    image: _Image | None = None


class _Start(msgspec.Struct, rename="camel"):
    content_block_index: int
    start: _Beginning = msgspec.field(default_factory=_Beginning)


class _Input(msgspec.Struct):
    input: str | None = None


class _Reasoning(msgspec.Struct, rename="camel"):
    text: str | None = None
    signature: str | None = None
    redacted_content: str | None = None


class _Source(msgspec.Struct):
    bytes: str | None = None


class _ImagePart(msgspec.Struct):
    source: _Source = msgspec.field(default_factory=_Source)


class _Change(msgspec.Struct, rename="camel"):
    text: str | None = None
    tool_use: _Input | None = None
    reasoning_content: _Reasoning | None = None
    citation: dict[str, Any] | None = None
    tool_result: list[dict[str, Any]] | None = None
    image: _ImagePart | None = None


class _Delta(msgspec.Struct, rename="camel"):
    content_block_index: int
    delta: _Change


class _Stop(msgspec.Struct, rename="camel"):
    content_block_index: int


class _MessageStop(msgspec.Struct, rename="camel"):
    stop_reason: str | None = None
    additional_model_response_fields: Any = None


_decode_delta = msgspec.json.Decoder(_Delta)
_decode_object = msgspec.json.Decoder(dict[str, Any])


class _Open:
    """A block between its start and its stop."""

    __slots__ = ("block", "fragments", "kind", "passes")

    def __init__(self, block: int, kind: BlockKind, *, passes: bool) -> None:
        self.block = block
        self.kind = kind
        self.passes = passes
        """Whether its frames may stand for its events."""
        self.fragments: list[str] | None = [] if kind is BlockKind.TOOL_CALL else None


class BedrockStreamReader(FrameReader):
    """Frames of `/model/{model}/converse-stream` -> events.

    Quirk `input_includes_cache`: the model counts cached tokens in inputTokens, as OpenAI does.
    """

    __slots__ = (
        "_cache_included",
        "_ended",
        "_metadata",
        "_next",
        "_open",
        "_passthrough",
        "_provider",
        "_started",
        "_stopped",
        "_usage",
        "_vendor",
    )

    def __init__(self, options: ReaderOptions) -> None:
        self._provider = options.provider
        self._passthrough = options.passthrough
        self._vendor = options.vendor or VENDOR
        self._cache_included = bool(options.quirks.get("input_includes_cache"))
        self._open: dict[int, _Open] = {}  # by the provider's index
        self._next = 0
        self._usage: Usage | None = None
        self._metadata: dict[str, Any] | None = None  # what it says beside usage
        self._started = False
        self._stopped = False
        self._ended = False

    def read_frame(self, frame: Frame, events: list[Event]) -> None:
        """Append the events of one frame. Raises ProtocolError."""
        if self._ended:
            return
        name = frame.event
        if name == "contentBlockDelta":
            change = decode_payload(frame.data, _decode_delta, "A contentBlockDelta")
            self._on_delta(change, frame if self._passthrough else None, events)
        elif is_error(name):
            self._fail(error_frame(frame, self._provider), frame if self._passthrough else None, events)
        else:
            self._read_any(frame, events)

    def eof(self, leftover: bytes = b"") -> list[Event]:
        """The end, where messageStop has come; else one Error: the one that `leftover` tells, or that the stream was cut."""
        if self._ended:
            return []
        if self._stopped:
            events: list[Event] = []
            self._end(None, events)
            return events
        self._ended = True
        if leftover:
            try:
                told = error_in_body(_decode_object.decode(leftover), self._provider)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                told = None
            if told is not None:
                return [ev.Error(told)]
        who = self._provider or "The provider"
        return [
            ev.Error(
                ErrorInfo(
                    code=ErrorCode.PROVIDER_UNAVAILABLE,
                    type="upstream_truncated",
                    message=f"{who} closed the stream before messageStop: the answer is cut off",
                    provider=self._provider or None,
                )
            )
        ]

    def _read_any(self, frame: Frame, events: list[Event]) -> None:
        payload = decode_payload(frame.data, _decode_object, "A message of the stream")
        origin = frame if self._passthrough else None
        name = frame.event
        if not name:
            name, inner = _named(payload)
            if origin is not None:  # clients dispatch on the name
                origin = Frame(frame.data if inner is payload else encode(inner), name) if name else None
            payload = inner
        told = error_in_body(payload, self._provider) if not name else None
        if told is not None:
            self._fail(told, None, events)
            return
        step = self._STEPS.get(name)
        if step is None:
            events.append(ev.Opaque(vendor=self._vendor, name=name, content=bool(name), origin=origin))
        else:
            step(self, payload, origin, events)

    # One method a message. Each checks first and changes state and `events` only then.

    def _on_message_start(self, payload: dict[str, Any], origin: Frame | None, events: list[Event]) -> None:
        if self._started:
            events.append(ev.Opaque(vendor=self._vendor, name="messageStart"))
        else:
            self._started = True
            events.append(ev.Start(origin=origin))

    def _on_block_start(self, payload: dict[str, Any], origin: Frame | None, events: list[Event]) -> None:
        begun = _as(payload, _Start, "contentBlockStart")
        index, said = begun.content_block_index, begun.start
        if said.tool_use is not None and said.tool_use.type is None:
            start = BlockStart(block=0, type=BlockKind.TOOL_CALL, id=said.tool_use.tool_use_id, name=said.tool_use.name)
        elif said.tool_use is not None or said.tool_result is not None:
            role = "server_tool_call" if said.tool_use is not None else "server_tool_result"
            held = {name: payload["start"][name] for name in ("toolUse", "toolResult") if payload["start"].get(name)}
            start = BlockStart(block=0, type=BlockKind.OPAQUE, vendor=self._vendor, role=role, payload=held)
        elif said.image is not None:
            mime = media_type("image", said.image.format)
            start = BlockStart(block=0, type=BlockKind.MEDIA, media_type=mime)
        else:  # `start: {}`, of text: its deltas say what it is
            self._ensure_started(events)
            events.append(ev.Opaque(vendor=self._vendor, name="contentBlockStart", origin=origin))
            return
        self._begin(index, start, origin, events)

    def _on_named_delta(self, payload: dict[str, Any], origin: Frame | None, events: list[Event]) -> None:
        self._on_delta(_as(payload, _Delta, "contentBlockDelta"), origin, events)

    def _on_delta(self, told: _Delta, origin: Frame | None, events: list[Event]) -> None:
        index, delta = told.content_block_index, told.delta
        open_ = self._open.get(index)
        if delta.text is not None:
            if open_ is None or open_.kind is not BlockKind.TEXT:
                open_ = self._begin(index, BlockStart(block=0, type=BlockKind.TEXT), origin, events)
            events.append(ev.TextDelta(open_.block, delta.text, origin=origin if open_.passes else None))
        elif delta.tool_use is not None:
            self._tool_input(open_, delta.tool_use.input or "", origin, events)
        elif delta.reasoning_content is not None:
            self._reasoning(index, open_, delta.reasoning_content, origin, events)
        elif delta.citation is not None:
            if open_ is None or open_.kind is not BlockKind.TEXT:
                open_ = self._begin(index, BlockStart(block=0, type=BlockKind.TEXT), origin, events)
            cited = Citation(self._vendor, delta.citation)
            events.append(ev.CitationDelta(open_.block, cited, origin=origin if open_.passes else None))
        elif delta.tool_result is not None and open_ is not None and open_.kind is BlockKind.OPAQUE:
            # One JSON list a line, so that the parts of a whole block can be told apart again.
            held, text = {"toolResult": delta.tool_result}, encode(delta.tool_result).decode() + "\n"
            events.append(ev.OpaqueDelta(open_.block, held, "content", text, origin if open_.passes else None))
        elif delta.image is not None and open_ is not None and open_.kind is BlockKind.MEDIA:
            data = delta.image.source.bytes or ""
            events.append(ev.MediaDelta(open_.block, data, origin=origin if open_.passes else None))
        else:
            self._ensure_started(events)
            events.append(ev.Opaque(vendor=self._vendor, name="contentBlockDelta", content=True, origin=origin))

    def _tool_input(self, open_: _Open | None, text: str, origin: Frame | None, events: list[Event]) -> None:
        if open_ is None or open_.kind not in (BlockKind.TOOL_CALL, BlockKind.OPAQUE):
            raise ProtocolError("toolUse.input for a block that no contentBlockStart opened as a tool call")
        if not open_.passes:
            origin = None
        if open_.kind is BlockKind.OPAQUE:
            events.append(ev.OpaqueDelta(open_.block, {"toolUse": {"input": text}}, "input", text, origin))
            return
        if open_.fragments is not None:
            open_.fragments.append(text)
        events.append(ev.ToolDelta(open_.block, text, origin))

    def _reasoning(
        self, index: int, open_: _Open | None, said: _Reasoning, origin: Frame | None, events: list[Event]
    ) -> None:
        if said.redacted_content is not None:
            data, kind = streamed_redacted(said.redacted_content, self._vendor), BlockKind.REDACTED_REASONING
            self._begin(index, BlockStart(block=0, type=kind, data=data, vendor=self._vendor), origin, events)
            return
        if open_ is None or open_.kind is not BlockKind.REASONING:
            start = BlockStart(block=0, type=BlockKind.REASONING, vendor=self._vendor)
            open_ = self._begin(index, start, origin, events)
        if not open_.passes:
            origin = None
        if said.text is not None:
            events.append(ev.ReasoningDelta(open_.block, said.text, origin))
        if said.signature is not None:
            events.append(ev.SignatureDelta(open_.block, said.signature, origin))

    def _on_block_stop(self, payload: dict[str, Any], origin: Frame | None, events: list[Event]) -> None:
        index = _as(payload, _Stop, "contentBlockStop").content_block_index
        open_ = self._open.get(index)
        if open_ is None:  # nothing to say: what it closes was never opened, or was empty
            self._ensure_started(events)
            events.append(ev.Opaque(vendor=self._vendor, name="contentBlockStop", origin=origin))
        else:
            self._close(index, events, origin if open_.passes else None)

    def _on_message_stop(self, payload: dict[str, Any], origin: Frame | None, events: list[Event]) -> None:
        told = _as(payload, _MessageStop, "messageStop")
        if self._stopped:
            events.append(ev.Opaque(vendor=self._vendor, name="messageStop"))
            return
        self._ensure_started(events)
        for index in list(self._open):
            self._close(index, events)
        self._stopped = True
        more = {"additionalModelResponseFields": told.additional_model_response_fields}
        events.append(
            ev.Finish(
                reason=read_stop(told.stop_reason),
                raw=told.stop_reason,
                extensions=extended(self._vendor, more),
                origin=origin,
            )
        )
        if self._metadata is not None:
            self._end(origin, events)

    def _on_metadata(self, payload: dict[str, Any], origin: Frame | None, events: list[Event]) -> None:
        self._ensure_started(events)
        usage = read_usage(payload.get("usage"), self._vendor, cache_included=self._cache_included)
        if usage is not None:
            self._usage = usage if self._usage is None else self._usage.merge(usage)
            events.append(ev.UsageReport(self._usage, origin))
        self._metadata = {name: value for name, value in payload.items() if name not in ("usage", "p")}
        if self._stopped:
            self._end(origin, events)
        elif usage is None:
            events.append(ev.Opaque(vendor=self._vendor, name="metadata", origin=origin))

    _Step = Callable[["BedrockStreamReader", dict[str, Any], Frame | None, list[Event]], None]
    _STEPS: ClassVar[dict[str, _Step]] = {
        "messageStart": _on_message_start,
        "contentBlockStart": _on_block_start,
        "contentBlockDelta": _on_named_delta,
        "contentBlockStop": _on_block_stop,
        "messageStop": _on_message_stop,
        "metadata": _on_metadata,
    }

    def _ensure_started(self, events: list[Event]) -> None:
        if not self._started:
            self._started = True
            events.append(ev.Start())

    def _begin(self, index: int, start: BlockStart, origin: Frame | None, events: list[Event]) -> _Open:
        if index < 0:
            raise ProtocolError("contentBlockIndex is below 0")
        if self._stopped:
            raise ProtocolError("A block begins after messageStop")
        self._ensure_started(events)
        if index in self._open:
            self._close(index, events)
        if index != self._next or self._open:
            origin = None
        start.block = self._next
        start.origin = origin
        events.append(start)
        self._open[index] = open_ = _Open(start.block, start.type, passes=origin is not None)
        self._next += 1
        return open_

    def _close(self, index: int, events: list[Event], origin: Frame | None = None) -> None:
        open_ = self._open.pop(index)
        complete = not open_.fragments or _whole("".join(open_.fragments))
        events.append(ev.BlockStop(open_.block, complete, origin))

    def _fail(self, info: ErrorInfo, origin: Frame | None, events: list[Event]) -> None:
        self._ended = True
        events.append(ev.Error(info, origin))

    def _end(self, origin: Frame | None, events: list[Event]) -> None:
        self._ended = True
        more = extended(self._vendor, self._metadata or {})
        events.append(ev.End(usage=self._usage, extensions=more, origin=origin))


def _as(payload: dict[str, Any], type: Any, name: str) -> Any:
    try:
        return msgspec.convert(payload, type)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"{name}: {error}") from None


_SIGNS = (
    # what a payload without a name shows, the first that fits
    ("contentBlockStart", "start"),
    ("contentBlockDelta", "delta"),
    ("contentBlockStop", "contentBlockIndex"),
    ("messageStop", "stopReason"),
    ("metadata", "usage"),
    ("metadata", "metrics"),
    ("messageStart", "role"),
)


def _named(payload: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The message's name and content, where neither framing nor server put a name on it: a union member as its only
    field, or what its fields show; "" where they show nothing."""
    for name in BedrockStreamReader._STEPS:
        inner = payload.get(name)
        if isinstance(inner, dict):
            return name, inner
    return next((name for name, sign in _SIGNS if sign in payload), ""), payload


def _whole(arguments: str) -> bool:
    """Whether a call's arguments are a whole JSON text: else the answer ended inside them."""
    return json_value(arguments) is not None
