"""Reading a Cohere stream: `CohereStreamReader`. A whole body is read into the same events.

The rule: content, tool calls and citations are counted each for themselves; `message-end` ends the answer. A text stays open
beyond its end for as long as citations may come for it. The plan before tool calls is a text of its own, marked as such.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headrace.formats.base import FrameReader, ReaderOptions
from headrace.formats.json import decode_payload
from headrace.formats.openai_chat.errors import redact, shorten
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.content import Citation
from headrace.model.errors import ErrorCode, ErrorInfo, ProtocolError
from headrace.model.events import BlockKind, BlockStart, Event

from .words import FAILURES, PLAN, VENDOR, error_in, read_stop, read_usage

_OBJECT = msgspec.json.Decoder(dict[str, Any])
_MAX_INDEX = 10_000
_PLAN_INDEX = -1
"""Stands for the plan where the others have the index of their content."""
_CITED = -2
"""Stands for a text that is there for its citations alone."""


class CohereStreamReader(FrameReader):
    """Frames of `/v2/chat` with `stream: true` -> events."""

    __slots__ = (
        "_block",
        "_called",
        "_calls",
        "_content",
        "_ended",
        "_id",
        "_kind",
        "_next",
        "_passthrough",
        "_provider",
        "_started",
        "_vendor",
    )

    def __init__(self, options: ReaderOptions) -> None:
        self._provider = options.provider
        self._vendor = options.vendor or VENDOR
        self._passthrough = options.passthrough
        self._block = -1  # the block that is open and no tool call, -1 if there is none
        self._kind = BlockKind.TEXT  # of it
        self._content = _CITED  # the index of its content
        self._calls: dict[int, int] = {}  # calls under way by their index: block
        self._called = 0
        self._id = ""
        self._next = 0
        self._started = False
        self._ended = False

    def read_frame(self, frame: Frame, events: list[Event]) -> None:
        """Append the events of one frame. Raises ProtocolError, before anything has changed."""
        if self._ended:
            return
        made: list[Event] = []
        self._read(frame, made)
        if self._passthrough:
            for event in made:
                event.origin = frame  # type: ignore[attr-defined]  # every event has one
        events += made

    def eof(self, leftover: bytes = b"") -> list[Event]:
        """One Error where message-end has not come: the one that `leftover` tells, or that the stream was cut."""
        if self._ended:
            return []
        self._ended = True
        rest = leftover.strip().removeprefix(b"data:").strip()
        if rest:
            try:
                payload = _OBJECT.decode(rest)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                payload = {}
            if payload.get("message") or payload.get("error"):
                return [ev.Error(error_in(payload.get("error") or payload, provider=self._provider))]
        who = self._provider or "The provider"
        message = f"{who} closed the stream before message-end: the answer is cut off"
        return [self._failed(message, "upstream_truncated")]

    def read_body(self, body: dict[str, Any]) -> list[Event]:
        """The events of a whole answer. Raises ProtocolError."""
        events: list[Event] = []
        message = body.get("message")
        if not isinstance(message, dict):
            raise ProtocolError("The answer has no message")
        self._begin(body.get("id"), events)
        cited: dict[Any, list[dict[str, Any]]] = {}  # by the content that they refer to
        content = _dicts(message.get("content"))
        for raw in _dicts(message.get("citations")):
            where = _PLAN_INDEX if raw.get("type") == "PLAN" else raw.get("content_index")
            known = isinstance(where, int) and (where == _PLAN_INDEX or 0 <= where < len(content))
            cited.setdefault(where if known else None, []).append(raw)
        tokens = _dicts(body.get("logprobs"))
        for index, part in enumerate(content):
            self._start_content(index, part, events)
            self._tell_tokens(tokens, part, events)
            for raw in cited.pop(index, ()):
                self._cite(raw, events)
        for raw in cited.pop(None, ()):
            self._cite(raw, events)
        plan = message.get("tool_plan")
        if isinstance(plan, str) and plan:
            self._plan(plan, events)
        for raw in cited.pop(_PLAN_INDEX, ()):
            self._cite(raw, events)
        for index, call in enumerate(_dicts(message.get("tool_calls"))):
            self._call_start({"index": index, "delta": {"message": {"tool_calls": call}}}, events)
            self._call_end({"index": index}, events)
        said = {"finish_reason": body.get("finish_reason"), "usage": body.get("usage"), "error": body.get("error")}
        self._end({"delta": said}, events)
        return events

    def _tell_tokens(self, tokens: list[dict[str, Any]], part: dict[str, Any], events: list[Event]) -> None:
        """A body's log probabilities, if they are those of this text and of nothing else."""
        told = [_logprobs(item) for item in tokens]
        if told and all(told) and "".join(str(item.get("text")) for item in tokens) == part.get("text"):
            events.append(ev.TextDelta(self._block, "", [one for some in told for one in some or ()]))

    # --- events ---------------------------------------------------------------------------------------------------------

    def _read(self, frame: Frame, events: list[Event]) -> None:
        if not frame.data.strip() or frame.data == b"[DONE]":
            events.append(ev.Opaque(vendor=self._vendor, name="end marker"))
            return
        payload = decode_payload(frame.data, _OBJECT, "An event of the stream")
        name = payload.get("type")
        step = _STEPS.get(name) if isinstance(name, str) else None
        if step is None and (payload.get("error") or isinstance(payload.get("message"), str)):
            self._ended = True
            events.append(ev.Error(error_in(payload.get("error") or payload, provider=self._provider)))
            return
        if not isinstance(name, str) or not name:
            name = frame.event
            step = _STEPS.get(name)
        if not name:
            raise ProtocolError("An event of the stream has no type")
        if step is None:
            events.append(ev.Opaque(vendor=self._vendor, name=name, content=name not in _QUIET))
            return
        step(self, payload, events)
        if not events:
            events.append(ev.Opaque(vendor=self._vendor, name=name))

    # Each checks first, and changes something only then.

    def _message_start(self, payload: dict[str, Any], events: list[Event]) -> None:
        self._begin(payload.get("id"), events)

    def _begin(self, id: Any, events: list[Event]) -> None:
        if not self._started:
            self._started = True
            self._id = id if isinstance(id, str) else ""
            events.append(ev.Start(id=self._id))

    def _content_start(self, payload: dict[str, Any], events: list[Event]) -> None:
        index, content = _index(payload), _held(payload, "content")
        self._begin(None, events)
        self._start_content(index, content, events)

    def _start_content(self, index: int, content: dict[str, Any], events: list[Event]) -> None:
        thinks = content.get("type") == "thinking" or "thinking" in content
        kind = BlockKind.REASONING if thinks else BlockKind.TEXT
        self._open(kind, index, events)
        self._say(kind, content, None, events)

    def _content_delta(self, payload: dict[str, Any], events: list[Event]) -> None:
        index, content = _index(payload), _held(payload, "content")
        if self._block < 0 or self._content != index:
            self._begin(None, events)
            self._open(BlockKind.REASONING if "thinking" in content else BlockKind.TEXT, index, events)
        self._say(self._kind, content, payload.get("logprobs"), events)

    def _say(self, kind: BlockKind, content: dict[str, Any], tokens: Any, events: list[Event]) -> None:
        text = content.get("thinking" if kind is BlockKind.REASONING else "text")
        if not isinstance(text, str) or not text:
            return
        if kind is BlockKind.REASONING:
            events.append(ev.ReasoningDelta(self._block, text))
        else:
            events.append(ev.TextDelta(self._block, text, _logprobs(tokens) if tokens else None))

    def _content_end(self, payload: dict[str, Any], events: list[Event]) -> None:
        if _index(payload) == self._content and self._kind is BlockKind.REASONING:
            self._close(events)

    def _tool_plan(self, payload: dict[str, Any], events: list[Event]) -> None:
        delta = payload.get("delta")
        message = delta.get("message") if isinstance(delta, dict) else None
        plan = message.get("tool_plan") if isinstance(message, dict) else None
        if isinstance(plan, str) and plan:
            self._begin(None, events)
            self._plan(plan, events)

    def _plan(self, text: str, events: list[Event]) -> None:
        if self._block < 0 or self._content != _PLAN_INDEX:
            self._open(BlockKind.TEXT, _PLAN_INDEX, events, extensions=dict(PLAN))
        events.append(ev.TextDelta(self._block, text))

    def _call_start(self, payload: dict[str, Any], events: list[Event]) -> None:
        index, call = _index(payload), _held(payload, "tool_calls")
        function = call.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or not name:
            raise ProtocolError("A tool call has no name")
        self._begin(None, events)
        self._close(events)
        if index in self._calls:
            events.append(ev.BlockStop(self._calls[index], complete=False))
        id = call.get("id")
        if not isinstance(id, str) or not id:
            seed = "".join(c for c in self._id if c.isalnum() or c in "-_")
            id = f"call_{seed}_{self._called}" if seed else f"call_{self._called}"
        self._called += 1
        self._calls[index] = self._next
        events.append(BlockStart(block=self._next, type=BlockKind.TOOL_CALL, id=id, name=name))
        self._next += 1
        self._arguments(self._calls[index], call, events)

    def _call_delta(self, payload: dict[str, Any], events: list[Event]) -> None:
        block, call = self._calls.get(_index(payload)), _held(payload, "tool_calls")
        if block is None:
            raise ProtocolError("Arguments came for a call that was never started: nobody could name it")
        self._arguments(block, call, events)

    def _arguments(self, block: int, call: dict[str, Any], events: list[Event]) -> None:
        function = call.get("function")
        arguments = function.get("arguments") if isinstance(function, dict) else None
        if isinstance(arguments, str) and arguments:
            events.append(ev.ToolDelta(block, arguments))

    def _call_end(self, payload: dict[str, Any], events: list[Event]) -> None:
        block = self._calls.pop(_index(payload), None)
        if block is not None:
            events.append(ev.BlockStop(block))

    def _citation(self, payload: dict[str, Any], events: list[Event]) -> None:
        cited = _held(payload, "citations")
        self._begin(None, events)
        self._cite(cited, events)

    def _cite(self, raw: dict[str, Any], events: list[Event]) -> None:
        """Of the text that is open; it refers to it by offsets, wherever it stands. Thinking has no citations here."""
        if self._block >= 0 and self._kind is not BlockKind.TEXT:
            events.append(ev.Opaque(vendor=self._vendor, name="citations of thinking", content=True))
            return
        if self._block < 0:
            self._open(BlockKind.TEXT, _CITED, events)
        events.append(ev.CitationDelta(self._block, Citation(self._vendor, _told(raw))))

    def _end(self, payload: dict[str, Any], events: list[Event]) -> None:
        delta = payload.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        usage = read_usage(delta.get("usage"), self._vendor)
        raw, error = delta.get("finish_reason"), delta.get("error")
        self._begin(payload.get("id"), events)
        self._ended = True
        if (isinstance(raw, str) and raw in FAILURES) or error:
            if usage is not None:
                events.append(ev.UsageReport(usage))
            text = error if isinstance(error, str) and error else f"The answer broke off with the finish reason {raw}"
            events.append(self._failed(text, str(raw or "ERROR").lower()))
            return
        self._close(events)
        events += [ev.BlockStop(block, complete=False) for block in self._calls.values()]
        raw = raw if isinstance(raw, str) and raw else None
        events.append(ev.Finish(reason=read_stop(raw or "", called=self._called > 0), raw=raw))
        events.append(ev.End(usage=usage))

    # --- helpers --------------------------------------------------------------------------------------------------------

    def _open(
        self, kind: BlockKind, content: int, events: list[Event], *, extensions: dict[str, Any] | None = None
    ) -> None:
        """A block in place of the one that is open."""
        self._close(events)
        self._block, self._kind, self._content = self._next, kind, content
        self._next += 1
        vendor = self._vendor if kind is BlockKind.REASONING else ""
        events.append(BlockStart(block=self._block, type=kind, vendor=vendor, extensions=extensions))

    def _close(self, events: list[Event]) -> None:
        if self._block >= 0:
            events.append(ev.BlockStop(self._block))
            self._block, self._kind, self._content = -1, BlockKind.TEXT, _CITED

    def _failed(self, message: str, type: str) -> ev.Error:
        code = ErrorCode.PROVIDER_UNAVAILABLE
        return ev.Error(
            ErrorInfo(code=code, message=shorten(redact(message)), type=type, provider=self._provider or None)
        )


