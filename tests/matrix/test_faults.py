"""Faults that users reported in other gateways, each as a small input, through the reader and every writer.

Every test names the reports it comes from (repository#number, public). What it asserts is what would have been right.

Only what formats and framings are at fault for is here; tests/faults/test_reported.py says where the others are tried.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from headrace.formats import FORMATS
from headrace.formats.base import Located, ReaderOptions, Target
from headrace.formats.whole import WholeReader
from headrace.framing import FRAMINGS, Frame, SSEEncoder
from headrace.model import events as ev
from headrace.model.content import Text, ToolCall, ToolResult
from headrace.model.errors import ProtocolError
from headrace.model.events import Event
from headrace.model.request import Message, Request

from .cannot import CANNOT, expected
from .pipes import (
    ALL,
    DONE,
    Answer,
    Digest,
    byte_by_byte,
    check_failed_ending,
    check_whole_ending,
    digest,
    digest_events,
    finished_choices,
    frames_of,
    read,
    response_of,
    through,
    write,
)

EACH = pytest.mark.parametrize("name", ALL)


def chat(*chunks: dict[str, Any] | bytes, done: bool = True) -> bytes:
    """A stream of OpenAI's format. Bytes are payloads as they are."""
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    payloads = [chunk if isinstance(chunk, bytes) else json.dumps({**head, **chunk}).encode() for chunk in chunks]
    return SSEEncoder().encode([Frame(payload) for payload in (*payloads, *([DONE] if done else []))])


def delta(finish: str | None = None, index: int = 0, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": fields, "finish_reason": finish}]}


def call(index: int | None, id: str | None, name: str | None, arguments: str) -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": name} if name else {})}
    place = {} if index is None else {"index": index}
    return {**place, **({"id": id, "type": "function"} if id else {}), "function": function}


START: dict[str, Any] = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": 10, "output_tokens": 1},
    },
}
STOP = {"type": "message_stop"}


def messages(*events: dict[str, Any]) -> bytes:
    """A stream of Anthropic's format."""
    return SSEEncoder().encode([Frame(json.dumps(event).encode(), event["type"]) for event in events])


def opened(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def added(index: int, **change: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": change}


def closed(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def ended(stop: str = "end_turn", **usage: int) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 5, **usage}}


def responses(*output: dict[str, Any]) -> bytes:
    """A stream of OpenAI Responses with these items."""
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {"id": "r", "model": "m", "output": []}}]
    for place, item in enumerate(output):
        where = {"output_index": place, "item_id": item["id"]}
        events.append({"type": "response.output_item.added", **where, "item": {**item, "status": "in_progress"}})
        if item["type"] == "message":
            text = item["content"][0]["text"]
            events.append({"type": "response.output_text.delta", **where, "content_index": 0, "delta": text})
        else:
            events.append({"type": "response.function_call_arguments.delta", **where, "delta": item["arguments"]})
        events.append({"type": "response.output_item.done", **where, "item": item})
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    last = {"id": "r", "model": "m", "status": "completed", "output": list(output), "usage": usage}
    events.append({"type": "response.completed", "response": last})
    return messages(*({**event, "sequence_number": number} for number, event in enumerate(events)))


SPOKEN_ITEM = {"type": "message", "id": "i1", "role": "assistant", "content": [{"type": "output_text", "text": "Hm."}]}
CALL_ITEM = {"type": "function_call", "id": "i2", "call_id": "c", "name": "f", "arguments": "{}"}


def told(events: Sequence[Event], name: str) -> list[dict[str, Any]]:
    """The JSON of each frame that a caller of this format gets."""
    return [json.loads(frame.data) for frame in write(name, events).frames if frame.data != DONE]


def seen(name: str, events: Sequence[Event]) -> Digest:
    """What a caller of this format sees of them."""
    came, _ = through(name, list(events))
    return digest_events(came)


def due(name: str, events: Sequence[Event]) -> Digest:
    """What that caller must see: all of it, less what its format cannot carry."""
    return digest(expected(name, response_of(events)[0])[0])


