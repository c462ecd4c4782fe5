"""The stream writer: whatever the grammar allows becomes a stream that Anthropic's clients accept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from headrace.formats.anthropic import FORMAT
from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.formats.sealing import decode_id, seal
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.assemble import assemble, explode
from headrace.model.content import Citation, Opaque, Reasoning, Refusal, Text, ToolCall
from headrace.model.errors import ErrorCode, ErrorInfo
from headrace.model.events import BlockKind, BlockStart, Event
from headrace.model.response import Choice, Response
from headrace.model.stop import StopReason
from headrace.model.usage import Usage
from tests.strategies import legal_events

from .helpers import (
    PING,
    START,
    STOP,
    arguments,
    begin,
    delta,
    end,
    frames,
    lost,
    message_delta,
    read,
    text,
    tool,
    write,
)

K = BlockKind


def kinds(written: Sequence[dict[str, Any]]) -> list[str]:
    """A stream in short: block starts and stops with their index, deltas with theirs."""
    short = {"content_block_start": "start", "content_block_delta": "delta", "content_block_stop": "stop"}
    return [f"{short[each['type']]} {each['index']}" if each["type"] in short else each["type"] for each in written]


def stream(*events: Event, reason: StopReason = StopReason.END_TURN, usage: Usage | None = None) -> list[Event]:
    return [ev.Start(id="x", model="m"), *events, ev.Finish(reason=reason), ev.End(usage=usage)]


def block(number: int, kind: BlockKind = K.TEXT, **fields: Any) -> BlockStart:
    return BlockStart(block=number, type=kind, **fields)


def call(number: int, id: str = "call_1", name: str = "f") -> BlockStart:
    return block(number, K.TOOL_CALL, id=id, name=name)


def test_text() -> None:
    usage = Usage(input_tokens=7, output_tokens=3)
    written = write(stream(block(0), ev.TextDelta(0, 'a "b"'), ev.TextDelta(0, "c"), ev.BlockStop(0), usage=usage))
    counts = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    assert written == [
        {
            "type": "message_start",
            "message": {
                "id": "x",
                "type": "message",
                "role": "assistant",
                "model": "m",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {"input_tokens": 0, "output_tokens": 0, **counts},
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        text(0, 'a "b"'),
        text(0, "c"),
        end(0),
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"input_tokens": 7, "output_tokens": 3, **counts},
        },
        {"type": "message_stop"},
    ]


def test_one_json_object_in_one_line() -> None:
    writer = FORMAT.stream_writer(WriterOptions())
    for each in writer.write(stream(block(0), ev.TextDelta(0, "a\nb\u2028c\r"), ev.BlockStop(0))):
        assert b"\n" not in each.data
        assert b"\r" not in each.data


def test_ids_and_model_are_filled_in() -> None:
    (start,) = write([ev.Start()], request_id="req_7", model="shown")
    assert (start["message"]["id"], start["message"]["model"]) == ("msg_req_7", "shown")


def test_nothing_empty_is_opened() -> None:
    written = write(
        stream(
            *[block(0), ev.TextDelta(0, ""), ev.BlockStop(0)],
            *[block(1, K.REASONING), ev.ReasoningDelta(1, ""), ev.BlockStop(1)],
            *[block(2, K.REFUSAL), ev.BlockStop(2)],
            *[call(3), ev.BlockStop(3)],
        )
    )
    assert kinds(written) == ["message_start", "start 0", "stop 0", "message_delta", "message_stop"]
    assert written[1]["content_block"] == {"type": "tool_use", "id": "call_1", "name": "f", "input": {}}


def test_an_open_text_block_without_text_does_not_hold_up_a_tool() -> None:
    """FAULTS 11: no spurious text block before a tool; and tool_use though the provider said "stop"."""
    events = stream(
        block(0), ev.TextDelta(0, ""), call(1), ev.ToolDelta(1, '{"a":1}'), ev.BlockStop(1), ev.BlockStop(0)
    )
    writer = FORMAT.stream_writer(WriterOptions())
    sent = [[json.loads(each.data) for each in writer.write([event])] for event in events]
    assert kinds(sent[3]) == ["start 0"]
    assert sent[4] == [arguments(0, '{"a":1}')]
    assert sent[-1][0]["delta"]["stop_reason"] == "tool_use"


def test_parallel_calls_are_put_in_a_row() -> None:
    events = stream(
        *[call(0, "A"), ev.ToolDelta(0, '{"x":'), call(1, "B"), ev.ToolDelta(1, '{"y":'), ev.ToolDelta(0, "1}")],
        *[ev.ToolDelta(1, "2}"), ev.BlockStop(1), ev.BlockStop(0)],
    )
    writer = FORMAT.stream_writer(WriterOptions())
    sent = [[json.loads(each.data) for each in writer.write([event])] for event in events]
    assert sent[2] == [arguments(0, '{"x":')]  # the first is live
    assert sent[3] == sent[4] == sent[6] == sent[7] == []
    assert sent[8] == [end(0), tool(1, "B", "f"), arguments(1, '{"y":'), arguments(1, "2}"), end(1)]


def test_a_waiting_block_goes_live_at_its_turn() -> None:
    writer = FORMAT.stream_writer(WriterOptions())
    writer.write([ev.Start(), call(0), call(1, "B"), ev.ToolDelta(1, "{")])
    assert kinds([json.loads(each.data) for each in writer.write([ev.BlockStop(0)])]) == [
        "stop 0",
        "start 1",
        "delta 1",
    ]
    assert len(writer.write([ev.ToolDelta(1, "}")])) == 1


def test_a_waiting_call_that_is_abandoned_is_not_sent() -> None:
    events = stream(call(0), call(1, "B"), ev.ToolDelta(1, '{"a'), ev.BlockStop(1, complete=False), ev.BlockStop(0))
    assert "start 1" not in kinds(write(events))
    assert "tool_call.incomplete" in lost(events)


def test_other_choices_are_lost() -> None:
    events = [
        ev.Start(),
        *[
            block(0),
            block(1, choice=1),
            ev.TextDelta(1, "no"),
            ev.TextDelta(0, "yes"),
            ev.BlockStop(1),
            ev.BlockStop(0),
        ],
        ev.Finish(choice=1, reason=StopReason.MAX_TOKENS),
        ev.Finish(choice=0, reason=StopReason.END_TURN),
        ev.End(),
    ]
    written = write(events)
    assert [each["delta"]["text"] for each in written if each["type"] == "content_block_delta"] == ["yes"]
    assert written[-2]["delta"]["stop_reason"] == "end_turn"
    assert lost(events) == {"choices"}


@pytest.mark.parametrize(
    ("reason", "raw", "word"),
    [
        (StopReason.END_TURN, "stop", "end_turn"),
        (StopReason.STOP_SEQUENCE, None, "stop_sequence"),
        (StopReason.MAX_TOKENS, "length", "max_tokens"),
        (StopReason.CONTEXT_WINDOW, None, "model_context_window_exceeded"),
        (StopReason.TOOL_USE, "tool_calls", "tool_use"),
        (StopReason.CONTENT_FILTER, "content_filter", "refusal"),
        (StopReason.REFUSAL, None, "refusal"),
        (StopReason.PAUSE, None, "pause_turn"),
        (StopReason.MALFORMED_TOOL_CALL, "MALFORMED_FUNCTION_CALL", "end_turn"),
        (StopReason.OTHER, "insufficient_system_resource", "end_turn"),
        (StopReason.OTHER, "compaction", "compaction"),
    ],
)
def test_stop_reasons(reason: StopReason, raw: str | None, word: str) -> None:
    finish = ev.Finish(reason=reason, raw=raw, stop_sequence="END")
    written = write([ev.Start(), finish, ev.End()])
    assert written[1]["delta"] == {"stop_reason": word, "stop_sequence": "END"}


def test_every_stop_reason_has_a_word() -> None:
    for reason in StopReason:
        assert isinstance(write([ev.Start(), ev.Finish(reason=reason), ev.End()])[1]["delta"]["stop_reason"], str)


def test_no_finish_is_made_up() -> None:
    assert write([ev.Start(), ev.End()])[1]["delta"]["stop_reason"] is None


def test_a_refusal_is_text_and_its_stop_reason() -> None:
    written = write(stream(block(0, K.REFUSAL), ev.RefusalDelta(0, "I won't."), ev.BlockStop(0)))
    assert written[1]["content_block"]["type"] == "text"
    assert written[2] == text(0, "I won't.")
    assert written[-2]["delta"]["stop_reason"] == "refusal"


class TestReasoning:
    def write(self, vendor: str, signatures: list[str], **fields: Any) -> list[dict[str, Any]]:
        start = block(0, K.REASONING, vendor=vendor, **fields)
        deltas = [ev.SignatureDelta(0, each) for each in signatures]
        return write(stream(start, ev.ReasoningDelta(0, "hm"), *deltas, ev.BlockStop(0)))[1:-2]

    def test_anthropics_own_signature_is_one_delta_just_before_the_stop(self) -> None:
        assert self.write("anthropic", ["c2", "ln"]) == [
            begin(0, "thinking"),
            delta(0, "thinking_delta", thinking="hm"),
            delta(0, "signature_delta", signature="c2ln"),
            end(0),
        ]

    def test_no_signature_is_forged_and_none_is_empty(self) -> None:
        for signatures in ([], [""]):
            assert self.write("openai", signatures) == [
                {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
                delta(0, "thinking_delta", thinking="hm"),
                end(0),
            ]

    def test_anothers_signature_is_sealed(self) -> None:
        written = self.write("gemini", ["S:1"], id="rs:1")
        assert written[2] == delta(0, "signature_delta", signature="headrace:gemini:rs%3A1:S:1")

    def test_a_signature_alone_is_sent(self) -> None:
        events = stream(block(0, K.REASONING, vendor="anthropic"), ev.SignatureDelta(0, "s"), ev.BlockStop(0))
        assert kinds(write(events))[1:-2] == ["start 0", "delta 0", "stop 0"]

    @pytest.mark.parametrize(("vendor", "data"), [("anthropic", "D"), ("openai", seal("openai", "", "D"))])
    def test_redacted(self, vendor: str, data: str) -> None:
        written = write(stream(block(0, K.REDACTED_REASONING, vendor=vendor, data="D"), ev.BlockStop(0)))
        assert written[1:-2] == [begin(0, "redacted_thinking", data=data), end(0)]


class TestToolIds:
    @pytest.mark.parametrize("id", ["toolu_1", "call-9", "A" * 64])
    def test_plain_ones_stay(self, id: str) -> None:
        assert write(stream(call(0, id), ev.BlockStop(0)))[1]["content_block"]["id"] == id

    @pytest.mark.parametrize("id", ["functions.f:0", "日本", "a b", "hrid-x", "x" * 300 + "."])
    def test_others_are_mapped_and_come_back(self, id: str) -> None:
        written = write(stream(call(0, id), ev.BlockStop(0)))[1]["content_block"]["id"]
        assert written.replace("-", "").replace("_", "").isalnum()
        assert written.isascii()
        assert written != id
        assert decode_id(written) == id

    def test_missing_ones_are_made_and_differ(self) -> None:
        written = write(stream(call(0, ""), ev.BlockStop(0), call(1, ""), ev.BlockStop(1)), request_id="r")
        ids = [each["content_block"]["id"] for each in written if each["type"] == "content_block_start"]
        assert ids == ["call_r_0", "call_r_1"]


class TestOpaque:
    def test_anthropics_own_come_out_valid(self) -> None:
        payloads = [
            START,
            begin(0, "server_tool_use", id="s", name="web_search", input={}),
            arguments(0, '{"q":'),
            arguments(0, "1}"),
            end(0),
            begin(1, "web_search_tool_result", tool_use_id="s", content=[{"type": "web_search_result"}]),
            end(1),
            begin(2, "compaction", content=None),
            delta(2, "compaction_delta", content="S", encrypted_content="E"),
            end(2),
            begin(3, "hologram", a=None),
            delta(3, "hologram_delta", v=[1]),
            end(3),
            message_delta("end_turn"),
            STOP,
        ]
        assert write(read(payloads))[1:-2] == payloads[1:-2]

    @pytest.mark.parametrize("input", [{"q": 1}, '{"q":1}'])
    def test_a_whole_input_becomes_a_delta(self, input: Any) -> None:
        payload = {"type": "server_tool_use", "id": "s", "name": "n", "input": input}
        part = Opaque(vendor="anthropic", payload=payload, role="server_tool_call")
        written = write(list(explode(Response(choices=[Choice(parts=[part], stop=StopReason.END_TURN)]))))
        assert written[1]["content_block"] == {**payload, "input": {}}
        assert written[2] == arguments(0, '{"q":1}')

    def test_those_of_others_are_lost(self) -> None:
        start = block(0, K.OPAQUE, vendor="openai", role="server_tool_call", payload={"type": "web_search_call"})
        events = stream(start, ev.OpaqueDelta(0, {"type": "x"}), ev.BlockStop(0))
        assert kinds(write(events)) == ["message_start", "message_delta", "message_stop"]
        assert lost(events) == {"server_tool_call"}


def test_what_has_no_place_is_named() -> None:
    events = stream(
        block(0),
        ev.CitationDelta(0, Citation("openai", {"type": "url_citation"})),
        ev.TextDelta(0, "a", [{"token": "a"}]),
        ev.TextDelta(0, "b", [{"token": "b"}]),
        ev.BlockStop(0),
        block(1, K.MEDIA, media_type="audio/wav"),
        ev.MediaDelta(1, data="AA=="),
        ev.BlockStop(1),
        ev.Progress(message="searching"),
        ev.Opaque(vendor="openai", name="moderation", content=True),
        ev.Opaque(vendor="openai", name="keepalive"),
        block(2, extensions={"openai": {"x": 1}}),
        ev.BlockStop(2),
    )
    assert lost(events) == {"citations", "logprobs", "audio", "progress", "openai.moderation", "extensions.openai"}
    assert kinds(write(events))[1:-2] == ["start 0", "delta 0", "delta 0", "stop 0"]


def test_usage_is_told_at_start_and_end_in_anthropics_convention() -> None:
    usage = Usage(
        input_tokens=1169,
        output_tokens=20,
        cached_tokens=1000,
        cache_write_tokens=165,
        reasoning_tokens=5,
        vendor={"anthropic": {"service_tier": "standard", "iterations": [1]}, "openai": {"x": 1}},
    )
    written = write(
        [ev.Start(usage=usage), ev.UsageReport(Usage(output_tokens=50)), ev.End(usage=Usage(output_tokens=0))]
    )
    expected = {
        "input_tokens": 4,
        "cache_creation_input_tokens": 165,
        "cache_read_input_tokens": 1000,
        "output_tokens": 20,
        "output_tokens_details": {"thinking_tokens": 5},
        "service_tier": "standard",
        "iterations": [1],
    }
    assert written[0]["message"]["usage"] == expected
    assert written[1]["usage"] == {**expected, "output_tokens": 50}


def test_usage_after_the_finish_is_waited_for() -> None:
    writer = FORMAT.stream_writer(WriterOptions())
    assert len(writer.write([ev.Start(), ev.Finish(reason=StopReason.END_TURN)])) == 1
    assert writer.write([ev.UsageReport(Usage(input_tokens=9, output_tokens=8))]) == []
    tail = [json.loads(each.data) for each in writer.write([ev.End()])]
    assert (tail[0]["usage"]["input_tokens"], tail[0]["usage"]["output_tokens"]) == (9, 8)


class TestErrors:
    INFO = ErrorInfo(code=ErrorCode.TIMEOUT, message="No event for 30 s")

    def test_an_error_is_last_and_closes_nothing(self) -> None:
        events = [ev.Start(), block(0), ev.TextDelta(0, "a"), call(1), ev.ToolDelta(1, "{"), ev.Error(self.INFO)]
        written = write(events, request_id="req_1")
        assert kinds(written) == ["message_start", "start 0", "delta 0", "error"]
        assert written[-1] == {
            "type": "error",
            "error": {"type": "timeout_error", "message": "No event for 30 s"},
            "request_id": "req_1",
        }

    def test_an_error_may_be_all_there_is(self) -> None:
        assert kinds(write([ev.Error(self.INFO)])) == ["error"]

    def test_anthropics_own_goes_out_unchanged(self) -> None:
        error = {"type": "overloaded_error", "message": "Overloaded", "details": {"x": [1]}}
        payload = {"type": "error", "error": error, "request_id": "req_9"}
        assert write(read([START, payload]), request_id="ours")[-1] == payload

    def test_nothing_before_the_start(self) -> None:
        assert write([ev.Opaque(vendor="anthropic", name="ping")]) == []


class TestPassthrough:
    def sent(self, given: list[Frame]) -> list[Frame]:
        events = FORMAT.stream_reader(ReaderOptions(passthrough=True)).read(given)
        return FORMAT.stream_writer(WriterOptions(passthrough=True)).write(events)

    @pytest.mark.parametrize(
        "payloads",
        [
            [START, PING, begin(0), text(0, ""), text(0, "a"), end(0), message_delta(), STOP],
            [
                START,
                begin(0, "text", text="whole"),
                end(0),
                tool(1, input={"a": 1}),
                end(1),
                message_delta("tool_use"),
                STOP,
            ],
            [START, {"type": "news", "x": 1}, begin(0), delta(0, "sparkle_delta", g=1), end(0), message_delta(), STOP],
            [START, begin(0, "compaction"), delta(0, "compaction_delta", content="a", encrypted_content="b"), end(0)],
            [START, message_delta(None, {"output_tokens": 1}), PING, message_delta("end_turn"), PING, STOP],
            [START, begin(0), text(0, "a"), {"type": "error", "error": {"type": "api_error", "message": "m"}, "z": 1}],
        ],
    )
    def test_frames_go_out_as_they_came(self, payloads: list[dict[str, Any]]) -> None:
        given = frames(payloads)
        sent = self.sent(given)
        assert len(sent) == len(given)
        assert all(a is b for a, b in zip(sent, given, strict=True))

    def test_composed_and_passed_blocks_alternate(self) -> None:
        """The provider leaves out index 1; from there on the indices are ours, until the message's own end."""
        payloads = [
            START,
            begin(0),
            text(0, "a"),
            end(0),
            begin(2),
            text(2, "b"),
            text(2, "c"),
            end(2),
            message_delta(),
            STOP,
        ]
        given = frames(payloads)
        sent = self.sent(given)
        assert sent[:4] == given[:4]
        assert [json.loads(each.data) for each in sent[4:8]] == [begin(1), text(1, "b"), text(1, "c"), end(1)]
        assert sent[8:] == given[8:]

    def test_a_duplicate_start_is_swallowed(self) -> None:
        given = frames([START, START, begin(0), text(0, "a"), end(0), message_delta(), STOP])
        assert self.sent(given) == [given[0], *given[2:]]

    def test_blocks_left_open_are_closed_before_the_message_ends(self) -> None:
        given = frames([START, begin(0), text(0, "a"), message_delta(), STOP])
        assert [each.event for each in self.sent(given)] == [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]

    def test_an_end_without_message_delta_gets_one(self) -> None:
        given = frames([START, begin(0), text(0, "a"), end(0), STOP])
        assert [each.event for each in self.sent(given)][-2:] == ["message_delta", "message_stop"]

    def test_usage_is_tracked_while_frames_pass(self) -> None:
        events = read([START, message_delta("end_turn", {"output_tokens": 9}), STOP], passthrough=True)
        last = events[-1]
        assert isinstance(last, ev.End)
        last.origin = None  # somebody changed the end
        writer = FORMAT.stream_writer(WriterOptions(passthrough=True))
        tail = json.loads(writer.write(events)[-2].data)
        assert (tail["usage"]["input_tokens"], tail["usage"]["output_tokens"]) == (25, 9)

    def test_a_whole_bodys_origin_is_no_frame(self) -> None:
        response = Response(id="x", choices=[Choice(parts=[Text(text="a")], stop=StopReason.END_TURN)], origin=b"{}")
        writer = FORMAT.stream_writer(WriterOptions(passthrough=True))
        assert [each.event for each in writer.write(list(explode(response)))][-1] == "message_stop"


