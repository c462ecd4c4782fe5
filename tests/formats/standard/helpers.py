"""Running streams through the writers and readers of the project's two formats, and comparing what comes out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from headrace.formats.base import Format, ReaderOptions, WriterOptions
from headrace.formats.gateway import FORMAT as GATEWAY
from headrace.formats.llm_stream import FORMAT as LLM_STREAM
from headrace.framing.frame import Frame
from headrace.model.assemble import Assembler
from headrace.model.content import Part, Reasoning, Refusal, Text
from headrace.model.events import Event
from headrace.model.grammar import Grammar
from headrace.model.response import Response

FORMATS = (LLM_STREAM, GATEWAY)
OPTIONS = WriterOptions(request_id="req_1", created=1749292800, model="asked-model", provider="some-provider")


def write(format: Format, events: Iterable[Event], options: WriterOptions = OPTIONS) -> list[Frame]:
    """All frames, the events handed over one by one."""
    writer = format.stream_writer(options)
    return [frame for event in events for frame in writer.write([event])]


def read(format: Format, frames: Sequence[Frame], options: ReaderOptions | None = None) -> list[Event]:
    """All events, the end of the stream included; checked by the grammar."""
    reader = format.stream_reader(options or ReaderOptions(provider="up"))
    events = [event for frame in frames for event in reader.read([frame])]
    events += reader.eof()
    grammar = Grammar()
    for event in events:
        grammar.accept(event)
    assert grammar.ended
    return events


def payloads(frames: Iterable[Frame]) -> list[dict[str, Any]]:
    return [json.loads(frame.data) for frame in frames]


def frames_of(*objects: dict[str, Any]) -> list[Frame]:
    """Frames as another implementation may send them: with spaces in the JSON."""
    return [Frame(json.dumps(fields).encode(), str(fields.get("type", ""))) for fields in objects]


def assembled(events: Iterable[Event]) -> Assembler:
    assembler = Assembler()
    assembler.feed(events)
    return assembler


def says_nothing(part: Part) -> bool:
    """A block without any content, which the formats do not tell."""
    if part.extensions:
        return False
    if isinstance(part, Text):
        return not (part.text or part.citations or part.logprobs)
    if isinstance(part, Refusal):
        return not (part.text or part.logprobs)
    return isinstance(part, Reasoning) and not (part.text or part.signature or part.vendor or part.id)


def parts_by_choice(response: Response, *, ordered: bool) -> dict[int, list[Any]]:
    """Each choice's parts, without the empty ones. Not ordered: blocks side by side may change places."""
    told: dict[int, list[Any]] = {}
    for choice in response.choices:
        parts = [msgspec.to_builtins(part) for part in choice.parts if not says_nothing(part)]
        if parts:
            told[choice.index] = parts if ordered else sorted(parts, key=repr)
    return told
