"""The recordings of both endpoints: what is in them, however they are cut, and through the writer."""

from __future__ import annotations

import itertools
import json
import random
from typing import NamedTuple

import pytest

from headrace.formats import FORMATS
from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.framing import NDJSONDecoder
from headrace.framing.frame import Frame
from headrace.model.assemble import assemble
from headrace.model.content import Text
from headrace.model.events import Event
from headrace.model.stop import StopReason
from headrace.model.usage import Usage
from tests.fixtures import fixture_bytes, requires_fixtures

from .helpers import checked

pytestmark = requires_fixtures


class Told(NamedTuple):
    begins: str
    ends: str
    usage: Usage
    created: int


TOLD = {
    "ollama": Told("Why did the OpenTelemetry agent go", "!)", Usage(input_tokens=17, output_tokens=50), 1716582406),
    "ollama_generate": Told("A joke about OpenTelemetry!", "", Usage(input_tokens=17, output_tokens=71), 1716583716),
}
FILES = {"ollama": "ollama/chat.ndjson", "ollama_generate": "ollama/generate.ndjson"}
EACH = pytest.mark.parametrize("name", FILES)


def frames(name: str, cuts: list[int] | None = None) -> list[Frame]:
    data = fixture_bytes(FILES[name])
    edges = [0, *sorted(cuts or ()), len(data)]
    decoder = NDJSONDecoder()
    pieces = [decoder.feed(data[a:b]) for a, b in itertools.pairwise(edges)]
    return [frame for piece in (*pieces, decoder.eof()) for frame in piece]


def read(name: str, given: list[Frame], *, passthrough: bool = False) -> list[Event]:
    reader = FORMATS[name].stream_reader(ReaderOptions(passthrough=passthrough))
    return checked([*reader.read(given), *reader.eof()])


@EACH
def test_what_is_in_it(name: str) -> None:
    told = TOLD[name]
    response = assemble(read(name, frames(name)))
    (choice,) = response.choices
    (text,) = choice.parts
    assert isinstance(text, Text)
    assert text.text.startswith(told.begins)
    assert text.text.endswith(told.ends)
    raw = [json.loads(line) for line in fixture_bytes(FILES[name]).splitlines()]
    assert text.text == "".join(one["response"] if "response" in one else one["message"]["content"] for one in raw)
    assert (choice.stop, response.usage) == (StopReason.END_TURN, told.usage)
    assert (response.model, response.created) == ("llama3", told.created)
    own = (choice.extensions or {})["ollama"]
    assert own["total_duration"] == raw[-1]["total_duration"]


@EACH
def test_any_cut_gives_the_same_events(name: str) -> None:
    whole = read(name, frames(name))
    size = len(fixture_bytes(FILES[name]))
    assert read(name, frames(name, list(range(1, size)))) == whole
    for seed in range(3):
        assert read(name, frames(name, random.Random(seed).sample(range(1, size), 40))) == whole


@EACH
def test_the_same_format_gets_the_recorded_lines(name: str) -> None:
    given = frames(name)
    writer = FORMATS[name].stream_writer(WriterOptions(passthrough=True))
    sent = [frame for event in read(name, given, passthrough=True) for frame in writer.write([event])]
    assert sent == given


@EACH
def test_written_anew_it_says_the_same(name: str) -> None:
    events = read(name, frames(name))
    writer = FORMATS[name].stream_writer(WriterOptions())
    again = read(name, [frame for event in events for frame in writer.write([event])])
    assert again == events, "down to durations and the time"
