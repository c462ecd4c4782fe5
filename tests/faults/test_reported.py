"""Faults that users reported in other gateways (wire/FAULTS.md of the shared sources), each with the input given there.

What concerns the translation of a stream is tried here, with the reported input, before callers of every format; the
number stands in the test's name. What concerns connections, time and money is tried where that is at home, and `ELSEWHERE`
says where. A fault that is in neither place fails the last test.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from headrace.formats import FORMATS
from headrace.formats.base import Located, ReaderOptions, Target
from headrace.framing import FRAMINGS, Frame
from headrace.model import events as ev
from headrace.model.assemble import explode
from headrace.model.content import Opaque, Text, ToolCall, ToolResult
from headrace.model.events import Event
from headrace.model.request import Message, Request
from headrace.model.response import Response
from headrace.model.stop import StopReason
from tests.fixtures import FIXTURES
from tests.matrix.cannot import check_lost, expected
from tests.matrix.pipes import ALL, digest, digest_events, frames_of, read, response_of, through, write

FAULTS = FIXTURES.parent / "wire" / "FAULTS.md"

ELSEWHERE: dict[int, str] = {
    14: "tests.engine.test_faults:test_no_finish_reason_and_no_done_14",
    23: "tests.gateway.test_usage:test_a_caller_who_leaves_is_billed_for_what_came",
    27: "tests.engine.test_faults:test_cut_half_way_27a",
    29: "tests.engine.test_faults:test_a_fault_of_ours_in_mid_stream_29",
    30: "tests.engine.test_failover:test_once_something_was_seen_nobody_takes_over",
    31: "tests.faults.test_wire:test_in_the_midst_the_error_is_told",
    34: "tests.engine.test_faults:test_an_error_in_band_is_an_error_in_any_position_34",
    35: "tests.gateway.test_life:test_failures_after_the_first_event_are_told_in_band",
    37: "tests.gateway.test_life:test_a_caller_who_leaves_cancels_the_provider",
    39: "tests.gateway.test_life:test_a_caller_who_never_reads_is_given_up",
    40: "tests.engine.test_faults:test_a_caller_who_leaves_before_the_first_token_37_40",
    41: "tests.engine.test_faults:test_memory_is_bounded_whatever_the_caller_does_41",
    42: "tests.engine.test_faults:test_silence_half_way_27b_42",
    48: "tests.gateway.test_nginx:test_events_arrive_one_by_one",
}
"""Fault: the module and the test of it."""

UNBUILT: dict[int, str] = {
    24: "answers to streams are not cached",
    53: "streams cannot be resumed",
    55: "streams cannot be resumed",
    56: "streams cannot be resumed",
}
"""Faults of what the gateway does not have: whoever builds it takes the fault out of this table."""

EACH_CALLER = pytest.mark.parametrize("caller", ALL)


def sse(*payloads: Any, named: bool = False) -> bytes:
    lines = []
    for payload in payloads:
        if named:
            lines.append(f"event: {payload['type']}\n")
        lines.append(f"data: {payload if isinstance(payload, str) else json.dumps(payload)}\n\n")
    return "".join(lines).encode()


def ndjson(*payloads: Any) -> bytes:
    return "".join(json.dumps(payload) + "\n" for payload in payloads).encode()


def chunk(delta: dict[str, Any], finish: str | None = None, index: int = 0, **more: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}


def call(index: int | None, name: str, arguments: str, id: str = "") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {
        "tool_calls": [
            {**({} if index is None else {"index": index}), "id": id or (name and f"id_{name}"), "function": function}
        ]
    }


def message(*blocks: Any, usage: dict[str, int] | None = None, **delta: Any) -> bytes:
    """A stream of Anthropic's; `blocks` are its events between the first and the last two."""
    start: dict[str, Any] = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
    }
    return sse(
        {"type": "message_start", "message": {**start, "usage": usage or {"input_tokens": 1, "output_tokens": 1}}},
        *blocks,
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 25}, **delta},
        {"type": "message_stop"},
        named=True,
    )


