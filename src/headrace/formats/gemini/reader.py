"""Reading a Gemini stream: `GeminiStreamReader`. A whole body is a stream of one chunk.

The rule: each chunk is a part of one answer. Texts of the same kind that follow one another are one block, but for a part
with a signature, which belongs to that very part: it ends its block, and a part that has nothing but a signature is a block
of its own. The end of the stream is the end of the body, once every candidate has a finish reason (which may come more than
once) or the prompt was blocked; without it the answer was cut.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.formats.base import FrameReader, ReaderOptions
from headrace.formats.json import decode_payload, encode
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.content import Citation
from headrace.model.errors import ErrorCode, ErrorInfo, ProtocolError
from headrace.model.events import BlockKind, BlockStart, Event
from headrace.model.stop import StopReason
from headrace.model.usage import Usage

from .arguments import Arguments
from .errors import error_info, find_error
from .words import REDACTED, VENDOR, read_logprobs, read_stop, read_usage, signed, unsealed

_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_MAX_CANDIDATES = 64
_OWN = {
    # parts of tools that run at Google: key of the part -> role
    "executableCode": "server_tool_call",
    "codeExecutionResult": "server_tool_result",
    "toolCall": "server_tool_call",
    "toolResponse": "server_tool_result",
    "functionResponse": "other",
}


class _Candidate:
    """One choice. `block`: the number of its open block, -1 if there is none."""

    __slots__ = ("block", "called", "cited", "finish", "index", "kind", "own", "pending")

    def __init__(self, index: int) -> None:
        self.index = index
        self.block = -1
        self.kind: BlockKind | None = None
        self.called = False
        self.cited: list[dict[str, Any]] = []
        self.finish: str | None = None
        self.own: dict[str, Any] = {}
        self.pending: tuple[dict[str, Any], str, Arguments] | None = None
        """A function call whose arguments come in pieces: call, signature, arguments so far."""


class GeminiStreamReader(FrameReader):
    """Frames of `:streamGenerateContent` -> events."""

    __slots__ = (
        "_blocked",
        "_calls",
        "_candidates",
        "_ended",
        "_id",
        "_next",
        "_passthrough",
        "_provider",
        "_started",
        "_usage",
        "_vendor",
    )

    def __init__(self, options: ReaderOptions) -> None:
        self._provider = options.provider
        self._vendor = options.vendor or VENDOR
        self._passthrough = options.passthrough
        self._candidates: dict[int, _Candidate] = {}
        self._usage: Usage | None = None
        self._blocked: str | None = None
        self._id = ""
        self._calls = 0
        self._next = 0
        self._started = False
        self._ended = False

    def read_frame(self, frame: Frame, events: list[Event]) -> None:
        """Append the events of one frame. Raises ProtocolError, after what of the frame could be read."""
        if self._ended or not frame.data.strip():
            return
        made: list[Event] = []
        try:
            self._read(decode_payload(frame.data, _ANY, "A chunk of the stream"), made)
        finally:  # what was told before something turned out to be wrong has changed our state: it counts
            if self._passthrough:
                for event in made:
                    event.origin = frame  # type: ignore[attr-defined]  # every event has one
            events += made

    def eof(self, leftover: bytes = b"") -> list[Event]:
        """The end of the answer, if it is whole; else one Error: the one that `leftover` tells, or that it was cut."""
        if self._ended:
            return []
        rest = leftover.strip().removeprefix(b"data:").strip()
        error = None
        if rest:
            try:
                error = find_error(_ANY.decode(rest))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                error = None
        self._ended = True
        if error is not None:
            return [ev.Error(error_info(error, provider=self._provider or None))]
        finished = self._candidates and all(c.finish is not None for c in self._candidates.values())
        if not self._started or not (finished or self._blocked):
            who = self._provider or "The provider"
            cut = f"; {len(rest)} bytes were left that form no chunk" if rest else ""
            message = f"{who} closed the stream without a finish reason: the answer is cut off{cut}"
            info = ErrorInfo(
                code=ErrorCode.PROVIDER_UNAVAILABLE,
                message=message,
                type="upstream_truncated",
                provider=self._provider or None,
            )
            return [ev.Error(info)]
        return self._end()

    # --- chunks -------------------------------------------------------------------------------------------------------

    def _read(self, chunk: Any, events: list[Event]) -> None:
        error = find_error(chunk)
        if error is not None:
            self._ended = True
            events.append(ev.Error(error_info(error, provider=self._provider or None)))
            return
        if not isinstance(chunk, dict):
            raise ProtocolError(f"A chunk of the stream must be a JSON object, got {type(chunk).__name__}")
        candidates = chunk.get("candidates")
        candidates = candidates if isinstance(candidates, list) else []
        for raw in candidates:
            if not isinstance(raw, dict):
                raise ProtocolError("A chunk's `candidates` must be an array of objects")
        self._start(chunk, events)
        usage = read_usage(chunk.get("usageMetadata"), self._vendor)
        if usage is not None:
            self._usage = usage if self._usage is None else self._usage.merge(usage)
            events.append(ev.UsageReport(usage))
        feedback = chunk.get("promptFeedback")
        reason = feedback.get("blockReason") if isinstance(feedback, dict) else None
        if isinstance(reason, str) and reason:
            self._blocked = reason
        for raw in candidates:
            self._candidate(raw, events)
        if not events:
            events.append(ev.Opaque(vendor=self._vendor, name="chunk"))

    def _start(self, chunk: dict[str, Any], events: list[Event]) -> None:
        if self._started:
            return
        self._started = True
        id, model = chunk.get("responseId"), chunk.get("modelVersion")
        self._id = id if isinstance(id, str) else ""
        events.append(ev.Start(id=self._id, model=model if isinstance(model, str) else ""))

    def _candidate(self, raw: dict[str, Any], events: list[Event]) -> None:
        index = raw.get("index", 0)
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < _MAX_CANDIDATES:
            raise ProtocolError("A candidate's index is not a sensible number")
        candidate = self._candidates.get(index)
        if candidate is None:
            candidate = self._candidates[index] = _Candidate(index)
        content = raw.get("content")
        parts = content.get("parts") if isinstance(content, dict) else None
        tokens = read_logprobs(raw.get("logprobsResult"))
        for part in parts if isinstance(parts, list) else []:
            if not isinstance(part, dict):
                raise ProtocolError("A candidate's parts must be objects")
            tokens = self._part(candidate, part, tokens, events)
        self._cite(candidate, raw, events)
        finish = raw.get("finishReason")
        if isinstance(finish, str) and finish and finish != "FINISH_REASON_UNSPECIFIED":
            candidate.finish = finish
        for name in ("finishMessage", "groundingMetadata", "safetyRatings", "urlContextMetadata"):
            if raw.get(name):
                candidate.own[name] = raw[name]

    def _part(
        self, candidate: _Candidate, part: dict[str, Any], tokens: list[Any] | None, events: list[Event]
    ) -> list[Any] | None:
        """Take a part; the log probabilities that it did not take."""
        signature = part.get("thoughtSignature")
        signature = signature if isinstance(signature, str) else ""
        call = part.get("functionCall")
        if isinstance(call, dict):
            self._call(candidate, call, signature, events)
            return tokens
        self._settle_call(candidate, events)
        text = part.get("text")
        if isinstance(text, str):
            return self._text(candidate, text, signature, tokens, events, thought=part.get("thought") is True)
        inline, file = part.get("inlineData"), part.get("fileData")
        if isinstance(inline, dict):
            self._media(candidate, inline.get("mimeType"), ev.MediaDelta(self._next, _string(inline, "data")), events)
        elif isinstance(file, dict):
            delta = ev.MediaDelta(self._next, url=_string(file, "fileUri"))
            self._media(candidate, file.get("mimeType"), delta, events)
        else:
            name = next((key for key in part if key in _OWN), None)
            if name is not None:
                role = _OWN[name]
                start = BlockStart(
                    block=self._next, type=BlockKind.OPAQUE, vendor=self._vendor, role=role, payload=part
                )
                self._open(candidate, start, events)
                self._close(candidate, events)
            elif signature:  # on a part that says nothing else
                self._text(candidate, "", signature, None, events, thought=False)
        return tokens

    def _text(
        self,
        candidate: _Candidate,
        text: str,
        signature: str,
        tokens: list[Any] | None,
        events: list[Event],
        *,
        thought: bool,
    ) -> list[Any] | None:
        if thought:
            self._think(candidate, text, signature, events)
            return tokens
        if not text and not signature and not tokens:
            return tokens
        if candidate.kind is not BlockKind.TEXT or not text:
            # A part that is nothing but a signature is a part: merged with the text before it, it would not be the one
            # that was signed.
            self._open(candidate, BlockStart(block=self._next, type=BlockKind.TEXT), events)
        if text or tokens:
            events.append(ev.TextDelta(candidate.block, text, tokens))
        if signature:
            self._close(candidate, events, extensions=signed(signature, self._vendor))
        return None

    def _think(self, candidate: _Candidate, text: str, signature: str, events: list[Event]) -> None:
        foreign = unsealed(signature) if signature else None
        if foreign is not None and foreign.id == REDACTED:
            start = BlockStart(
                block=self._next, type=BlockKind.REDACTED_REASONING, vendor=foreign.vendor, data=foreign.value
            )
            self._open(candidate, start, events)
            self._close(candidate, events)
            return
        if not text and not signature:
            return
        if candidate.kind is not BlockKind.REASONING:
            start = BlockStart(block=self._next, type=BlockKind.REASONING, vendor=self._vendor)
            self._open(candidate, start, events)
        if text:
            events.append(ev.ReasoningDelta(candidate.block, text))
        if signature:
            events.append(ev.SignatureDelta(candidate.block, signature))
            self._close(candidate, events)

    def _media(self, candidate: _Candidate, media_type: Any, delta: ev.MediaDelta, events: list[Event]) -> None:
        start = BlockStart(
            block=self._next, type=BlockKind.MEDIA, media_type=media_type if isinstance(media_type, str) else ""
        )
        self._open(candidate, start, events)
        events.append(delta)
        self._close(candidate, events)

    # --- function calls -----------------------------------------------------------------------------------------------

    def _call(self, candidate: _Candidate, call: dict[str, Any], signature: str, events: list[Event]) -> None:
        pieces, goes_on = call.get("partialArgs"), call.get("willContinue") is True
        pending = candidate.pending
        if call.get("name") and pending is not None:
            self._settle_call(candidate, events)
            pending = None
        if pending is None:
            name = call.get("name")
            if not isinstance(name, str) or not name:
                if call:
                    raise ProtocolError("A function call has no name")
                return  # the end of one that has ended already
            args = call.get("args")
            if args is not None and not isinstance(args, dict):
                raise ProtocolError("A function call's args must be an object")
            if not goes_on and not pieces:
                self._tell_call(candidate, call, signature, encode(args or {}).decode(), events)
                return
            pending = candidate.pending = (call, signature, Arguments())
        elif signature and not pending[1]:
            pending = candidate.pending = (pending[0], signature, pending[2])
        for piece in pieces if isinstance(pieces, list) else []:
            if isinstance(piece, dict):
                pending[2].put(piece)
        if not goes_on:
            self._settle_call(candidate, events)

    def _settle_call(self, candidate: _Candidate, events: list[Event]) -> None:
        """Tell the call that came in pieces, if there is one."""
        pending, candidate.pending = candidate.pending, None
        if pending is not None:
            call, signature, arguments = pending
            self._tell_call(candidate, call, signature, arguments.text(), events)

    def _tell_call(
        self, candidate: _Candidate, call: dict[str, Any], signature: str, arguments: str, events: list[Event]
    ) -> None:
        id = call.get("id")
        seed = "".join([c for c in self._id if c.isalnum()])
        self._calls += 1
        start = BlockStart(
            block=self._next,
            type=BlockKind.TOOL_CALL,
            id=id if isinstance(id, str) and id else f"call_{seed}_{self._calls}" if seed else f"call_{self._calls}",
            name=call["name"],
            extensions=signed(signature, self._vendor) if signature else None,
        )
        candidate.called = True
        self._open(candidate, start, events)
        events.append(ev.ToolDelta(candidate.block, arguments))
        self._close(candidate, events)

    # --- blocks -------------------------------------------------------------------------------------------------------

    def _open(self, candidate: _Candidate, start: BlockStart, events: list[Event]) -> None:
        self._close(candidate, events)
        start.choice = candidate.index
        candidate.block, candidate.kind = self._next, start.type
        self._next += 1
        events.append(start)

    def _close(self, candidate: _Candidate, events: list[Event], extensions: dict[str, Any] | None = None) -> None:
        if candidate.block >= 0:
            events.append(ev.BlockStop(candidate.block, extensions=extensions))
        candidate.block, candidate.kind = -1, None

    def _cite(self, candidate: _Candidate, raw: dict[str, Any], events: list[Event]) -> None:
        """Sources: each as it is, with `url` and `title` for those who know no more. A chunk may repeat those before."""
        found = _citations(raw)
        if not found:
            return
        before, candidate.cited = candidate.cited, found
        news = found[len(before) :] if found[: len(before)] == before else found
        if news and candidate.kind is not BlockKind.TEXT:
            self._open(candidate, BlockStart(block=self._next, type=BlockKind.TEXT), events)
        events += [ev.CitationDelta(candidate.block, Citation(self._vendor, payload)) for payload in news]

    # --- the end ------------------------------------------------------------------------------------------------------

    def _end(self) -> list[Event]:
        events: list[Event] = []
        for candidate in self._candidates.values():
            self._settle_call(candidate, events)
            self._close(candidate, events)
        if not self._candidates:
            events.append(ev.Finish(reason=StopReason.CONTENT_FILTER, raw=self._blocked))
        for candidate in self._candidates.values():
            raw = candidate.finish or self._blocked or ""
            reason = read_stop(raw, calls=candidate.called)
            own = {self._vendor: candidate.own} if candidate.own else None
            events.append(ev.Finish(choice=candidate.index, reason=reason, raw=raw or None, extensions=own))
        events.append(ev.End(usage=self._usage))
        return events


def _string(raw: dict[str, Any], name: str) -> str:
    value = raw.get(name)
    return value if isinstance(value, str) else ""


def _citations(raw: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    metadata = raw.get("citationMetadata")
    if isinstance(metadata, dict):
        sources = metadata.get("citationSources") or metadata.get("citations")
        held = [source for source in sources if isinstance(source, dict)] if isinstance(sources, list) else []
        found += [_told(source, source.get("uri"), source.get("title")) for source in held]
    grounding = raw.get("groundingMetadata")
    chunks = grounding.get("groundingChunks") if isinstance(grounding, dict) else None
    for chunk in chunks if isinstance(chunks, list) else []:
        web = chunk.get("web") if isinstance(chunk, dict) else None
        if isinstance(web, dict):
            found.append(_told({"groundingChunk": chunk}, web.get("uri"), web.get("title")))
    return found


def _told(own: dict[str, Any], url: Any, title: Any) -> dict[str, Any]:
    told = dict(own)
    if isinstance(url, str) and url:
        told["url"] = url
    if isinstance(title, str) and title:
        told["title"] = title
    for ours, theirs in (("start_index", "startIndex"), ("end_index", "endIndex")):
        if isinstance(own.get(theirs), int):
            told[ours] = own[theirs]
    return told
