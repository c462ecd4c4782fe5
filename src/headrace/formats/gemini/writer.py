"""Writing a Gemini stream: `GeminiStreamWriter`. A whole body is its chunks put together.

The rule: text and thoughts go out as they come, function calls whole, a signature on the part it belongs to (on an empty one
of that kind where the text has gone already). The last chunk alone has finish reasons and the counts; where the stream
fails, an error object takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.formats.base import WriterOptions
from headrace.formats.json import encode
from headrace.formats.steps import PlainSteps
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.content import Citation, Media
from headrace.model.events import BlockKind, Event, TextDelta
from headrace.model.stop import StopReason
from headrace.model.usage import Usage

from .errors import write_error
from .parts import function_call, media_part, media_type_of
from .words import REDACTED, VENDOR, sealed, signature_of, write_logprobs, write_stop, write_usage

Body = dict[str, Any]


class _Block:
    __slots__ = ("call", "head", "signature", "start", "stopped", "tail", "texts", "transcripts", "url")

    def __init__(self, start: ev.BlockStart) -> None:
        self.start = start
        self.texts: list[str] = []
        self.transcripts: list[str] = []
        self.signature: list[str] = []
        self.url = ""
        self.head = b""
        self.tail = b""
        self.call: Body | None = None
        """A tool call that is whole."""
        self.stopped = False


class GeminiStreamWriter(PlainSteps):
    """Writes one stream for a caller of this format."""

    def __init__(self, options: WriterOptions) -> None:
        self.lost: set[str] = set()
        self._options = options
        self._passthrough = options.passthrough
        self._last: Any = None
        self._blocks: dict[int, _Block] = {}
        self._named: Body = {}
        self._usage: Usage | None = None
        self._finishes: dict[int, Body] = {}
        self._calls: list[_Block] = []
        self._choices: set[int] = set()
        self._sources: dict[int, list[Body]] = {}

    def write(self, events: Sequence[Event]) -> list[Frame]:
        frames: list[Frame] = []
        if self._passthrough:
            for event in events:
                self._pass(event, frames)
            return frames
        blocks = self._blocks
        for event in events:
            if type(event) is TextDelta and event.logprobs is None:
                block = blocks[event.block]
                if event.text:
                    frames.append(Frame(block.head + encode(event.text) + block.tail))
            else:
                _STEPS[type(event)](self, event, frames)
        return frames

    def _pass(self, event: Event, frames: list[Frame]) -> None:
        """The provider's chunks as they are; the end is that of the body. Only a failure of ours has to be told."""
        origin: Frame | None = event.origin  # type: ignore[attr-defined]  # every event has one
        if origin is not None:
            if origin is not self._last:
                self._last = origin
                frames.append(origin)
        elif isinstance(event, ev.Error):
            self._on_error(event, frames)

    # --- one method an event ------------------------------------------------------------------------------------------

    def _on_start(self, event: ev.Start, frames: list[Frame]) -> None:
        options = self._options
        self._usage = event.usage
        self._named = {
            "modelVersion": event.model or options.model,
            "responseId": event.id or options.request_id or "response",
        }

    def _on_block_start(self, event: ev.BlockStart, frames: list[Frame]) -> None:
        self._choices.add(event.choice)
        block = self._blocks[event.block] = _Block(event)
        kind = event.type
        if kind in (BlockKind.TEXT, BlockKind.REFUSAL, BlockKind.REASONING):
            index = b"%d" % event.choice
            block.head = b'{"candidates":[{"content":{"parts":[{"text":'
            thought = b',"thought":true' if kind is BlockKind.REASONING else b""
            block.tail = thought + b'}],"role":"model"},"index":' + index + b"}]," + encode(self._named)[1:]
        elif kind is BlockKind.REDACTED_REASONING:
            self._part(block, _thought(sealed(event.vendor, REDACTED, event.data)), frames)
        elif kind is BlockKind.TOOL_CALL:
            self._calls.append(block)
        elif kind is BlockKind.OPAQUE:
            payload = event.payload or {}
            if event.vendor == VENDOR:
                self._part(block, payload, frames)
            else:
                what = payload.get("type")
                role = event.role or "opaque"
                self.lost.add(f"{role}: {what}" if isinstance(what, str) else role)

    def _on_text(self, event: TextDelta | ev.RefusalDelta, frames: list[Frame]) -> None:
        block = self._blocks[event.block]
        if event.logprobs and isinstance(event, TextDelta):
            self._part(block, {"text": event.text}, frames, logprobsResult=write_logprobs(event.logprobs))
            return
        if event.logprobs:
            self.lost.add("logprobs")
        if event.text:
            frames.append(Frame(block.head + encode(event.text) + block.tail))

    def _on_reasoning(self, event: ev.ReasoningDelta, frames: list[Frame]) -> None:
        if event.text:
            block = self._blocks[event.block]
            frames.append(Frame(block.head + encode(event.text) + block.tail))

    def _on_signature(self, event: ev.SignatureDelta, frames: list[Frame]) -> None:
        self._blocks[event.block].signature.append(event.signature)

    def _on_tool(self, event: ev.ToolDelta, frames: list[Frame]) -> None:
        self._blocks[event.block].texts.append(event.arguments)

    def _on_media(self, event: ev.MediaDelta, frames: list[Frame]) -> None:
        block = self._blocks[event.block]
        block.texts.append(event.data)
        block.transcripts.append(event.transcript)
        block.url = event.url or block.url

    def _on_opaque_delta(self, event: ev.OpaqueDelta, frames: list[Frame]) -> None:
        """Those of other vendors: their block itself is reported as lost."""

    def _on_citation(self, event: ev.CitationDelta, frames: list[Frame]) -> None:
        source = write_citation(event.citation)
        if source is None:
            self.lost.add("citations")
            return
        index = self._blocks[event.block].start.choice
        sources = self._sources.setdefault(index, [])
        sources.append(source)  # clients keep the last list
        self._chunk({"index": index, "citationMetadata": {"citationSources": sources}}, frames)

    def _on_block_stop(self, event: ev.BlockStop, frames: list[Frame]) -> None:
        block = self._blocks.pop(event.block)
        start = block.start
        extensions = {**(start.extensions or {}), **(event.extensions or {})}
        kind = start.type
        if kind is BlockKind.TOOL_CALL:
            block.stopped = True
            if event.complete:
                block.call = function_call(start.id, start.name, "".join(block.texts), signature_of(extensions))
            else:
                self.lost.add("tool_call.incomplete")  # args must be an object, and a call is never taken back
            self._tell_calls(frames)
        elif kind is BlockKind.TEXT and signature_of(extensions):
            self._part(block, {"text": "", "thoughtSignature": signature_of(extensions)}, frames)
        elif kind is BlockKind.REASONING and block.signature:
            self._part(block, _thought(sealed(start.vendor, start.id, "".join(block.signature))), frames)
        elif kind is BlockKind.MEDIA:
            self._media(block, frames)

    def _tell_calls(self, frames: list[Frame]) -> None:
        """Those that are whole, in the order they began: who reads them numbers them by it."""
        calls = self._calls
        while calls and calls[0].stopped:
            block = calls.pop(0)
            if block.call is not None:
                self._part(block, block.call, frames)

    def _media(self, block: _Block, frames: list[Frame]) -> None:
        mime = block.start.media_type
        if any(block.transcripts):
            self.lost.add("transcript")
        family = media_type_of(mime)
        media = Media(type=family, media_type=mime, data="".join(block.texts) or None, url=block.url or None)
        part = media_part(media)
        if part is not None:
            self._part(block, part, frames)

    def _on_finish(self, event: ev.Finish, frames: list[Frame]) -> None:
        if event.stop_sequence is not None:
            self.lost.add("stop_sequence")
        candidate: Body = {
            "content": {"parts": [{"text": ""}], "role": "model"},
            "finishReason": write_stop(event.reason),
            "index": event.choice,
        }
        own = (event.extensions or {}).get(VENDOR)
        self._finishes[event.choice] = {**(own if isinstance(own, dict) else {}), **candidate}

    def _on_end(self, event: ev.End, frames: list[Frame]) -> None:
        usage = event.usage if event.usage is not None else self._usage
        for choice in self._choices or {0}:  # an end without a reason is an end all the same
            if choice not in self._finishes:
                self._on_finish(ev.Finish(choice=choice, reason=StopReason.OTHER), frames)
        chunk: Body = {"candidates": [self._finishes[index] for index in sorted(self._finishes)]}
        if usage is not None:
            chunk["usageMetadata"] = write_usage(usage)
        frames.append(Frame(encode({**chunk, **self._named})))

    def _on_error(self, event: ev.Error, frames: list[Frame]) -> None:
        frames.append(Frame(write_error(event.error)))

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _part(self, block: _Block, part: Body, frames: list[Frame], **fields: Any) -> None:
        content = {"parts": [part], "role": "model"}
        self._chunk({"content": content, "index": block.start.choice, **fields}, frames)

    def _chunk(self, candidate: Body, frames: list[Frame]) -> None:
        frames.append(Frame(encode({"candidates": [candidate], **self._named})))


def _thought(signature: str) -> Body:
    return {"text": "", "thought": True, "thoughtSignature": signature}


def write_citation(citation: Citation) -> Body | None:
    """A source in Google's words; None where it is no page."""
    payload = citation.payload
    nested = payload.get("url_citation")
    said = nested if isinstance(nested, dict) else payload
    url = said.get("url")
    if not isinstance(url, str) or not url:
        return None
    source: Body = {"uri": url}
    for theirs, ours in (("title", "title"), ("startIndex", "start_index"), ("endIndex", "end_index")):
        if said.get(ours) is not None:
            source[theirs] = said[ours]
    if isinstance(payload.get("license"), str):
        source["license"] = payload["license"]
    return source


_W = GeminiStreamWriter

_STEPS: dict[type[Event], Callable[[GeminiStreamWriter, Any, list[Frame]], None]] = {
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
