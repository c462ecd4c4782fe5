"""LLM-Stream 1.0, sentence by sentence: the draft's tables of requests and events, its examples, its error codes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.formats.base import ReaderOptions, Target, WriterOptions
from headrace.formats.llm_stream import FORMAT
from headrace.framing import FRAMINGS, Frame
from headrace.model import events as ev
from headrace.model.assemble import assemble
from headrace.model.content import Media, Text, ToolCall, ToolResult
from headrace.model.errors import ErrorCode, ErrorInfo, InvalidRequest, ProtocolError
from headrace.model.events import BlockKind, BlockStart, Event, TextDelta
from headrace.model.stop import StopReason
from headrace.model.usage import Usage
from tests.formats.standard.helpers import frames_of, payloads, write

USER = {"role": "user", "content": "What is the capital of France?"}
BASE: dict[str, Any] = {"version": "1.0", "stream": True, "model": "m", "messages": [USER]}


def request(**changes: Any) -> Any:
    body = {**BASE, **changes}
    return FORMAT.read_request(json.dumps({k: v for k, v in body.items() if v is not ...}).encode())


# --- requests (4.2 to 4.7) ------------------------------------------------------------------------------------------

IMAGE = {"type": "image", "media_type": "image/png", "data": "iVBORw0KGgo="}
CALL = {"id": "call_1", "name": "get_weather", "arguments": '{"city":"Vienna"}'}
TOOL = {"name": "get_weather", "description": "Weather.", "parameters": {"type": "object"}}

BAD: dict[str, tuple[dict[str, Any], str]] = {
    # what is wrong: (changes, path in the error)
    "version missing": ({"version": ...}, "version"),
    "version 2.0": ({"version": "2.0"}, "version"),
    "version a number": ({"version": 1.0}, "version"),
    "stream missing": ({"stream": ...}, "stream"),
    "stream a string": ({"stream": "true"}, "stream"),
    "model missing": ({"model": ...}, "model"),
    "model empty": ({"model": ""}, "model"),
    "messages missing": ({"messages": ...}, "messages"),
    "messages empty": ({"messages": []}, "messages"),
    "role missing": ({"messages": [{"content": "x"}]}, "messages[0].role"),
    "role unknown": ({"messages": [USER, {"role": "robot", "content": "x"}]}, "messages[1].role"),
    "content missing": ({"messages": [{"role": "user"}]}, "messages[0].content"),
    "content null of a user": ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    "content null without calls": ({"messages": [USER, {"role": "assistant", "content": None}]}, "messages[1].content"),
    "tool message without its id": ({"messages": [USER, {"role": "tool", "content": "x"}]}, "messages[1].tool_call_id"),
    "part of an unknown type": (
        {"messages": [{"role": "user", "content": [{"type": "smell"}]}]}, "messages[0].content[0].type"),
    "text part without text": ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    "image without media type": (
        {"messages": [{"role": "user", "content": [{"type": "image", "data": "AAAA"}]}]}, "messages[0].content[0].media_type"),
    "image without data": (
        {"messages": [{"role": "user", "content": [{"type": "image", "media_type": "image/png"}]}]}, "messages[0].content[0]"),
    "data that is no base64": (
        {"messages": [{"role": "user", "content": [{**IMAGE, "data": "*"}]}]}, "messages[0].content[0].data"),
    "call without arguments": (
        {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "name": "f"}]}]},
        "messages[1].tool_calls[0].arguments"),
    "arguments as an object": (
        {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [{**CALL, "arguments": {}}]}]},
        "messages[1].tool_calls[0].arguments"),
    "tool without name": ({"tools": [{"description": "d", "parameters": {}}]}, "tools[0].name"),
    "tool without description": ({"tools": [{"name": "f", "parameters": {}}]}, "tools[0].description"),
    "tool without parameters": ({"tools": [{"name": "f", "description": "d"}]}, "tools[0].parameters"),
    "parameters a list": ({"parameters": []}, "parameters"),
    "max_tokens a string": ({"parameters": {"max_tokens": "9"}}, "parameters.max_tokens"),
    "stop_sequences a string": ({"parameters": {"stop_sequences": "x"}}, "parameters.stop_sequences"),
    "metadata a string": ({"metadata": "x"}, "metadata"),
    "extension without namespace": ({"extensions": {"openai": {}}}, "extensions"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_requests_name_the_field(case: str) -> None:
    changes, path = BAD[case]
    with pytest.raises(InvalidRequest) as caught:
        request(**changes)
    assert caught.value.info.http_status == 400
    assert (caught.value.info.param or "").startswith(path) or path in caught.value.info.message


def test_a_string_means_one_text_part() -> None:
    one = request().messages
    other = request(messages=[{"role": "user", "content": [{"type": "text", "text": USER["content"]}]}]).messages
    assert one == other
    assert one[0].parts == [Text(text="What is the capital of France?")]


def test_all_that_a_request_can_say() -> None:
    found = request(
        messages=[
            {"role": "system", "content": "You are brief."},
            {"role": "user", "content": [{"type": "text", "text": "Look"}, IMAGE], "name": "ann"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "Vienna: 24C, sunny"},
        ],
        tools=[TOOL],
        parameters={"max_tokens": 5, "temperature": 0.0, "top_p": 0.5, "stop_sequences": ["a"], "unheard_of": 1},
        metadata={"request_id": "550e8400", "user_id": "u"},
        extensions={"vendor:openai": {"logprobs": True}, "vendor:nobody": {"x": 1}},
        unknown_field=1,
    )
    system, user, assistant, tool = found.messages
    assert (system.role, user.name) == ("system", "ann")
    assert user.parts[1] == Media(type="image", media_type="image/png", data="iVBORw0KGgo=")
    assert assistant.parts == [ToolCall(id="call_1", name="get_weather", arguments='{"city":"Vienna"}')]
    assert tool.parts == [ToolResult(tool_call_id="call_1", parts=[Text(text="Vienna: 24C, sunny")])]
    assert (found.tools[0].name, found.tools[0].parameters) == ("get_weather", {"type": "object"})
    assert (found.max_tokens, found.temperature, found.top_p, found.stop_sequences) == (5, 0.0, 0.5, ["a"])
    assert found.request_id == "550e8400"
    assert found.extensions["openai"] == {"logprobs": True}
    assert found.origin is not None
    assert found.origin["unknown_field"] == 1


def test_the_same_format_goes_on_as_it_came_but_for_the_model() -> None:
    found = request(parameters={"unheard_of": 1}, unknown_field=[1], extensions={"vendor:x": {"y": 2}})
    wire = FORMAT.write_request(found, Target(model="other", vendor="llm_stream"))
    assert json.loads(wire.body) == {**found.origin, "model": "other"}
    assert dict(wire.headers)["content-type"] == "application/llm-request+json"
    assert wire.lost == ()


# --- events (5.2 to 5.5) --------------------------------------------------------------------------------------------

EXAMPLE = """event: stream.start
data: {"v":"1.0","seq":0,"type":"stream.start","request_id":"550e8400-...","model":"example-model","created":1749292800}

