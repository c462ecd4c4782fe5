"""The reader of Ollama's streams, of /api/chat and /api/generate alike.

The rule: a block begins with the first content of its kind and ends where the kind changes; a tool call comes whole, in
one line, and calls are counted across the stream. Calls without an id (older servers) get one made of the time of the
answer, their position and what they say: the same bytes give the same id, other answers give others. The only end is a
line with `done`; a line with `error` is the other terminal marker.
"""

from __future__ import annotations

import hashlib
from typing import Any

from headrace.formats.base import FrameReader, ReaderOptions
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.errors import ErrorCode, ErrorInfo
from headrace.model.events import BlockKind, BlockStart, BlockStop, Event, ReasoningDelta, TextDelta

from .errors import error_info
from .images import image_type
from .lines import Call, Line, arguments_of, error_fields, read_line
from .words import DURATIONS, VENDOR, count_of, read_stop, read_time, read_usage


class OllamaStreamReader(FrameReader):
    """Reads one stream."""

    __slots__ = (
        "_block",
        "_calls",
        "_ended",
        "_ids",
        "_kind",
        "_next",
        "_passthrough",
        "_pending",
        "_provider",
        "_seed",
        "_started",
        "_vendor",
    )

    def __init__(self, options: ReaderOptions) -> None:
        self._provider = options.provider
        self._passthrough = options.passthrough
        self._vendor = options.vendor or VENDOR
        self._started = False
        self._ended = False
        self._block = -1  # the one that is open
        self._kind: BlockKind | None = None
        self._next = 0
        self._calls = 0
        self._ids: set[str] = set()
        self._seed = ""
        self._pending: list[Any] = []  # log probabilities after reasoning that may belong to a text that is to come

    def read_frame(self, frame: Frame, events: list[Event]) -> None:
        if self._ended:
            return
        made = self._read(frame.data)
        if self._passthrough:
            for event in made:
                event.origin = frame  # type: ignore[attr-defined]  # every event has one
        events += made

    def eof(self, leftover: bytes = b"") -> list[Event]:
        """[] after the end; else one Error."""
        if self._ended:
            return []
        self._ended = True
        who = self._provider or "The provider"
        cut = f"; {len(leftover)} bytes were left that form no line" if leftover.strip() else ""
        return [
            ev.Error(
                ErrorInfo(
                    code=ErrorCode.PROVIDER_UNAVAILABLE,
                    type="upstream_truncated",
                    message=f"{who} closed the stream before the line with `done`: the answer is incomplete{cut}",
                    provider=self._provider or None,
                )
            )
        ]

    def _read(self, data: bytes) -> list[Event]:
        """The events of a line. Raises ProtocolError before anything has changed."""
        line = read_line(data)
        if line.error:
            info = error_info(error_fields(data), provider=self._provider or None)
            self._ended = True
            return [ev.Error(info)]
        if not line.answers:
            return [ev.Opaque(vendor=self._vendor, name="line", content=True)]
        content = line.content()
        calls = [(call, arguments_of(call)) for call in content.tool_calls or ()]
        out: list[Event] = []
        if not self._started:
            self._start(line, out)
        if content.thinking:
            self._pending.clear()
            out.append(ReasoningDelta(self._open(BlockKind.REASONING, out), content.thinking))
        if content.content:
            self._text(content.content, line.logprobs, out)
        elif line.logprobs and not content.thinking:
            if self._kind is BlockKind.REASONING:
                self._pending += line.logprobs
            else:
                self._text("", line.logprobs, out)
        for image in content.images or ():
            self._image(image, out)
        for call, arguments in calls:
            self._call(call, arguments, out)
        if line.completed is not None:
            self._progress(line, out)
        if line.done:
            self._finish(line, out)
        elif not out:
            out.append(ev.Opaque(vendor=self._vendor, name="line"))
        return out

    def _start(self, line: Line, out: list[Event]) -> None:
        self._started = True
        self._seed = f"{line.model or ''} {line.created_at or ''}"
        out.append(ev.Start(model=line.model or "", created=read_time(line.created_at or "")))

    def _open(self, kind: BlockKind, out: list[Event]) -> int:
        if self._kind is not kind:
            self._close(out)
            vendor = self._vendor if kind is BlockKind.REASONING else ""
            out.append(BlockStart(block=self._next, type=kind, vendor=vendor))
            self._block, self._kind = self._next, kind
            self._next += 1
        return self._block

    def _settle(self, out: list[Event]) -> None:
        """Close what is open, with a text for log probabilities that no text has claimed."""
        if self._pending:
            self._text("", None, out)
        self._close(out)

    def _close(self, out: list[Event]) -> None:
        if self._kind is not None:
            out.append(BlockStop(self._block))
            self._kind = None

    def _text(self, text: str, logprobs: list[Any] | None, out: list[Event]) -> None:
        if self._pending:
            logprobs = self._pending + (logprobs or [])
            self._pending = []
        out.append(TextDelta(self._open(BlockKind.TEXT, out), text, logprobs or None))

    def _image(self, data: str, out: list[Event]) -> None:
        self._settle(out)
        out.append(BlockStart(block=self._next, type=BlockKind.MEDIA, media_type=image_type(data)))
        out.append(ev.MediaDelta(self._next, data))
        out.append(BlockStop(self._next))
        self._next += 1

    def _call(self, call: Call, arguments: str, out: list[Event]) -> None:
        self._settle(out)
        name = call.function.name if call.function is not None else ""
        id = call.id or self._made_id(name, arguments)
        if id in self._ids:
            id = f"{id}-{self._calls}"
        self._ids.add(id)
        self._calls += 1
        out.append(BlockStart(block=self._next, type=BlockKind.TOOL_CALL, id=id, name=name))
        out.append(ev.ToolDelta(self._next, arguments))
        out.append(BlockStop(self._next))
        self._next += 1

    def _made_id(self, name: str, arguments: str) -> str:
        said = "\0".join((self._seed, str(self._calls), name, arguments))
        return f"call_{hashlib.sha256(said.encode('utf-8', 'replace')).hexdigest()[:20]}"

    def _progress(self, line: Line, out: list[Event]) -> None:
        completed, total = count_of(line.completed), count_of(line.total)
        percent = min(100.0, 100.0 * completed / total) if completed is not None and total else None
        out.append(ev.Progress(message="drawing", percent=percent))

    def _finish(self, line: Line, out: list[Event]) -> None:
        self._settle(out)
        raw = line.done_reason or ""
        own: dict[str, Any] = {name: value for name in DURATIONS if (value := getattr(line, name)) is not None}
        out.append(
            ev.Finish(
                reason=read_stop(raw, called=self._calls > 0),
                raw=raw or None,
                extensions={self._vendor: own} if own else None,
            )
        )
        usage = read_usage(line.prompt_eval_count, line.prompt_eval_cached_count, line.eval_count)
        out.append(ev.End(usage=usage))
        self._ended = True
