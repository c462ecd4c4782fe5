"""Events folded into a whole `Response`, and a whole `Response` told as events.

The only assembler in the tree: non-streaming answers, tests, the command line and records all use it. Fragments are kept
in lists and joined once, so folding is linear in the size of the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from . import events as ev
from .content import (
    Citation,
    Media,
    Opaque,
    Part,
    Reasoning,
    RedactedReasoning,
    Refusal,
    Text,
    ToolCall,
)
from .errors import ErrorInfo
from .events import BlockKind, BlockStart, Event
from .response import Choice, Response
from .stop import StopReason
from .usage import Usage


class _Block:
    __slots__ = (
        "citations",
        "complete",
        "extensions",
        "fields",
        "logprobs",
        "signature",
        "start",
        "texts",
        "transcript",
        "url",
    )

    def __init__(self, start: BlockStart) -> None:
        self.start = start
        self.texts: list[str] = []
        self.signature: list[str] = []
        self.transcript: list[str] = []
        self.url = ""
        self.citations: list[Citation] = []
        self.logprobs: list[object] = []
        self.fields: dict[str, list[str]] = {}
        self.extensions = dict(start.extensions) if start.extensions else None
        self.complete = False


class Assembler:
    """Feed it every event of one stream, in order; ask for `response()` at any time."""

    def __init__(self) -> None:
        self._start = ev.Start()
        self._blocks: dict[int, _Block] = {}
        self._finishes: dict[int, ev.Finish] = {}
        self._usage: Usage | None = None
        self._end: ev.End | None = None
        self.error: ErrorInfo | None = None
        """Set when the stream ended in an error; the response then holds what had come before it."""

    @property
    def ended(self) -> bool:
        """Whether a terminal event has come."""
        return self._end is not None or self.error is not None

    def feed(self, events: Iterable[Event]) -> None:
        for event in events:
            step = _STEPS.get(type(event))
            if step is not None:
                step(self, event)  # type: ignore[operator]  # the table pairs each type with the method that takes it

    def response(self) -> Response:
        """The answer so far. Choices in order of their index, parts in the order their blocks started."""
        choices: dict[int, Choice] = {}
        for block in self._blocks.values():
            choice = choices.setdefault(block.start.choice, Choice(index=block.start.choice, parts=[]))
            choice.parts.append(_part(block))
        for index, finish in self._finishes.items():
            choice = choices.setdefault(index, Choice(index=index, parts=[]))
            choice.stop = finish.reason
            choice.raw_stop = finish.raw
            choice.stop_sequence = finish.stop_sequence
            choice.extensions = finish.extensions
        start, end = self._start, self._end
        extensions = {**(start.extensions or {}), **((end.extensions if end else None) or {})}
        return Response(
            id=start.id,
            model=start.model,
            created=start.created,
            choices=[choices[index] for index in sorted(choices)],
            usage=self._usage,
            extensions=extensions or None,
            routing=end.routing if end else None,
            origin=end.origin if end else None,
        )

    def _on_start(self, event: ev.Start) -> None:
        self._start = event
        if event.usage is not None:
            self._usage = event.usage

    def _on_block_start(self, event: BlockStart) -> None:
        self._blocks[event.block] = _Block(event)

    def _on_text(self, event: ev.TextDelta | ev.RefusalDelta) -> None:
        block = self._blocks[event.block]
        block.texts.append(event.text)
        if event.logprobs:
            block.logprobs.extend(event.logprobs)

    def _on_reasoning(self, event: ev.ReasoningDelta) -> None:
        self._blocks[event.block].texts.append(event.text)

    def _on_signature(self, event: ev.SignatureDelta) -> None:
        self._blocks[event.block].signature.append(event.signature)

    def _on_tool(self, event: ev.ToolDelta) -> None:
        self._blocks[event.block].texts.append(event.arguments)

    def _on_media(self, event: ev.MediaDelta) -> None:
        block = self._blocks[event.block]
        block.texts.append(event.data)
        block.transcript.append(event.transcript)
        block.url = event.url or block.url
        if event.extensions:
            block.extensions = {**(block.extensions or {}), **event.extensions}

    def _on_opaque_delta(self, event: ev.OpaqueDelta) -> None:
        if event.field:
            self._blocks[event.block].fields.setdefault(event.field, []).append(event.text)

    def _on_citation(self, event: ev.CitationDelta) -> None:
        self._blocks[event.block].citations.append(event.citation)

    def _on_block_stop(self, event: ev.BlockStop) -> None:
        block = self._blocks[event.block]
        block.complete = event.complete
        if event.extensions:
            block.extensions = {**(block.extensions or {}), **event.extensions}

    def _on_usage(self, event: ev.UsageReport) -> None:
        self._usage = event.usage if self._usage is None else self._usage.merge(event.usage)

    def _on_finish(self, event: ev.Finish) -> None:
        self._finishes[event.choice] = event

    def _on_error(self, event: ev.Error) -> None:
        self.error = event.error

    def _on_end(self, event: ev.End) -> None:
        self._end = event
        if event.usage is not None:
            self._usage = event.usage


_STEPS = {
    # of the class, not of each instance: bound methods would be reference cycles
    ev.Start: Assembler._on_start,
    ev.BlockStart: Assembler._on_block_start,
    ev.TextDelta: Assembler._on_text,
    ev.RefusalDelta: Assembler._on_text,
    ev.ReasoningDelta: Assembler._on_reasoning,
    ev.SignatureDelta: Assembler._on_signature,
    ev.ToolDelta: Assembler._on_tool,
    ev.MediaDelta: Assembler._on_media,
    ev.OpaqueDelta: Assembler._on_opaque_delta,
    ev.CitationDelta: Assembler._on_citation,
    ev.BlockStop: Assembler._on_block_stop,
    ev.UsageReport: Assembler._on_usage,
    ev.Finish: Assembler._on_finish,
    ev.Error: Assembler._on_error,
    ev.End: Assembler._on_end,
}


def _text(block: _Block) -> Part:
    return Text(
        text="".join(block.texts),
        citations=block.citations or None,
        logprobs=block.logprobs or None,
        extensions=block.extensions,
    )


def _refusal(block: _Block) -> Part:
    return Refusal(text="".join(block.texts), logprobs=block.logprobs or None, extensions=block.extensions)


def _reasoning(block: _Block) -> Part:
    return Reasoning(
        text="".join(block.texts),
        signature="".join(block.signature) or None,
        vendor=block.start.vendor or None,
        id=block.start.id or None,
        extensions=block.extensions,
    )


def _redacted(block: _Block) -> Part:
    return RedactedReasoning(data=block.start.data, vendor=block.start.vendor, extensions=block.extensions)


def _tool_call(block: _Block) -> Part:
    return ToolCall(
        id=block.start.id,
        name=block.start.name,
        arguments="".join(block.texts) or "{}",
        complete=block.complete,
        extensions=block.extensions,
    )


def _media(block: _Block) -> Part:
    media_type = block.start.media_type
    return Media(
        type=media_type.partition("/")[0] or "image",
        media_type=media_type,
        data="".join(block.texts) or None,
        url=block.url or None,
        transcript="".join(block.transcript) or None,
        extensions=block.extensions,
    )


def _opaque(block: _Block) -> Part:
    payload = dict(block.start.payload or {})
    for field, texts in block.fields.items():
        payload[field] = "".join(texts)
    return Opaque(
        vendor=block.start.vendor,
        payload=payload,
        role=block.start.role or "other",
        extensions=block.extensions,
    )


_PARTS = {
    BlockKind.TEXT: _text,
    BlockKind.REFUSAL: _refusal,
    BlockKind.REASONING: _reasoning,
    BlockKind.REDACTED_REASONING: _redacted,
    BlockKind.TOOL_CALL: _tool_call,
    BlockKind.MEDIA: _media,
    BlockKind.OPAQUE: _opaque,
}


def _part(block: _Block) -> Part:
    return _PARTS[block.start.type](block)


def assemble(events: Iterable[Event]) -> Response:
    """The whole answer of a finished stream."""
    assembler = Assembler()
    assembler.feed(events)
    return assembler.response()


def explode(response: Response) -> Iterator[Event]:
    """A whole answer told as a stream: the inverse of `assemble`. Ends with `End`, whose origin is the response's.

    Choices that have the number of one before them get the next one that is free.
    """
    yield ev.Start(
        id=response.id,
        model=response.model,
        created=response.created,
        extensions=response.extensions,
    )
    block = 0
    numbers: set[int] = set()
    for choice in response.choices:
        number = choice.index if choice.index not in numbers else max(numbers) + 1
        numbers.add(number)
        for part in choice.parts:
            yield from _explode_part(part, block, number)
            block += 1
        yield ev.Finish(
            choice=number,
            reason=choice.stop or StopReason.OTHER,
            raw=choice.raw_stop,
            stop_sequence=choice.stop_sequence,
            extensions=choice.extensions,
        )
    yield ev.End(usage=response.usage, routing=response.routing, origin=response.origin)


def _explode_part(part: Part, block: int, choice: int) -> Iterator[Event]:
    complete = True
    extensions = part.extensions
    if isinstance(part, Text):
        yield BlockStart(block=block, type=BlockKind.TEXT, choice=choice, extensions=extensions)
        for citation in part.citations or ():
            yield ev.CitationDelta(block, citation)
        if part.text or part.logprobs:
            yield ev.TextDelta(block, part.text, part.logprobs)
    elif isinstance(part, Refusal):
        yield BlockStart(block=block, type=BlockKind.REFUSAL, choice=choice, extensions=extensions)
        yield ev.RefusalDelta(block, part.text, part.logprobs)
    elif isinstance(part, Reasoning):
        yield BlockStart(
            block=block,
            type=BlockKind.REASONING,
            choice=choice,
            id=part.id or "",
            vendor=part.vendor or "",
            extensions=extensions,
        )
        if part.text:
            yield ev.ReasoningDelta(block, part.text)
        if part.signature:
            yield ev.SignatureDelta(block, part.signature)
    elif isinstance(part, RedactedReasoning):
        yield BlockStart(
            block=block,
            type=BlockKind.REDACTED_REASONING,
            choice=choice,
            data=part.data,
            vendor=part.vendor,
            extensions=extensions,
        )
    elif isinstance(part, ToolCall):
        yield BlockStart(
            block=block,
            type=BlockKind.TOOL_CALL,
            choice=choice,
            id=part.id,
            name=part.name,
            extensions=extensions,
        )
        yield ev.ToolDelta(block, part.arguments)
        complete = part.complete
    elif isinstance(part, Media):
        yield BlockStart(
            block=block,
            type=BlockKind.MEDIA,
            choice=choice,
            media_type=part.media_type,
            extensions=extensions,
        )
        yield ev.MediaDelta(block, part.data or "", part.transcript or "", part.url or "")
    elif isinstance(part, Opaque):
        yield BlockStart(
            block=block,
            type=BlockKind.OPAQUE,
            choice=choice,
            vendor=part.vendor,
            role=part.role,
            payload=part.payload,
            extensions=extensions,
        )
    else:
        raise TypeError(f"a response cannot hold a {type(part).__name__}")
    yield ev.BlockStop(block, complete)
