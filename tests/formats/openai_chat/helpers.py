"""What the tests of this format share: chunks by the word, streams read and checked against the grammar."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.formats.openai_chat import FORMAT
from headrace.framing.frame import Frame
from headrace.framing.sse import SSEDecoder
from headrace.model import events as ev
from headrace.model.assemble import assemble
from headrace.model.content import Reasoning, Refusal, Text, ToolCall
from headrace.model.events import Event
from headrace.model.grammar import Grammar
from headrace.model.request import Message, Request
from headrace.model.response import Response
from tests.fixtures import fixture_bytes

DONE = Frame(b"[DONE]")
HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "m"}


def frame(body: Any, event: str = "") -> Frame:
    return Frame(json.dumps(body, separators=(",", ":")).encode(), event)


def chunk(
    delta: Any = None, *, index: Any = 0, finish: Any = None, choice: dict[str, Any] | None = None, **top: Any
) -> Frame:
    """A chunk with one choice. `choice`: further members of it; `top`: of the chunk."""
    said = {"index": index, "delta": {} if delta is None else delta, "finish_reason": finish, **(choice or {})}
    return frame({**HEAD, "choices": [said], **top})


def usage_chunk(**usage: Any) -> Frame:
    return frame({**HEAD, "choices": [], "usage": usage})


def calls(*fragments: dict[str, Any], **more: Any) -> Frame:
    return chunk({"tool_calls": list(fragments)}, **more)


def function(name: Any = None, arguments: Any = None, **call: Any) -> dict[str, Any]:
    said = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {**call, "function": said}


def checked(events: Sequence[Event]) -> list[Event]:
    """The events, which the grammar must accept."""
    grammar = Grammar()
    for event in events:
        grammar.accept(event)
    return list(events)


def read(frames: Iterable[Frame], *, leftover: bytes = b"", **options: Any) -> list[Event]:
    """A whole stream, the end of the connection included."""
    reader = FORMAT.stream_reader(ReaderOptions(**options))
    events = reader.read(list(frames))
    return checked(events + reader.eof(leftover))


def answer(frames: Iterable[Frame], **options: Any) -> Response:
    """The answer of a stream that ends well."""
    events = read(frames, **options)
    assert isinstance(events[-1], ev.End), events[-1]
    return assemble(events)


def error_of(events: Sequence[Event]) -> Any:
    last = events[-1]
    assert isinstance(last, ev.Error), last
    return last.error


def write(events: Sequence[Event], *, include_usage: bool = True, **options: Any) -> list[Frame]:
    request = Request(model="m", messages=[], include_usage=include_usage)
    writer = FORMAT.stream_writer(WriterOptions(request=request, request_id="r1", created=9, model="asked", **options))
    return writer.write(events)


def bodies(frames: Sequence[Frame]) -> list[Any]:
    """The frames as objects; the end marker as text."""
    return ["[DONE]" if f.data == b"[DONE]" else json.loads(f.data) for f in frames]


def deltas(frames: Sequence[Frame], index: int = 0) -> list[Any]:
    return [
        choice["delta"]
        for body in bodies(frames)
        if isinstance(body, dict)
        for choice in body.get("choices", [])
        if choice["index"] == index
    ]


def plain(events: Iterable[Event]) -> list[Event]:
    """The events without their origins, to compare what they say."""
    out = []
    for event in events:
        copy = type(event)(**{f: getattr(event, f) for f in event.__struct_fields__})
        copy.origin = None  # type: ignore[attr-defined]  # every event has one
        out.append(copy)
    return out


def summary(response: Response) -> list[dict[str, Any]]:
    """What must survive any translation, a choice: text, refusal, reasoning, calls, stop reason."""
    return [
        {
            "text": "".join(p.text for p in choice.parts if isinstance(p, Text)),
            "refusal": "".join(p.text for p in choice.parts if isinstance(p, Refusal)),
            "reasoning": "".join(p.text for p in choice.parts if isinstance(p, Reasoning)),
            "calls": [(p.id, p.name, json.loads(p.arguments)) for p in choice.parts if isinstance(p, ToolCall)],
            "stop": choice.stop,
        }
        for choice in response.choices
    ]


def fixture_stream(name: str) -> bytes:
    """A recording as an event stream. Payload lists get the framing, and the end marker, that their source took off."""
    data = fixture_bytes(name)
    if name.endswith(".sse"):
        return data
    lines = [line for line in data.split(b"\n") if line]
    return b"".join(b"data: " + line + b"\n\n" for line in [*lines, b"[DONE]"])


def decode(data: bytes, cuts: Iterable[int] = ()) -> tuple[list[Frame], bytes]:
    """(frames, leftover) of an event stream that arrives in pieces."""
    decoder = SSEDecoder(**FORMAT.framing_options)
    frames: list[Frame] = []
    start = 0
    for cut in [*sorted(cuts), len(data)]:
        frames += decoder.feed(data[start:cut])
        start = cut
    frames += decoder.eof()
    return frames + decoder.unfinished(), decoder.leftover()


def message(*parts: Any, role: str = "user") -> Message:
    return Message(role=role, parts=list(parts))
