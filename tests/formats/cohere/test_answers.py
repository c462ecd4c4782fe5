"""Cohere's streams and whole answers, read and written: what the matrix does not say of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.formats.cohere import FORMAT
from headrace.framing import Frame
from headrace.model import events as ev
from headrace.model.assemble import assemble
from headrace.model.content import Citation, Part, Reasoning, Text, ToolCall
from headrace.model.errors import ErrorCode, GatewayError, ProtocolError
from headrace.model.events import BlockKind, BlockStart, Event
from headrace.model.grammar import Grammar
from headrace.model.response import Response
from headrace.model.stop import StopReason
from headrace.model.usage import Usage
from tests.fixtures import FixtureRow, fixture_bytes, fixture_params, requires_fixtures

DONE = b"[DONE]"


def event(type: str, index: int | None = None, **message: Any) -> dict[str, Any]:
    place = {} if index is None else {"index": index}
    return {"type": type, **place, **({"delta": {"message": message}} if message else {})}


START = {"type": "message-start", "id": "m1", "delta": {"message": {"role": "assistant"}}}


def begin(index: int = 0, kind: str = "text") -> dict[str, Any]:
    return event("content-start", index, content={"type": kind, kind: ""})


def piece(text: str, index: int = 0, kind: str = "text") -> dict[str, Any]:
    return event("content-delta", index, content={kind: text})


def call(index: int = 0, id: str | None = "c1", name: str = "f") -> dict[str, Any]:
    function = {"name": name, "arguments": ""}
    return event("tool-call-start", index, tool_calls={"id": id, "type": "function", "function": function})


def arguments(text: str, index: int = 0) -> dict[str, Any]:
    return event("tool-call-delta", index, tool_calls={"function": {"arguments": text}})


def cited(index: int = 0, **fields: Any) -> dict[str, Any]:
    return event("citation-start", index, citations={"start": 0, "end": 2, "text": "Hi", "sources": [], **fields})


def end(reason: str = "COMPLETE", **delta: Any) -> dict[str, Any]:
    return {"type": "message-end", "delta": {"finish_reason": reason, **delta}}


def frames(payloads: Iterable[dict[str, Any]]) -> list[Frame]:
    return [Frame(json.dumps(payload).encode(), payload.get("type", "")) for payload in payloads]


def read(*payloads: dict[str, Any], eof: bool = True, **options: Any) -> list[Event]:
    """The events of these payloads, checked against the grammar."""
    reader = FORMAT.stream_reader(ReaderOptions(**options))
    events = reader.read(frames(payloads))
    events += reader.eof() if eof else []
    grammar = Grammar()
    for one in events:
        grammar.accept(one)
    return events


def parts(events: Sequence[Event]) -> list[Part]:
    (choice,) = assemble(events).choices
    return choice.parts


def write(*events: Event, **options: Any) -> list[dict[str, Any]]:
    """The payloads of these events; each has its event name."""
    writer = FORMAT.stream_writer(WriterOptions(**options))
    written = []
    for frame in writer.write(events):
        if frame.data != DONE:
            written.append(json.loads(frame.data))
            assert frame.event == written[-1]["type"]
    return written


def kinds(payloads: Iterable[dict[str, Any]]) -> list[str]:
    return [payload["type"] for payload in payloads]


# Recordings.


@pytest.mark.parametrize("row", fixture_params(format="cohere.v2"))
def test_a_recording_is_a_whole_answer(row: FixtureRow) -> None:
    data = fixture_bytes(row.file)
    if row.framing == "sse-raw":
        payloads = [json.loads(line[6:]) for line in data.split(b"\n") if line.startswith(b"data: {")]
    else:
        payloads = [json.loads(line) for line in data.splitlines() if line.strip()]
    response = assemble(read(*payloads))
    assert isinstance(read(*payloads)[-1], ev.End)
    assert response.choices[0].stop in (StopReason.END_TURN, StopReason.TOOL_USE)
    assert response.usage is not None
    assert response.usage.output_tokens


@requires_fixtures
def test_what_a_recorded_tool_turn_says() -> None:
    data = fixture_bytes("cohere/v2-tools.sse")
    response = assemble(read(*[json.loads(line[6:]) for line in data.split(b"\n") if line.startswith(b"data: {")]))
    plan, time_, weather = response.choices[0].parts
    assert isinstance(plan, Text)
    assert plan.text == "I will search for the current time and weather in Tokyo."
    assert plan.extensions == {"cohere": {"tool_plan": True}}
    assert isinstance(time_, ToolCall)
    assert isinstance(weather, ToolCall)
    assert (time_.id, json.loads(time_.arguments)) == ("get_time_dg5wwc00d8v5", {"location": "Tokyo"})
    assert (weather.name, weather.complete) == ("get_weather", True)
    usage = response.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (968, 83), "the real counts, not the charged ones"
    assert usage.vendor == {"cohere": {"billed_units": {"input_tokens": 62, "output_tokens": 28}}}


@requires_fixtures
def test_a_recorded_call_without_arguments() -> None:
    lines = fixture_bytes("cohere/cohere-empty-tool-call.jsonl").splitlines()
    response = assemble(read(*[json.loads(line) for line in lines if line.strip()]))
    one = response.choices[0].parts[-1]
    assert isinstance(one, ToolCall)
    assert (one.arguments, one.complete) == ("{}", True)
    assert response.usage is not None
    assert response.usage.cached_tokens == 704


# Reading.


def test_content_calls_and_citations_are_counted_each_for_themselves() -> None:
    told = parts(
        read(
            START,
            begin(0, "thinking"),
            piece("Hm", 0, "thinking"),
            event("content-end", 0),
            begin(1),
            piece("Hi", 1),
            event("content-end", 1),
            cited(0),
            event("citation-end", 0),
            call(0),
            arguments('{"a":1}', 0),
            event("tool-call-end", 0),
            call(1, "c2", "g"),
            event("tool-call-end", 1),
            end("TOOL_CALL"),
        )
    )
    thought, text, first, second = told
    assert isinstance(thought, Reasoning)
    assert (thought.text, thought.vendor) == ("Hm", "cohere")
    assert isinstance(text, Text)
    assert text.text == "Hi"
    assert [one.payload["text"] for one in text.citations or ()] == ["Hi"]
    assert isinstance(first, ToolCall)
    assert isinstance(second, ToolCall)
    assert [(one.id, one.name, one.arguments) for one in (first, second)] == [("c1", "f", '{"a":1}'), ("c2", "g", "{}")]


def test_arguments_of_calls_side_by_side_stay_apart() -> None:
    first, second = parts(
        read(
            START,
            call(0, "a"),
            call(1, "b"),
            arguments('{"x":', 0),
            arguments('{"y":', 1),
            arguments("1}", 0),
            arguments("2}", 1),
            event("tool-call-end", 1),
            event("tool-call-end", 0),
            end("TOOL_CALL"),
        )
    )
    assert isinstance(first, ToolCall)
    assert isinstance(second, ToolCall)
    assert (first.arguments, second.arguments) == ('{"x":1}', '{"y":2}')


def test_a_call_that_never_ended_is_not_whole() -> None:
    (one,) = parts(read(START, call(), arguments('{"a'), end("MAX_TOKENS")))
    assert isinstance(one, ToolCall)
    assert not one.complete


def test_a_call_without_an_id_gets_one_of_the_answers_own() -> None:
    first, second = parts(read(START, call(0, None), event("tool-call-end", 0), call(0, None), end("TOOL_CALL")))
    assert isinstance(first, ToolCall)
    assert isinstance(second, ToolCall)
    assert (first.id, second.id) == ("call_m1_0", "call_m1_1")


def test_calls_that_end_like_any_other_answer() -> None:
    """10. BerriAI/litellm#35663: a call, and then a finish reason that does not speak of it."""
    assert assemble(read(START, call(), event("tool-call-end", 0), end())).choices[0].stop is StopReason.TOOL_USE


