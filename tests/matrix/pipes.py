"""What all tests of the matrix share: bytes in any pieces -> events -> bytes, and what of an answer two formats must agree on.

The rule: the pipes are the gateway's own (framing decoders, the formats' readers and writers, the engine's choice of
encoder), put together as the engine does, but without its clock and its buffers. Answers are compared as `Digest`s: what a
caller can see of them, without how it was cut into deltas and blocks.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from headrace.engine.codecs import caller_encoder, caller_writer, remains
from headrace.engine.settings import Caller
from headrace.formats import FORMATS
from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.framing import FRAMINGS, Frame
from headrace.framing.sse import SSEEncoder
from headrace.model import events as ev
from headrace.model.assemble import Assembler
from headrace.model.content import (
    Media,
    Opaque,
    Reasoning,
    RedactedReasoning,
    Refusal,
    Text,
    ToolCall,
)
from headrace.model.errors import ErrorInfo, ProtocolError
from headrace.model.events import Event
from headrace.model.request import Request
from headrace.model.response import Choice, Response
from headrace.model.usage import Usage
from tests.fixtures import FixtureRow, fixture_bytes, fixture_index

from .columns import COLUMNS

ALL = ("llm_stream", "gateway", "openai_chat", "anthropic", *COLUMNS)
PIPES = [(name, framing) for name in ALL for framing in FORMATS[name].framings]
"""Every way a caller can get a stream."""

DONE = b"[DONE]"


def native_framing(name: str) -> str:
    return FORMATS[name].framings[0]


def options(request: Request | None = None, *, passthrough: bool = False) -> WriterOptions:
    return WriterOptions(
        request=request,
        request_id="req_1",
        created=1_750_000_000,
        model="some-model",
        provider="some-provider",
        passthrough=passthrough,
    )


# Recordings.


def format_of(row: FixtureRow) -> str | None:
    """Which of our formats a recording is in; None where it is another one."""
    if row.format == "anthropic.messages":
        return "anthropic"
    if row.format == "openai.completions" or row.format.split(".")[:2] == ["openai", "chat"]:
        return "openai_chat"
    return next((name for name, column in COLUMNS.items() if row.format in column.recordings), None)


def recordings() -> list[FixtureRow]:
    """The recorded streams of formats that we have."""
    damaged = {file for column in COLUMNS.values() for file in column.damaged}
    return [row for row in fixture_index() if format_of(row) is not None and row.file not in damaged]


def recorded_bytes(row: FixtureRow) -> bytes:
    """A recording in its format's native framing. Bare payloads get the envelope that they came in: event names, the
    end marker."""
    data = fixture_bytes(row.file)
    column = COLUMNS.get(format_of(row) or "")
    if column is not None:
        return data if column.recorded is None else column.recorded(row, data)
    if row.framing == "sse-raw":
        return data
    named = format_of(row) == "anthropic"
    decoder = FRAMINGS["ndjson"].decoder()
    frames = [
        Frame(frame.data, json.loads(frame.data)["type"] if named else "")
        for frame in (*decoder.feed(data), *decoder.eof())
    ]
    if not named:
        frames.append(Frame(DONE))
    return SSEEncoder().encode(frames)


# Pieces.


def byte_by_byte(data: bytes) -> Iterator[bytes]:
    return (data[place : place + 1] for place in range(len(data)))


def random_pieces(data: bytes, seed: int, longest: int = 200) -> Iterator[bytes]:
    dice = random.Random(seed)
    place = 0
    while place < len(data):
        size = dice.choice((1, 2, 3, dice.randint(1, longest)))
        yield data[place : place + size]
        place += size


# Pipes.


def read(
    name: str,
    pieces: Iterable[bytes],
    framing: str = "",
    *,
    passthrough: bool = False,
    vendor: str = "",
) -> list[Event]:
    """A provider's stream as events, malformed frames left out. NDJSON carries no end marker of OpenAI's.

    `framing` "": the format's native one, here as everywhere below.
    """
    format = FORMATS[name]
    framing = framing or format.framings[0]
    quirks = {"done_marker": False} if framing == "ndjson" and name in ("openai_chat", "mistral") else {}
    if name in COLUMNS:
        quirks |= COLUMNS[name].quirks
    reader = format.stream_reader(ReaderOptions(quirks=quirks, passthrough=passthrough, vendor=vendor))
    decoder = FRAMINGS[framing].decoder(**format.framing_options)
    events: list[Event] = []

    def take(frames: Sequence[Frame]) -> None:
        while frames:
            try:
                events.extend(reader.read(frames))
                return
            except ProtocolError as error:
                events.extend(error.events)
                frames = frames[error.consumed :]

    for piece in pieces:
        take(decoder.feed(piece))
    take(decoder.eof())
    unfinished, leftover = remains(decoder)
    for frame in unfinished:
        with suppress(ProtocolError):
            events.extend(reader.read([frame]))
    events.extend(reader.eof(leftover))
    return events


def frames_of(data: bytes, framing: str = "sse") -> list[Frame]:
    """The frames of a stream, a last one without its blank line included."""
    decoder = FRAMINGS[framing].decoder()
    return [*decoder.feed(data), *decoder.eof(), *remains(decoder)[0]]


@dataclass
class Written:
    """A caller's stream: its bytes, its frames before the framing, what the writer says that it lost."""

    data: bytes
    frames: list[Frame]
    lost: set[str]


