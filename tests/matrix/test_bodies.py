"""Whole answers through every format, and the same answers as streams: two roads to one place."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest

from headrace.formats import FORMATS
from headrace.formats.base import ReaderOptions
from headrace.formats.whole import WholeReader, WholeWriter
from headrace.framing import Frame
from headrace.model import events as ev
from headrace.model.assemble import assemble, explode
from headrace.model.content import ToolCall
from headrace.model.errors import ErrorCode, ErrorInfo
from headrace.model.response import Response
from headrace.model.stop import StopReason

from .answers import ANSWERS, answer
from .cannot import SEALED, expected
from .columns import COLUMNS
from .pipes import ALL, Digest, digest, digest_events, options, through

EACH = pytest.mark.parametrize("response", [pytest.param(one, id=name) for name, one in ANSWERS.items()])
EACH_NAME = pytest.mark.parametrize("name", ALL)


def due(name: str, response: Response, *, whole: bool) -> Digest:
    """What arrives. In a whole body readers open what writers have sealed."""
    seals = name == "anthropic" or (name in COLUMNS and COLUMNS[name].seals)
    arrives, _ = expected(name, response, leaving={SEALED} if whole and seals else set())
    told = digest(arrives)
    if name == "anthropic":
        told.created = 0  # its messages carry no time
    if name in COLUMNS:
        COLUMNS[name].unnamed(told)
    if whole and name in ("openai_chat", "mistral"):
        for one in told.answers.values():
            one.media = [(medium[0].replace("audio/pcm", "audio/*"), *medium[1:]) for medium in one.media]
    return told


def _named(name: str, response: Response) -> str:
    """The model that a caller is told: the one that was asked for, where the provider named none."""
    told = digest(msgspec.structs.replace(response, model=response.model or options().model))
    if name in COLUMNS:
        COLUMNS[name].unnamed(told)
    return told.model


@EACH
@EACH_NAME
def test_a_body_comes_back(response: Response, name: str) -> None:
    format = FORMATS[name]
    body = format.write_response(response, options())
    assert isinstance(json.loads(body), dict)
    read = format.read_response(body, ReaderOptions())
    assert digest(read) == due(name, response, whole=True)
    assert read.origin is None
    again = format.read_response(format.write_response(read, options()), ReaderOptions())
    assert digest(again) == digest(read)


@EACH
@EACH_NAME
@pytest.mark.parametrize("framing", ["sse", "ndjson"])
def test_a_stream_says_what_the_body_says(response: Response, name: str, framing: str) -> None:
    events, _ = through(name, list(explode(response)), framing)
    assert digest(assemble(events)) == due(name, response, whole=False)


@EACH
@EACH_NAME
@pytest.mark.parametrize("other", ALL)
def test_two_formats_in_a_row(response: Response, name: str, other: str) -> None:
    """Body of one format -> model -> body of another -> model: as through the second one alone, of what was left."""
    body = FORMATS[name].write_response(response, options())
    first = FORMATS[name].read_response(body, ReaderOptions(provider="p"))
    second = FORMATS[other].read_response(FORMATS[other].write_response(first, options()), ReaderOptions())
    told = due(other, first, whole=True)
    assert replace(digest(second), id="", created=0) == replace(told, id="", created=0, model=_named(other, first))


@EACH
@EACH_NAME
def test_the_same_format_passes_a_body_through(response: Response, name: str) -> None:
    format = FORMATS[name]
    body = format.write_response(response, options()).replace(b"{", b'{ "x_unknown" : [1.0] ,', 1)
    read = format.read_response(body, ReaderOptions(passthrough=True))
    assert format.write_response(read, options(passthrough=True)) == body


@EACH
@EACH_NAME
@pytest.mark.parametrize("other", ALL)
def test_a_provider_that_sends_no_stream(response: Response, name: str, other: str) -> None:
    """A whole body where a stream was asked for becomes a stream in the caller's format, and the other way round."""
    body = FORMATS[name].write_response(response, options())
    reader = WholeReader(FORMATS[name], ReaderOptions(provider="p"))
    events = reader.read([Frame(body)])
    assert reader.eof() == []
    read = FORMATS[name].read_response(body, ReaderOptions(provider="p"))
    came, _ = through(other, events)
    model = _named(other, read)
    told = replace(due(other, read, whole=False), id="", created=0, model=model)
    assert replace(digest_events(came), id="", created=0) == told
    writer = WholeWriter(FORMATS[other], options())
    (frame,) = [frame for event in events for frame in writer.write([event])]
    whole = FORMATS[other].read_response(frame.data, ReaderOptions())
    assert replace(digest(whole), id="", created=0) == replace(
        due(other, read, whole=True), id="", created=0, model=model
    )


@EACH_NAME
def test_a_call_that_was_cut_is_never_told_as_whole(name: str) -> None:
    cut = ToolCall(id="call_1", name="weather", arguments='{"city": "Os', complete=False)
    response = answer(cut, stop=StopReason.MAX_TOKENS)
    body = FORMATS[name].write_response(response, options())
    read = FORMATS[name].read_response(body, ReaderOptions())
    calls = [part for part in read.choices[0].parts if isinstance(part, ToolCall)]
    assert calls == [] or [(call.arguments, call.complete) for call in calls] == [('{"city": "Os', False)]
    assert read.choices[0].stop is StopReason.MAX_TOKENS
    events, _ = through(name, list(explode(response)))
    came = [part for part in assemble(events).choices[0].parts if isinstance(part, ToolCall)]
    assert came == [] or [(call.arguments, call.complete) for call in came] == [('{"city": "Os', False)]


@EACH_NAME
def test_an_error_instead_of_a_body(name: str) -> None:
    info = ErrorInfo(code=ErrorCode.PROVIDER_RATE_LIMITED, message="Slow down", provider="p")
    body = FORMATS[name].write_error(info)
    reader = WholeReader(FORMATS[name], ReaderOptions(provider="p"))
    (event,) = reader.read([Frame(body)])
    assert isinstance(event, ev.Error)
    assert (event.error.code, event.error.message) == (ErrorCode.PROVIDER_RATE_LIMITED, "Slow down")
    writer = WholeWriter(FORMATS[name], options())
    (frame,) = writer.write([event])
    assert json.loads(frame.data) == json.loads(body)