def test_a_delta_without_a_start_opens_its_content() -> None:
    """5. maximhq/bifrost#4890: what is added to a content that was never begun."""
    (text,) = parts(read(START, piece("Hi", 3), end()))
    assert isinstance(text, Text)
    assert text.text == "Hi"


def test_a_citation_of_thinking_is_passed_over_and_named() -> None:
    events = read(START, begin(0, "thinking"), piece("Hm", 0, "thinking"), cited(), piece("m", 0, "thinking"), end())
    (thought,) = parts(events)
    assert isinstance(thought, Reasoning)
    assert thought.text == "Hmm"
    assert [one.name for one in events if isinstance(one, ev.Opaque) and one.content] == ["citations of thinking"]


def test_a_citation_of_a_page_names_its_url() -> None:
    document = {"url": "https://example.com/a", "title": "A"}
    source = {"type": "document", "id": "d", "document": document}
    (text,) = parts(read(START, begin(), piece("Hi"), cited(sources=[source]), end()))
    assert isinstance(text, Text)
    assert text.citations is not None
    (citation,) = text.citations
    assert citation.vendor == "cohere"
    assert {name: citation.payload[name] for name in ("url", "title", "start_index", "end_index")} == {
        **document,
        "start_index": 0,
        "end_index": 2,
    }


