"""LLM-005 and spec/gateway.md, sentence by sentence: the request, the events, the body, the error codes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.formats.base import ReaderOptions, Target, WriterOptions
from headrace.formats.gateway import FORMAT
from headrace.model import events as ev
from headrace.model.assemble import assemble
from headrace.model.content import Text, ToolCall
from headrace.model.errors import ERROR_TABLE, ErrorCode, ErrorInfo, InvalidRequest, ProtocolError
from headrace.model.events import BlockKind, BlockStart, Event, TextDelta
from headrace.model.request import Budget, ResponseFormat
from headrace.model.stop import StopReason
from headrace.model.usage import Usage
from tests.formats.standard.helpers import frames_of, payloads, write

USER = {"role": "user", "content": "Where is my order?"}
BASE: dict[str, Any] = {"stream": True, "model": "m", "messages": [USER]}
OPTIONS = WriterOptions(request_id="req_01H", provider="anthropic")


def request(**changes: Any) -> Any:
    body = {**BASE, **changes}
    return FORMAT.read_request(json.dumps({k: v for k, v in body.items() if v is not ...}).encode())


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "messages missing": ({"messages": ...}, "messages"),
    "messages empty": ({"messages": []}, "messages"),
    "unknown role": ({"messages": [{"role": "x", "content": "y"}]}, "messages[0].role"),
    "tool without id": ({"messages": [USER, {"role": "tool", "content": "y"}]}, "messages[1].tool_call_id"),
    "model a number": ({"model": 5}, "model"),
    "stream a string": ({"stream": "yes"}, "stream"),
    "temperature a string": ({"temperature": "hot"}, "temperature"),
    "max_tokens zero": ({"max_tokens": 0}, "max_tokens"),
    "stop_sequences a string": ({"stop_sequences": "x"}, "stop_sequences"),
    "response_format unknown": ({"response_format": {"type": "xml"}}, "response_format.type"),
    "budget a number": ({"budget": 5}, "budget"),
    "budget negative": ({"budget": {"max_cost_usd": -1}}, "budget.max_cost_usd"),
    "metadata a list": ({"metadata": []}, "metadata"),
    "extension without namespace": ({"extensions": {"openai": {}}}, "extensions"),
    "tools a mapping": ({"tools": {}}, "tools"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_requests_name_the_field(case: str) -> None:
    changes, path = BAD[case]
    with pytest.raises(InvalidRequest) as caught:
        request(**changes)
    assert caught.value.info.http_status == 400
    assert (caught.value.info.param or "").startswith(path) or path in caught.value.info.message


def test_the_fields_of_a_request() -> None:
    found = request(
        model=...,
        stream=...,
        tools=[{"name": "f", "description": "d", "parameters": {"type": "object"}}],
        response_format={"type": "json_schema", "schema": {"type": "object"}},
        temperature=0.5,
        top_p=0.9,
        max_tokens=7,
        stop_sequences=["END"],
        metadata={"request_id": "r", "tenant": "t"},
        budget={"max_cost_usd": 0.5, "max_tokens": 100},
        extensions={"vendor:openai": {"x": 1}},
    )
    assert found.model == "", "a default route may stand in"
    assert found.stream is False
    assert found.response_format == ResponseFormat(type="json_schema", schema={"type": "object"})
    assert (found.temperature, found.top_p, found.max_tokens, found.stop_sequences) == (0.5, 0.9, 7, ["END"])
    assert found.budget == Budget(max_cost_usd=0.5, max_tokens=100)
    assert found.metadata == {"request_id": "r", "tenant": "t"}
    assert found.extensions == {"openai": {"x": 1}}


def test_the_same_format_goes_on_as_it_came_but_for_the_model() -> None:
    found = request(unheard_of={"deep": [1]})
    wire = FORMAT.write_request(found, Target(model="other", vendor="headrace"))
    assert json.loads(wire.body) == {**found.origin, "model": "other"}


# --- events (LLM-005, sections 3 to 6) ------------------------------------------------------------------------------

ORDER: list[Event] = [
    ev.Start(model="claude-opus-4-8"),
    BlockStart(block=0, type=BlockKind.TEXT),
    TextDelta(0, "Your "),
    TextDelta(0, "order shipped."),
    ev.BlockStop(0),
    ev.UsageReport(Usage(input_tokens=412, output_tokens=5)),
    ev.Finish(reason=StopReason.END_TURN),
    ev.End(
        usage=Usage(input_tokens=412, output_tokens=5, cost_usd=0.0057),
        routing={"selected_provider": "anthropic", "failovers": 0, "cache": "miss"},
    ),
]


def test_the_seeds_example_is_what_we_write_with_seq_on_every_event() -> None:
    frames = write(FORMAT, ORDER, OPTIONS)
    assert [frame.event for frame in frames] == ["start", "delta", "delta", "usage", "done"]
    start, one, two, usage, done = payloads(frames)
    assert start == {
        "type": "start", "seq": 0, "model": "claude-opus-4-8", "provider": "anthropic", "request_id": "req_01H",
    }  # fmt: skip
    assert frames[1].data == b'{"type":"delta","seq":1,"data":{"content":"Your "}}'
    assert two == {"type": "delta", "seq": 2, "data": {"content": "order shipped."}}
    assert (usage["type"], usage["seq"]) == ("usage", 3)
    assert (usage["data"]["prompt_tokens"], usage["data"]["completion_tokens"]) == (412, 5)
    assert (done["type"], done["seq"]) == ("done", 4)
    assert done["usage"] == {"prompt_tokens": 412, "completion_tokens": 5, "total_tokens": 417, "cost_usd": 0.0057}
    assert done["routing"] == {"selected_provider": "anthropic", "failovers": 0, "cache": "miss"}
    assert one["data"] == {"content": "Your "}


def test_the_seeds_example_is_read_as_it_stands() -> None:
    """With seq on the deltas alone, as the seed shows it."""
    frames = frames_of(
        {"type": "start", "model": "claude-opus-4-8", "provider": "anthropic", "request_id": "req_01H"},
        {"type": "delta", "seq": 1, "data": {"content": "Your "}},
        {"type": "delta", "seq": 2, "data": {"content": "order shipped."}},
        {"type": "usage", "data": {"prompt_tokens": 412, "completion_tokens": 5}},
        {"type": "done", "usage": {"prompt_tokens": 412, "completion_tokens": 5, "total_tokens": 417, "cost_usd": 0.0057},
         "routing": {"selected_provider": "anthropic", "failovers": 0, "cache": "miss"}},
    )  # fmt: skip
    events = FORMAT.stream_reader(ReaderOptions()).read(frames)
    response = assemble(events)
    assert response.choices[0].parts == [Text(text="Your order shipped.")]
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.cost_usd) == (412, 5, 0.0057)
    assert response.routing == {"selected_provider": "anthropic", "failovers": 0, "cache": "miss"}


def test_tool_calls_are_built_and_then_whole() -> None:
    frames = payloads(write(FORMAT, [
        ev.Start(model="m"), BlockStart(block=0, type=BlockKind.TOOL_CALL, id="call_1", name="lookup_order"),
        ev.ToolDelta(0, '{"id":"12'), ev.ToolDelta(0, '34"}'), ev.BlockStop(0),
        ev.Finish(reason=StopReason.TOOL_USE), ev.End(),
    ]))  # fmt: skip
    calls = [frame["data"] for frame in frames if frame["type"] == "tool_call"]
    partial, last = calls[:-1], calls[-1]
    assert "".join(call["arguments_delta"] for call in partial) == '{"id":"1234"}'
    assert {call["complete"] for call in partial} == {False}
    assert all((call["id"], call["name"]) == ("call_1", "lookup_order") for call in calls)
    assert last == {"id": "call_1", "name": "lookup_order", "arguments": '{"id":"1234"}', "complete": True}
    # Callers that cannot handle partial arguments need the last event alone.
    whole = frames_of({"type": "start", "seq": 0, "model": "m"}, {"type": "tool_call", "seq": 1, "data": last},
                      {"type": "done", "seq": 2, "finish_reason": "tool_use"})  # fmt: skip
    response = assemble(FORMAT.stream_reader(ReaderOptions()).read(whole))
    assert response.choices[0].parts == [ToolCall(id="call_1", name="lookup_order", arguments='{"id":"1234"}')]


def test_cut_arguments_are_never_complete() -> None:
    frames = payloads(write(FORMAT, [
        ev.Start(model="m"), BlockStart(block=0, type=BlockKind.TOOL_CALL, id="c", name="f"), ev.ToolDelta(0, '{"id'),
        ev.BlockStop(0, complete=False), ev.Finish(reason=StopReason.MAX_TOKENS), ev.End(),
    ]))  # fmt: skip
    assert not any(frame["data"]["complete"] for frame in frames if frame["type"] == "tool_call")


def test_reasoning_and_progress_have_events_of_their_own() -> None:
    frames = payloads(write(FORMAT, [
        ev.Start(model="m"), BlockStart(block=0, type=BlockKind.REASONING, vendor="anthropic"),
        ev.ReasoningDelta(0, "hm"), ev.SignatureDelta(0, "sig+/="), ev.BlockStop(0),
        ev.Progress(message="drawing", percent=40.0), ev.Finish(reason=StopReason.END_TURN), ev.End(),
    ]))  # fmt: skip
    reasoning = [frame["data"] for frame in frames if frame["type"] == "reasoning"]
    assert reasoning[0]["content"] == "hm"
    assert reasoning[1]["extensions"] == {"vendor:anthropic": {"signature": "sig+/="}}
    (progress,) = [frame["data"] for frame in frames if frame["type"] == "progress"]
    assert progress["percent"] == 40.0


@pytest.mark.parametrize("code", ErrorCode)
def test_an_error_is_last_and_comes_back(code: ErrorCode) -> None:
    frames = write(
        FORMAT, [*ORDER[:3], ev.Error(ErrorInfo(code=code, message="why", type="fine", provider="p"))], OPTIONS
    )
    assert [frame.event for frame in frames].count("error") == 1
    last = payloads(frames)[-1]
    assert last["type"] == "error"
    assert last["data"]["code"] == code.value
    assert last["data"]["retryable"] is ERROR_TABLE[code][1]
    event = FORMAT.stream_reader(ReaderOptions()).read(frames)[-1]
    assert isinstance(event, ev.Error)
    assert (event.error.code, event.error.message, event.error.type) == (code, "why", "fine")


@pytest.mark.parametrize("code", ErrorCode)
def test_the_body_of_an_error(code: ErrorCode) -> None:
    info = ErrorInfo(code=code, message="why", type="fine", provider="p", details={"x": 1})
    assert json.loads(FORMAT.write_error(info)) == {
        "error": {
            "code": code.value, "message": "why", "type": "fine", "provider": "p", "retryable": ERROR_TABLE[code][1],
            "details": {"x": 1},
        }
    }  # fmt: skip
    found = FORMAT.read_error(ERROR_TABLE[code][0], {}, FORMAT.write_error(info))
    assert (found.code, found.message) == (code, "why")


@pytest.mark.parametrize("body", [b"", b"<html></html>", b"\xff", b"[]", b"x" * 1_000_000, b'{"error":{"code":5}}'])
def test_any_body_of_an_error_is_read(body: bytes) -> None:
    info = FORMAT.read_error(503, {"retry-after": "3"}, body)
    assert info.code is ErrorCode.PROVIDER_UNAVAILABLE
    assert info.retry_after == 3
    assert 0 < len(info.message) < 1000


def test_unknown_event_types_are_ignored() -> None:
    frames = frames_of(
        {"type": "start", "seq": 0, "model": "m"},
        {"type": "brand_new", "seq": 1, "data": {}},
        {"type": "delta", "seq": 2, "data": {"content": "a", "new": 1}, "new": 2},
        {"type": "done", "seq": 3, "usage": {}, "routing": {}},
    )
    events = FORMAT.stream_reader(ReaderOptions()).read(frames)
    assert assemble(events).choices[0].parts == [Text(text="a")]


@pytest.mark.parametrize("seqs", [(0, 2), (0, 0), (3, 5), (0, "1")])
def test_a_gap_in_seq_is_found(seqs: tuple[Any, Any]) -> None:
    frames = frames_of(
        {"type": "start", "seq": seqs[0], "model": "m"}, {"type": "delta", "seq": seqs[1], "data": {"content": "a"}}
    )
    with pytest.raises(ProtocolError, match="seq"):
        FORMAT.stream_reader(ReaderOptions()).read(frames)


def test_the_whole_body_has_the_shape_of_the_specification() -> None:
    events = [
        *ORDER[:5],
        BlockStart(block=1, type=BlockKind.TOOL_CALL, id="call_1", name="f"),
        ev.ToolDelta(1, "{}"),
        ev.BlockStop(1),
        ev.Finish(reason=StopReason.TOOL_USE),
        ORDER[-1],
    ]
    body = json.loads(
        FORMAT.write_response(assemble(events), WriterOptions(request_id="r", provider="anthropic", created=5))
    )
    assert {"id", "model", "provider", "created", "choices", "usage", "routing"} <= set(body)
    (choice,) = body["choices"]
    assert (choice["index"], choice["finish_reason"]) == (0, "tool_use")
    assert (choice["message"]["role"], choice["message"]["content"]) == ("assistant", "Your order shipped.")
    assert choice["message"]["tool_calls"] == [{"id": "call_1", "name": "f", "arguments": "{}"}]
    assert body["usage"]["total_tokens"] == 417
    found = FORMAT.read_response(json.dumps(body).encode(), ReaderOptions())
    assert found.choices[0].parts == assemble(events).choices[0].parts
    assert found.choices[0].stop is StopReason.TOOL_USE