def only(told: Digest) -> Answer:
    (answer,) = told.answers.values()
    return answer


def calls_of(answer: Answer) -> list[tuple[str, Any]]:
    return [(one.name, one.arguments) for one in answer.calls]


def indices(frames: Sequence[Frame]) -> list[int]:
    """`index` of all tool calls that an OpenAI caller is sent, in the order of their first mention."""
    found: dict[int, None] = {}
    for frame in frames:
        if frame.data != DONE:
            for choice in json.loads(frame.data).get("choices", ()):
                for one in choice["delta"].get("tool_calls", ()):
                    found[one["index"]] = None
    return list(found)


# Tool calls.


@EACH
@pytest.mark.parametrize("index", [None, 0])
def test_1_calls_that_all_have_the_same_index(name: str, index: int | None) -> None:
    """1. BerriAI/litellm#33678, #14579: every call has index 0, or none: clients concatenate the arguments."""
    stream = chat(
        delta(tool_calls=[call(index, None, "read", '{"path":"a.rs"}')]),
        delta(tool_calls=[call(index, None, "read", '{"path":"b.rs"}')]),
        delta("tool_calls"),
    )
    events = read("openai_chat", [stream])
    answer = only(seen(name, events))
    assert calls_of(answer) == [("read", {"path": "a.rs"}), ("read", {"path": "b.rs"})]
    assert len({one.id for one in answer.calls}) == 2
    assert indices(write("openai_chat", events).frames) == [0, 1]


@EACH
def test_2_the_index_of_a_call_is_not_that_of_its_block(name: str) -> None:
    """2. BerriAI/litellm#32759: text is block 0, the tool block 1: OpenAI's callers got index 1."""
    events = read(
        "anthropic",
        [
            messages(
                START,
                opened(0, type="text", text=""),
                added(0, type="text_delta", text="I look"),
                closed(0),
                opened(1, type="tool_use", id="toolu_1", name="f", input={}),
                added(1, type="input_json_delta", partial_json='{"a":1}'),
                closed(1),
                ended("tool_use"),
                STOP,
            )
        ],
    )
    assert calls_of(only(seen(name, events))) == [("f", {"a": 1})]
    assert indices(write("openai_chat", events).frames) == [0]


