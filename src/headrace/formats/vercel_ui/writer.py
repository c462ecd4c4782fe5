"""Writing a UI message stream (Vercel's AI SDK, version 1): `UIStreamWriter`.

The rule: every part is started, has one id and is ended, as the SDK's reader throws at anything else. What the protocol has
no part for is carried where it has room: work without text as a transient `data-progress`, counts and what was lost in the
message's metadata. An error is followed by the end marker; parts that are open stay open.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.formats.base import WriterOptions
from headrace.formats.json import encode
from headrace.formats.openai_chat.media import data_url
from headrace.formats.ui import UIBlock, UIWriter, counts
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.events import BlockKind
from headrace.model.stop import StopReason

Body = dict[str, Any]

DONE = b"[DONE]"
_S = StopReason
_REASONS: dict[StopReason, str] = {
    _S.END_TURN: "stop",
    _S.STOP_SEQUENCE: "stop",
    _S.MAX_TOKENS: "length",
    _S.CONTEXT_WINDOW: "length",
    _S.TOOL_USE: "tool-calls",
    _S.CONTENT_FILTER: "content-filter",
    _S.REFUSAL: "content-filter",
    _S.PAUSE: "other",
    _S.MALFORMED_TOOL_CALL: "error",
    _S.OTHER: "other",
}
_PARTS = {BlockKind.TEXT: "text", BlockKind.REFUSAL: "text", BlockKind.REASONING: "reasoning"}


class _Block(UIBlock):
    __slots__ = ("texts", "url")

    def __init__(self, start: ev.BlockStart, head: bytes) -> None:
        super().__init__(start, head)
        self.texts: list[str] = []
        self.url = ""


class UIStreamWriter(UIWriter[_Block]):
    """Writes one stream for a user interface. Choices but the first are left out: a message is one."""

    def __init__(self, options: WriterOptions) -> None:
        super().__init__(options)
        self._sources = 0

    # --- one method an event ------------------------------------------------------------------------------------------

    def _on_start(self, event: ev.Start, frames: list[Frame]) -> None:
        self._begin(event)
        self._emit("start", frames, messageId=event.id or f"msg_{self._options.request_id}")
        self._emit("start-step", frames)

    def _on_block_start(self, event: ev.BlockStart, frames: list[Frame]) -> None:
        if event.choice:
            self.lost.add("choices")
            return
        kind = event.type
        part = _PARTS.get(kind)
        if part is not None:
            id = f"{part}-{event.block}"
            head = b'{"type":"%b-delta","id":"%b","delta":' % (part.encode(), id.encode())
            self._blocks[event.block] = _Block(event, head)
            self._emit(f"{part}-start", frames, id=id)
        elif kind is BlockKind.TOOL_CALL:
            id = event.id or f"call_{self._options.request_id}_{event.block}"
            head = b'{"type":"tool-input-delta","toolCallId":' + encode(id) + b',"inputTextDelta":'
            self._blocks[event.block] = _Block(msgspec.structs.replace(event, id=id), head)
            self._emit("tool-input-start", frames, toolCallId=id, toolName=event.name)
        elif kind is BlockKind.REDACTED_REASONING:
            id = f"reasoning-{event.block}"
            self._emit("reasoning-start", frames, id=id)
            self._emit("reasoning-end", frames, id=id, providerMetadata={event.vendor: {"redactedData": event.data}})
        elif kind is BlockKind.MEDIA:
            self._blocks[event.block] = _Block(event, b"")
        else:
            what = (event.payload or {}).get("type")
            role = event.role or "opaque"
            self.lost.add(f"{role}: {what}" if isinstance(what, str) else role)

    def _on_delta(self, event: Any, frames: list[Frame]) -> None:
        block = self._blocks.get(event.block)
        if block is not None and isinstance(event, ev.ToolDelta):
            block.texts.append(event.arguments)
        super()._on_delta(event, frames)

    def _on_media(self, event: ev.MediaDelta, frames: list[Frame]) -> None:
        block = self._blocks.get(event.block)
        if block is not None:
            block.texts.append(event.data)
            block.url = event.url or block.url
            if event.transcript:
                self.lost.add("transcript")

    def _on_citation(self, event: ev.CitationDelta, frames: list[Frame]) -> None:
        payload = event.citation.payload
        nested = payload.get("url_citation")
        said = nested if isinstance(nested, dict) else payload
        url, title = said.get("url"), said.get("title")
        if not isinstance(url, str) or not url:
            self.lost.add("citations")
            return
        self._sources += 1
        named = {"title": title} if isinstance(title, str) and title else {}
        self._emit("source-url", frames, sourceId=f"source-{self._sources}", url=url, **named)

    def _on_block_stop(self, event: ev.BlockStop, frames: list[Frame]) -> None:
        block = self._blocks.pop(event.block, None)
        if block is None:
            return
        start = block.start
        part = _PARTS.get(start.type)
        if part is not None:
            metadata = {**(start.extensions or {}), **(event.extensions or {})}
            if block.signature:
                own = metadata.get(start.vendor)
                own = own if isinstance(own, dict) else {}
                metadata[start.vendor or "unknown"] = {**own, "signature": "".join(block.signature)}
            said = {"providerMetadata": metadata} if metadata else {}
            self._emit(f"{part}-end", frames, id=f"{part}-{start.block}", **said)
        elif start.type is BlockKind.TOOL_CALL:
            self._call(block, event, frames)
        else:
            data = "".join(block.texts)
            url = block.url or data_url(start.media_type, data)
            self._emit("file", frames, url=url, mediaType=start.media_type or "application/octet-stream")

    def _call(self, block: _Block, event: ev.BlockStop, frames: list[Frame]) -> None:
        if not event.complete:
            return  # it stays open: it never became available
        start, arguments = block.start, "".join(block.texts) or "{}"
        named = {"toolCallId": start.id, "toolName": start.name}
        metadata = {"providerMetadata": start.extensions} if start.extensions else {}
        try:
            said = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, RecursionError):
            text = "The model's arguments are no JSON"
            self._emit("tool-input-error", frames, **named, input=arguments, errorText=text)
        else:
            self._emit("tool-input-available", frames, **named, input=said, **metadata)

    def _on_progress(self, event: ev.Progress, frames: list[Frame]) -> None:
        data = {"message": event.message, **({} if event.percent is None else {"percent": event.percent})}
        self._emit("data-progress", frames, data=data, transient=True)

    def _on_end(self, event: ev.End, frames: list[Frame]) -> None:
        usage = event.usage if event.usage is not None else self._usage
        reason = _REASONS[self._finish.reason] if self._finish is not None else "other"
        metadata: Body = {"model": self._model, "provider": self._options.provider}
        if usage is not None:
            metadata["usage"] = counts(usage)
            if usage.cost_usd is not None:
                metadata["costUsd"] = usage.cost_usd
        if event.routing is not None:
            metadata["routing"] = event.routing
        lost = sorted(self.lost.union(self._options.lost))
        if lost:
            metadata["lost"] = lost
        self._emit("finish-step", frames)
        self._emit("finish", frames, finishReason=reason, messageMetadata=metadata)
        frames.append(Frame(DONE))

    def _on_error(self, event: ev.Error, frames: list[Frame]) -> None:
        if not self._started:
            self._on_start(ev.Start(), frames)
        self._emit("error", frames, errorText=event.error.message)
        frames.append(Frame(DONE))


_W = UIStreamWriter

_W.steps = {
    ev.Start: _W._on_start,
    ev.BlockStart: _W._on_block_start,
    ev.TextDelta: _W._on_delta,
    ev.RefusalDelta: _W._on_delta,
    ev.ReasoningDelta: _W._on_delta,
    ev.SignatureDelta: _W._on_signature,
    ev.ToolDelta: _W._on_delta,
    ev.MediaDelta: _W._on_media,
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
