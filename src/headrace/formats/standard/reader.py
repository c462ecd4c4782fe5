"""`StandardReader`: what the stream readers of both formats share.

The rule: events come out exactly as the grammar wants them, whatever a provider leaves out: blocks are opened by the first
word of them, numbered densely, and closed at the latest when the stream ends. Everything that our own writers put beside
the content is read back; what nobody knows is ignored (and, in passthrough, travels on in its frame).

Subclasses say how frames look, which block a frame belongs to, and when blocks stop.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from headrace.formats.base import FrameReader, ReaderOptions
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.content import Citation, Extensions
from headrace.model.errors import ErrorCode, ErrorInfo
from headrace.model.events import HOLDS_TEXT, BlockKind, Event
from headrace.model.usage import Usage

from .extensions import WireExtensions, find, from_wire, without
from .template import Template

_KINDS = {kind.value: kind for kind in BlockKind}


class OpenBlock:
    """What a reader knows of a block that has not stopped."""

    __slots__ = ("choice", "kind", "number", "said", "vendor")

    def __init__(self, number: int, kind: BlockKind, choice: int, vendor: str) -> None:
        self.number = number
        self.kind = kind
        self.choice = choice
        self.vendor = vendor
        self.said: Extensions | None = None
        """What vendors said of a text along the way; it is told with its end."""


class StandardReader(FrameReader):
    """Base of both StreamReaders."""

    vendor: ClassVar[str]
    text_type: ClassVar[str]
    """Type of the frames that carry plain text."""

    def __init__(self, options: ReaderOptions) -> None:
        self.options = options
        self.name = options.provider or "The provider"
        self.started = False
        self.ended = False
        self.usage: Usage | None = None
        self.due = 0
        self.open: dict[int, OpenBlock] = {}
        self._blocks = 0
        self.template = Template()
        self.hot = -1
        """Number of the block that frames of the template belong to; -1: the template must not be used."""
        self._passthrough = options.passthrough

    def read_frame(self, frame: Frame, events: list[Event]) -> None:
        if self.hot >= 0:
            text = self.template.match(frame.data, self.due)
            if text is not None:
                self.due += 1
                origin = _origin(frame, self.text_type) if self._passthrough else None
                events.append(ev.TextDelta(self.hot, text, None, origin))
                return
        if self.ended:
            return
        made: list[Event] = []
        name = self.read_slowly(frame, made)
        if self.ended:
            self.hot = -1
        if self._passthrough:
            origin = _origin(frame, name)
            if not made:
                made.append(ev.Opaque(vendor=self.vendor, name=name))
            for event in made:
                event.origin = origin  # type: ignore[attr-defined]  # every event but their base has one
        events += made

    @abstractmethod
    def read_slowly(self, frame: Frame, events: list[Event]) -> str:
        """Append the events of one frame; return its type. Raises ProtocolError."""

    def eof(self, leftover: bytes = b"") -> list[Event]:
        if self.ended:
            return []
        self.ended = True
        self.hot = -1
        if leftover.lstrip().startswith(b"{"):
            info = self.read_leftover(leftover)
            if info is not None:
                return [ev.Error(info)]
        message = f"{self.name} closed the stream before its end"
        return [ev.Error(ErrorInfo(code=ErrorCode.PROVIDER_UNAVAILABLE, type="upstream_truncated", message=message))]

    @abstractmethod
    def read_leftover(self, leftover: bytes) -> ErrorInfo | None:
        """The error that a bare JSON body holds."""

    # -- for subclasses -------------------------------------------------------------------------------------------

    def merge_usage(self, usage: Usage) -> Usage:
        self.usage = usage if self.usage is None else self.usage.merge(usage)
        return self.usage

    def open_block(
        self,
        events: list[Event],
        kind: BlockKind,
        choice: int,
        *,
        part: Mapping[str, Any] | None = None,
        extensions: WireExtensions | None = None,
        id: str = "",
        name: str = "",
    ) -> OpenBlock:
        """Start the next block. With a `part`, the extensions are the block's own; else a delta's, which it opens."""
        described = part is not None
        part = part or {}
        vendor = _text(part.get("vendor"))
        start = ev.BlockStart(
            block=self._blocks,
            type=kind,
            choice=choice,
            id=id or _text(part.get("id")),
            name=name,
            media_type=_text(part.get("media_type")),
            vendor=vendor,
            role=_text(part.get("role")),
        )
        if kind is BlockKind.REDACTED_REASONING:
            for found, data in find(extensions, "redacted"):
                start.vendor, start.data = vendor or found, _text(data)
            extensions = without(extensions, "redacted")
        elif kind is BlockKind.OPAQUE:
            for found, block in find(extensions, "block"):
                start.vendor, start.payload = vendor or found, block if isinstance(block, dict) else {}
            extensions = without(extensions, "block")
        elif kind is BlockKind.REASONING and not described:
            start.vendor = next((found for found, _ in find(extensions, "signature")), "")
            extensions = without(extensions, "signature")
        elif kind in HOLDS_TEXT and not described:
            extensions = None  # `add_content` takes what is in them
        start.extensions = from_wire(extensions)
        self._blocks += 1
        block = self.open[start.block] = OpenBlock(start.block, kind, choice, start.vendor)
        events.append(start)
        return block

    def close_block(self, events: list[Event], block: OpenBlock, complete: bool = True) -> None:
        if self.hot == block.number:
            self.hot = -1
        del self.open[block.number]
        events.append(ev.BlockStop(block.number, complete, None, block.said))

    def add_content(
        self,
        events: list[Event],
        block: OpenBlock,
        text: str,
        words: Mapping[str, Any],
        extensions: WireExtensions,
        *,
        described: bool,
    ) -> None:
        """The events of one piece of content. `described`: the extensions are the block's own and said already."""
        number, kind = block.number, block.kind
        if kind is BlockKind.TEXT or kind is BlockKind.REFUSAL:
            logprobs = None
            if not described:
                if own := from_wire(without(extensions, "citation", "logprobs")):
                    block.said = {**(block.said or {}), **own}
                if kind is BlockKind.TEXT:
                    events.extend(
                        ev.CitationDelta(number, Citation(vendor, payload))
                        for vendor, payload in find(extensions, "citation")
                        if isinstance(payload, dict)
                    )
                logprobs = next((value for _, value in find(extensions, "logprobs") if isinstance(value, list)), None)
            if text or logprobs:
                delta = ev.TextDelta if kind is BlockKind.TEXT else ev.RefusalDelta
                events.append(delta(number, text, logprobs))
        elif kind is BlockKind.REASONING:
            if text:
                events.append(ev.ReasoningDelta(number, text))
            if not described:
                events.extend(
                    ev.SignatureDelta(number, signature)
                    for _, signature in find(extensions, "signature")
                    if isinstance(signature, str)
                )
        elif kind is BlockKind.MEDIA:
            media = words.get("media")
            if isinstance(media, dict):
                data, transcript, url = (_text(media.get(name)) for name in ("data", "transcript", "url"))
                own = None if described else from_wire(extensions)
                events.append(ev.MediaDelta(number, data, transcript, url, own))
        elif kind is BlockKind.OPAQUE and not described:
            append = words.get("append")
            append = append if isinstance(append, dict) else {}
            for _, payload in find(extensions, "delta"):
                if isinstance(payload, dict):
                    events.append(
                        ev.OpaqueDelta(number, payload, _text(append.get("field")), _text(append.get("text")))
                    )