def test_2_the_index_of_a_call_is_not_that_of_bedrocks_block() -> None:
    start = {"toolUse": {"toolUseId": "t", "name": "f"}}
    data = SSEEncoder().encode(
        Frame(json.dumps(payload).encode(), name)
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
    assert indices(write("openai_chat", read("bedrock", [data], "sse")).frames) == [0]


@EACH
def test_3_parallel_calls_whose_arguments_interleave(name: str) -> None:
    """3. maximhq/bifrost#1961: blocks 1 and 2 both became index 0."""
    events = read(
        "anthropic",
        [
            messages(
                START,
                opened(0, type="text", text=""),
                closed(0),
                opened(1, type="tool_use", id="toolu_a", name="a", input={}),
                opened(2, type="tool_use", id="toolu_b", name="b", input={}),
                added(1, type="input_json_delta", partial_json='{"x":'),
                added(2, type="input_json_delta", partial_json='{"y":'),
                added(1, type="input_json_delta", partial_json="1}"),
                added(2, type="input_json_delta", partial_json="2}"),
                closed(1),
                closed(2),
                ended("tool_use"),
                STOP,
            )
        ],
    )
    answer = only(seen(name, events))
    assert [(one.id, one.name, one.arguments) for one in answer.calls] == [
        ("toolu_a", "a", {"x": 1}),
        ("toolu_b", "b", {"y": 2}),
    ]
    assert indices(write("openai_chat", events).frames) == [0, 1]


SEARCH = messages(
    START,
    opened(0, type="server_tool_use", id="srvtoolu_1", name="web_search", input={}),
    added(0, type="input_json_delta", partial_json='{"query":"x"}'),
    closed(0),
    opened(1, type="web_search_tool_result", tool_use_id="srvtoolu_1", content=[{"url": "https://example.com"}]),
    closed(1),
    opened(2, type="some_new_block", x=1),
    added(2, type="some_new_delta", y=2),
    closed(2),
    opened(3, type="text", text=""),
    added(3, type="text_delta", text="Found."),
    closed(3),
    ended(),
    STOP,
)


@EACH
def test_5_every_delta_follows_a_start(name: str) -> None:
    """5. maximhq/bifrost#4890: starts of server tools were dropped, their deltas and stops sent on."""
    events = read("anthropic", [SEARCH])
    assert only(seen(name, events)).text == "Found."
    begun: set[int] = set()
    for frame in write("anthropic", events).frames:
        said = json.loads(frame.data)
        if frame.event == "content_block_start":
            assert said["index"] == len(begun)
            begun.add(said["index"])
        elif frame.event in ("content_block_delta", "content_block_stop"):
            assert said["index"] in begun
    opaque = [(vendor, payload["type"]) for vendor, _, payload in only(seen("anthropic", events)).opaque]
    assert opaque == [
        ("anthropic", "server_tool_use"),
        ("anthropic", "web_search_tool_result"),
        ("anthropic", "some_new_block"),
    ]


def test_5_unknown_blocks_pass_as_they_came() -> None:
    """5. maximhq/bifrost#4890: to a caller of the same format everything goes on, known or not."""
    events = read("anthropic", [SEARCH], passthrough=True)
    assert write("anthropic", events, passthrough=True).frames == frames_of(SEARCH)


@EACH
def test_6_choices_are_kept_apart(name: str) -> None:
    """6. BerriAI/litellm#15962, #8977, #5236: with n > 1 every choice became 0."""
    events = read(
        "openai_chat",
        [
            chat(
                delta(index=0, content="A"),
                delta(index=1, tool_calls=[call(0, "x", "f", '{"n":')]),
                delta(index=0, content="B"),
                delta(index=1, tool_calls=[call(0, None, None, "1}")]),
                delta("stop", index=0),
                delta("tool_calls", index=1),
            )
        ],
    )
    told = seen(name, events)
    assert told.answers[0].text == "AB"
    if any(limit.lost == "choices" for limit in CANNOT[name]):  # there is room for one
        assert list(told.answers) == [0]
        assert "choices" in write(name, events).lost
    else:
        assert calls_of(told.answers[1]) == [("f", {"n": 1})]
        assert (told.answers[0].stop, told.answers[1].stop) == ("end_turn", "tool_use")


@EACH
def test_7_an_answer_ends_with_its_response_and_not_with_its_first_item(name: str) -> None:
    events = read("openai_responses", [responses(SPOKEN_ITEM, CALL_ITEM)])
    assert calls_of(only(digest_events(events))) == [("f", {})]
    assert seen(name, events).answers == due(name, events).answers
    finishes = [choice["finish_reason"] for one in told(events, "openai_chat") for choice in one["choices"]]
    assert [finish for finish in finishes if finish] == ["tool_calls"]


@EACH
def test_9_an_empty_finish_reason_is_none(name: str) -> None:
    """9. ollama/ollama#7881, #4357: `finish_reason` is "" until the answer ends."""
    events = read("openai_chat", [chat(delta("", content="Hel"), delta("", content="lo"), delta("stop"))])
    assert len(finished_choices(events)) == 1
    answer = only(seen(name, events))
    assert (answer.text, answer.stop) == ("Hello", "end_turn")


# How answers end.


@EACH
def test_10_stop_after_a_call_means_the_call(name: str) -> None:
    """10. BerriAI/litellm#35663: a call, then a last chunk that says only "stop"."""
    events = read("openai_chat", [chat(delta(tool_calls=[call(0, "x", "f", "{}")]), delta("stop"))])
    assert only(seen(name, events)).stop == "tool_use"


def test_11_no_empty_block_before_a_call() -> None:
    """11. BerriAI/litellm#34692: Anthropic's callers got an empty text block and `end_turn`."""
    stream = chat(
        delta(role="assistant", content=""),
        delta(content="", tool_calls=[call(0, "x", "f", '{"a":1}')]),
        delta("stop", content=""),
    )
    said = [json.loads(frame.data) for frame in write("anthropic", read("openai_chat", [stream])).frames]
    starts = [one["content_block"]["type"] for one in said if one["type"] == "content_block_start"]
    assert starts == ["tool_use"]
    assert [one["delta"]["stop_reason"] for one in said if one["type"] == "message_delta"] == ["tool_use"]


CUT_STREAMS = {
    "openai_chat": chat(delta(content="Half an"), done=False),
    "anthropic": messages(START, opened(0, type="text", text=""), added(0, type="text_delta", text="Half an")),
    "with a finish reason": chat(delta(content="Half an"), delta("stop"), done=False),
}


@EACH
@pytest.mark.parametrize("stream", list(CUT_STREAMS.values()), ids=list(CUT_STREAMS))
def test_14_the_end_of_the_bytes_is_not_the_end_of_the_answer(name: str, stream: bytes) -> None:
    """14. anomalyco/opencode#43379, and 27a. BerriAI/litellm#40404; also Envoy's translator, which closes blocks at EOF."""
    events = read("anthropic" if b"message_start" in stream else "openai_chat", [stream])
    assert isinstance(events[-1], ev.Error)
    assert events[-1].error.type == "upstream_truncated"
    written = write(name, events)
    check_failed_ending(name, written.frames, finished_choices(events))
    told = digest_events(read(name, [written.data]))
    assert only(told).text == "Half an"
    assert told.error


# Usage.


def test_16_the_ladder_of_a_responses_stream_is_complete() -> None:
    data = chat(delta(content="Hm."), delta(tool_calls=[call(0, "c", "f", "{}")]), delta("tool_calls"))
    said = told(read("openai_chat", [data]), "openai_responses")
    assert [one["sequence_number"] for one in said] == list(range(len(said)))
    kinds = [one["type"].removeprefix("response.") for one in said]
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
    ids = {one["item"]["id"] for one in said if "item" in one}
    assert ids == {item["id"] for item in last["output"]}
    assert {one["item_id"] for one in said if "item_id" in one} == ids
    counted = chat({**delta("stop"), "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}})
    (usage,) = [
        one["response"]["usage"]
        for one in told(read("openai_chat", [counted]), "openai_responses")
        if one["type"] == "response.completed"
    ]
    assert usage["output_tokens_details"] == {"reasoning_tokens": 0}


@EACH
def test_17_a_later_zero_erases_no_count(name: str) -> None:
    """17. BerriAI/litellm#11789, #10240: message_delta repeats the cache counts as 0; the cost was seven times off."""
    start = json.loads(json.dumps(START))
    start["message"]["usage"] = {
        "input_tokens": 4,
        "cache_read_input_tokens": 30_000,
        "cache_creation_input_tokens": 7,
        "output_tokens": 1,
    }
    events = read("anthropic", [messages(start, ended(cache_read_input_tokens=0, cache_creation_input_tokens=0), STOP)])
    assert digest_events(events).usage == (30_011, 5, 30_000, 7, 0)
    assert seen(name, events).usage == due(name, events).usage


@EACH
def test_18_cumulative_counts_are_not_added(name: str) -> None:
    """18. langchain-ai/langchainjs#10249: start says 10 and 1, the last delta 25: that is 10 and 25."""
    events = read("anthropic", [messages(START, ended(output_tokens=25), STOP)])
    assert seen(name, events).usage[:2] == (10, 25)


def test_19_known_counts_stand_in_the_start_too() -> None:
    """19. maximhq/bifrost#2269, BerriAI/litellm#31069: Claude's clients read the cache counts in message_start."""
    usage = {"prompt_tokens": 100, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 60}}
    events = read("openai_chat", [chat({**delta(content="x"), "usage": usage}, delta("stop"))])
    frames = write("anthropic", events).frames
    (start,) = [json.loads(frame.data) for frame in frames if frame.event == "message_start"]
    (last,) = [json.loads(frame.data) for frame in frames if frame.event == "message_delta"]
    for said in (start["message"]["usage"], last["usage"]):
        assert (said["input_tokens"], said["cache_read_input_tokens"]) == (40, 60)


@EACH
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_21_chunks_without_choices_are_legal_anywhere(name: str, place: int) -> None:
    """21. BerriAI/litellm#30761: `choices` is [] in usage chunks and in Azure's first; IndexError in mid-stream."""
    chunks: list[dict[str, Any]] = [delta(content="a"), delta(content="b"), delta("stop")]
    chunks.insert(place, {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
    chunks.insert(place, {"id": "", "model": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]})
    told = seen(name, read("openai_chat", [chat(*chunks)]))
    assert only(told).text == "ab"
    assert told.usage[:2] == (3, 2)
    assert told.error is None


def test_22_the_cut_makes_no_difference() -> None:
    """22. envoyproxy/ai-gateway#2162, and Portkey's one-blank separator: results depended on the reads."""
    for format, stream in (("anthropic", SEARCH), ("openai_chat", chat(delta(content="a  b "), delta("stop")))):
        whole = read(format, [stream])
        assert read(format, byte_by_byte(stream)) == whole
        for cut in range(len(stream)):
            assert read(format, [stream[:cut], stream[cut:]]) == whole


def test_22_the_cut_makes_no_difference_to_a_response() -> None:
    data = responses(SPOKEN_ITEM, CALL_ITEM)
    whole = read("openai_responses", [data])
    usage = response_of(whole)[0].usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (3, 4)
    for cut in range(len(data) + 1):
        assert read("openai_responses", [data[:cut], data[cut:]]) == whole


@EACH
def test_25_output_is_what_the_last_delta_says(name: str) -> None:
    """25. agentgateway#1089, #1686: output tokens were taken from message_start."""
    events = read("anthropic", [messages(START, ended(output_tokens=300), STOP)])
    assert seen(name, events).usage[1] == 300


# Errors.


@EACH
def test_27_one_malformed_event_is_one_event(name: str) -> None:
    """27c. BerriAI/litellm#40404: one broken payload killed the stream; what is around it can be read."""
    stream = chat(delta(content="a"), b'{"choices": [', delta(content="b"), delta("stop"))
    reader = FORMATS["openai_chat"].stream_reader(ReaderOptions())
    frames = frames_of(stream)
    with pytest.raises(ProtocolError) as caught:
        reader.read(frames)
    assert caught.value.consumed == 2
    events = [*caught.value.events, *reader.read(frames[2:])]
    assert only(seen(name, events)).text == "ab"


ERRORS = {
    "openai_chat": chat(delta(content="a"), b'{"error":{"message":"Overloaded","code":"overloaded"}}', done=False),
    "34 with empty choices": chat(delta(content="a"), b'{"error":{"message":"Overloaded"},"choices":[]}', done=False),
    "34 beside a finish reason": chat(
        delta(content="a"), {"error": {"message": "Overloaded", "code": 502}, **delta("error")}, done=True
    ),
    "anthropic": messages(
        START,
        opened(0, type="text", text=""),
        added(0, type="text_delta", text="a"),
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    ),
}


@EACH
@pytest.mark.parametrize("stream", list(ERRORS.values()), ids=list(ERRORS))
def test_29_34_35_an_error_in_the_stream_reaches_the_caller(name: str, stream: bytes) -> None:
    """29. BerriAI/litellm#39748, 34. OmniRoute#8210, 35. vercel/ai#4726: swallowed, or taken for a success."""
    events = read("anthropic" if b"message_start" in stream else "openai_chat", [stream])
    assert isinstance(events[-1], ev.Error)
    written = write(name, events)
    check_failed_ending(name, written.frames, [])
    told = digest_events(read(name, [written.data]))
    assert told.error == "Overloaded"
    assert only(told).text == "a"


@EACH
def test_34_an_error_first_is_no_empty_answer(name: str) -> None:
    """34. OmniRoute#8210: `{"error": ..., "choices": []}` as the first thing that comes."""
    events = read("openai_chat", [chat(b'{"error":{"message":"No"},"choices":[]}')])
    assert [type(event) for event in events] == [ev.Error]
    check_failed_ending(name, write(name, events).frames, [])


# Framing.

PLAIN = read("openai_chat", [chat(delta(content="Hi"), delta("stop"))])


@EACH
def test_43_comments_are_ignored(name: str) -> None:
    """43. Portkey-AI/gateway#1035: `: ping - 2025-...` went into the JSON parser."""
    written = write(name, PLAIN, "sse")
    noisy = b": ping - 2025-01-01\n\n" + written.data.replace(b"\n\n", b"\n\n: ping - 2025-01-01\n\n:\n\n")
    assert read(name, [noisy], "sse") == read(name, [written.data], "sse")
    assert read(name, byte_by_byte(noisy), "sse") == read(name, [written.data], "sse")


@EACH
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("blank", [b" ", b""], ids=["blank", "no blank"])
def test_44_every_spelling_of_sse(name: str, line_end: bytes, blank: bytes) -> None:
    """44. envoyproxy/ai-gateway#2463: `data:{...}` without the blank, CRLF, CR alone, CRLF cut in two."""
    written = write(name, PLAIN, "sse")
    spelled = written.data.replace(b"data: ", b"data:" + blank).replace(b"event: ", b"event:" + blank)
    spelled = spelled.replace(b"\n", line_end)
    assert read(name, [spelled], "sse") == read(name, [written.data], "sse")
    assert read(name, byte_by_byte(spelled), "sse") == read(name, [written.data], "sse")


LINE_ENDS_THAT_ARE_NONE = "a\u0085b\u2028c\u2029d\x0be\x0cf\x1cg\x1dh\x1ei\ufeffj"


@EACH
@pytest.mark.parametrize("framing", ["sse", "ndjson"])
def test_47_only_cr_and_lf_end_a_line(name: str, framing: str) -> None:
    """47. httpx's aiter_lines, as in litellm and any-llm: U+2028 and others, raw within JSON, split the line."""
    raw = json.dumps({"choices": [{"index": 0, "delta": {"content": LINE_ENDS_THAT_ARE_NONE}}]}, ensure_ascii=False)
    events = read("openai_chat", [chat(raw.encode(), delta("stop"))])
    assert only(digest_events(events)).text == LINE_ENDS_THAT_ARE_NONE
    came, _ = through(name, events, framing)
    assert only(digest_events(came)).text == LINE_ENDS_THAT_ARE_NONE


def test_49_usage_that_was_not_asked_for_is_left_out_whole() -> None:
    """49. gpustack#6155: the usage was cut out of the bytes, and `data: ` of the finish chunk and [DONE] with it."""
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    stream = chat(delta(content="Hi"), delta("stop"), {"choices": [], "usage": usage})
    recorded = frames_of(stream)
    events = read("openai_chat", [stream], passthrough=True)
    without = Request(model="m", messages=[], include_usage=False)
    sent = write("openai_chat", events, request=without, passthrough=True)
    assert sent.frames == [*recorded[:2], recorded[-1]]
    assert sent.data.count(b"data: ") == 3


@EACH
def test_49_a_body_is_not_chopped_into_a_stream(name: str) -> None:
    """Portkey-AI/gateway#962: a JSON answer was faked as a stream of four-character pieces."""
    said = "A whole answer, told at once."
    body = {"id": "c", "choices": [{"index": 0, "message": {"content": said}, "finish_reason": "stop"}]}
    reader = WholeReader(FORMATS["openai_chat"], ReaderOptions())
    written = write(name, reader.read([Frame(json.dumps(body).encode())]))
    check_whole_ending(name, written.frames)
    assert sum(json.dumps(said).encode() in frame.data for frame in written.frames) >= 1
    assert sum(said[:4].encode() in frame.data for frame in written.frames) == sum(
        said.encode() in frame.data for frame in written.frames
    ), "no frame holds a piece of it"


def test_flush_a_half_line_at_the_end_is_no_event() -> None:
    """LiteLLM's flush() at EOF yields a half line as a line; by the standard it is dropped."""
    decoder = FRAMINGS["sse"].decoder()
    assert decoder.feed(b'data: {"a":1}\n\ndata: {"b":') == [Frame(b'{"a":1}')]
    assert decoder.eof() == []


# Signatures.


def test_52_a_body_told_as_a_stream_keeps_its_signature() -> None:
    """52. BerriAI/litellm#38153: the signature was dropped where the stream was made from a JSON answer."""
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "Hm", "signature": "c2ln+/=="},
            {"type": "redacted_thinking", "data": "cmVk=="},
            {"type": "text", "text": "So."},
        ],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 2},
    }
    events = WholeReader(FORMATS["anthropic"], ReaderOptions()).read([Frame(json.dumps(body).encode())])
    said = [json.loads(frame.data) for frame in write("anthropic", events).frames]
    in_block = [one for one in said if one.get("index") == 0]
    assert in_block[-2]["delta"] == {"type": "signature_delta", "signature": "c2ln+/=="}
    assert in_block[-1]["type"] == "content_block_stop"


