"""Reading a Responses stream: `ResponsesStreamReader`. Its whole body is the last event's response.

The rule: an item is known by its `output_index` (ids change on the way at some servers), the JSON's own `type` decides,
and response.completed, .incomplete or .failed alone end the stream. What the deltas left out is taken from the events that
say it whole, and items that had no events of their own from the last response, each once. Work of the provider's own tools
is progress while it goes on, and an opaque part when it is done; a generated image is media.

A frame stands for its events (`origin`) always: where caller and provider both speak this format nothing is renumbered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headrace.formats.base import FrameReader, ReaderOptions
from headrace.formats.json import decode_payload
from headrace.formats.openai_chat.errors import error_info
from headrace.formats.sealing import unseal
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.errors import ErrorCode, ErrorInfo, ProtocolError
from headrace.model.events import BlockKind, BlockStart, Event

from .citations import read_annotation
from .custom import CLOSING, MARK, OPENING, escaped
from .words import OWN, REDACTED, VENDOR, read_stop, read_usage

_OBJECT = msgspec.json.Decoder(dict[str, Any])
_TERMINAL = {"response.completed": "completed", "response.incomplete": "incomplete", "response.failed": "failed"}
_QUIET = frozenset({"response.created", "response.in_progress", "response.queued"})
_NAMED = frozenset({"service_tier"})
"""Fields of a response that are worth passing on to others."""
_MAX_INDEX = 10_000


class _Delta(msgspec.Struct):
    type: str
    delta: str
    output_index: int = 0
    content_index: int = 0
    summary_index: int = 0
    logprobs: list[Any] | None = None


_DELTA = msgspec.json.Decoder(_Delta)

_DELTAS: dict[str, BlockKind] = {
    "response.output_text.delta": BlockKind.TEXT,
    "response.refusal.delta": BlockKind.REFUSAL,
    "response.reasoning_summary_text.delta": BlockKind.REASONING,
    "response.reasoning_text.delta": BlockKind.REASONING,
    "response.function_call_arguments.delta": BlockKind.TOOL_CALL,
    "response.custom_tool_call_input.delta": BlockKind.TOOL_CALL,
}

_PARTS: dict[str, tuple[BlockKind, str]] = {
    # type of a message's part: (kind of block, field of its text)
    "output_text": (BlockKind.TEXT, "text"),
    "refusal": (BlockKind.REFUSAL, "refusal"),
}

_CALLS: dict[str, str] = {"function_call": "arguments", "custom_tool_call": "input"}
"""Type of an item that is a call of the caller's tool -> the field of its arguments."""


class _Open:
    """A block of an item. `said`: characters that its deltas have brought; `weighed`: whether log probabilities came, too."""

    __slots__ = ("block", "cited", "kind", "said", "section", "weighed")

    def __init__(self, block: int, kind: BlockKind) -> None:
        self.block = block
        self.kind = kind
        self.said = 0
        self.weighed = False
        self.cited = 0
        self.section: tuple[str, int] | None = None
        """Of reasoning: which of its summaries or texts came last."""


class _Item:
    __slots__ = ("custom", "done", "open", "parts", "type")

    def __init__(self, type: str) -> None:
        self.type = type
        self.custom = type == "custom_tool_call"
        self.done = False
        self.parts: dict[int, _Open] = {}
        """Blocks by content index; calls and reasoning have one, at 0."""
        self.open: set[int] = set()


