"""Writing a Cohere stream: `CohereStreamWriter`. A whole body is put together from the same events.

The rule: named events, each kind counted for itself, `message-end` and the marker `[DONE]` last. A content begins with its
first piece, so nothing empty is ever opened. A failure is a message-end with the finish reason ERROR, as Cohere tells it, and
no marker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.formats.base import WriterOptions
from headrace.formats.json import encode
from headrace.formats.lost import foreign
from headrace.formats.steps import PlainSteps
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.content import Citation
from headrace.model.events import BlockKind, Event
from headrace.model.stop import StopReason
from headrace.model.usage import Usage

from .words import VENDOR, is_plan, write_stop, write_usage

Body = dict[str, Any]
DONE = b"[DONE]"


class _Block:
    """A block that has a place here. `type`, of its events: "content", "tool-call" or "tool-plan"."""

    __slots__ = ("field", "head", "index", "said", "tail", "type")

    def __init__(self, type: str, tail: bytes, *, field: str = "", index: int = 0, head: bytes = b"") -> None:
        self.type = type
        self.field = field
        """Of a content: "text" or "thinking"."""
        self.index = index
        self.head = head
        """What its pieces begin with; b"" until it has begun."""
        self.tail = tail
        self.said = False


class CohereStreamWriter(PlainSteps):
    """Writes one stream for a caller of this format. Choices but the first are left out: there is one message."""

    def __init__(self, options: WriterOptions) -> None:
        self.lost: set[str] = set()
        self._options = options
        self._passthrough = options.passthrough
        self._last: Frame | None = None
        self._blocks: dict[int, _Block] = {}
        self._counts = {"content": 0, "tool-call": 0, "citation": 0}
        self._usage: Usage | None = None
        self._finish: ev.Finish | None = None
        self._started = False
        self._called = False  # a call has come to its end

    def write(self, events: Sequence[Event]) -> list[Frame]:
        frames: list[Frame] = []
        for event in events:
            if self._passthrough:
                self._pass(event, frames)
            else:
                _STEPS[type(event)](self, event, frames)
        return frames

    def _pass(self, event: Event, frames: list[Frame]) -> None:
        """The provider's frames as they are, and the marker behind the last."""
        origin = event.origin  # type: ignore[attr-defined]  # every event has one
        if not isinstance(origin, Frame):
            _STEPS[type(event)](self, event, frames)
            return
        if origin is not self._last:
            self._last = origin
            self._started = True
            frames.append(origin)
        if isinstance(event, ev.End):
            frames.append(Frame(DONE))

    def _on_start(self, event: ev.Start, frames: list[Frame]) -> None:
        self._started = True
        self._usage = event.usage
        message = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
        self._emit("message-start", frames, id=event.id or self._options.request_id, delta={"message": message})

    def _on_block_start(self, event: ev.BlockStart, frames: list[Frame]) -> None:
        if event.choice:
            self.lost.add("choices")
            return
        kind = event.type
        self.lost.update(foreign(event.extensions, VENDOR))
        if kind is BlockKind.TEXT and is_plan(event.extensions):
            head = b'{"type":"tool-plan-delta","delta":{"message":{"tool_plan":'
            self._blocks[event.block] = _Block("tool-plan", b"}}}", head=head)
        elif kind in _FIELDS:
            self._blocks[event.block] = _Block("content", b"}}}}", field=_FIELDS[kind])
        elif kind is BlockKind.TOOL_CALL:
            index = self._count("tool-call")
            head = (
                b'{"type":"tool-call-delta","index":%d,"delta":{"message":{"tool_calls":{"function":{"arguments":'
                % index
            )
            self._blocks[event.block] = _Block("tool-call", b"}}}}}", index=index, head=head)
            call = {
                "id": event.id or f"call_{self._options.request_id}_{event.block}",
                "type": "function",
                "function": {"name": event.name, "arguments": ""},
            }
            self._emit("tool-call-start", frames, index=index, delta=_message(tool_calls=call))
        elif kind is BlockKind.REDACTED_REASONING:
            self.lost.add("redacted_reasoning")
        elif kind is BlockKind.MEDIA:
            self.lost.add(event.media_type.partition("/")[0] or "media")
        else:
            what = (event.payload or {}).get("type")
            role = event.role or "opaque"
            self.lost.add(f"{role}: {what}" if isinstance(what, str) else role)

    def _on_delta(self, event: Any, frames: list[Frame]) -> None:
        block = self._blocks.get(event.block)
        if block is None:
            return
        if getattr(event, "logprobs", None):
            self.lost.add("logprobs")
        text = event.arguments if isinstance(event, ev.ToolDelta) else event.text
        if text:
            block.said = True
            if not block.head:
                self._begin(block, frames)
            frames.append(Frame(block.head + encode(text) + block.tail, f"{block.type}-delta"))

    def _begin(self, block: _Block, frames: list[Frame]) -> None:
        """The start of a content, which has its number from here."""
        block.index = self._count("content")
        field = block.field
        block.head = b'{"type":"content-delta","index":%d,"delta":{"message":{"content":{"%b":' % (
            block.index,
            field.encode(),
        )
        self._emit("content-start", frames, index=block.index, delta=_message(content={"type": field, field: ""}))

    def _on_signature(self, event: ev.SignatureDelta, frames: list[Frame]) -> None:
        self.lost.add("reasoning.signature")

    def _on_citation(self, event: ev.CitationDelta, frames: list[Frame]) -> None:
        block = self._blocks.get(event.block)
        if block is None:
            return
        citation = write_citation(event.citation)
        if citation is None:
            self.lost.add("citations")
            return
        if not block.head:
            self._begin(block, frames)
        if block.type == "content":
            citation.setdefault("content_index", block.index)
        index = self._count("citation")
        self._emit("citation-start", frames, index=index, delta=_message(citations=citation))
        self._emit("citation-end", frames, index=index)

    def _on_block_stop(self, event: ev.BlockStop, frames: list[Frame]) -> None:
        self.lost.update(foreign(event.extensions, VENDOR))
        block = self._blocks.pop(event.block, None)
        if block is None or block.type == "tool-plan" or not block.head:
            return
        if block.type == "tool-call":
            if not event.complete:
                return  # never ended: it is not whole
            self._called = True
            if not block.said:
                frames.append(Frame(block.head + b'"{}"' + block.tail, "tool-call-delta"))
        self._emit(f"{block.type}-end", frames, index=block.index)

    def _on_finish(self, event: ev.Finish, frames: list[Frame]) -> None:
        if not event.choice:
            self._finish = event
            if event.stop_sequence is not None:
                self.lost.add("stop_sequence")

    def _on_end(self, event: ev.End, frames: list[Frame]) -> None:
        usage = event.usage if event.usage is not None else self._usage
        reason = self._finish.reason if self._finish is not None else StopReason.OTHER
        delta: Body = {"finish_reason": write_stop(reason, called=self._called)}
        if usage is not None:
            delta["usage"] = write_usage(usage)
        self._emit("message-end", frames, delta=delta)
        frames.append(Frame(DONE))

    def _on_error(self, event: ev.Error, frames: list[Frame]) -> None:
        if not self._started:
            self._on_start(ev.Start(), frames)
        delta: Body = {"finish_reason": "ERROR", "error": event.error.message}
        if self._usage is not None:
            delta["usage"] = write_usage(self._usage)
        self._emit("message-end", frames, delta=delta)

    def _count(self, kind: str) -> int:
        self._counts[kind] += 1
        return self._counts[kind] - 1

    def _emit(self, type: str, frames: list[Frame], **fields: Any) -> None:
        frames.append(Frame(encode({"type": type, **fields}), type))