SIGNED = [
    {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "WA=="},
    {"text": "", "thoughtSignature": "WQ=="},
]
"""Parts of Gemini's: a signed call, and a text that is nothing but its signature."""
PLACES = {"llm_stream": 2, "gateway": 2, "gemini": 2, "openai_chat": 1, "mistral": 1}
"""A caller's format: how many of these signatures it has a place for; none where the format is not listed."""


@EACH
def test_50_geminis_signatures_return_on_the_very_part(name: str) -> None:
    """Through the caller's stream, its next request, and Gemini's request again. What has no place is named as lost."""
    said = {"candidates": [{"content": {"role": "model", "parts": SIGNED}, "finishReason": "STOP", "index": 0}]}
    back, written = through(name, read("gemini", [SSEEncoder().encode([Frame(json.dumps(said).encode())])], "sse"))
    if PLACES.get(name, 0) < len(SIGNED):
        assert "extensions.google" in written.lost
    if name not in PLACES:
        return
    parts = list(response_of(back)[0].choices[0].parts)
    called = next(part for part in parts if isinstance(part, ToolCall))
    turn = Request(
        model="m",
        messages=[
            Message(role="user", parts=[Text(text="Go.")]),
            Message(role="assistant", parts=parts),
            Message(role="tool", parts=[ToolResult(tool_call_id=called.id, name="f", parts=[Text(text="1")])]),
        ],
    )
    format = FORMATS[name]
    body = format.write_request(turn, Target(model="m", vendor="google")).body
    sent = format.read_request(body, Located(model="m"))
    wire = json.loads(FORMATS["gemini"].write_request(sent, Target(model="m", vendor="google")).body)
    model = next(content["parts"] for content in wire["contents"] if content["role"] == "model")
    signed = [("functionCall" in part, part["thoughtSignature"]) for part in model if "thoughtSignature" in part]
    # Messages with a list of calls beside the text have their own order; elsewhere it is the answer's.
    assert (signed if name == "gemini" else sorted(signed, reverse=True)) == [(True, "WA=="), (False, "WQ==")][
        : PLACES[name]
    ]