def test_log_probabilities_of_single_tokens() -> None:
    tokens = {"text": "Hi", "token_ids": [7], "logprobs": [-0.5]}
    several = {"text": "Hi!", "token_ids": [7, 8], "logprobs": [-0.5, -1]}
    (text,) = parts(
        read(START, begin(), {**piece("Hi"), "logprobs": tokens}, {**piece("Hi!"), "logprobs": several}, end())
    )
    assert isinstance(text, Text)
    assert text.logprobs == [{"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}]


@pytest.mark.parametrize("reason", ["ERROR", "TIMEOUT", "USER_CANCEL"])
def test_a_finish_reason_that_is_a_failure(reason: str) -> None:
    events = read(
        START, begin(), piece("Hi"), end(reason, error="Out of memory", usage={"tokens": {"input_tokens": 3}})
    )
    last = events[-1]
    assert isinstance(last, ev.Error)
    assert (last.error.code, last.error.message, last.error.type) == (
        ErrorCode.PROVIDER_UNAVAILABLE,
        "Out of memory",
        reason.lower(),
    )
    assert any(isinstance(one, ev.UsageReport) for one in events)


def test_an_error_inside_the_stream_is_in_the_words_of_the_caller() -> None:
    """It is Cohere's object, which callers of other formats do not know."""
    for payload in ({"message": "No", "id": "x"}, {"type": "error", "message": "No"}, {"error": {"message": "No"}}):
        (error,) = read(payload, provider="p")
        assert isinstance(error, ev.Error)
        assert (error.error.message, error.error.vendor, error.error.provider) == ("No", "cohere", "p")


def test_an_error_without_its_frame() -> None:
    reader = FORMAT.stream_reader(ReaderOptions())
    reader.read(frames([START]))
    (error,) = reader.eof(b'{"message":"invalid api token"}')
    assert isinstance(error, ev.Error)
    assert error.error.message == "invalid api token"


def test_a_secret_in_an_error_is_blanked() -> None:
    for payload in ({"message": "bad key sk-abcdefghijkl"}, end("ERROR", error="bad key sk-abcdefghijkl")):
        error = read(START, payload)[-1]
        assert isinstance(error, ev.Error)
        assert "abcdefghijkl" not in error.error.message
        assert b"abcdefghijkl" not in FORMAT.write_error(error.error)


def test_nothing_follows_the_end() -> None:
    events = read(START, end(), begin(), {"message": "late"}, end("ERROR"))
    assert isinstance(events[-1], ev.End)
    reader = FORMAT.stream_reader(ReaderOptions())
    assert reader.read([*frames([START, end()]), Frame(DONE)]) == read(START, end(), eof=False)
    assert reader.eof() == []


@pytest.mark.parametrize("cut", [[], [START], [START, begin(), piece("Hi")], [START, call(), arguments("{}")]])
def test_a_stream_that_stops_before_its_end(cut: list[dict[str, Any]]) -> None:
    last = read(*cut)[-1]
    assert isinstance(last, ev.Error)
    assert last.error.type == "upstream_truncated"


BAD: dict[str, dict[str, Any]] = {
    "no type": {"x": 1},
    "content of no shape": event("content-start", 0, content=5),
    "no delta": {"type": "content-delta", "index": 0},
    "index": {**begin(), "index": -1},
    "index that is no number": {**piece("a"), "index": "0"},
    "a huge index": {**begin(), "index": 10**9},
    "a call without a name": event("tool-call-start", 0, tool_calls={"id": "a", "function": {}}),
    "arguments of no call": arguments("{}", 4),
    "citation": event("citation-start", 0, citations="x"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("passthrough", [False, True])
def test_a_bad_frame_changes_nothing(case: str, passthrough: bool) -> None:
    """27c. BerriAI/litellm#40404: what is around one malformed event can be read, and it is not sent on."""
    good = frames([START, begin(), piece("Hi"), end()])
    bad = Frame(json.dumps(BAD[case]).encode())
    for place in range(1, 4):
        reader = FORMAT.stream_reader(ReaderOptions(passthrough=passthrough))
        with pytest.raises(ProtocolError) as caught:
            reader.read([*good[:place], bad, *good[place:]])
        assert caught.value.consumed == place + 1
        events = [*caught.value.events, *reader.read(good[place:])]
        assert events == FORMAT.stream_reader(ReaderOptions(passthrough=passthrough)).read(good)


def test_many_contents_and_citations_take_time_in_proportion() -> None:
    def seconds(count: int) -> float:
        contents = [payload for index in range(count) for payload in (begin(index), event("content-end", index))]
        plans = [event("tool-plan-delta", tool_plan="x") for _ in range(count)]
        told = frames([START, *contents, *[cited(index) for index in range(count)], *plans])
        best = float("inf")
        for _ in range(3):
            reader = FORMAT.stream_reader(ReaderOptions())
            began = time.perf_counter()
            reader.read(told)
            best = min(best, time.perf_counter() - began)
        return best

    assert seconds(8000) < 24 * seconds(1000)


# Writing.


def block(number: int, kind: BlockKind, *deltas: Event, **start: Any) -> list[Event]:
    return [BlockStart(block=number, type=kind, **start), *deltas, ev.BlockStop(number)]


def test_nothing_empty_is_opened() -> None:
    """11. BerriAI/litellm#34692: an empty text before a tool call."""
    written = write(
        ev.Start(id="m1"),
        *block(0, BlockKind.TEXT),
        *block(1, BlockKind.REASONING, ev.ReasoningDelta(1, "")),
        *block(2, BlockKind.TEXT, ev.TextDelta(2, "Hi")),
        *block(3, BlockKind.TOOL_CALL, id="c1", name="f"),
        ev.Finish(reason=StopReason.END_TURN),
        ev.End(),
    )
    assert kinds(written) == [
        "message-start",
        "content-start",
        "content-delta",
        "content-end",
        "tool-call-start",
        "tool-call-delta",
        "tool-call-end",
        "message-end",
    ]
    assert [one["index"] for one in written if "index" in one] == [0] * 6
    assert written[5]["delta"]["message"]["tool_calls"]["function"]["arguments"] == "{}"
    assert written[-1]["delta"]["finish_reason"] == "TOOL_CALL", "clients run tools where it says so"


def test_calls_are_counted_without_the_contents() -> None:
    """2. BerriAI/litellm#32759: text is block 0, the call block 1: its index is 0."""
    written = write(
        ev.Start(),
        *block(0, BlockKind.TEXT, ev.TextDelta(0, "Hi")),
        BlockStart(block=1, type=BlockKind.TOOL_CALL, id="a", name="f"),
        BlockStart(block=2, type=BlockKind.TOOL_CALL, id="b", name="g"),
        ev.ToolDelta(1, '{"x":'),
        ev.ToolDelta(2, "{}"),
        ev.ToolDelta(1, "1}"),
        ev.BlockStop(1),
        ev.BlockStop(2),
        ev.Finish(reason=StopReason.TOOL_USE),
        ev.End(),
    )
    told = [(one["type"], one["index"]) for one in written if one["type"].startswith("tool-call")]
    assert told == [
        ("tool-call-start", 0),
        ("tool-call-start", 1),
        ("tool-call-delta", 0),
        ("tool-call-delta", 1),
        ("tool-call-delta", 0),
        ("tool-call-end", 0),
        ("tool-call-end", 1),
    ]


def test_a_plan_is_told_as_a_plan() -> None:
    events = read(
        START, event("tool-plan-delta", tool_plan="I look."), call(), event("tool-call-end", 0), end("TOOL_CALL")
    )
    written = write(*events)
    assert written[1] == event("tool-plan-delta", tool_plan="I look.")
    assert "content-start" not in kinds(written)


def test_a_failure_is_the_last_event_and_closes_nothing() -> None:
    error = read(START, begin(), piece("Hi"))
    writer = FORMAT.stream_writer(WriterOptions(request_id="r"))
    written = writer.write(error)
    assert [frame.event for frame in written] == ["message-start", "content-start", "content-delta", "message-end"]
    last = json.loads(written[-1].data)["delta"]
    assert last["finish_reason"] == "ERROR"
    assert "message-end" in last["error"]


def test_a_failure_before_everything() -> None:
    written = write(*read({"message": "No"}), request_id="r")
    assert kinds(written) == ["message-start", "message-end"]
    assert written[0]["id"] == "r"


def test_usage_has_both_counts() -> None:
    usage = Usage(input_tokens=9, output_tokens=4, cached_tokens=3)
    written = write(ev.Start(), ev.Finish(reason=StopReason.END_TURN), ev.End(usage=usage))
    counts = {"input_tokens": 9, "output_tokens": 4}
    assert written[-1]["delta"]["usage"] == {"billed_units": counts, "tokens": counts, "cached_tokens": 3}
    billed = {"input_tokens": 1, "output_tokens": 1, "search_units": 2}
    usage = Usage(input_tokens=9, output_tokens=4, vendor={"cohere": {"billed_units": billed}})
    written = write(ev.Start(), ev.Finish(reason=StopReason.END_TURN), ev.End(usage=usage))
    assert written[-1]["delta"]["usage"]["billed_units"] == billed


def test_only_billed_units_are_better_than_nothing() -> None:
    response = assemble(read(START, end(usage={"billed_units": {"input_tokens": 2, "output_tokens": 3}})))
    assert response.usage == Usage(input_tokens=2, output_tokens=3)


def test_a_citation_without_a_page_is_named() -> None:
    citation = Citation("anthropic", {"type": "char_location", "cited_text": "x"})
    writer = FORMAT.stream_writer(WriterOptions())
    writer.write([ev.Start(), BlockStart(block=0, type=BlockKind.TEXT), ev.CitationDelta(0, citation)])
    assert writer.lost == {"citations"}


def test_passing_through_keeps_every_byte() -> None:
    payloads: list[dict[str, Any]] = [
        START,
        {"type": "debug", "prompt": "x"},
        begin(),
        {**piece("Hi"), "x": [1.0]},
        cited(),
        end(x=1),
    ]
    given = frames(payloads)
    reader = FORMAT.stream_reader(ReaderOptions(passthrough=True))
    writer = FORMAT.stream_writer(WriterOptions(passthrough=True))
    assert writer.write(reader.read(given)) == [*given, Frame(DONE)]


def test_a_stream_that_is_passed_through_and_breaks() -> None:
    given = frames([START, begin(), piece("Hi")])
    reader = FORMAT.stream_reader(ReaderOptions(passthrough=True))
    writer = FORMAT.stream_writer(WriterOptions(passthrough=True))
    written = writer.write([*reader.read(given), *reader.eof()])
    assert written[:-1] == given
    assert json.loads(written[-1].data)["delta"]["finish_reason"] == "ERROR"


# Whole answers.


def body(message: dict[str, Any], reason: str = "COMPLETE", **fields: Any) -> bytes:
    told = {"role": "assistant", **message}
    return json.dumps({"id": "m1", "finish_reason": reason, "message": told, **fields}).encode()


def whole(data: bytes) -> Response:
    return FORMAT.read_response(data, ReaderOptions(provider="p"))


def test_citations_of_a_body_go_to_the_content_that_they_cite() -> None:
    content = [{"type": "text", "text": "One"}, {"type": "thinking", "thinking": "Hm"}, {"type": "text", "text": "Two"}]
    citations = [
        {"text": "Two", "content_index": 2, "sources": []},
        {"text": "One", "content_index": 0, "sources": []},
        {"text": "plan", "type": "PLAN", "sources": []},
        {"text": "?", "content_index": 9, "sources": []},
    ]
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    message = {"content": content, "citations": citations, "tool_plan": "A plan", "tool_calls": calls}
    told = whole(body(message, "TOOL_CALL")).choices[0].parts
    texts = [(one.text, [c.payload["text"] for c in one.citations or ()]) for one in told if isinstance(one, Text)]
    assert texts == [("One", ["One"]), ("Two", ["Two", "?"]), ("A plan", ["plan"])]
    assert [type(one) for one in told] == [Text, Reasoning, Text, Text, ToolCall]


def test_log_probabilities_of_a_body() -> None:
    tokens = [{"text": "Hi", "token_ids": [1], "logprobs": [-0.5]}, {"text": "!", "token_ids": [2], "logprobs": [-1]}]
    (text,) = whole(body({"content": [{"type": "text", "text": "Hi!"}]}, logprobs=tokens)).choices[0].parts
    assert isinstance(text, Text)
    assert text.text == "Hi!"
    assert [one["token"] for one in text.logprobs or ()] == ["Hi", "!"]


@pytest.mark.parametrize("data", [b"[]", b"{}", b'{"message": null}', b'{"message": {', b"\xff", b"[" * 100_000])
def test_a_body_that_is_none(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        whole(data)


def test_a_body_that_is_an_error() -> None:
    with pytest.raises(GatewayError) as raised:
        whole(b'{"message": "model overloaded", "id": "x"}')
    assert (raised.value.info.message, raised.value.info.vendor) == ("model overloaded", "cohere")
    with pytest.raises(GatewayError, match="broke off"):
        whole(body({"content": []}, "ERROR"))


def test_a_cut_call_is_left_out_of_a_body() -> None:
    calls: list[Part] = [
        ToolCall(id="a", name="f", arguments='{"x"', complete=False),
        ToolCall(id="b", name="g", arguments="{}"),
    ]
    response = assemble(read(START, end("MAX_TOKENS")))
    response.choices[0].parts = calls
    told = json.loads(FORMAT.write_response(response, WriterOptions(request_id="r")))
    assert [one["id"] for one in told["message"]["tool_calls"]] == ["b"]
    response.choices[0].parts = calls[:1]
    told = json.loads(FORMAT.write_response(response, WriterOptions(request_id="r")))
    assert "tool_calls" not in told["message"]


# Errors.


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, ErrorCode.INVALID_REQUEST),
        (401, ErrorCode.UNAUTHENTICATED),
        (404, ErrorCode.MODEL_NOT_FOUND),
        (422, ErrorCode.INVALID_REQUEST),
        (429, ErrorCode.PROVIDER_RATE_LIMITED),
        (498, ErrorCode.INVALID_REQUEST),
        (503, ErrorCode.PROVIDER_UNAVAILABLE),
    ],
)
def test_an_http_error(status: int, code: ErrorCode) -> None:
    data = b'{"message": "so it is", "id": "x"}'
    info = FORMAT.read_error(status, {"retry-after": "7"}, data)
    assert (info.code, info.message, info.retry_after) == (code, "so it is", 7.0)
    assert info.http_status == status
    assert json.loads(FORMAT.write_error(info)) == json.loads(data), "as it came, for Cohere's own callers"


@pytest.mark.parametrize("data", [b"", b"<html>", b"[]", b"null", b'"x"', b'{"message": 5}', b"\xff", b"[" * 100_000])
def test_an_http_error_of_any_kind(data: bytes) -> None:
    info = FORMAT.read_error(502, {}, data)
    assert info.code is ErrorCode.PROVIDER_UNAVAILABLE
    assert isinstance(json.loads(FORMAT.write_error(info))["message"], str)
