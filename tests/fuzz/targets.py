"""What is fuzzed: every decoder, reader of streams, bodies, errors and requests, taken from the registries.

A target takes bytes and returns; the errors that its contract names are part of that. Whatever else it raises is a
finding. Readers of streams are held to the grammar of events as well, and what they make of the bytes is written for a
caller, whose writer may not fail either.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from headrace.formats import FORMATS, PROVIDED, Format, base
from headrace.formats.base import Located, ReaderOptions, StreamReader
from headrace.formats.whole import WholeReader
from headrace.framing import FRAMINGS, Frame, FramingError
from headrace.model import events as ev
from headrace.model.assemble import explode
from headrace.model.errors import GatewayError, InvalidRequest, ProtocolError
from headrace.model.events import Event
from headrace.model.grammar import Grammar
from tests.matrix.answers import ANSWERS
from tests.matrix.pipes import ALL, format_of, options, recorded_bytes, recordings, write
from tests.matrix.requests import CASES

MAX_FRAME = 64 * 1024
"""Bound of a frame; small, so that it is met."""
SEED_BYTES = 16 * 1024
"""Larger recordings are no seeds: most mutations would change nothing that matters."""


@dataclass(frozen=True)
class Target:
    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]] = field(repr=False)
    """Inputs that are well formed, to begin with."""


class Finding(AssertionError):
    """What a target did that its contract does not allow."""


def pieces_of(data: bytes) -> Iterator[bytes]:
    """Cut in a way that depends on nothing but the bytes."""
    size = sum(data[:8]) % 61 + 1
    return (data[place : place + size] for place in range(0, len(data), size))


def _decode(framing: str, data: bytes, format: Format | None = None) -> Iterator[list[Frame]]:
    settings = format.framing_options if format is not None else {}
    decoder = FRAMINGS[framing].decoder(MAX_FRAME, **settings)
    try:
        for piece in pieces_of(data):
            yield decoder.feed(piece)
        yield decoder.eof()
    except FramingError:
        return


def _decoder(framing: str) -> Target:
    def run(data: bytes) -> None:
        for frames in _decode(framing, data):
            for frame in frames:
                if len(frame.data) > MAX_FRAME:
                    raise Finding(f"a frame of {len(frame.data)} bytes passed the bound")

    def seeds() -> list[bytes]:
        return [
            write(name, list(explode(response)), framing).data
            for name in ("openai_chat", "anthropic", "bedrock")
            for response in ANSWERS.values()
            if framing in FORMATS[name].framings
        ] or [FRAMINGS[framing].encoder().encode([Frame(b'{"a":1}', "x"), Frame(b'{"b":"\xc3\xa9"}')])]

    return Target(f"decode {framing}", run, seeds)


def read_all(reader: StreamReader, batches: Iterator[list[Frame]]) -> list[Event]:
    """As the engine reads where frames that cannot be read are left out, until the terminal event."""
    events: list[Event] = []
    for batch in batches:
        frames: Sequence[Frame] = batch
        while frames:
            try:
                events += reader.read(frames)
                break
            except ProtocolError as error:
                events += error.events
                frames = frames[max(error.consumed, 1) :]
    events += reader.eof()
    return events


def check_events(events: Sequence[Event], callers: Sequence[str]) -> None:
    """The grammar allows them up to the first terminal event, and each caller's writer takes them."""
    grammar = Grammar()
    said = []
    for event in events:
        said.append(event)
        grammar.accept(event)
        if isinstance(event, ev.End | ev.Error):
            break
    if not grammar.ended:
        raise Finding("no terminal event")
    for caller in callers:
        write(caller, said)


def _stream(name: str, framing: str) -> Target:
    format = PROVIDED[name]
    place = list(PROVIDED).index(name)

    def run(data: bytes) -> None:
        for passthrough in (False, True):
            reader = format.stream_reader(ReaderOptions(provider="acme", passthrough=passthrough))
            events = read_all(reader, _decode(framing, data, format))
            # One caller for each input keeps the rate up; which one it is depends on the bytes alone.
            check_events(events, [ALL[(place + len(data)) % len(ALL)]])

    return Target(f"stream {name} {framing}", run, lambda: stream_seeds(name, framing))


@cache
def stream_seeds(name: str, framing: str) -> list[bytes]:
    seeds = [write(name, list(explode(response)), framing).data for response in ANSWERS.values()]
    if framing == FORMATS[name].framings[0]:
        recorded = [recorded_bytes(row) for row in recordings() if format_of(row) == name]
        seeds += [data for data in recorded if len(data) <= SEED_BYTES]
    return seeds


def _body(name: str) -> Target:
    format = PROVIDED[name]

    def run(data: bytes) -> None:
        reader = WholeReader(format, ReaderOptions(provider="acme"))
        check_events(read_all(reader, iter([[Frame(data)]])), [ALL[len(data) % len(ALL)]])

    def seeds() -> list[bytes]:
        return [format.write_response(response, options()) for response in ANSWERS.values()]

    return Target(f"body {name}", run, seeds)


def _error(name: str) -> Target:
    format = PROVIDED[name]

    def run(data: bytes) -> None:
        for status in (400, 429, 503):
            info = format.read_error(status, {"retry-after": data[:8].decode("latin-1")}, data)
            for caller in ALL:
                FORMATS[caller].write_error(info)

    def seeds() -> list[bytes]:
        info = format.read_error(429, {}, b'{"error":{"message":"slow down","type":"x","code":"y"}}')
        return [format.write_error(info), b"<html>", b'{"message":"no"}', b'{"detail":[{"msg":"no"}]}']

    return Target(f"error {name}", run, seeds)


_UI_BODIES: dict[str, dict[str, Any]] = {
    "vercel_ui": {"id": "c", "model": "m", "messages": [{"role": "user", "parts": [{"type": "text", "text": "Hi"}]}]},
    "ag_ui": {
        "threadId": "t",
        "runId": "r",
        "state": {},
        "messages": [{"id": "1", "role": "user", "content": "Hi"}],
        "tools": [{"name": "f", "description": "", "parameters": {"type": "object"}}],
        "context": [{"description": "d", "value": "v"}],
        "forwardedProps": {"model": "m"},
    },
    "a2ui": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
}


def _request(name: str) -> Target:
    format = FORMATS[name]
    targets = [(other, base.Target(model="m", vendor=other.vendor)) for other in PROVIDED.values()]

    def run(data: bytes) -> None:
        try:
            request = format.read_request(data, Located(model="m", stream=True))
        except InvalidRequest:
            return
        other, target = targets[len(data) % len(targets)]
        try:
            wire = other.write_request(request, target)
        except InvalidRequest:
            return
        json.loads(wire.body)

    def seeds() -> list[bytes]:
        if name in _UI_BODIES:
            return [json.dumps(_UI_BODIES[name]).encode()]
        bodies = []
        for case in CASES:
            try:
                bodies.append(format.write_request(case.request, base.Target(model="m", vendor=format.vendor)).body)
            except GatewayError:
                continue  # this format cannot say it
        return bodies

    return Target(f"request {name}", run, seeds)


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        *(_decoder(framing) for framing in FRAMINGS),
        *(_stream(name, framing) for name, format in PROVIDED.items() for framing in format.framings),
        *(_body(name) for name in PROVIDED),
        *(_error(name) for name in PROVIDED),
        *(_request(name) for name in FORMATS),
    )
}
"""Everything that is fuzzed, by name."""