def check_protocol(written: list[dict[str, Any]]) -> None:
    """DOSSIER 3.9: indices without gaps, one block open at a time, nothing outside its block, one ending."""
    opened: int | None = None
    following = 0
    assert written[0]["type"] in ("message_start", "error")
    for each in written[1:]:
        assert each["type"] != "message_start"
    endings = [i for i, each in enumerate(written) if each["type"] in ("message_stop", "error")]
    assert endings == [len(written) - 1]
    for each in written:
        if each["type"] == "content_block_start":
            assert opened is None
            assert each["index"] == following
            opened, following = following, following + 1
        elif each["type"] == "content_block_delta":
            assert each["index"] == opened
            assert each["delta"].get("signature") != ""
            assert "type" in each["delta"]
        elif each["type"] == "content_block_stop":
            assert each["index"] == opened
            opened = None
        elif each["type"] == "message_delta":
            assert opened is None
            assert each["usage"].keys() >= {"input_tokens", "output_tokens"}


def told(events: list[Event]) -> dict[str, list[Any]]:
    """What choice 0 says that this format has a place for, in a comparable form."""
    said: dict[str, list[Any]] = {"text": [], "reasoning": [], "calls": []}
    response = assemble(events)
    for part in next((choice.parts for choice in response.choices if choice.index == 0), []):
        if isinstance(part, Text | Refusal) and part.text:
            said["text"].append(part.text)
        elif isinstance(part, Reasoning) and (part.text or part.signature):
            said["reasoning"].append((part.text, part.signature))
        elif isinstance(part, ToolCall) and part.complete:
            said["calls"].append((part.id, part.name, part.arguments))
    return {kind: sorted(values, key=repr) for kind, values in said.items()}


