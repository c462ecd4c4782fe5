"""Writing a Responses stream: `ResponsesStreamWriter`, the whole ladder of events, numbered from 0 without gaps.

The rule: clients are strict here, so every field that their types require is there, ids are the same in all events of an
item, and the response of the last event holds every item as its own events have told it. Text and refusals that follow one
another are parts of one message; calls, reasoning and everything else are items of their own, in the order they began.

Reasoning is told as a summary. Its signature is the item's `encrypted_content`; one of another vendor is sealed there (see
sealing.py), so that it comes back when the turn is sent again. An error ends the stream with response.failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from headrace.formats.base import WriterOptions
from headrace.formats.json import encode
from headrace.formats.lost import foreign
from headrace.formats.openai_chat.errors import write_error_object
from headrace.formats.sealing import seal
from headrace.formats.steps import PlainSteps
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.events import HOLDS_TEXT, BlockKind, Event, TextDelta
from headrace.model.usage import Usage

from .citations import write_annotation
from .custom import custom_names, is_marked, unwrapped
from .request_reader import ECHOED
from .words import NAME, OWN, REDACTED, VENDOR, write_stop, write_usage

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class _Item:
    """One element of `output`. `body` is what it is at its end; `index` its place."""

    __slots__ = ("body", "done", "index")

    def __init__(self, index: int, body: dict[str, Any]) -> None:
        self.index = index
        self.body = body
        self.done = False


class _Block:
    __slots__ = ("head", "item", "part", "signature", "start", "tail", "texts", "tokens")

    def __init__(self, start: ev.BlockStart) -> None:
        self.start = start
        self.item: _Item | None = None
        self.part = 0
        """Of a message: which part of its content."""
        self.head = b""
        self.tail = b""
        """Around a delta's text, after the sequence number."""
        self.texts: list[str] = []
        self.tokens: list[Any] = []
        self.signature: list[str] = []


