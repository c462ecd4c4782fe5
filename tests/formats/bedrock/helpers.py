"""Short ways to say what these tests say often."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.formats.bedrock import FORMAT
from headrace.framing import FRAMINGS, EventStreamDecoder
from headrace.framing.frame import Frame
from headrace.model.assemble import assemble
from headrace.model.events import Event
from headrace.model.grammar import Grammar
from headrace.model.response import Response
from tests.fixtures import FixtureRow, fixture_bytes


def message(name: str, **payload: Any) -> Frame:
    return Frame(json.dumps(payload).encode(), name)


START = message("messageStart", role="assistant")


def tool(index: int, id: str = "tooluse_1", name: str = "f", **fields: Any) -> Frame:
    use = {"toolUseId": id, "name": name, **fields}
    return message("contentBlockStart", contentBlockIndex=index, start={"toolUse": use})


def delta(index: int, **change: Any) -> Frame:
    return message("contentBlockDelta", contentBlockIndex=index, delta=change)


def text(index: int, text: str) -> Frame:
    return delta(index, text=text)


def arguments(index: int, input: str) -> Frame:
    return delta(index, toolUse={"input": input})


def thought(index: int, **said: Any) -> Frame:
    return delta(index, reasoningContent=said)


def end(index: int) -> Frame:
    return message("contentBlockStop", contentBlockIndex=index)


def stop(reason: str = "end_turn", **fields: Any) -> Frame:
    return message("messageStop", stopReason=reason, **fields)


def metadata(input: int = 10, output: int = 5, **fields: Any) -> Frame:
    usage = {"inputTokens": input, "outputTokens": output, "totalTokens": input + output, **fields.pop("usage", {})}
    return message("metadata", usage=usage, metrics={"latencyMs": 7}, **fields)


def read(frames: Sequence[Frame], *, eof: bool = True, **options: Any) -> list[Event]:
    """The events of these frames, checked against the grammar."""
    reader = FORMAT.stream_reader(ReaderOptions(**options))
    events = reader.read(frames)
    if eof:
        events += reader.eof()
    return legal(events)


def legal(events: list[Event]) -> list[Event]:
    grammar = Grammar()
    for event in events:
        grammar.accept(event)
    return events


def answer(*frames: Frame, **options: Any) -> Response:
    return assemble(read([START, *frames], **options))


def write(events: Sequence[Event], **options: Any) -> list[tuple[str, Any]]:
    """(name, payload) of the frames that these events become."""
    writer = FORMAT.stream_writer(WriterOptions(**options))
    return [(frame.event, json.loads(frame.data)) for frame in writer.write(events)]


def lost(events: Sequence[Event], **options: Any) -> set[str]:
    writer = FORMAT.stream_writer(WriterOptions(**options))
    writer.write(events)
    return writer.lost


def fixture_frames(row: FixtureRow) -> list[Frame]:
    """A recording's frames, as its framing has them."""
    data = fixture_bytes(row.file)
    decoder = EventStreamDecoder() if row.framing == "binary" else FRAMINGS["ndjson"].decoder()
    return decoder.feed(data) + decoder.eof()