def unsealed(said: dict[str, list[Any]]) -> dict[str, list[Any]]:
    def value(signature: str | None) -> str | None:
        return signature.split(":", 3)[3] if signature and signature.startswith("headrace:") else signature

    calls = [(decode_id(id), name, given) for id, name, given in said["calls"]]
    reasoning = [(thought, value(signature)) for thought, signature in said["reasoning"]]
    return {"text": said["text"], "reasoning": sorted(reasoning, key=repr), "calls": sorted(calls, key=repr)}


@given(legal_events())
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_any_legal_stream_becomes_a_valid_one(events: list[Event]) -> None:
    written = write(events)
    check_protocol(written)
    assert write_in_pieces(events) == written
    if isinstance(events[-1], ev.End):
        back = read(written)
        expected = told(events)
        found = unsealed(told(back))
        abandoned = {event.block for event in events if isinstance(event, ev.BlockStop) and not event.complete}
        ids = {event.id for event in events if isinstance(event, BlockStart) and event.block in abandoned}
        found["calls"] = [each for each in found["calls"] if each[0] not in ids]  # closed as they stood
        assert found == expected


def write_in_pieces(events: list[Event]) -> list[dict[str, Any]]:
    writer = FORMAT.stream_writer(WriterOptions())
    return [json.loads(each.data) for event in events for each in writer.write([event])]


@given(legal_events(kinds={K.TEXT, K.TOOL_CALL, K.REASONING, K.OPAQUE}, max_choices=1, extensions=False))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_our_own_stream_passes_through_byte_by_byte(events: list[Event]) -> None:
    given_frames = FORMAT.stream_writer(WriterOptions()).write(events)
    passed = FORMAT.stream_reader(ReaderOptions(passthrough=True)).read(given_frames)
    assert FORMAT.stream_writer(WriterOptions(passthrough=True)).write(passed) == given_frames