@EACH
def test_50_52_signatures_stay_on_their_part(name: str) -> None:
    """50. BerriAI/litellm#16893, #25322: a signature went to another part, or nowhere: kept per part, bytes unchanged."""
    events = read(
        "anthropic",
        [
            messages(
                START,
                opened(0, type="thinking", thinking="", signature=""),
                added(0, type="thinking_delta", thinking="One"),
                added(0, type="signature_delta", signature="c2ln+/1=="),
                closed(0),
                opened(1, type="redacted_thinking", data="cmVk"),
                closed(1),
                opened(2, type="thinking", thinking="", signature=""),
                added(2, type="thinking_delta", thinking="Two"),
                added(2, type="signature_delta", signature="c2ln+/2=="),
                closed(2),
                opened(3, type="tool_use", id="toolu_1", name="f", input={}),
                closed(3),
                ended("tool_use"),
                STOP,
            )
        ],
    )
    read_once, answer, wanted = only(digest_events(events)), only(seen(name, events)), only(due(name, events))
    assert [signature for _, signature in read_once.signatures] == ["c2ln+/1==", "c2ln+/2=="]
    assert [data for _, data in read_once.redacted] == ["cmVk"]
    assert (answer.signatures, answer.redacted) == (wanted.signatures, wanted.redacted)
    assert answer.reasoning == "OneTwo"