def write(
    name: str,
    events: Sequence[Event],
    framing: str = "",
    *,
    request: Request | None = None,
    passthrough: bool = False,
) -> Written:
    """Events as a caller's stream, one event a call (writers may not rely on more)."""
    format = FORMATS[name]
    framing = framing or format.framings[0]
    caller = Caller(format, framing, stream=True, writer_options=options(request, passthrough=passthrough))
    writer, encoder = caller_writer(caller, caller.writer_options), caller_encoder(caller)
    frames: list[Frame] = []
    pieces = [encoder.prologue()]
    for event in events:
        made = writer.write([event])
        frames += made
        pieces.append(encoder.encode(made))
    pieces.append(encoder.epilogue())
    return Written(b"".join(pieces), frames, set(writer.lost))


def through(name: str, events: Sequence[Event], framing: str = "") -> tuple[list[Event], Written]:
    """Events written for a caller and read back as from a provider of the same format."""
    written = write(name, events, framing)
    return read(name, [written.data], framing), written


# What is compared.


@dataclass
class Call:
    id: str
    name: str
    arguments: Any
    """Parsed; the text itself where it is no JSON."""
    complete: bool


@dataclass
class Answer:
    """One choice."""

    text: str = ""
    refusal: str = ""
    reasoning: str = ""
    signatures: list[tuple[str, str]] = field(default_factory=list)
    redacted: list[tuple[str, str]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    citations: list[tuple[str, Any]] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    media: list[tuple[str, str, str, str]] = field(default_factory=list)
    """(media type, data, URL, transcript)"""
    opaque: list[tuple[str, str, Any]] = field(default_factory=list)
    """(vendor, role, payload)"""
    stop: str | None = None
    stop_sequence: str | None = None


@dataclass
class Digest:
    """An answer as its caller sees it."""

    id: str
    model: str
    created: int
    answers: dict[int, Answer]
    usage: tuple[int, int, int, int, int]
    """input, output, cached, cache write, reasoning; not said is 0."""
    cost: float | None
    estimated: bool
    error: str | None
    """The message."""


def response_of(events: Iterable[Event]) -> tuple[Response, ErrorInfo | None]:
    assembler = Assembler()
    assembler.feed(events)
    return assembler.response(), assembler.error


def digest(response: Response, error: ErrorInfo | None = None) -> Digest:
    usage = response.usage or Usage()
    counts = (
        usage.input_tokens,
        usage.output_tokens,
        usage.cached_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
    )
    return Digest(
        id=response.id,
        model=response.model,
        created=response.created,
        answers={choice.index: _answer(choice) for choice in response.choices},
        usage=tuple(count or 0 for count in counts),  # type: ignore[arg-type]  # there are five
        cost=usage.cost_usd,
        estimated=usage.estimated,
        error=error.message if error else None,
    )


def digest_events(events: Iterable[Event]) -> Digest:
    return digest(*response_of(events))


def _answer(choice: Choice) -> Answer:
    answer = Answer(stop=choice.stop, stop_sequence=choice.stop_sequence)
    for part in choice.parts:
        if isinstance(part, Text):
            answer.text += part.text
            answer.citations += [(citation.vendor, citation.payload) for citation in part.citations or ()]
            answer.logprobs += part.logprobs or []
        elif isinstance(part, Refusal):
            answer.refusal += part.text
            answer.logprobs += part.logprobs or []
        elif isinstance(part, Reasoning):
            answer.reasoning += part.text
            if part.signature:
                answer.signatures.append((part.vendor or "", part.signature))
        elif isinstance(part, RedactedReasoning):
            answer.redacted.append((part.vendor, part.data))
        elif isinstance(part, ToolCall):
            answer.calls.append(Call(part.id, part.name, parsed(part.arguments), part.complete))
        elif isinstance(part, Media):
            answer.media.append((part.media_type, part.data or "", part.url or "", part.transcript or ""))
        elif isinstance(part, Opaque):
            answer.opaque.append((part.vendor, part.role, _with_input_parsed(part.payload)))
    return answer


def _with_input_parsed(payload: dict[str, Any]) -> dict[str, Any]:
    """A server tool's input, which a stream tells as text and a body as an object."""
    given = payload.get("input")
    return {**payload, "input": parsed(given)} if isinstance(given, str) else payload


def parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


# How streams end.


def check_failed_ending(name: str, frames: Sequence[Frame], finished: Sequence[int]) -> None:
    """The table "How a failed stream ends" of spec/gateway.md. `finished`: choices that had really finished before."""
    if name in COLUMNS:
        COLUMNS[name].check_failed_ending(frames, finished)
        return
    payloads = [json.loads(frame.data) for frame in frames if frame.data != DONE]
    kinds = [frame.event for frame in frames]
    if name == "llm_stream":
        assert kinds[-2:] == ["error", "stream.end"]
        assert kinds.count("error") == kinds.count("stream.end") == 1
    elif name == "gateway":
        assert kinds[-1] == "error"
        assert kinds.count("error") == 1
        assert "done" not in kinds
    elif name == "openai_chat":
        assert frames[-1].data == DONE
        assert "error" in payloads[-1]
        assert [frame.data for frame in frames].count(DONE) == 1
        said = [choice for chunk in payloads for choice in chunk.get("choices", ()) if choice.get("finish_reason")]
        assert len(said) == len(finished), "a finish_reason was made up"
    else:
        assert kinds[-1] == "error"
        assert kinds.count("error") == 1
        assert "message_stop" not in kinds


def check_whole_ending(name: str, frames: Sequence[Frame]) -> None:
    """Exactly one ending, the format's own."""
    if name in COLUMNS:
        COLUMNS[name].check_whole_ending(frames)
        return
    ends = {"llm_stream": "stream.end", "gateway": "done", "anthropic": "message_stop"}
    found = [i for i, frame in enumerate(frames) if frame.data == DONE or frame.event == ends.get(name, " ")]
    assert found == [len(frames) - 1]
    assert "error" not in [frame.event for frame in frames]


def check_seq(name: str, frames: Sequence[Frame]) -> None:
    """Our own formats number their events from 0, without gaps."""
    if name in ("llm_stream", "gateway"):
        assert [json.loads(frame.data)["seq"] for frame in frames] == list(range(len(frames)))


def finished_choices(events: Iterable[Event]) -> list[int]:
    """The numbers of the choices that finished."""
    return [event.choice for event in events if isinstance(event, ev.Finish)]
