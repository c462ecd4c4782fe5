"""Writing an AG-UI run: `RunWriter`.

The rule: a run is started, everything in it is started and ended, and it is finished or has failed, as the protocol's own
verifier demands. Counts are the run's usage; a signature is the encrypted value of its reasoning message, sealed with whose
it is. Empty deltas are left out, which older clients reject.
"""

from __future__ import annotations

from typing import Any

from headrace.formats.base import WriterOptions
from headrace.formats.json import encode
from headrace.formats.sealing import seal
from headrace.formats.ui import UIBlock, UIWriter, counts
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.events import BlockKind
from headrace.model.usage import Usage

Body = dict[str, Any]

REDACTED = "-redacted"
"""In a seal, in place of an id: what is sealed is redacted reasoning, not a signature."""


class _Block(UIBlock):
    __slots__ = ("id",)

    def __init__(self, start: ev.BlockStart, id: str, head: bytes = b"") -> None:
        super().__init__(start, head)
        self.id = id


class RunWriter(UIWriter[_Block]):
    """Writes one run. Choices but the first are left out."""

    def __init__(self, options: WriterOptions) -> None:
        super().__init__(options)
        asked = options.request.metadata if options.request is not None else {}
        self._run: Body = {
            "threadId": str(asked.get("thread_id") or options.request_id),
            "runId": str(asked.get("run_id") or options.request_id),
        }
        self._id = ""

    def _on_start(self, event: ev.Start, frames: list[Frame]) -> None:
        self._begin(event)
        self._id = event.id or f"msg_{self._options.request_id}"
        self._emit("RUN_STARTED", frames, **self._run)

    def _on_block_start(self, event: ev.BlockStart, frames: list[Frame]) -> None:
        if event.choice:
            self.lost.add("choices")
            return
        kind = event.type
        id = f"{self._id}-{event.block}"
        if kind in (BlockKind.TEXT, BlockKind.REFUSAL):
            self._blocks[event.block] = _Block(event, id, _head("TEXT_MESSAGE_CONTENT", "messageId", id))
            self._emit("TEXT_MESSAGE_START", frames, messageId=id, role="assistant")
        elif kind is BlockKind.REASONING:
            self._blocks[event.block] = _Block(event, id, _head("REASONING_MESSAGE_CONTENT", "messageId", id))
            self._emit("REASONING_START", frames, messageId=id)
            self._emit("REASONING_MESSAGE_START", frames, messageId=id, role="reasoning")
        elif kind is BlockKind.TOOL_CALL:
            call = event.id or f"call_{self._options.request_id}_{event.block}"
            self._blocks[event.block] = _Block(event, call, _head("TOOL_CALL_ARGS", "toolCallId", call))
            self._emit("TOOL_CALL_START", frames, toolCallId=call, toolCallName=event.name)
        elif kind is BlockKind.REDACTED_REASONING:
            self._emit("REASONING_START", frames, messageId=id)
            self._emit("REASONING_MESSAGE_START", frames, messageId=id, role="reasoning")
            self._emit("REASONING_MESSAGE_END", frames, messageId=id)
            self._encrypted(id, seal(event.vendor, REDACTED, event.data), frames)
            self._emit("REASONING_END", frames, messageId=id)
        else:
            what = (event.payload or {}).get("type")
            role = event.role or event.media_type.partition("/")[0] or "opaque"
            self.lost.add(f"{role}: {what}" if isinstance(what, str) else role)

    def _on_block_stop(self, event: ev.BlockStop, frames: list[Frame]) -> None:
        block = self._blocks.pop(event.block, None)
        if block is None:
            return
        start = block.start
        if start.type is BlockKind.TOOL_CALL:
            self._emit("TOOL_CALL_END", frames, toolCallId=block.id)
        elif start.type is BlockKind.REASONING:
            self._emit("REASONING_MESSAGE_END", frames, messageId=block.id)
            if block.signature:
                self._encrypted(block.id, seal(start.vendor, start.id, "".join(block.signature)), frames)
            self._emit("REASONING_END", frames, messageId=block.id)
        else:
            self._emit("TEXT_MESSAGE_END", frames, messageId=block.id)

    def _encrypted(self, id: str, value: str, frames: list[Frame]) -> None:
        self._emit("REASONING_ENCRYPTED_VALUE", frames, subtype="message", entityId=id, encryptedValue=value)

    def _on_citation(self, event: ev.CitationDelta, frames: list[Frame]) -> None:
        block = self._blocks.get(event.block)
        if block is not None:
            value = {"messageId": block.id, "vendor": event.citation.vendor, "citation": event.citation.payload}
            self._emit("CUSTOM", frames, name="citation", value=value)

    def _on_progress(self, event: ev.Progress, frames: list[Frame]) -> None:
        value = {"message": event.message, **({} if event.percent is None else {"percent": event.percent})}
        self._emit("CUSTOM", frames, name="progress", value=value)

    def _on_end(self, event: ev.End, frames: list[Frame]) -> None:
        usage = event.usage if event.usage is not None else self._usage
        result: Body = {"finishReason": self._finish.reason.value} if self._finish is not None else {}
        if event.routing is not None:
            result["routing"] = event.routing
        lost = sorted(self.lost.union(self._options.lost))
        if lost:
            result["lost"] = lost
        self._emit("RUN_FINISHED", frames, **self._run, result=result, **self._counts(usage))

    def _on_error(self, event: ev.Error, frames: list[Frame]) -> None:
        if not self._started:
            self._emit("RUN_STARTED", frames, **self._run)
        error = event.error
        self._emit("RUN_ERROR", frames, message=error.message, code=error.code.value, **self._counts(self._usage))

    def _counts(self, usage: Usage | None) -> Body:
        if usage is None:
            return {}
        names = {"provider": self._options.provider, "model": self._model}
        return {"usage": [{**{name: value for name, value in names.items() if value}, **counts(usage)}]}


def _head(type: str, name: str, id: str) -> bytes:
    return b'{"type":"%b","%b":%b,"delta":' % (type.encode(), name.encode(), encode(id))


_W = RunWriter

_W.steps = {
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
