"""Claude's own API in Bedrock's envelope: what is in the envelope is Anthropic's codec's, the envelope is tested here."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats import FORMATS
from headrace.formats.base import Located, ReaderOptions, Target, WireRequest, WriterOptions
from headrace.formats.bedrock_invoke import FORMAT
from headrace.framing import EventStreamDecoder
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.assemble import assemble
from headrace.model.content import Text, ToolCall
from headrace.model.errors import ErrorCode, ErrorInfo, GatewayError, InvalidRequest, ProtocolError
from headrace.model.events import BlockKind, BlockStart, Event
from headrace.model.grammar import Grammar
from headrace.model.stop import StopReason
from headrace.model.usage import Usage
from tests.fixtures import fixture_bytes, requires_fixtures

ANTHROPIC = FORMATS["anthropic"]


def chunk(said: Any, **more: Any) -> Frame:
    data = said if isinstance(said, bytes) else json.dumps(said).encode()
    return Frame(json.dumps({"bytes": base64.b64encode(data).decode(), **more}).encode(), "chunk")


MESSAGE: dict[str, Any] = {
    "id": "msg_bdrk_1",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 1},
}
METRICS = {"inputTokenCount": 10, "outputTokenCount": 7, "invocationLatency": 900, "firstByteLatency": 300}
SAID: list[dict[str, Any]] = [
    {"type": "message_start", "message": MESSAGE},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 7},
    },
    {"type": "message_stop", "amazon-bedrock-invocationMetrics": METRICS},
]
STREAM = [chunk(said, p="abcdefgh") for said in SAID]


def read(frames: list[Frame], **options: Any) -> list[Event]:
    reader = FORMAT.stream_reader(ReaderOptions(**options))
    return legal([*reader.read(frames), *reader.eof()])


def legal(events: list[Event]) -> list[Event]:
    grammar = Grammar()
    for event in events:
        grammar.accept(event)
    return events


def inner(frame: Frame) -> Any:
    assert frame.event == "chunk"
    return json.loads(base64.b64decode(json.loads(frame.data)["bytes"]))


# Streams.


def test_what_is_in_the_envelope() -> None:
    response = assemble(read(STREAM))
    assert response.choices[0].parts == [Text(text="Hi")]
    assert response.id == "msg_bdrk_1"
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (15, 7), "one source of counts, not two"
    assert response.extensions == {"anthropic": {"amazon-bedrock-invocationMetrics": METRICS}}


def test_the_same_format_sends_what_is_inside_unchanged() -> None:
    writer = FORMAT.stream_writer(WriterOptions(passthrough=True))
    frames = writer.write(read(STREAM, passthrough=True))
    assert [base64.b64decode(json.loads(frame.data)["bytes"]) for frame in frames] == [
        base64.b64decode(json.loads(frame.data)["bytes"]) for frame in STREAM
    ]


def test_writing() -> None:
    events: list[Event] = [
        ev.Start(id="x", model="m"),
        BlockStart(block=0, type=BlockKind.TOOL_CALL, id="a", name="f"),
        ev.ToolDelta(0, "{}"),
        ev.BlockStop(0),
        ev.Finish(reason=StopReason.TOOL_USE),
        ev.End(usage=Usage(input_tokens=1, output_tokens=2)),
    ]
    frames = FORMAT.stream_writer(WriterOptions()).write(events)
    assert [inner(frame)["type"] for frame in frames] == [
        *("message_start", "content_block_start", "content_block_delta", "content_block_stop"),
        *("message_delta", "message_stop"),
    ]
    assert assemble(read(frames)).choices[0].parts == [ToolCall(id="a", name="f", arguments="{}")]


def test_a_stream_that_fails_ends_in_an_exception() -> None:
    writer = FORMAT.stream_writer(WriterOptions())
    info = ErrorInfo(code=ErrorCode.PROVIDER_RATE_LIMITED, message="Slow down")
    first = writer.write([ev.Start(), BlockStart(block=0, type=BlockKind.TEXT)])
    last = writer.write([ev.TextDelta(0, "a"), ev.Error(info)])
    assert [inner(frame)["type"] for frame in [*first, *last[:-1]]] == [
        *("message_start", "content_block_start", "content_block_delta")
    ]
    assert last[-1] == Frame(b'{"message":"Slow down"}', "exception:throttlingException")
    (event,) = read(last[-1:])
    assert isinstance(event, ev.Error)
    assert (event.error.code, event.error.message) == (ErrorCode.PROVIDER_RATE_LIMITED, "Slow down")


@pytest.mark.parametrize("before", [0, 3, 5])
def test_an_exception_and_the_models_own_error(before: int) -> None:
    exception = Frame(b'{"message":"It broke","originalStatusCode":500}', "exception:modelTimeoutException")
    own = chunk({"type": "error", "error": {"type": "overloaded_error", "message": "It broke"}})
    for frame, code in ((exception, ErrorCode.TIMEOUT), (own, ErrorCode.PROVIDER_UNAVAILABLE)):
        last = read([*STREAM[:before], frame, *STREAM[before:]])[-1]
        assert isinstance(last, ev.Error)
        assert (last.error.code, last.error.message) == (code, "It broke")


@pytest.mark.parametrize("cut", range(len(STREAM)))
def test_the_end_of_the_bytes_is_not_the_end_of_the_answer(cut: int) -> None:
    last = read(STREAM[:cut])[-1]
    assert isinstance(last, ev.Error)
    assert last.error.type == "upstream_truncated"


@pytest.mark.parametrize(
    "frame",
    [
        Frame(b"{}", "chunk"),  # taken for the end, elsewhere
        Frame(b'{"bytes":null}', "chunk"),
        Frame(b'{"bytes":"!"}', "chunk"),
        Frame(b'{"bytes":1}', "chunk"),
        Frame(b"{", "chunk"),
        Frame(b"[]", "chunk"),
        chunk(b"{"),
        chunk([]),
        chunk({"outputText": "Hello", "index": 0}),
    ],
)
def test_malformed_chunks(frame: Frame) -> None:
    reader = FORMAT.stream_reader(ReaderOptions())
    with pytest.raises(ProtocolError):
        reader.read([frame])
    assert assemble(reader.read(STREAM)).choices[0].parts == [Text(text="Hi")]


def test_a_model_that_speaks_neither_is_named() -> None:
    with pytest.raises(ProtocolError, match="use the format `bedrock`"):
        FORMAT.stream_reader(ReaderOptions()).read([chunk({"outputText": "Hello"})])


@given(st.lists(st.tuples(st.sampled_from(["chunk", "", "other", "exception:x"]), st.binary(max_size=40)), max_size=6))
def test_anything_is_a_legal_stream_or_a_protocol_error(said: list[tuple[str, bytes]]) -> None:
    for wrapped in (False, True):
        reader = FORMAT.stream_reader(ReaderOptions())
        events: list[Event] = []
        for name, data in said:
            try:
                events += reader.read([chunk(data) if wrapped else Frame(data, name)])
            except ProtocolError as error:
                events += error.events
        legal([*events, *reader.eof()])


# Recordings.


def frames_of(name: str) -> list[Frame]:
    decoder = EventStreamDecoder()
    return decoder.feed(fixture_bytes(name)) + decoder.eof()


@requires_fixtures
def test_novas_own_stream() -> None:
    """Nova speaks Converse inside, each event under its name, each word in a block of its own."""
    response = assemble(read(frames_of("bedrock/invoke-nova.eventstream")))
    said = "".join(part.text for part in response.choices[0].parts if isinstance(part, Text))
    assert said.startswith("On their first")
    assert len(said) == 248
    assert response.choices[0].stop is StopReason.END_TURN
    assert response.usage == Usage(input_tokens=30, output_tokens=55)


@requires_fixtures
def test_titans_own_stream() -> None:
    reader = FORMAT.stream_reader(ReaderOptions())
    with pytest.raises(ProtocolError, match="neither Claude's nor Nova's"):
        reader.read(frames_of("bedrock/invoke-guardrail.eventstream"))


# Requests.

BODY = {
    "anthropic_version": "bedrock-2023-05-31",
    "anthropic_beta": ["x"],
    "max_tokens": 5,
    "messages": [{"role": "user", "content": "Hi"}],
    "x_unknown": [1.0],
}
HERE = Located("anthropic.claude-v2:1", True)
TARGET = Target(model="anthropic.claude-v2:1", vendor="anthropic")


def body_of(wire: WireRequest) -> dict[str, Any]:
    body = json.loads(wire.body)
    assert isinstance(body, dict)
    return body


def test_the_path_says_model_and_stream() -> None:
    for stream in (True, False):
        request = FORMAT.read_request(json.dumps(BODY).encode(), Located("claude", stream))
        assert (request.model, request.stream, request.format) == ("claude", stream, "bedrock_invoke")
        assert request.origin == BODY
        assert request.lost == ["request.x_unknown"]


def test_a_callers_own_body_goes_on_as_it_is() -> None:
    wire = FORMAT.write_request(FORMAT.read_request(json.dumps(BODY).encode(), HERE), TARGET)
    assert body_of(wire) == BODY
    assert wire.path == "/model/anthropic.claude-v2%3A1/invoke-with-response-stream"
    assert dict(wire.headers) == {"content-type": "application/json", "accept": "application/vnd.amazon.eventstream"}
    whole = Target(model="m", vendor="anthropic", stream=False)
    assert FORMAT.write_request(FORMAT.read_request(json.dumps(BODY).encode(), HERE), whole).path == "/model/m/invoke"


def test_arguments_stay_the_text_that_they_were() -> None:
    use = b'{"type":"tool_use","id":"a","name":"f","input":{"n": 1.50}}'
    body = b' {"max_tokens":5,"messages":[{"role":"assistant","content":[%b]}]} ' % use
    request = FORMAT.read_request(body, HERE)
    assert request.messages[0].parts == [ToolCall(id="a", name="f", arguments='{"n": 1.50}')]


def test_a_caller_of_anthropics_own_format() -> None:
    body = {"model": "m", "max_tokens": 5, "stream": True, "messages": BODY["messages"], "service_tier": "auto"}
    wire = FORMAT.write_request(ANTHROPIC.read_request(json.dumps(body).encode()), TARGET)
    assert body_of(wire) == {
        "anthropic_version": "bedrock-2023-05-31",
        "max_tokens": 5,
        "messages": BODY["messages"],
        "service_tier": "auto",
    }


def test_a_caller_here_and_a_provider_of_anthropics_own_format() -> None:
    wire = ANTHROPIC.write_request(FORMAT.read_request(json.dumps(BODY).encode(), HERE), TARGET)
    body = body_of(wire)
    assert (body["model"], body["stream"], body["max_tokens"]) == ("anthropic.claude-v2:1", True, 5)
    assert "anthropic_version" not in body
    assert wire.lost == ("request.x_unknown",)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{}", "messages"),
        (b'{"model":"x","messages":[]}', "model"),
        (b'{"stream":true}', "stream"),
        (b"[]", None),
        (b'{"messages":[{"role":"user","content":"Hi"}]}', "max_tokens"),
    ],
)
def test_bad_bodies(body: bytes, param: str | None) -> None:
    with pytest.raises(InvalidRequest) as caught:
        FORMAT.read_request(body, HERE)
    assert caught.value.info.param in (param, "messages" if param == "max_tokens" else param)


# Whole answers.


def test_whole_answers_are_anthropics() -> None:
    body = {**MESSAGE, "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"}
    response = FORMAT.read_response(json.dumps(body).encode(), ReaderOptions())
    assert response.choices[0].parts == [Text(text="Hi")]
    assert json.loads(FORMAT.write_response(response, WriterOptions()))["content"] == body["content"]


def test_an_error_in_disguise() -> None:
    with pytest.raises(GatewayError) as caught:
        FORMAT.read_response(b'{"message":"slow","__type":"ThrottlingException"}', ReaderOptions())
    assert caught.value.info.code is ErrorCode.PROVIDER_RATE_LIMITED