class ResponsesStreamWriter(PlainSteps):
    """Writes one stream for a caller of this format. Choices but the first are left out: there is room for one."""

    def __init__(self, options: WriterOptions) -> None:
        self.lost: set[str] = set()
        self._options = options
        self._passthrough = options.passthrough
        self._last: Frame | None = None  # that was passed on
        self._sequence = 0
        self._response: dict[str, Any] = {}
        self._items: list[_Item] = []
        self._blocks: dict[int, _Block] = {}
        self._message: _Item | None = None  # which still takes parts
        self._unread: set[int] = set()  # blocks of the message that have not stopped
        self._custom = custom_names(options.request)
        self._usage: Usage | None = None
        self._finish: ev.Finish | None = None
        self._refused = False

    def write(self, events: Sequence[Event]) -> list[Frame]:
        frames: list[Frame] = []
        if self._passthrough:
            for event in events:
                self._pass(event, frames)
            return frames
        blocks = self._blocks
        for event in events:
            if type(event) is TextDelta and event.logprobs is None and event.block in blocks:
                block = blocks[event.block]
                block.texts.append(event.text)
                sequence = b"%d" % self._sequence
                self._sequence += 1
                data = b'{"type":"response.output_text.delta","sequence_number":' + sequence + block.head
                frames.append(Frame(data + encode(event.text) + block.tail, "response.output_text.delta"))
            else:
                _STEPS[type(event)](self, event, frames)
        return frames

    # --- passing on ---------------------------------------------------------------------------------------------------

    def _pass(self, event: Event, frames: list[Frame]) -> None:
        """The provider's frames as they are. What we tell is a failure that is not the provider's, or of which it says only
        that it happened (`error`): the stream ends with response.failed."""
        origin: Frame | None = event.origin  # type: ignore[attr-defined]  # every event has one
        if isinstance(event, ev.Start):
            self._response = self._skeleton(event)
        if origin is not None and origin is not self._last:
            self._last = origin
            frames.append(origin)
        if isinstance(event, ev.Error) and (origin is None or b'"response.failed"' not in origin.data[:200]):
            self._sequence = self._next_number()
            if not self._response:
                self._on_start(ev.Start(), frames)
            self._on_error(event, frames)

    def _next_number(self) -> int:
        if self._last is None:
            return 0
        try:
            number = _decode(self._last.data).get("sequence_number")
        except (msgspec.DecodeError, RecursionError):
            return 0
        return number + 1 if isinstance(number, int) else 0

    # --- one method an event ------------------------------------------------------------------------------------------

    def _on_start(self, event: ev.Start, frames: list[Frame]) -> None:
        self._response = self._skeleton(event)
        self._usage = event.usage
        self._emit("response.created", {"response": self._response}, frames)
        self._emit("response.in_progress", {"response": self._response}, frames)

    def _on_block_start(self, event: ev.BlockStart, frames: list[Frame]) -> None:
        if event.choice:
            self.lost.add("choices")
            return
        block = self._blocks[event.block] = _Block(event)
        kind = event.type
        if kind in HOLDS_TEXT:
            self._refused = self._refused or kind is BlockKind.REFUSAL
            self._start_part(block, frames)
            return
        if not self._unread:
            self._close_message(frames)
        if kind is BlockKind.TOOL_CALL:
            self._start_call(block, frames)
        elif kind in (BlockKind.REASONING, BlockKind.REDACTED_REASONING):
            self._start_reasoning(block, frames)
        elif kind is BlockKind.OPAQUE:
            payload = event.payload or {}
            if event.vendor == OWN and isinstance(payload.get("type"), str):
                body = {"id": self._id("item", len(self._items)), **payload}
                block.item = self._add(body, frames)
            else:
                what = payload.get("type")
                role = event.role or "opaque"
                self.lost.add(f"{role}: {what}" if isinstance(what, str) else role)

    def _start_part(self, block: _Block, frames: list[Frame]) -> None:
        message = self._message
        if message is None:
            body = {"type": "message", "status": "in_progress", "role": "assistant", "content": []}
            message = self._message = self._add({"id": self._id("msg", len(self._items)), **body}, frames)
        content: list[Any] = message.body["content"]
        block.item, block.part = message, len(content)
        part = _part(block.start.type, "", [], [])
        content.append(part)
        self._unread.add(block.start.block)
        place = {"item_id": message.body["id"], "output_index": message.index, "content_index": block.part}
        block.head = b"," + encode(place)[1:-1] + b',"delta":'
        block.tail = b',"logprobs":[]}' if block.start.type is BlockKind.TEXT else b"}"
        self._emit("response.content_part.added", {**place, "part": part}, frames)

    def _start_call(self, block: _Block, frames: list[Frame]) -> None:
        start, number = block.start, len(self._items)
        call_id = start.id or f"call_{self._options.request_id}_{start.block}"
        named = {"call_id": call_id, "name": start.name}
        if is_marked(start.extensions) or start.name in self._custom:
            body = {"id": self._id("ctc", number), "type": "custom_tool_call", **named, "input": ""}
        else:
            body = {"id": self._id("fc", number), "type": "function_call", "status": "in_progress", **named}
            body["arguments"] = ""
        item = block.item = self._add(body, frames)
        place = {"item_id": body["id"], "output_index": item.index}
        block.head, block.tail = b"," + encode(place)[1:-1] + b',"delta":', b"}"

    def _start_reasoning(self, block: _Block, frames: list[Frame]) -> None:
        start, number = block.start, len(self._items)
        own = start.vendor == VENDOR and bool(start.id) and start.type is BlockKind.REASONING
        body: dict[str, Any] = {"id": start.id if own else self._id("rs", number), "type": "reasoning", "summary": []}
        if start.type is BlockKind.REDACTED_REASONING:
            body["encrypted_content"] = seal(start.vendor, REDACTED, start.data)
        elif start.vendor and start.vendor != VENDOR:
            body["encrypted_content"] = seal(start.vendor, start.id, "")
        item = block.item = self._add(body, frames)
        place = {"item_id": body["id"], "output_index": item.index, "summary_index": 0}
        block.head, block.tail = b"," + encode(place)[1:-1] + b',"delta":', b"}"

    def _on_text(self, event: TextDelta | ev.RefusalDelta, frames: list[Frame]) -> None:
        block = self._blocks.get(event.block)
        if block is None or block.item is None:
            return
        block.texts.append(event.text)
        word = "refusal" if block.start.type is BlockKind.REFUSAL else "output_text"
        tail = block.tail
        if event.logprobs:
            if word == "refusal":
                self.lost.add("logprobs")
            else:
                block.tokens += event.logprobs
                tail = b',"logprobs":' + encode(event.logprobs) + b"}"
        self._delta(f"response.{word}.delta", block, event.text, tail, frames)

    def _on_reasoning(self, event: ev.ReasoningDelta, frames: list[Frame]) -> None:
        block = self._blocks.get(event.block)
        if block is None or block.item is None:
            return
        if not block.texts:
            place = {"item_id": block.item.body["id"], "output_index": block.item.index, "summary_index": 0}
            part = {"type": "summary_text", "text": ""}
            self._emit("response.reasoning_summary_part.added", {**place, "part": part}, frames)
        block.texts.append(event.text)
        self._delta("response.reasoning_summary_text.delta", block, event.text, block.tail, frames)

    def _on_signature(self, event: ev.SignatureDelta, frames: list[Frame]) -> None:
        block = self._blocks.get(event.block)
        if block is not None:
            block.signature.append(event.signature)

    def _on_tool(self, event: ev.ToolDelta, frames: list[Frame]) -> None:
        block = self._blocks.get(event.block)
        if block is None or block.item is None:
            return
        block.texts.append(event.arguments)
        if block.item.body["type"] == "function_call" and event.arguments:
            self._delta("response.function_call_arguments.delta", block, event.arguments, block.tail, frames)

    def _on_media(self, event: ev.MediaDelta, frames: list[Frame]) -> None:
        block = self._blocks.get(event.block)
        if block is None:
            return
        family = block.start.media_type.partition("/")[0]
        if family == "image" and not event.url:
            block.texts.append(event.data)
        else:
            self.lost.add(family or "media")

    def _on_citation(self, event: ev.CitationDelta, frames: list[Frame]) -> None:
        block = self._blocks.get(event.block)
        if block is None or block.item is None:
            return
        annotation = write_annotation(event.citation)
        if annotation is None:
            self.lost.add("citations")
            return
        annotations: list[Any] = block.item.body["content"][block.part]["annotations"]
        place = {"item_id": block.item.body["id"], "output_index": block.item.index, "content_index": block.part}
        fields = {**place, "annotation_index": len(annotations), "annotation": annotation}
        self._emit("response.output_text.annotation.added", fields, frames)
        annotations.append(annotation)

    def _on_block_stop(self, event: ev.BlockStop, frames: list[Frame]) -> None:
        block = self._blocks.pop(event.block, None)
        if block is None:
            return
        kind = block.start.type
        self.lost.update(foreign(block.start.extensions, OWN, VENDOR))
        self.lost.update(foreign(event.extensions, OWN, VENDOR))
        if kind is BlockKind.MEDIA:
            self._image(block, frames)
        elif block.item is not None:
            _ENDS[kind](self, block, block.item, event.complete, frames)

    def _end_part(self, block: _Block, item: _Item, complete: bool, frames: list[Frame]) -> None:
        text, kind = "".join(block.texts), block.start.type
        content: list[Any] = item.body["content"]
        part = content[block.part] = _part(kind, text, content[block.part].get("annotations", []), block.tokens)
        place = {"item_id": item.body["id"], "output_index": item.index, "content_index": block.part}
        if kind is BlockKind.TEXT:
            said: dict[str, Any] = {"text": text, "logprobs": block.tokens}
            self._emit("response.output_text.done", {**place, **said}, frames)
        else:
            self._emit("response.refusal.done", {**place, "refusal": text}, frames)
        self._emit("response.content_part.done", {**place, "part": part}, frames)
        self._unread.discard(block.start.block)
        if not self._unread and item is not self._message:
            self._done(item, frames)

    def _end_call(self, block: _Block, item: _Item, complete: bool, frames: list[Frame]) -> None:
        arguments = "".join(block.texts)
        body = item.body
        place = {"item_id": body["id"], "output_index": item.index}
        if body["type"] == "custom_tool_call":
            body["input"] = unwrapped(arguments)
            self._emit("response.custom_tool_call_input.delta", {**place, "delta": body["input"]}, frames)
            self._emit("response.custom_tool_call_input.done", {**place, "input": body["input"]}, frames)
        else:
            if not arguments and complete:
                arguments = "{}"
                self._delta("response.function_call_arguments.delta", block, arguments, block.tail, frames)
            body["arguments"] = arguments
            body["status"] = "completed" if complete else "incomplete"
            if complete:
                done = {**place, "name": body["name"], "arguments": arguments}
                self._emit("response.function_call_arguments.done", done, frames)
        self._done(item, frames)

    def _end_reasoning(self, block: _Block, item: _Item, complete: bool, frames: list[Frame]) -> None:
        body, start = item.body, block.start
        if block.texts:
            text = "".join(block.texts)
            place = {"item_id": body["id"], "output_index": item.index, "summary_index": 0}
            part = {"type": "summary_text", "text": text}
            self._emit("response.reasoning_summary_text.done", {**place, "text": text}, frames)
            self._emit("response.reasoning_summary_part.done", {**place, "part": part}, frames)
            body["summary"] = [part]
        signature = "".join(block.signature)
        if signature:
            own = start.vendor == VENDOR
            body["encrypted_content"] = signature if own else seal(start.vendor, start.id, signature)
        elif start.type is BlockKind.REASONING:
            body.pop("encrypted_content", None)  # nothing was sealed
        self._done(item, frames)

    def _end_opaque(self, block: _Block, item: _Item, complete: bool, frames: list[Frame]) -> None:
        self._done(item, frames)

    def _image(self, block: _Block, frames: list[Frame]) -> None:
        """A generated image, told when it is whole."""
        data = "".join(block.texts)
        if not data:
            return
        own = (block.start.extensions or {}).get(OWN)
        own = own if isinstance(own, dict) else {}
        body = {"id": self._id("ig", len(self._items)), **own, "type": "image_generation_call", "status": "in_progress"}
        kind = block.start.media_type.partition("/")[2]
        if kind and kind != "png":
            body["output_format"] = kind
        item = self._add({**body, "result": None}, frames)
        place = {"item_id": item.body["id"], "output_index": item.index}
        for word in ("in_progress", "generating", "completed"):
            self._emit(f"response.image_generation_call.{word}", place, frames)
        item.body["status"], item.body["result"] = "completed", data
        self._done(item, frames)

    def _on_opaque_delta(self, event: ev.OpaqueDelta, frames: list[Frame]) -> None:
        """Those of other vendors: their block itself is reported as lost."""

    def _on_finish(self, event: ev.Finish, frames: list[Frame]) -> None:
        if event.choice:
            return
        self._close_message(frames)
        self._finish = event
        if event.stop_sequence is not None:
            self.lost.add("stop_sequence")

    def _on_end(self, event: ev.End, frames: list[Frame]) -> None:
        self._close_message(frames)
        usage = event.usage if event.usage is not None else self._usage
        finish = self._finish
        reason = None if finish is None else write_stop(finish.reason, refused=self._refused)
        response = self._response
        response["output"] = [item.body for item in self._items]
        response["status"] = "completed" if reason is None else "incomplete"
        response["incomplete_details"] = None if reason is None else {"reason": reason}
        response["usage"] = None if usage is None else write_usage(usage)
        self._emit(f"response.{response['status']}", {"response": response}, frames)

    def _on_error(self, event: ev.Error, frames: list[Frame]) -> None:
        """Items that are open stay open: only what is whole stands in the last response."""
        if not self._response:
            self._on_start(ev.Start(), frames)
        error = write_error_object(event.error)
        response = self._response
        response["status"] = "failed"
        code = error.get("code") or error.get("type") or "server_error"
        response["error"] = {**error, "code": code, "message": event.error.message}
        response["output"] = [item.body for item in self._items if item.done]
        response["usage"] = None if self._usage is None else write_usage(self._usage)
        self._emit("response.failed", {"response": response}, frames)

    # --- helpers --------------------------------------------------------------------------------------------------------

    def _skeleton(self, event: ev.Start) -> dict[str, Any]:
        """The response as it begins, with what the SDKs' types require; a caller's own settings are told back to it."""
        options = self._options
        request = options.request
        asked: dict[str, Any] = {}
        if request is not None and request.format == NAME and request.origin is not None:
            asked = {name: request.origin[name] for name in ECHOED if request.origin.get(name) is not None}
        own = (event.extensions or {}).get(VENDOR)
        tier = own.get("service_tier") if isinstance(own, dict) else None
        return {
            "id": event.id or f"resp_{options.request_id}",
            "object": "response",
            "created_at": event.created or options.created,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "model": event.model or options.model,
            "output": [],
            "parallel_tool_calls": True,
            "temperature": None,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "usage": None,
            **asked,
            **({"service_tier": tier} if tier else {}),
        }

    def _id(self, kind: str, number: int) -> str:
        """An item's id: unique in the response, the same in all its events."""
        seed = "".join([c for c in self._response.get("id", "") if c.isalnum()])
        return f"{kind}_{seed or 'headrace'}_{number}"

    def _add(self, body: dict[str, Any], frames: list[Frame]) -> _Item:
        item = _Item(len(self._items), body)
        self._items.append(item)
        self._emit("response.output_item.added", {"output_index": item.index, "item": body}, frames)
        return item

    def _done(self, item: _Item, frames: list[Frame]) -> None:
        item.done = True
        self._emit("response.output_item.done", {"output_index": item.index, "item": item.body}, frames)

    def _close_message(self, frames: list[Frame]) -> None:
        """The message takes no more parts; it is done with its last one."""
        message, self._message = self._message, None
        if message is not None:
            message.body["status"] = "completed"
            if not self._unread:
                self._done(message, frames)

    def _delta(self, type: str, block: _Block, text: str, tail: bytes, frames: list[Frame]) -> None:
        data = b'{"type":"%b","sequence_number":%d' % (type.encode(), self._sequence)
        self._sequence += 1
        frames.append(Frame(data + block.head + encode(text) + tail, type))

    def _emit(self, type: str, fields: dict[str, Any], frames: list[Frame]) -> None:
        frames.append(Frame(encode({"type": type, "sequence_number": self._sequence, **fields}), type))
        self._sequence += 1


