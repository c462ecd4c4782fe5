"""What the tests of both endpoints share: lines by the word, streams read and checked against the grammar."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from headrace.formats.base import Format, ReaderOptions, WriterOptions
from headrace.formats.ollama import FORMAT
from headrace.framing.frame import Frame
from headrace.model.assemble import assemble
from headrace.model.content import Part
from headrace.model.events import Event
from headrace.model.grammar import Grammar

HEAD = {"model": "m", "created_at": "2026-01-01T00:00:00.123456789Z"}


def line(content: str = "", *, done: bool = False, top: dict[str, Any] | None = None, **said: Any) -> Frame:
    """A line of /api/chat. `said`: further fields of the message; `top`: of the line."""
    message = {"role": "assistant", "content": content, **said}
    return Frame(json.dumps({**HEAD, "message": message, "done": done, **(top or {})}).encode())


def last(reason: str | None = "stop", **counts: Any) -> Frame:
    reasons = {} if reason is None else {"done_reason": reason}
    return line(done=True, top={**reasons, **counts})


def call(name: str = "f", arguments: Any = None, **said: Any) -> dict[str, Any]:
    return {**said, "function": {"name": name, "arguments": {} if arguments is None else arguments}}


def checked(events: Sequence[Event]) -> list[Event]:
    grammar = Grammar()
    for event in events:
        grammar.accept(event)
    return list(events)


def read(frames: Iterable[Frame], **options: Any) -> list[Event]:
    """A whole stream, the end of the connection included."""
    reader = FORMAT.stream_reader(ReaderOptions(**options))
    events: list[Event] = []
    for frame in frames:
        events += reader.read([frame])
    return checked([*events, *reader.eof()])


def parts(frames: Iterable[Frame]) -> list[Part]:
    return assemble(read(frames)).choices[0].parts


def write(events: Sequence[Event], format: Format = FORMAT, **options: Any) -> list[dict[str, Any]]:
    writer = format.stream_writer(WriterOptions(**{"model": "m", "created": 1_767_225_600, **options}))
    return [json.loads(frame.data) for event in events for frame in writer.write([event])]


def lost(events: Sequence[Event], **options: Any) -> set[str]:
    writer = FORMAT.stream_writer(WriterOptions(**options))
    writer.write(events)
    return writer.lost