_R = CohereStreamReader
_STEPS: dict[str, Callable[[CohereStreamReader, dict[str, Any], list[Event]], None]] = {
    "message-start": _R._message_start,
    "content-start": _R._content_start,
    "content-delta": _R._content_delta,
    "content-end": _R._content_end,
    "tool-plan-delta": _R._tool_plan,
    "tool-call-start": _R._call_start,
    "tool-call-delta": _R._call_delta,
    "tool-call-end": _R._call_end,
    "citation-start": _R._citation,
    "message-end": _R._end,
}
_QUIET = frozenset({"citation-end", "debug", "ping"})


def _index(payload: dict[str, Any]) -> int:
    index = payload.get("index", 0)
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < _MAX_INDEX:
        raise ProtocolError("An event's index is not a sensible number")
    return index


def _held(payload: dict[str, Any], name: str) -> dict[str, Any]:
    """`delta.message.NAME`; some servers send it in a list."""
    delta = payload.get("delta")
    message = delta.get("message") if isinstance(delta, dict) else None
    held = message.get(name) if isinstance(message, dict) else None
    if isinstance(held, list) and held:
        held = held[0]
    if not isinstance(held, dict):
        raise ProtocolError(f"An event's delta.message.{name} is not an object")
    return held


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _logprobs(raw: Any) -> list[Any] | None:
    """Cohere's log probabilities of a piece of text, where it is a single token: of several the pieces are not told."""
    values = raw.get("logprobs") if isinstance(raw, dict) else None
    text = raw.get("text") if isinstance(raw, dict) else None
    if not isinstance(values, list) or len(values) != 1 or not isinstance(text, str):
        return None
    if not isinstance(values[0], int | float) or isinstance(values[0], bool):
        return None
    return [{"token": text, "logprob": values[0], "bytes": list(text.encode()), "top_logprobs": []}]


def _told(raw: dict[str, Any]) -> dict[str, Any]:
    """A citation with `url` and `title`, where a source has them, for those who know no more."""
    for source in _dicts(raw.get("sources")):
        document = source.get("document")
        if isinstance(document, dict) and isinstance(document.get("url"), str):
            named = {"url": document["url"], "title": document.get("title"), "start_index": raw.get("start")}
            return {**raw, **{k: v for k, v in named.items() if v is not None}, "end_index": raw.get("end") or 0}
    return raw
