"""The reader of OpenAI's Chat Completions stream and of all the dialects that call themselves compatible with it.

The rule: one tolerant reading for the whole family (missing and constant indices, doubled reasoning, usage anywhere,
errors in any shape and position), whose events are always in legal order. In passthrough a frame that any client of the
format can take as it is keeps its origin; one that had to be mended (an index that is not dense, an id repeated, a finish
reason that lies) does not, and is written anew.

Frames are read as plain objects, since nothing about their types can be relied on; what makes that affordable is the
template (template.py) that takes over after the first frame of each kind.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.formats.base import FrameReader, ReaderOptions
from headrace.formats.json import decode_payload
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.errors import ErrorCode, ErrorInfo, ProtocolError
from headrace.model.events import BlockKind, Event, ReasoningDelta, TextDelta, ToolDelta
from headrace.model.stop import StopReason
from headrace.model.usage import Usage

from .calls import Call
from .choice import Choice, Output
from .errors import VENDOR, error_info, find_error
from .stops import FAILURES, read_stop
from .template import Field, Template, Templates
from .think import ThinkSplitter
from .usage import read_usage

_DONE = b"[DONE]"
_MAX_CHOICES = 128
_CHUNK_FIELDS = frozenset(
    {"id", "object", "created", "model", "choices", "usage", "error", "error_type", "obfuscation", "prompt_progress"}
)
_PLAIN_EXTRAS = frozenset({"system_fingerprint", "service_tier"})
_CHOICE_FIELDS = frozenset({"index", "delta", "message", "text", "finish_reason", "logprobs", "error", "usage"})
_QUIET_FIELDS = frozenset({"role", "token_id", "channel"})
_CUT_OFF = frozenset({StopReason.MAX_TOKENS, StopReason.CONTEXT_WINDOW, StopReason.CONTENT_FILTER, StopReason.OTHER})
_TEXT_FIELDS: dict[str, Field] = {
    "content": "content",
    "reasoning_content": "reasoning_content",
    "reasoning": "reasoning",
}
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder()

_Target = tuple[Field, Choice, Call | None]


class ChatStreamReader(FrameReader):
    """Reads one stream. Quirks it knows: `done_marker` False (EOF after all choices have finished is the end),
    `think_tags` True, or "open" where the answer begins inside the reasoning."""

    __slots__ = (
        "_choices",
        "_done_marker",
        "_ended",
        "_extras",
        "_latest",
        "_out",
        "_passthrough",
        "_provider",
        "_start_extras",
        "_started",
        "_templates",
        "_think",
        "_usage",
    )

    def __init__(self, options: ReaderOptions, *, chunked: bool = False) -> None:
        """`chunked`: content in an array of chunks, and calls without an index, are the format's own way, and may pass as
        they are."""
        self._provider = options.provider or None
        self._passthrough = options.passthrough
        self._done_marker = options.quirks.get("done_marker") is not False
        self._think = options.quirks.get("think_tags")
        self._out = Output(options.vendor or VENDOR)
        self._out.chunked = chunked
        self._templates = Templates()
        self._latest: Template | None = None
        self._choices: dict[int, Choice] = {}
        self._usage: Usage | None = None
        self._extras: dict[str, Any] = {}
        self._start_extras: dict[str, Any] = {}
        self._started = False
        self._ended = False

    def read_frame(self, frame: Frame, events: list[Event]) -> None:
        latest = self._latest
        if latest is not None and not self._ended:
            text = latest.match(frame.data)
            if text is None:
                found = self._templates.match(frame.data)
                if found is not None:
                    latest, text = found
                    self._latest = latest
            if text and not frame.event:
                field, choice, call = latest.target
                origin = frame if self._passthrough else None
                if field == "content":
                    if choice.kind is BlockKind.TEXT:
                        latest.used = True
                        events.append(TextDelta(choice.block, text, None, origin))
                        return
                elif call is not None:
                    if choice.calls.last is call and not choice.finished:
                        latest.used = True
                        call.keep(text)
                        events.append(ToolDelta(call.block, text, origin))
                        return
                elif choice.kind is BlockKind.REASONING:
                    latest.used = True
                    events.append(ReasoningDelta(choice.block, text, origin))
                    return
        if not self._ended:
            self._read_frame(frame, events)

    def eof(self, leftover: bytes = b"") -> list[Event]:
        """One Error, unless the end has been seen; with the quirk `done_marker` False the end of a finished answer.

        `leftover` may be a bare JSON error, a whole answer in JSON where a stream was asked for, or a last `data:` line
        without its blank line.
        """
        events: list[Event] = []
        rest = leftover.strip().removeprefix(b"data:").strip()
        if rest and not self._ended:
            whole = self._read_leftover(rest, events)
            if whole and not self._ended:
                self._end()
        if not self._ended:
            if not self._done_marker and self._choices and all(c.finished for c in self._choices.values()):
                self._end()
            else:
                self._fail(self._truncated(rest))
        return events + self._out.take()

    def read_body(self, body: dict[str, Any]) -> list[Event]:
        """The events of a whole, non-streaming body, which is a chunk whose deltas are called messages."""
        self._out.audio_type = "audio/*"
        self._read_chunk(body)
        self._end()
        return self._out.take()

    def _read_leftover(self, rest: bytes, events: list[Event]) -> bool:
        """Read what formed no frame, if it is a whole JSON object or the end marker. Whether it was a whole answer."""
        try:
            body = None if rest.startswith(_DONE) else _decoder.decode(rest)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        if body is not None and not isinstance(body, dict):
            return False
        try:
            self._read_frame(Frame(rest), events)
        except ProtocolError:
            return False
        return body is not None and body.get("object") == "chat.completion"

    # One frame, the long way.

    def _read_frame(self, frame: Frame, events: list[Event]) -> None:
        out = self._out
        out.dirty = False
        pure: tuple[_Target, str] | None = None
        if frame.data.lstrip().startswith(_DONE):
            self._end()
        elif frame.data.strip():  # some servers send keepalives as empty data; strict clients stumble over them
            chunk = self._decode(frame)
            pure = self._read_chunk(chunk, named_error=frame.event == "error")
            if self._passthrough and not out.events and not out.dirty:
                content = not (chunk.keys() <= _CHUNK_FIELDS | _PLAIN_EXTRAS)
                out.events.append(ev.Opaque(vendor=out.vendor, name="chunk", content=content))
        made = out.take()
        if self._passthrough and not out.dirty:
            for event in made:
                event.origin = frame  # type: ignore[attr-defined]  # every event has one
        events += made
        if pure is not None and not (self._passthrough and out.dirty):
            target, text = pure
            self._latest = self._templates.learn(frame.data, target[0], text, target) or self._latest

    def _decode(self, frame: Frame) -> dict[str, Any]:
        try:
            chunk = decode_payload(frame.data, _decoder, "A chunk of the stream")
        except ProtocolError:
            if frame.event != "error":
                raise
            chunk = frame.data.decode("utf-8", "replace")
        if isinstance(chunk, dict):
            return chunk
        if frame.event != "error":
            raise ProtocolError(f"A chunk of the stream must be a JSON object, got {type(chunk).__name__}")
        self._out.dirty = True
        return {"error": chunk if isinstance(chunk, str) else "The provider reported an error"}

    def _read_chunk(self, chunk: dict[str, Any], *, named_error: bool = False) -> tuple[_Target, str] | None:
        """Take a chunk. The result is what a template can be made of, if anything. Raises before it changes anything."""
        error = find_error(chunk, named=named_error)
        if error is not None and not self._started:
            self._fail_as(error, chunk)
            return None
        choices = _outline(chunk)
        if error is None and not chunk.keys() <= _CHUNK_FIELDS:
            for name, value in chunk.items():
                if value is not None and name not in _CHUNK_FIELDS:
                    self._extras[name] = value
        usage = read_usage(_find_usage(chunk, choices), self._out.vendor)
        if usage is not None:
            self._usage = usage if self._usage is None else self._usage.merge(usage)
        self._start(chunk, choices, usage)
        if chunk.get("object") == "text_completion":
            self._out.dirty = True  # the older API, whose chunks no client of this one knows
        pure = None
        for position, raw in enumerate(choices):
            if not self._ended:
                pure = self._read_choice(raw, position, failing=error is not None)
        progress = chunk.get("prompt_progress")
        if isinstance(progress, dict) and self._started and not self._ended:
            self._out.events.append(_progress(progress, self._out.own(progress)))
        if error is not None:
            self._fail_as(error, chunk)
        return pure if len(choices) == 1 and usage is None and not self._ended else None

    def _start(self, chunk: dict[str, Any], choices: list[Any], usage: Usage | None) -> None:
        """The start, with the first chunk that has choices or names the answer (Azure's first has blank names). The event
        that tells of usage comes first among its frame's, so that a writer knows it before it passes the frame on."""
        out = self._out
        if self._started:
            if usage is not None:
                out.events.append(ev.UsageReport(usage))
            return
        id = chunk.get("id")
        out.stream_id = id if isinstance(id, str) else ""
        if not choices and not out.stream_id:
            out.dirty = usage is not None
            return
        model, created = chunk.get("model"), chunk.get("created")
        self._started = True
        self._start_extras = dict(self._extras)
        out.events.append(
            ev.Start(
                id=out.stream_id,
                model=model if isinstance(model, str) else "",
                created=created if isinstance(created, int) and not isinstance(created, bool) else 0,
                usage=usage,
                extensions=out.own(self._start_extras),
            )
        )

    # One choice.

    def _read_choice(self, raw: dict[str, Any], position: int, *, failing: bool) -> tuple[_Target, str] | None:
        """Take one choice of a chunk. `failing`: the chunk holds an error, so its finish reason says nothing."""
        choice = self._choice(raw.get("index"), position)
        delta = raw.get("delta")
        if not isinstance(delta, dict):
            delta = raw.get("message")
        if not isinstance(delta, dict):
            delta = {"content": raw.get("text")}
        if choice.finished:
            self._read_late(raw, delta)
            return None
        logprobs = raw.get("logprobs")
        choice.read_delta(delta, logprobs if isinstance(logprobs, dict) else {})
        finish = raw.get("finish_reason")
        if isinstance(finish, str) and finish:
            if not failing:
                self._finish(choice, finish, raw)
            return None
        self._out.dirty = self._out.dirty or finish == ""
        return None if logprobs else _find_pure(choice, delta)

    def _choice(self, index: Any, position: int) -> Choice:
        if index is None:
            index = position
            self._out.dirty = True
        choice = self._choices.get(int(index))
        if choice is None:
            think = ThinkSplitter(inside=self._think == "open") if self._think else None
            choice = self._choices[int(index)] = Choice(int(index), self._out, think)
        return choice

    def _read_late(self, raw: dict[str, Any], delta: dict[str, Any]) -> None:
        """A chunk of a choice that has finished: some servers finish twice, or send empty deltas along with usage."""
        if raw.get("finish_reason"):
            self._out.dirty = True
        if any(value for name, value in delta.items() if name not in _QUIET_FIELDS):
            name = "content after the finish reason"
            self._out.events.append(ev.Opaque(vendor=self._out.vendor, name=name, content=True))

    def _finish(self, choice: Choice, raw: str, said: dict[str, Any]) -> None:
        if raw.lower() in FAILURES:
            self._out.dirty = True
            self._fail(self._unavailable(f"The provider broke the answer off with the finish reason {raw[:80]!r}", raw))
            return
        reason = read_stop(raw, calls=bool(choice.calls.all), refused=choice.refused)
        if reason is StopReason.TOOL_USE and raw == "stop":
            self._out.dirty = True
        own = {k: v for k, v in said.items() if k not in _CHOICE_FIELDS and v is not None and v != {}}
        stop_sequence = own.get("stop_reason")  # vLLM: a token's number, or the sequence
        if not isinstance(stop_sequence, str):
            stop_sequence = None
        elif reason is StopReason.END_TURN:
            reason = StopReason.STOP_SEQUENCE
        choice.finish(cut_off=reason in _CUT_OFF)
        self._out.events.append(
            ev.Finish(
                choice=choice.index,
                reason=reason,
                raw=raw,
                stop_sequence=stop_sequence,
                extensions=self._out.own(own),
            )
        )

    # How a stream ends.

    def _end(self) -> None:
        """The end marker. Choices without a finish reason end here: there are providers that never send one (seen in
        recordings), and the marker says that the answer is whole. An answer without any choice is none."""
        if self._ended:
            return
        if not self._choices:
            self._fail(self._unavailable("The provider ended the stream without an answer", "empty_response"))
            return
        for choice in self._choices.values():
            if not choice.finished:
                choice.finish(cut_off=True)
                reason = StopReason.TOOL_USE if choice.calls.all else StopReason.OTHER
                self._out.events.append(ev.Finish(choice=choice.index, reason=reason))
                self._out.dirty = True
        news = {k: v for k, v in self._extras.items() if self._start_extras.get(k) != v}
        self._out.events.append(ev.End(usage=self._usage, extensions=self._out.own(news)))
        self._ended = True

    def _fail(self, info: ErrorInfo) -> None:
        if not self._ended:
            self._ended = True
            self._out.events.append(ev.Error(info))

    def _fail_as(self, error: Any, chunk: dict[str, Any]) -> None:
        """The provider's own error. Its frame may stand for it only where it says so as every client expects."""
        self._out.dirty = self._out.dirty or not chunk.get("error")
        self._fail(error_info(error, provider=self._provider))

    def _truncated(self, rest: bytes) -> ErrorInfo:
        missing = "the end marker ([DONE])" if self._done_marker else "the finish reason of every choice"
        cut = f"; {len(rest)} bytes were left that form no event" if rest else ""
        return self._unavailable(
            f"The provider closed the stream before {missing}: the answer is incomplete{cut}", "upstream_truncated"
        )

    def _unavailable(self, message: str, type: str) -> ErrorInfo:
        return ErrorInfo(code=ErrorCode.PROVIDER_UNAVAILABLE, message=message, type=type, provider=self._provider)


def _outline(chunk: dict[str, Any]) -> list[dict[str, Any]]:
    """The chunk's choices. Raises ProtocolError where they are not objects with a sensible index."""
    choices = chunk.get("choices")
    if choices is None:
        return []
    if not isinstance(choices, list):
        raise ProtocolError("A chunk's `choices` must be an array of objects")
    for choice in choices:
        if not isinstance(choice, dict):
            raise ProtocolError("A chunk's `choices` must be an array of objects")
        index = choice.get("index", 0)
        if index is not None and not (isinstance(index, int | float) and 0 <= index < _MAX_CHOICES):
            raise ProtocolError(f"A choice's `index` must be a number from 0 to {_MAX_CHOICES - 1}")
    return choices


def _find_pure(choice: Choice, delta: dict[str, Any]) -> tuple[_Target, str] | None:
    """The one field of this delta that said something: later frames may differ from this one in it alone."""
    if choice.think is not None and not choice.think.done:
        return None
    said = [(name, value) for name, value in delta.items() if value and name not in _QUIET_FIELDS]
    if len(said) != 1:
        return None
    name, value = said[0]
    if isinstance(value, str):
        field = _TEXT_FIELDS.get(name)
        return ((field, choice, None), value) if field is not None else None
    call = choice.calls.last
    if name != "tool_calls" or call is None or call.block < 0 or not isinstance(value, list) or len(value) != 1:
        return None
    fragment = value[0]
    function = fragment.get("function") if isinstance(fragment, dict) else None
    if not isinstance(function, dict) or function.get("name") or fragment.get("id") or fragment.get("extra_content"):
        return None
    arguments = function.get("arguments")
    return (("arguments", choice, call), arguments) if isinstance(arguments, str) and arguments else None


def _find_usage(chunk: dict[str, Any], choices: list[dict[str, Any]]) -> Any:
    usage = chunk.get("usage")
    if usage:
        return usage
    inner = chunk.get("x_groq")
    if isinstance(inner, dict) and inner.get("usage"):
        return inner["usage"]
    for choice in choices:
        if choice.get("usage"):
            return choice["usage"]
    return None


def _progress(progress: dict[str, Any], own: dict[str, Any] | None) -> ev.Progress:
    total, processed = progress.get("total"), progress.get("processed")
    percent = None
    if isinstance(total, int) and isinstance(processed, int) and total > 0:
        percent = min(100.0, max(0.0, 100.0 * processed / total))
    return ev.Progress(message="reading the prompt", percent=percent, extensions=own)