def kind_of(words: Mapping[str, Any], reasoning: bool, extensions: WireExtensions) -> BlockKind:
    """Which kind of block a piece of content opens."""
    part = words.get("part")
    if isinstance(part, dict):
        kind = part.get("type")
        if isinstance(kind, str) and kind in _KINDS and kind != BlockKind.TOOL_CALL:
            return _KINDS[kind]
    if reasoning:
        redacted = any(True for _ in find(extensions, "redacted"))
        return BlockKind.REDACTED_REASONING if redacted else BlockKind.REASONING
    if words.get("refusal") is True:
        return BlockKind.REFUSAL
    return BlockKind.MEDIA if isinstance(words.get("media"), dict) else BlockKind.TEXT


def part_of(words: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The description of a block that this piece of content opens, or None."""
    part = words.get("part")
    return part if isinstance(part, dict) else None


def choice_of(words: Mapping[str, Any]) -> int:
    choice = words.get("choice")
    return choice if isinstance(choice, int) and not isinstance(choice, bool) and 0 <= choice < 2**31 else 0


def _origin(frame: Frame, name: str) -> Frame:
    """The frame as it is sent on: named by its type (some framings give none) and without its sender's id."""
    return frame if frame.id is None and frame.event == name else Frame(frame.data, name)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
