"""Short ways to say what these tests say often."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from headrace.formats.anthropic import FORMAT
from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.framing import NDJSONDecoder, SSEDecoder
from headrace.framing.frame import Frame
from headrace.model.assemble import assemble
from headrace.model.events import Event
from headrace.model.grammar import Grammar
from headrace.model.response import Response
from tests.fixtures import FixtureRow, fixture_bytes

MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 25, "output_tokens": 1},
}
START: dict[str, Any] = {"type": "message_start", "message": MESSAGE}
STOP: dict[str, Any] = {"type": "message_stop"}
PING: dict[str, Any] = {"type": "ping"}


def begin(index: int, type: str = "text", **fields: Any) -> dict[str, Any]:
    shells: dict[str, dict[str, Any]] = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}}
    block = {"type": type, **shells.get(type, {}), **fields}
    return {"type": "content_block_start", "index": index, "content_block": block}


def tool(index: int, id: str = "toolu_1", name: str = "w", **fields: Any) -> dict[str, Any]:
    return begin(index, "tool_use", id=id, name=name, **{"input": {}, **fields})


def delta(index: int, type: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": type, **fields}}


def text(index: int, text: str) -> dict[str, Any]:
    return delta(index, "text_delta", text=text)


def arguments(index: int, partial_json: str) -> dict[str, Any]:
    return delta(index, "input_json_delta", partial_json=partial_json)


def end(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def message_delta(stop: str | None = "end_turn", usage: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None, **fields}, "usage": usage}


def frame(payload: dict[str, Any], *, named: bool = True) -> Frame:
    return Frame(json.dumps(payload).encode(), payload.get("type", "") if named else "")


def frames(payloads: Iterable[dict[str, Any]]) -> list[Frame]:
    return [frame(payload) for payload in payloads]


def read(payloads: Iterable[dict[str, Any] | Frame], *, eof: bool = True, **options: Any) -> list[Event]:
    """The events of these payloads, checked against the grammar."""
    reader = FORMAT.stream_reader(ReaderOptions(**options))
    events = reader.read([each if isinstance(each, Frame) else frame(each) for each in payloads])
    if eof:
        events += reader.eof()
    return legal(events)


def legal(events: list[Event]) -> list[Event]:
    grammar = Grammar()
    for event in events:
        grammar.accept(event)
    return events


def write(events: Sequence[Event], **options: Any) -> list[dict[str, Any]]:
    """The payloads that these events become; each has its event name."""
    writer = FORMAT.stream_writer(WriterOptions(**options))
    written = []
    for each in writer.write(events):
        payload = json.loads(each.data)
        assert each.event == payload["type"]
        written.append(payload)
    return written


def lost(events: Sequence[Event], **options: Any) -> set[str]:
    writer = FORMAT.stream_writer(WriterOptions(**options))
    writer.write(events)
    return writer.lost


def answer(payloads: Iterable[dict[str, Any]]) -> Response:
    return assemble(read(payloads))


def fixture_frames(row: FixtureRow, data: bytes | None = None) -> list[Frame]:
    """A recording's frames. Some lack the blank line at their end, which is of no interest here."""
    data = fixture_bytes(row.file) if data is None else data
    if row.framing == "sse-raw":
        sse = SSEDecoder()
        return sse.feed(data) + sse.eof() + sse.unfinished()
    lines = NDJSONDecoder()
    return lines.feed(data) + lines.eof()