def opened(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def added(index: int, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def closed(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def answer_of(events: Sequence[Event]) -> Response:
    response, error = response_of(events)
    assert error is None
    return response


def calls_of(response: Response, choice: int = 0) -> list[tuple[str, Any]]:
    (chosen,) = [one for one in response.choices if one.index == choice]
    return [(part.name, json.loads(part.arguments)) for part in chosen.parts if isinstance(part, ToolCall)]


def told(events: Sequence[Event], caller: str) -> Response:
    """What a caller of this format gets of these events."""
    return answer_of(through(caller, events)[0])


def payloads(events: Sequence[Event], caller: str) -> list[dict[str, Any]]:
    """The JSON of each frame that a caller of this format gets."""
    return [json.loads(frame.data) for frame in write(caller, events).frames if frame.data != b"[DONE]"]


def check_calls(events: Sequence[Event], caller: str, *calls: tuple[str, Any]) -> None:
    """A caller gets these calls, each whole, each with an id of its own, and is told to carry them out."""
    assert calls_of(answer_of(events)) == list(calls)
    response = told(events, caller)
    due, _ = expected(caller, answer_of(events))  # one format has no tools at all
    assert calls_of(response) == calls_of(due)
    ids = [part.id for part in response.choices[0].parts if isinstance(part, ToolCall)]
    assert len(set(ids)) == len(ids)
    if ids:
        assert response.choices[0].stop is StopReason.TOOL_USE


# Tool-call deltas.


@EACH_CALLER
def test_1_calls_without_an_index_are_counted_across_the_stream(caller: str) -> None:
    calls = [{"function": {"name": "read", "arguments": {"path": path}}} for path in ("a.rs", "b.rs")]
    lines = [{"model": "m", "message": {"role": "assistant", "content": "", "tool_calls": [one]}} for one in calls]
    data = ndjson(*({**line, "done": False} for line in lines), {"model": "m", "done": True, "done_reason": "stop"})
    events = read("ollama", [data])
    check_calls(events, caller, ("read", {"path": "a.rs"}), ("read", {"path": "b.rs"}))
    data = sse(chunk(call(None, "a", "{}")), chunk(call(None, "b", "{}")), chunk({}, "tool_calls"), "[DONE]")
    check_calls(read("openai_chat", [data]), caller, ("a", {}), ("b", {}))


def test_2_indices_of_calls_are_dense_whatever_the_blocks_are() -> None:
    start = {"toolUse": {"toolUseId": "t", "name": "f"}}
    data = b"".join(
        FRAMINGS["sse"].encoder().encode([Frame(json.dumps(payload).encode(), name)])
        for name, payload in (
            ("messageStart", {"role": "assistant"}),
            ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hm."}}),
            ("contentBlockStop", {"contentBlockIndex": 0}),
            ("contentBlockStart", {"contentBlockIndex": 1, "start": start}),
            ("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"toolUse": {"input": "{}"}}}),
            ("contentBlockStop", {"contentBlockIndex": 1}),
            ("messageStop", {"stopReason": "tool_use"}),
        )
    )
    said = payloads(read("bedrock", [data], "sse"), "openai_chat")
    deltas = [choice["delta"] for payload in said for choice in payload["choices"]]
    assert {one["index"] for delta in deltas for one in delta.get("tool_calls", ())} == {0}


@EACH_CALLER
def test_3_parallel_blocks_are_kept_apart(caller: str) -> None:
    data = message(
        opened(1, type="tool_use", id="A", name="a", input={}),
        opened(2, type="tool_use", id="B", name="b", input={}),
        added(1, type="input_json_delta", partial_json='{"x":'),
        added(2, type="input_json_delta", partial_json='{"y":'),
        added(1, type="input_json_delta", partial_json="1}"),
        added(2, type="input_json_delta", partial_json="2}"),
        closed(1),
        closed(2),
        delta={"stop_reason": "tool_use"},
    )
    events = read("anthropic", [data])
    check_calls(events, caller, ("a", {"x": 1}), ("b", {"y": 2}))
    said = payloads(events, "openai_chat")
    deltas = [choice["delta"] for payload in said for choice in payload["choices"]]
    assert {one["index"] for delta in deltas for one in delta.get("tool_calls", ())} == {0, 1}


@EACH_CALLER
def test_5_every_delta_follows_a_start_of_its_block(caller: str) -> None:
    result = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    data = message(
        opened(0, type="server_tool_use", id="s", name="web_search", input={}),
        added(0, type="input_json_delta", partial_json='{"query":"x"}'),
        closed(0),
        opened(1, **result),
        closed(1),
        opened(2, type="text", text=""),
        added(2, type="text_delta", text="Found."),
        closed(2),
    )
    events = read("anthropic", [data])
    assert [part.role for part in answer_of(events).choices[0].parts if isinstance(part, Opaque)] == [
        "server_tool_call",
        "server_tool_result",
    ]
    back, written = through(caller, events)
    begun: set[int] = set()
    for event in back:
        if isinstance(event, ev.BlockStart):
            begun.add(event.block)
        else:
            assert getattr(event, "block", None) in {None, *begun}
    due, limits = expected(caller, answer_of(events))
    assert digest(answer_of(back)).answers[0].text == digest(due).answers[0].text
    check_lost(limits, written.lost)


@EACH_CALLER
def test_6_choices_keep_their_calls(caller: str) -> None:
    data = sse(
        *(chunk(call(0, f"f{choice}", '{"n":', f"id{choice}"), index=choice) for choice in (0, 1)),
        *(chunk(call(0, "", f"{choice}}}"), index=choice) for choice in (0, 1)),
        *(chunk({}, "tool_calls", index=choice) for choice in (0, 1)),
        "[DONE]",
    )
    events = read("openai_chat", [data])
    assert [calls_of(answer_of(events), choice) for choice in (0, 1)] == [[("f0", {"n": 0})], [("f1", {"n": 1})]]
    due, _ = expected(caller, answer_of(events))
    response = told(events, caller)
    for choice in due.choices:
        assert calls_of(response, choice.index) == calls_of(due, choice.index)


def response_of_openai(*output: dict[str, Any]) -> bytes:
    """A stream of OpenAI Responses with these items."""
    payloads: list[dict[str, Any]] = [{"type": "response.created", "response": {"id": "r", "model": "m", "output": []}}]
    for place, item in enumerate(output):
        where = {"output_index": place, "item_id": item["id"]}
        payloads.append({"type": "response.output_item.added", **where, "item": {**item, "status": "in_progress"}})
        if item["type"] == "message":
            text = item["content"][0]["text"]
            payloads.append({"type": "response.output_text.delta", **where, "content_index": 0, "delta": text})
        else:
            payloads.append({"type": "response.function_call_arguments.delta", **where, "delta": item["arguments"]})
        payloads.append({"type": "response.output_item.done", **where, "item": item})
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    last = {"id": "r", "model": "m", "status": "completed", "output": list(output), "usage": usage}
    payloads.append({"type": "response.completed", "response": last})
    return sse(*({**payload, "sequence_number": number} for number, payload in enumerate(payloads)), named=True)


SPOKEN_ITEM = {"type": "message", "id": "i1", "role": "assistant", "content": [{"type": "output_text", "text": "Hm."}]}
CALL_ITEM = {"type": "function_call", "id": "i2", "call_id": "c", "name": "f", "arguments": "{}"}


@EACH_CALLER
def test_7_an_answer_ends_with_its_response_and_not_with_its_first_item(caller: str) -> None:
    events = read("openai_responses", [response_of_openai(SPOKEN_ITEM, CALL_ITEM)])
    check_calls(events, caller, ("f", {}))
    said = payloads(events, "openai_chat")
    finishes = [choice["finish_reason"] for payload in said for choice in payload["choices"]]
    assert [finish for finish in finishes if finish] == ["tool_calls"]


@EACH_CALLER
def test_9_an_empty_finish_reason_is_none(caller: str) -> None:
    data = sse(chunk({"content": "a"}, ""), chunk({"content": "b"}, ""), chunk({}, "stop"), "[DONE]")
    response = told(read("openai_chat", [data]), caller)
    assert digest(response).answers[0].text == "ab"
    assert response.choices[0].stop is StopReason.END_TURN


# Finish reason and terminal events.


@EACH_CALLER
def test_10_a_call_makes_the_stop_a_call(caller: str) -> None:
    line = {"message": {"tool_calls": [{"function": {"name": "f", "arguments": {}}}]}, "done": False}
    events = read("ollama", [ndjson(line, {"done": True, "done_reason": "stop"})])
    check_calls(events, caller, ("f", {}))


def test_11_no_block_is_opened_for_nothing() -> None:
    line = {"message": {"content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}, "done": False}
    said = payloads(read("ollama", [ndjson(line, {"done": True, "done_reason": "stop"})]), "anthropic")
    opened = [payload["content_block"]["type"] for payload in said if payload["type"] == "content_block_start"]
    assert opened == ["tool_use"]
    assert [payload["delta"]["stop_reason"] for payload in said if payload["type"] == "message_delta"] == ["tool_use"]


def test_16_the_ladder_of_a_responses_stream_is_complete() -> None:
    data = sse(chunk({"content": "Hm."}), chunk(call(0, "f", "{}")), chunk({}, "tool_calls"), "[DONE]")
    said = payloads(read("openai_chat", [data]), "openai_responses")
    assert [payload["sequence_number"] for payload in said] == list(range(len(said)))
    kinds = [payload["type"].removeprefix("response.") for payload in said]
    assert kinds == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    last = said[-1]["response"]
    assert last["text"]["format"] == {"type": "text"}
    ids = {payload["item"]["id"] for payload in said if "item" in payload}
    assert ids == {item["id"] for item in last["output"]}
    assert {payload["item_id"] for payload in said if "item_id" in payload} == ids
    counted = sse(chunk({}, "stop", usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}), "[DONE]")
    (usage,) = [
        payload["response"]["usage"]
        for payload in payloads(read("openai_chat", [counted]), "openai_responses")
        if payload["type"] == "response.completed"
    ]
    assert usage["output_tokens_details"] == {"reasoning_tokens": 0}


# Usage and cost.


@EACH_CALLER
def test_17_a_later_nothing_erases_no_count(caller: str) -> None:
    data = message(
        usage={"input_tokens": 10, "cache_read_input_tokens": 30000, "output_tokens": 1},
    ).replace(b'{"output_tokens": 25}', b'{"output_tokens": 25, "cache_read_input_tokens": 0, "input_tokens": 0}')
    assert b'"cache_read_input_tokens": 0' in data
    events = read("anthropic", [data])
    usage = answer_of(events).usage
    assert usage is not None
    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens) == (30010, 30000, 25)
    due, _ = expected(caller, answer_of(events))
    assert digest(told(events, caller)).usage == digest(due).usage


@EACH_CALLER
def test_18_counts_are_cumulative_and_not_added(caller: str) -> None:
    events = read("anthropic", [message(usage={"input_tokens": 10, "output_tokens": 1})])
    assert digest(told(events, caller)).usage[:2] == (10, 25)


def test_19_what_is_known_of_the_cache_stands_where_it_is_looked_for() -> None:
    counts = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    early = sse(chunk({"content": "a"}, usage=counts), chunk({}, "stop", usage=counts), "[DONE]")
    said = payloads(read("openai_chat", [early]), "anthropic")
    assert said[0]["message"]["usage"]["cache_read_input_tokens"] == 4
    late = sse(chunk({"content": "a"}), chunk({}, "stop"), {**chunk({}), "choices": [], "usage": counts}, "[DONE]")
    (delta,) = [one for one in payloads(read("openai_chat", [late]), "anthropic") if one["type"] == "message_delta"]
    assert (delta["usage"]["cache_read_input_tokens"], delta["usage"]["input_tokens"]) == (4, 5)


@EACH_CALLER
@pytest.mark.parametrize("place", [0, 1, 2])
def test_21_a_chunk_without_choices_is_legal_anywhere(caller: str, place: int) -> None:
    filtered = {**chunk({}), "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
    counted = {**chunk({}), "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}}
    said: list[Any] = [chunk({"content": "a"}), chunk({}, "stop")]
    for empty in (filtered, counted):
        data = sse(*said[:place], empty, *said[place:], "[DONE]")
        response = told(read("openai_chat", [data]), caller)
        assert digest(response).answers[0].text == "a"
        assert digest(response).usage[:2] == ((5, 6) if empty is counted else (0, 0))


def test_22_no_cut_changes_anything() -> None:
    data = response_of_openai(SPOKEN_ITEM, CALL_ITEM)
    whole = read("openai_responses", [data])
    usage = answer_of(whole).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (3, 4)
    for cut in range(len(data) + 1):
        assert read("openai_responses", [data[:cut], data[cut:]]) == whole


@EACH_CALLER
def test_25_the_last_count_of_the_output_counts(caller: str) -> None:
    counts = [{"type": "message_delta", "delta": {}, "usage": {"output_tokens": number}} for number in (3, 12)]
    events = read("anthropic", [message(*counts, usage={"input_tokens": 7, "output_tokens": 4})])
    assert digest(told(events, caller)).usage[:2] == (7, 25)
    events = read("openai_responses", [response_of_openai(SPOKEN_ITEM)])
    assert digest(told(events, caller)).usage[:2] == (3, 4)


# Framing, encoding, buffering.


def test_43_comments_are_no_events() -> None:
    data = b": ping - 2025-01-01\n\n" + sse(chunk({"content": "a"}), chunk({}, "stop"), "[DONE]")
    assert digest_events(read("openai_chat", [data])).answers[0].text == "a"
    assert frames_of(b': ping\n\ndata: {"a":1}\n\n') == [Frame(b'{"a":1}')]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_44_all_line_ends_and_one_blank_at_the_most(end: str) -> None:
    data = f'data:{{"a":1}}{end}{end}data:  {{"b":2}}{end}{end}'.encode()
    expected = [Frame(b'{"a":1}'), Frame(b' {"b":2}')]
    for cut in range(len(data) + 1):
        decoder = FRAMINGS["sse"].decoder()
        assert [*decoder.feed(data[:cut]), *decoder.feed(data[cut:])] == expected


@EACH_CALLER
@pytest.mark.parametrize("mark", ["\x85", "\u2028", "\u2029", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"])
def test_47_only_cr_and_lf_end_a_line(caller: str, mark: str) -> None:
    """Raw where JSON allows it; what is written for the caller is read as it was meant, whatever it escapes."""
    text = f"a{mark}b"
    assert frames_of(f"data: {text}\n\n".encode()) == [Frame(text.encode())]
    said = json.dumps(chunk({"content": text}), ensure_ascii=ord(mark) < 32)
    response = told(read("openai_chat", [sse(said, chunk({}, "stop"), "[DONE]")]), caller)
    assert digest(response).answers[0].text == text


@EACH_CALLER
def test_49_what_is_asked_for_in_addition_breaks_no_frame(caller: str) -> None:
    """Usage was asked of the provider, and of no concern to the caller: the rest is as it was, down to the end."""
    counted = {**chunk({}), "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}
    data = sse(chunk({"content": "a"}), chunk({}, "stop"), counted, "[DONE]")
    asked = Request(model="m", messages=[Message(role="user", parts=[])], include_usage=False)
    events = read("openai_chat", [data], passthrough=caller == "openai_chat")
    written = write(caller, events, request=asked, passthrough=caller == "openai_chat")
    response, error = response_of(read(caller, [written.data]))
    assert error is None
    assert digest(response).answers[0].text == "a"
    assert response.choices[0].stop is StopReason.END_TURN
    if caller == "openai_chat":
        assert [frame.data for frame in frames_of(written.data)][-1] == b"[DONE]"
        assert b"usage" not in written.data


# Thinking and signatures.


SIGNED = [
    {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "WA=="},
    {"text": "", "thoughtSignature": "WQ=="},
]
"""Parts of Gemini's: a signed call, and a text that is nothing but its signature."""
PLACES = {"llm_stream": 2, "gateway": 2, "gemini": 2, "openai_chat": 1, "mistral": 1}
"""Caller's format: how many of these signatures it has a place for; none where the format is not listed."""


@EACH_CALLER
def test_50_signatures_return_on_the_very_part(caller: str) -> None:
    """Through the caller's stream, its next request, and Gemini's request again. What has no place is named as lost."""
    data = sse({"candidates": [{"content": {"role": "model", "parts": SIGNED}, "finishReason": "STOP", "index": 0}]})
    back, written = through(caller, read("gemini", [data], "sse"))
    if PLACES.get(caller, 0) < len(SIGNED):
        assert "extensions.google" in written.lost
    if caller not in PLACES:
        return
    parts = list(answer_of(back).choices[0].parts)
    called = next(part for part in parts if isinstance(part, ToolCall))
    turn = Request(
        model="m",
        messages=[
            Message(role="user", parts=[Text(text="Go.")]),
            Message(role="assistant", parts=parts),
            Message(role="tool", parts=[ToolResult(tool_call_id=called.id, name="f", parts=[Text(text="1")])]),
        ],
    )
    format = FORMATS[caller]
    body = format.write_request(turn, Target(model="m", vendor="google")).body
    sent = format.read_request(body, Located(model="m"))
    wire = json.loads(FORMATS["gemini"].write_request(sent, Target(model="m", vendor="google")).body)
    model = next(content["parts"] for content in wire["contents"] if content["role"] == "model")
    signed = [("functionCall" in part, part["thoughtSignature"]) for part in model if "thoughtSignature" in part]
    # Messages with a list of calls beside the text have their own order; elsewhere it is the answer's.
    assert (signed if caller == "gemini" else sorted(signed, reverse=True)) == [(True, "WA=="), (False, "WQ==")][
        : PLACES[caller]
    ]


@EACH_CALLER
def test_52_a_stream_made_of_a_whole_answer_keeps_its_signatures(caller: str) -> None:
    body = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}, {"type": "text", "text": "a"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 2},
    }
    response = FORMATS["anthropic"].read_response(json.dumps(body).encode(), ReaderOptions())
    events = list(explode(response))
    due, _ = expected(caller, response)
    assert digest(told(events, caller)).answers[0].signatures == digest(due).answers[0].signatures
    said = [payload["delta"].get("type") for payload in payloads(events, "anthropic") if "delta" in payload]
    assert said[:3] == ["thinking_delta", "signature_delta", "text_delta"]


# All of them.


def test_every_fault_is_tried() -> None:
    if not FAULTS.is_file():
        pytest.skip(f"the list of reported faults is not on this machine ({FAULTS})")
    listed = {int(number) for number in re.findall(r"^(\d+)\. \*\*", FAULTS.read_text(), re.MULTILINE)}
    here = {int(match[1]) for name in globals() if (match := re.match(r"test_(\d+)_", name))}
    assert len(listed) == 40
    assert here | ELSEWHERE.keys() | UNBUILT.keys() == listed
    assert len(here) + len(ELSEWHERE) + len(UNBUILT) == len(listed), "a fault is in two places"


@pytest.mark.parametrize("place", ELSEWHERE.values())
def test_where_they_are_tried(place: str) -> None:
    module, _, name = place.partition(":")
    assert callable(getattr(importlib.import_module(module), name))