def _message(**fields: Any) -> Body:
    return {"message": fields}


def write_citation(citation: Citation) -> Body | None:
    """Cohere's own as they are, others as the document that they cite; None where they cite no page."""
    payload = citation.payload
    if isinstance(payload.get("sources"), list):
        return {name: value for name, value in payload.items() if name not in _ADDED}
    nested = payload.get("url_citation")
    said = nested if isinstance(nested, dict) else payload
    url = said.get("url")
    if not isinstance(url, str) or not url:
        return None
    document: Body = {"url": url}
    if isinstance(said.get("title"), str):
        document["title"] = said["title"]
    return {
        "start": _offset(said.get("start_index")),
        "end": _offset(said.get("end_index")),
        "text": said.get("cited_text") if isinstance(said.get("cited_text"), str) else "",
        "sources": [{"type": "document", "id": url, "document": document}],
        "type": "TEXT_CONTENT",
    }


_FIELDS = {BlockKind.TEXT: "text", BlockKind.REFUSAL: "text", BlockKind.REASONING: "thinking"}
_ADDED = frozenset({"url", "title", "start_index", "end_index"})


def _offset(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


_W = CohereStreamWriter
_STEPS: dict[type[Event], Callable[[CohereStreamWriter, Any, list[Frame]], None]] = {
    # of the class, not of each instance: bound methods would be reference cycles
    ev.Start: _W._on_start,
    ev.BlockStart: _W._on_block_start,
    ev.TextDelta: _W._on_delta,
    ev.RefusalDelta: _W._on_delta,
    ev.ReasoningDelta: _W._on_delta,
    ev.SignatureDelta: _W._on_signature,
    ev.ToolDelta: _W._on_delta,
    ev.MediaDelta: _W._on_nothing,
    ev.OpaqueDelta: _W._on_nothing,
    ev.CitationDelta: _W._on_citation,
    ev.BlockStop: _W._on_block_stop,
    ev.UsageReport: _W._on_usage,
    ev.Progress: _W._on_progress,
    ev.Finish: _W._on_finish,
    ev.Error: _W._on_error,
    ev.End: _W._on_end,
    ev.Opaque: _W._on_opaque,
}


def message_of(payloads: Sequence[Body]) -> tuple[Body, Body]:
    """(message, delta of message-end) that a stream's events come to."""
    message: Body = {"role": "assistant"}
    content: list[Body] = []
    calls: list[Body] = []
    citations: list[Body] = []
    end: Body = {}
    for payload in payloads:
        kind, delta = payload["type"], payload.get("delta", {})
        held = delta.get("message", {})
        if kind == "content-start":
            content.append(held["content"])
        elif kind == "content-delta":
            for name, text in held["content"].items():
                content[payload["index"]][name] += text
        elif kind == "tool-plan-delta":
            message["tool_plan"] = message.get("tool_plan", "") + held["tool_plan"]
        elif kind == "tool-call-start":
            calls.append(held["tool_calls"])
        elif kind == "tool-call-delta":
            calls[payload["index"]]["function"]["arguments"] += held["tool_calls"]["function"]["arguments"]
        elif kind == "citation-start":
            citations.append(held["citations"])
        elif kind == "message-end":
            end = delta
    for name, values in (("content", content), ("tool_calls", calls), ("citations", citations)):
        if values:
            message[name] = values
    return message, end