class ResponsesStreamReader(FrameReader):
    """Frames of `/v1/responses` with `stream: true` -> events."""

    __slots__ = (
        "_called",
        "_ended",
        "_items",
        "_next",
        "_passthrough",
        "_provider",
        "_refused",
        "_started",
        "_vendor",
    )

    def __init__(self, options: ReaderOptions) -> None:
        self._provider = options.provider
        self._vendor = options.vendor or VENDOR
        self._passthrough = options.passthrough
        self._items: dict[int, _Item] = {}
        self._next = 0
        self._called = False
        self._refused = False
        self._started = False
        self._ended = False

    def read_frame(self, frame: Frame, events: list[Event]) -> None:
        """Append the events of one frame. Raises ProtocolError, after what of the frame could be read."""
        if self._ended:
            return
        made: list[Event] = []
        try:
            if not self._read_delta(frame, made):
                self._read_any(frame, made)
        finally:  # what was told before something turned out to be wrong has changed our state: it counts
            if self._passthrough:
                for event in made:
                    event.origin = frame  # type: ignore[attr-defined]  # every event has one
            events += made

    def eof(self, leftover: bytes = b"") -> list[Event]:
        """One Error where no terminal event has come: the one that `leftover` tells, or that the stream was cut."""
        if self._ended:
            return []
        self._ended = True
        rest = leftover.strip().removeprefix(b"data:").strip()
        if rest:
            try:
                payload = _OBJECT.decode(rest)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                payload = {}
            if payload.get("error"):
                return [ev.Error(error_info(payload["error"], provider=self._provider or None))]
        who = self._provider or "The provider"
        message = f"{who} closed the stream before response.completed: the answer is cut off"
        return [ev.Error(self._unavailable(message, "upstream_truncated"))]

    def read_body(self, body: dict[str, Any]) -> list[Event]:
        """The events of a whole response. Raises ProtocolError."""
        events: list[Event] = []
        status = body.get("status")
        if status not in ("completed", "incomplete", "failed"):
            raise ProtocolError("The response's status is neither completed, incomplete nor failed")
        self._start(body, events)
        self._finish(status, body, events)
        return events

    # --- deltas -----------------------------------------------------------------------------------------------------

    def _read_delta(self, frame: Frame, events: list[Event]) -> bool:
        """Whether the frame was a piece of a block: what streams mostly hold, decoded without its other fields."""
        if b'.delta"' not in frame.data[:200]:
            return False
        try:
            delta = _DELTA.decode(frame.data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False
        kind = _DELTAS.get(delta.type)
        item = self._items.get(delta.output_index)
        if kind is None or item is None:
            return False
        position = delta.content_index if kind in (BlockKind.TEXT, BlockKind.REFUSAL) else 0
        open_ = item.parts.get(position)
        if open_ is None or open_.kind is not kind or position not in item.open:
            return False
        text = delta.delta
        if kind is BlockKind.REASONING:
            place = (
                ("text", delta.content_index) if "reasoning_text" in delta.type else ("summary", delta.summary_index)
            )
            self._reason(open_, place, text, events)
        elif kind is BlockKind.TEXT:
            open_.said += len(text)
            open_.weighed = open_.weighed or bool(delta.logprobs)
            events.append(ev.TextDelta(open_.block, text, delta.logprobs or None))
        elif kind is BlockKind.REFUSAL:
            open_.said += len(text)
            open_.weighed = open_.weighed or bool(delta.logprobs)
            events.append(ev.RefusalDelta(open_.block, text, delta.logprobs or None))
        else:
            self._argue(item, open_, text, events)
        return True

    def _argue(self, item: _Item, open_: _Open, text: str, events: list[Event]) -> None:
        if not text:
            return
        if item.custom:
            opening = "" if open_.said else OPENING
            events.append(ev.ToolDelta(open_.block, opening + escaped(text)))
        else:
            events.append(ev.ToolDelta(open_.block, text))
        open_.said += len(text)

    def _reason(self, open_: _Open, section: tuple[str, int], text: str, events: list[Event]) -> None:
        """Sections of an item are paragraphs of one trace."""
        if not text:
            return
        if open_.section is not None and open_.section != section:
            text = "\n\n" + text
        open_.section = section
        open_.said += len(text)
        events.append(ev.ReasoningDelta(open_.block, text))

    # --- all other events ---------------------------------------------------------------------------------------------

    def _read_any(self, frame: Frame, events: list[Event]) -> None:
        if not frame.data.strip() or frame.data == b"[DONE]":  # a sentinel of other formats
            events.append(ev.Opaque(vendor=self._vendor, name="end marker"))
            return
        payload = decode_payload(frame.data, _OBJECT, "An event of the stream")
        name = payload.get("type")
        if not isinstance(name, str) or not name:
            name = "error" if payload.get("error") else frame.event
            if not name:
                raise ProtocolError("An event of the stream has no type")
        if name == "error":
            self._fail(payload, events)
            return
        response = payload.get("response")
        if name in _TERMINAL:
            body = response if isinstance(response, dict) else {}
            self._start(body, events)
            self._finish(_TERMINAL[name], body, events)
            return
        if name in _QUIET:
            if not self._start(response if isinstance(response, dict) else {}, events):
                events.append(ev.Opaque(vendor=self._vendor, name=name))
            return
        self._start({}, events)
        before = len(events)
        step = _STEPS.get(name)
        if step is not None:
            step(self, payload, events)
        elif name in _DELTAS:
            self._late_delta(name, payload, events)
        else:
            self._work(name, events)
        if len(events) == before:
            events.append(ev.Opaque(vendor=self._vendor, name=name))

    def _start(self, response: dict[str, Any], events: list[Event]) -> bool:
        """Whether the answer begins with this."""
        if self._started:
            return False
        self._started = True
        id, model, created = response.get("id"), response.get("model"), response.get("created_at")
        own = {name: response[name] for name in _NAMED if response.get(name)}
        events.append(
            ev.Start(
                id=id if isinstance(id, str) else "",
                model=model if isinstance(model, str) else "",
                created=int(created) if isinstance(created, int | float) and 0 <= created < 2**53 else 0,
                extensions={self._vendor: own} if own else None,
            )
        )
        return True

    def _item_added(self, payload: dict[str, Any], events: list[Event]) -> None:
        self._add(_index(payload), _item(payload), events)

    def _item_done(self, payload: dict[str, Any], events: list[Event]) -> None:
        self._done(_index(payload), _item(payload), events)

    def _part_added(self, payload: dict[str, Any], events: list[Event]) -> None:
        part = payload.get("part")
        kind = _PARTS.get(str(part.get("type"))) if isinstance(part, dict) else None
        if kind is not None:
            self._part(self._known(payload, "message", events), _content_index(payload), kind[0], events)

    def _text_done(self, payload: dict[str, Any], events: list[Event]) -> None:
        item = self._known(payload, "message", events)
        kind, field = _PARTS["refusal" if "refusal" in str(payload.get("type")) else "output_text"]
        open_ = self._live(item, _content_index(payload), kind, events)
        if open_ is not None:
            self._complete_text(open_, payload.get(field), events)

    def _part_done(self, payload: dict[str, Any], events: list[Event]) -> None:
        part = payload.get("part")
        if isinstance(part, dict) and str(part.get("type")) in _PARTS:
            item, index = self._known(payload, "message", events), _content_index(payload)
            self._whole_part(item, index, part, events)
            self._close(item, index, events)

    def _annotation(self, payload: dict[str, Any], events: list[Event]) -> None:
        raw = payload.get("annotation")
        if isinstance(raw, dict):
            item = self._known(payload, "message", events)
            open_ = self._live(item, _content_index(payload), BlockKind.TEXT, events)
            if open_ is not None:
                open_.cited += 1
                events.append(ev.CitationDelta(open_.block, read_annotation(raw, self._vendor)))

    def _arguments_done(self, payload: dict[str, Any], events: list[Event]) -> None:
        custom = "custom" in str(payload.get("type"))
        item = self._items.get(_index(payload))
        if item is not None and 0 in item.open and item.type in _CALLS:
            self._complete_call(item, payload.get("input" if custom else "arguments"), events)

    def _summary_done(self, payload: dict[str, Any], events: list[Event]) -> None:
        """A section whose deltas never came."""
        item = self._items.get(_index(payload))
        text = payload.get("text")
        if item is None or item.type != "reasoning" or 0 not in item.open or not isinstance(text, str):
            return
        kind = "text" if "reasoning_text" in str(payload.get("type")) else "summary"
        number = payload.get("content_index" if kind == "text" else "summary_index", 0)
        open_ = item.parts[0]
        if open_.section != (kind, number):
            self._reason(open_, (kind, number if isinstance(number, int) else 0), text, events)

    def _late_delta(self, name: str, payload: dict[str, Any], events: list[Event]) -> None:
        """A delta of something that was never added, or has stopped."""
        kind = _DELTAS[name]
        text = payload.get("delta")
        if not isinstance(text, str):
            raise ProtocolError(f"{name} has no delta")
        if kind is BlockKind.TOOL_CALL:
            item = self._items.get(_index(payload))
            if item is None:
                raise ProtocolError("Arguments came for a call that was never added: nobody could name it")
            return
        item = self._known(payload, "reasoning" if kind is BlockKind.REASONING else "message", events)
        if item.done or (item.type == "reasoning") != (kind is BlockKind.REASONING):
            return
        if kind is BlockKind.REASONING:
            if 0 in item.open:
                self._reason(item.parts[0], ("late", 0), text, events)
            return
        open_ = self._live(item, _content_index(payload), kind, events)
        if open_ is not None:
            open_.said += len(text)
            make = ev.TextDelta if kind is BlockKind.TEXT else ev.RefusalDelta
            events.append(make(open_.block, text))

    def _work(self, name: str, events: list[Event]) -> None:
        """Something a tool of the provider's does: `response.web_search_call.searching`."""
        words = name.removeprefix("response.").replace("_", " ").replace(".", ": ")
        events.append(ev.Progress(message=words))

    # --- items --------------------------------------------------------------------------------------------------------

    def _known(self, payload: dict[str, Any], type: str, events: list[Event]) -> _Item:
        """The item of this event; made, where no event has added it."""
        index = _index(payload)
        item = self._items.get(index)
        if item is None:
            item = self._add(index, {"type": type}, events)
        if (item.type == "message") != (type == "message"):
            raise ProtocolError(f"The item at output_index {index} is a {item.type[:40]}, not a {type}")
        return item

    def _add(self, index: int, raw: dict[str, Any], events: list[Event]) -> _Item:
        known = self._items.get(index)
        if known is not None:
            return known
        type = str(raw.get("type"))
        item = self._items[index] = _Item(type)
        if type in _CALLS:
            self._begin_call(index, item, raw, events)
        elif type == "reasoning":
            self._begin_reasoning(item, raw, events)
        elif type != "message":
            self._work(f"{type}: {raw.get('status') or 'in_progress'}", events)
        return item

    def _begin_call(self, index: int, item: _Item, raw: dict[str, Any], events: list[Event]) -> None:
        name = raw.get("name")
        if not isinstance(name, str) or not name:
            del self._items[index]
            raise ProtocolError(f"The call at output_index {index} has no name")
        ids = [id for id in (raw.get("call_id"), raw.get("id")) if isinstance(id, str) and id]
        self._called = True
        self._open(
            item,
            0,
            BlockStart(
                block=self._next,
                type=BlockKind.TOOL_CALL,
                id=ids[0] if ids else f"call_{index}",
                name=name,
                extensions=dict(MARK) if item.custom else None,
            ),
            events,
        )

    def _begin_reasoning(self, item: _Item, raw: dict[str, Any], events: list[Event]) -> None:
        id, sealed = raw.get("id"), raw.get("encrypted_content")
        start = BlockStart(
            block=self._next, type=BlockKind.REASONING, id=id if isinstance(id, str) else "", vendor=self._vendor
        )
        foreign = unseal(sealed) if isinstance(sealed, str) else None
        if foreign is not None and foreign.id == REDACTED:
            start.type, start.id, start.vendor, start.data = (
                BlockKind.REDACTED_REASONING,
                "",
                foreign.vendor,
                foreign.value,
            )
        elif foreign is not None:
            start.id, start.vendor = foreign.id, foreign.vendor
        self._open(item, 0, start, events)

    def _open(self, item: _Item, position: int, start: BlockStart, events: list[Event]) -> _Open:
        self._next += 1
        open_ = item.parts[position] = _Open(start.block, start.type)
        item.open.add(position)
        events.append(start)
        return open_

    def _part(self, item: _Item, index: int, kind: BlockKind, events: list[Event]) -> _Open:
        open_ = item.parts.get(index)
        if open_ is not None:
            return open_
        self._refused = self._refused or kind is BlockKind.REFUSAL
        return self._open(item, index, BlockStart(block=self._next, type=kind), events)

    def _live(self, item: _Item, index: int, kind: BlockKind, events: list[Event]) -> _Open | None:
        """The part, where it is of this kind and has not stopped."""
        open_ = self._part(item, index, kind, events)
        return open_ if open_.kind is kind and index in item.open else None

    def _close(self, item: _Item, index: int, events: list[Event], *, complete: bool = True) -> None:
        if index in item.open:
            item.open.discard(index)
            events.append(ev.BlockStop(item.parts[index].block, complete))

    def _done(self, index: int, raw: dict[str, Any], events: list[Event]) -> None:
        """An item is whole: what of it no event has told comes now."""
        item = self._add(index, raw, events)
        if item.done:
            return
        item.done = True
        complete = raw.get("status") != "incomplete"
        if item.type == "message":
            content = raw.get("content")
            for position, part in enumerate(content if isinstance(content, list) else []):
                if isinstance(part, dict):
                    self._whole_part(item, position, part, events)
            for position in sorted(item.open):
                self._close(item, position, events)
        elif item.type in _CALLS:
            self._complete_call(item, raw.get(_CALLS[item.type]), events, ended=complete)
            self._close(item, 0, events, complete=complete)
        elif item.type == "reasoning":
            self._complete_reasoning(item, raw, events)
            self._close(item, 0, events)
        elif item.type == "image_generation_call" and isinstance(raw.get("result"), str) and raw["result"]:
            self._image(item, raw, events)
        else:
            called = "server_tool_call" if item.type.endswith("_call") else "other"
            start = BlockStart(block=self._next, type=BlockKind.OPAQUE, vendor=OWN, role=called, payload=raw)
            self._open(item, 0, start, events)
            self._close(item, 0, events)

    def _whole_part(self, item: _Item, index: int, part: dict[str, Any], events: list[Event]) -> None:
        known = _PARTS.get(str(part.get("type")))
        if known is None:
            return
        open_ = self._live(item, index, known[0], events)
        if open_ is None:
            return
        tokens = part.get("logprobs")
        fresh = open_.said == 0 and not open_.weighed and isinstance(tokens, list)
        self._complete_text(open_, part.get(known[1]), events, tokens if fresh else None)
        cited = part.get("annotations")
        if isinstance(cited, list) and known[0] is BlockKind.TEXT:
            events += [
                ev.CitationDelta(open_.block, read_annotation(raw, self._vendor))
                for raw in cited[open_.cited :]
                if isinstance(raw, dict)
            ]
            open_.cited = max(open_.cited, len(cited))

    def _complete_text(self, open_: _Open, text: Any, events: list[Event], tokens: list[Any] | None = None) -> None:
        if not isinstance(text, str) or (len(text) <= open_.said and not tokens):
            return
        make = ev.TextDelta if open_.kind is BlockKind.TEXT else ev.RefusalDelta
        if open_.kind in (BlockKind.TEXT, BlockKind.REFUSAL):
            events.append(make(open_.block, text[open_.said :], tokens or None))
            open_.said = len(text)
            open_.weighed = open_.weighed or bool(tokens)

    def _complete_call(self, item: _Item, text: Any, events: list[Event], *, ended: bool = False) -> None:
        """The arguments as a whole. `ended`: nothing follows, so a custom tool's input is closed."""
        open_ = item.parts[0]
        if 0 not in item.open:
            return
        if isinstance(text, str) and len(text) > open_.said:
            self._argue(item, open_, text[open_.said :], events)
        if ended and item.custom:
            closing = CLOSING if open_.said else OPENING + CLOSING
            events.append(ev.ToolDelta(open_.block, closing))

    def _complete_reasoning(self, item: _Item, raw: dict[str, Any], events: list[Event]) -> None:
        open_ = item.parts[0]
        if open_.kind is not BlockKind.REASONING:
            return
        if not open_.said:
            for kind, field in (("summary", "summary"), ("text", "content")):
                sections = raw.get(field)
                for number, section in enumerate(sections if isinstance(sections, list) else []):
                    text = section.get("text") if isinstance(section, dict) else None
                    if isinstance(text, str):
                        self._reason(open_, (kind, number), text, events)
                if open_.said:
                    break  # the summary is of the text
        signature = raw.get("encrypted_content")
        if isinstance(signature, str) and signature:
            foreign = unseal(signature)
            value = signature if foreign is None else foreign.value
            if value:
                events.append(ev.SignatureDelta(open_.block, value))

    def _image(self, item: _Item, raw: dict[str, Any], events: list[Event]) -> None:
        kind = raw.get("output_format")
        own = {name: value for name, value in raw.items() if name not in ("result", "type", "status")}
        start = BlockStart(
            block=self._next,
            type=BlockKind.MEDIA,
            media_type=f"image/{kind if isinstance(kind, str) and kind else 'png'}",
            extensions={OWN: own} if own else None,
        )
        open_ = self._open(item, 0, start, events)
        events.append(ev.MediaDelta(open_.block, raw["result"]))
        self._close(item, 0, events)

    # --- how a stream ends ----------------------------------------------------------------------------------------------

    def _finish(self, status: str, response: dict[str, Any], events: list[Event]) -> None:
        usage = read_usage(response.get("usage"), self._vendor)
        if status == "failed":
            if usage is not None:
                events.append(ev.UsageReport(usage))
            self._fail({"error": response.get("error") or "The response failed"}, events)
            return
        output = response.get("output")
        for index, raw in enumerate(output if isinstance(output, list) else []):
            if isinstance(raw, dict):
                self._done(index, raw, events)
        for item in self._items.values():
            for position in sorted(item.open):
                self._close(item, position, events, complete=item.type not in _CALLS)
        details = response.get("incomplete_details")
        said = details.get("reason") if isinstance(details, dict) else None
        incomplete = (said if isinstance(said, str) else "unknown") if status == "incomplete" else None
        events.append(
            ev.Finish(
                reason=read_stop(incomplete, calls=self._called, refused=self._refused),
                raw=incomplete or status,
            )
        )
        events.append(ev.End(usage=usage))
        self._ended = True

    def _fail(self, payload: dict[str, Any], events: list[Event]) -> None:
        """An `error` event (flat or nested), or the error of a failed response."""
        error = payload.get("error") or {name: value for name, value in payload.items() if name != "sequence_number"}
        if isinstance(error, dict) and error.get("type") == "error":
            error = {name: value for name, value in error.items() if name != "type"}
        events.append(ev.Error(error_info(error, provider=self._provider or None)))
        self._ended = True

    def _unavailable(self, message: str, type: str) -> ErrorInfo:
        code = ErrorCode.PROVIDER_UNAVAILABLE
        return ErrorInfo(code=code, message=message, type=type, provider=self._provider or None)


_Step = Callable[[ResponsesStreamReader, dict[str, Any], list[Event]], None]

_STEPS: dict[str, _Step] = {
    "response.output_item.added": ResponsesStreamReader._item_added,
    "response.output_item.done": ResponsesStreamReader._item_done,
    "response.content_part.added": ResponsesStreamReader._part_added,
    "response.content_part.done": ResponsesStreamReader._part_done,
    "response.output_text.done": ResponsesStreamReader._text_done,
    "response.refusal.done": ResponsesStreamReader._text_done,
    "response.output_text.annotation.added": ResponsesStreamReader._annotation,
    "response.function_call_arguments.done": ResponsesStreamReader._arguments_done,
    "response.custom_tool_call_input.done": ResponsesStreamReader._arguments_done,
    "response.reasoning_summary_text.done": ResponsesStreamReader._summary_done,
    "response.reasoning_text.done": ResponsesStreamReader._summary_done,
    "response.reasoning_summary_part.added": lambda *_: None,
    "response.reasoning_summary_part.done": lambda *_: None,
}


def _index(payload: dict[str, Any]) -> int:
    index = payload.get("output_index", 0)
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < _MAX_INDEX:
        raise ProtocolError("An event's output_index is not a sensible number")
    return index


def _content_index(payload: dict[str, Any]) -> int:
    index = payload.get("content_index", 0)
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < _MAX_INDEX:
        raise ProtocolError("An event's content_index is not a sensible number")
    return index


def _item(payload: dict[str, Any]) -> dict[str, Any]:
    item = payload.get("item")
    if not isinstance(item, dict) or not isinstance(item.get("type"), str):
        raise ProtocolError("An event's item is not an object with a type")
    return item