# Ollama's own stream.


def lines(*said: dict[str, Any], done: bool = True) -> bytes:
    """A stream of /api/chat."""
    last = [{"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}] if done else []
    head = {"model": "m", "created_at": "2026-01-01T00:00:00.1Z", "done": False}
    return b"".join(json.dumps({**head, **one}).encode() + b"\n" for one in (*said, *last))


def ollama_call(name: str, **arguments: Any) -> dict[str, Any]:
    calls = [{"function": {"name": name, "arguments": arguments}}]
    return {"message": {"role": "assistant", "content": "", "tool_calls": calls}}


@EACH
def test_1_calls_are_counted_across_the_stream(name: str) -> None:
    """1. BerriAI/litellm#33678, #14579: each line's call got index 0, and clients joined the arguments."""
    events = read("ollama", [lines(ollama_call("read", path="a.rs"), ollama_call("read", path="b.rs"))])
    answer = only(seen(name, events))
    assert calls_of(answer) == [("read", {"path": "a.rs"}), ("read", {"path": "b.rs"})]
    assert len({one.id for one in answer.calls}) == 2
    assert indices(write("openai_chat", events).frames) == [0, 1]


@EACH
def test_10_a_call_before_the_line_that_is_done(name: str) -> None:
    """10. BerriAI/litellm#35663: the last line says `stop`, whatever came before it."""
    events = read("ollama", [lines(ollama_call("read", path="a.rs"))])
    assert only(seen(name, events)).stop == "tool_use"


def test_11_no_empty_block_before_ollamas_call() -> None:
    """11. BerriAI/litellm#34692: the empty `content` beside the call became a block of text."""
    frames = write("anthropic", read("ollama", [lines(ollama_call("read", path="a.rs"))])).frames
    said = [json.loads(frame.data) for frame in frames]
    assert [one["content_block"]["type"] for one in said if one["type"] == "content_block_start"] == ["tool_use"]
    assert [one["delta"]["stop_reason"] for one in said if one["type"] == "message_delta"] == ["tool_use"]


@EACH
def test_14_a_stream_without_its_last_line(name: str) -> None:
    """14. anomalyco/opencode#43379: no line with `done` ever comes."""
    events = read("ollama", [lines({"message": {"role": "assistant", "content": "Half an"}}, done=False)])
    assert isinstance(events[-1], ev.Error)
    assert events[-1].error.type == "upstream_truncated"
    check_failed_ending(name, write(name, events).frames, [])


@EACH
def test_29_an_error_as_a_line_reaches_the_caller(name: str) -> None:
    """29. BerriAI/litellm#39748, in Ollama's shape: HTTP 200, and the last line is an error."""
    stream = lines({"message": {"role": "assistant", "content": "a"}}, {"error": "Overloaded"}, done=False)
    events = read("ollama", [stream])
    told = digest_events(read(name, [write(name, events).data]))
    assert (told.error, only(told).text) == ("Overloaded", "a")