event: content.delta
data: {"v":"1.0","seq":1,"type":"content.delta","index":0,"role":"assistant","delta":{"text":"The"}}

event: content.delta
data: {"v":"1.0","seq":2,"type":"content.delta","index":0,"role":"assistant","delta":{"text":" weather"}}

event: content.delta
data: {"v":"1.0","seq":3,"type":"content.delta","index":0,"role":"assistant","delta":{"text":" in Vienna"}}

event: content.delta
data: {"v":"1.0","seq":4,"type":"content.delta","index":0,"role":"assistant","delta":{"text":" is 24C and sunny."}}

event: content.stop
data: {"v":"1.0","seq":5,"type":"content.stop","index":0,"stop_reason":"end_turn"}

event: usage
data: {"v":"1.0","seq":6,"type":"usage","input_tokens":42,"output_tokens":8}

event: stream.end
data: {"v":"1.0","seq":7,"type":"stream.end","request_id":"550e8400-..."}

"""
"""Section 5.5, with each JSON on one line as section 5.1 demands."""

ANSWER: list[Event] = [
    ev.Start(model="example-model", created=1749292800),
    BlockStart(block=0, type=BlockKind.TEXT),
    *(TextDelta(0, text) for text in ("The", " weather", " in Vienna", " is 24C and sunny.")),
    ev.BlockStop(0),
    ev.Finish(reason=StopReason.END_TURN),
    ev.End(usage=Usage(input_tokens=42, output_tokens=8)),
]


def test_the_drafts_example_is_what_we_write() -> None:
    frames = write(FORMAT, ANSWER, WriterOptions(request_id="550e8400-..."))
    assert FRAMINGS["sse"].encoder().encode(frames).decode() == EXAMPLE


def test_the_drafts_example_is_read() -> None:
    reader = FORMAT.stream_reader(ReaderOptions())
    events = reader.read(FRAMINGS["sse"].decoder().feed(EXAMPLE.encode()))
    response = assemble(events)
    assert response.model == "example-model"
    assert response.choices[0].parts == [Text(text="The weather in Vienna is 24C and sunny.")]
    assert response.choices[0].stop is StopReason.END_TURN
    assert response.usage == Usage(input_tokens=42, output_tokens=8)
    assert isinstance(events[-1], ev.End)


def test_a_tool_call_is_whole_and_followed_by_its_stop() -> None:
    frames = payloads(write(FORMAT, [
        ev.Start(model="m"), BlockStart(block=0, type=BlockKind.TOOL_CALL, id="call_1", name="get_weather"),
        ev.ToolDelta(0, '{"city":'), ev.ToolDelta(0, '"Vienna"}'), ev.BlockStop(0),
        ev.Finish(reason=StopReason.TOOL_USE), ev.End(),
    ]))  # fmt: skip
    assert [frame["type"] for frame in frames] == ["stream.start", "tool.call", "content.stop", "stream.end"]
    assert frames[1] == {
        "v": "1.0", "seq": 1, "type": "tool.call", "index": 0, "id": "call_1", "name": "get_weather",
        "arguments": '{"city":"Vienna"}',
    }  # fmt: skip
    assert frames[2]["stop_reason"] == "tool_use"


@pytest.mark.parametrize("arguments", ['{"city":', "", "not json"])
def test_cut_arguments_are_never_sent_as_a_call(arguments: str) -> None:
    frames = payloads(write(FORMAT, [
        ev.Start(model="m"), BlockStart(block=0, type=BlockKind.TOOL_CALL, id="c", name="f"),
        ev.ToolDelta(0, arguments), ev.BlockStop(0, complete=False),
        ev.Finish(reason=StopReason.MAX_TOKENS), ev.End(),
    ]))  # fmt: skip
    assert "tool.call" not in [frame["type"] for frame in frames]
    assert [frame["stop_reason"] for frame in frames if frame["type"] == "content.stop"] == ["max_tokens"]


@pytest.mark.parametrize("reason", StopReason)
def test_stop_reasons_come_from_the_closed_set_and_come_back(reason: StopReason) -> None:
    events = [*ANSWER[:-2], ev.Finish(reason=reason, raw="theirs"), ANSWER[-1]]
    frames = write(FORMAT, events)
    stops = [frame["stop_reason"] for frame in payloads(frames) if frame["type"] == "content.stop"]
    assert len(stops) == 1
    assert stops[0] in ("end_turn", "max_tokens", "tool_use", "content_filter")
    choice = assemble(FORMAT.stream_reader(ReaderOptions()).read(frames)).choices[0]
    assert (choice.stop, choice.raw_stop) == (reason, "theirs")


@pytest.mark.parametrize("code", ErrorCode)
def test_errors_have_the_drafts_codes_and_end_with_stream_end(code: ErrorCode) -> None:
    frames = write(FORMAT, [*ANSWER[:4], ev.Error(ErrorInfo(code=code, message="why"))])
    *_, error, end = payloads(frames)
    assert (error["type"], end["type"]) == ("error", "stream.end")
    assert error["message"] == "why"
    assert error["code"] in (
        "rate_limited", "context_length_exceeded", "content_filtered", "internal_error", "overloaded"
    )  # fmt: skip
    assert "content.stop" not in [frame["type"] for frame in payloads(frames)], "an open block stays open"
    events = FORMAT.stream_reader(ReaderOptions()).read(frames)
    assert isinstance(events[-1], ev.Error)
    assert events[-1].error.code is code
    body = json.loads(FORMAT.write_error(ErrorInfo(code=code, message="why")))
    assert body["error"]["message"] == "why"
    assert FORMAT.read_error(500, {}, json.dumps(body).encode()).message


def test_a_plain_stream_of_somebody_else() -> None:
    frames = frames_of(
        {"v": "1.0", "seq": 0, "type": "stream.start", "model": "m", "created": 1, "shiny": {"new": 1}},
        {
            "v": "1.0",
            "seq": 1,
            "type": "content.delta",
            "index": 0,
            "role": "assistant",
            "delta": {"text": "a", "x": 1},
        },
        {"v": "1.0", "seq": 2, "type": "brand.new", "anything": 1},
        {"v": "1.0", "seq": 3, "type": "content.delta", "index": 0, "role": "assistant", "delta": {"text": "b"}},
        {"v": "1.0", "seq": 4, "type": "content.stop", "index": 0, "stop_reason": "end_turn"},
        {"v": "1.0", "seq": 5, "type": "stream.end"},
    )
    response = assemble(FORMAT.stream_reader(ReaderOptions()).read(frames))
    assert response.choices[0].parts == [Text(text="ab")]


@pytest.mark.parametrize("seqs", [(0, 2), (0, 0), (1, 2), (0, -1), (0, "1"), (0, 1.5)])
def test_a_gap_in_seq_is_found(seqs: tuple[Any, Any]) -> None:
    frames = frames_of(
        {"v": "1.0", "seq": seqs[0], "type": "stream.start", "model": "m", "created": 1},
        {"v": "1.0", "seq": seqs[1], "type": "content.delta", "index": 0, "role": "assistant", "delta": {"text": "a"}},
    )
    with pytest.raises(ProtocolError, match="seq"):
        FORMAT.stream_reader(ReaderOptions()).read(frames)


@pytest.mark.parametrize(
    "body", [b"", b"<html>bad gateway</html>", b"\xff\xfe", b"[]", b"x" * 1_000_000, b'{"error":5}']
)
@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
def test_any_body_of_an_error_is_read(status: int, body: bytes) -> None:
    info = FORMAT.read_error(status, {"retry-after": "3"}, body)
    assert info.message
    assert len(info.message) < 1000
    assert (info.http_status // 100) == (status // 100)


def test_whole_bodies_come_back() -> None:
    response = assemble(ANSWER)
    body = FORMAT.write_response(response, WriterOptions(request_id="r", created=1))
    assert json.loads(body)["request_id"] == "r"
    found = FORMAT.read_response(body, ReaderOptions())
    assert (found.model, found.usage) == (response.model, response.usage)
    assert [(c.parts, c.stop) for c in found.choices] == [(c.parts, c.stop) for c in response.choices]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"content":5}', b'{"type":"response","content":[{"type":5}]}'])
def test_bodies_that_are_none(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        FORMAT.read_response(body, ReaderOptions())


def test_a_frame_is_one_line() -> None:
    frames: list[Frame] = write(FORMAT, [*ANSWER[:2], TextDelta(0, "a\nb\u2028c\r"), *ANSWER[6:]])
    assert all(b"\n" not in frame.data and b"\r" not in frame.data for frame in frames)