def _part(kind: BlockKind, text: str, annotations: list[Any], tokens: list[Any]) -> dict[str, Any]:
    if kind is BlockKind.REFUSAL:
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "text": text, "annotations": annotations, "logprobs": tokens}


_W = ResponsesStreamWriter

_STEPS: dict[type[Event], Callable[[ResponsesStreamWriter, Any, list[Frame]], None]] = {
    # of the class, not of each instance: bound methods would be reference cycles
    ev.Start: _W._on_start,
    ev.BlockStart: _W._on_block_start,
    ev.TextDelta: _W._on_text,
    ev.RefusalDelta: _W._on_text,
    ev.ReasoningDelta: _W._on_reasoning,
    ev.SignatureDelta: _W._on_signature,
    ev.ToolDelta: _W._on_tool,
    ev.MediaDelta: _W._on_media,
    ev.OpaqueDelta: _W._on_opaque_delta,
    ev.CitationDelta: _W._on_citation,
    ev.BlockStop: _W._on_block_stop,
    ev.UsageReport: _W._on_usage,
    ev.Progress: _W._on_progress,
    ev.Finish: _W._on_finish,
    ev.Error: _W._on_error,
    ev.End: _W._on_end,
    ev.Opaque: _W._on_opaque,
}

_ENDS: dict[BlockKind, Callable[[ResponsesStreamWriter, _Block, _Item, bool, list[Frame]], None]] = {
    BlockKind.TEXT: _W._end_part,
    BlockKind.REFUSAL: _W._end_part,
    BlockKind.TOOL_CALL: _W._end_call,
    BlockKind.REASONING: _W._end_reasoning,
    BlockKind.REDACTED_REASONING: _W._end_reasoning,
    BlockKind.OPAQUE: _W._end_opaque,
}
