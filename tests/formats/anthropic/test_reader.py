"""The stream reader: every event, delta and block of the format, and what compatible servers make of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.formats.anthropic import FORMAT
from headrace.formats.base import ReaderOptions
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.assemble import assemble
from headrace.model.content import Citation, Opaque, Reasoning, RedactedReasoning, Text, ToolCall
from headrace.model.errors import ErrorCode, ProtocolError
from headrace.model.events import BlockKind, BlockStart
from headrace.model.grammar import Grammar
from headrace.model.stop import StopReason
from headrace.model.usage import Usage

from .helpers import (
    MESSAGE,
    PING,
    START,
    STOP,
    answer,
    arguments,
    begin,
    delta,
    end,
    frame,
    frames,
    message_delta,
    read,
    text,
    tool,
)


def test_the_canonical_sequence() -> None:
    events = read(
        [
            START,
            begin(0, "thinking"),
            PING,
            delta(0, "thinking_delta", thinking="Need weather."),
            delta(0, "signature_delta", signature="c2ln"),
            end(0),
            tool(1),
            arguments(1, ""),
            arguments(1, '{"c":"Oslo"}'),
            end(1),
            message_delta("tool_use", {"output_tokens": 41}),
            STOP,
        ]
    )
    start = events[0]
    assert isinstance(start, ev.Start)
    assert (start.id, start.model) == ("msg_1", "m")
    assert start.usage is not None
    assert start.usage.input_tokens == 25
    usage = Usage(input_tokens=25, output_tokens=41)
    assert events[1:] == [
        BlockStart(block=0, type=BlockKind.REASONING, vendor="anthropic"),
        ev.Opaque(vendor="anthropic", name="ping"),
        ev.ReasoningDelta(0, "Need weather."),
        ev.SignatureDelta(0, "c2ln"),
        ev.BlockStop(0),
        BlockStart(block=1, type=BlockKind.TOOL_CALL, id="toolu_1", name="w"),
        ev.ToolDelta(1, ""),
        ev.ToolDelta(1, '{"c":"Oslo"}'),
        ev.BlockStop(1),
        ev.UsageReport(usage),
        ev.Finish(reason=StopReason.TOOL_USE, raw="tool_use"),
        ev.End(usage=usage),
    ]


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("end_turn", StopReason.END_TURN),
        ("max_tokens", StopReason.MAX_TOKENS),
        ("stop_sequence", StopReason.STOP_SEQUENCE),
        ("tool_use", StopReason.TOOL_USE),
        ("pause_turn", StopReason.PAUSE),
        ("refusal", StopReason.REFUSAL),
        ("model_context_window_exceeded", StopReason.CONTEXT_WINDOW),
        ("compaction", StopReason.OTHER),
        ("never_heard_of", StopReason.OTHER),
    ],
)
def test_stop_reasons(word: str, reason: StopReason) -> None:
    choice = answer([START, message_delta(word), STOP]).choices[0]
    assert (choice.stop, choice.raw_stop) == (reason, word)


def test_the_stop_sequence_is_told() -> None:
    choice = answer([START, message_delta("stop_sequence", stop_sequence="END"), STOP]).choices[0]
    assert choice.stop_sequence == "END"


def test_of_several_message_deltas_the_last_word_wins() -> None:
    response = answer(
        [
            START,
            message_delta(None, {"output_tokens": 3}),
            message_delta("end_turn", {"output_tokens": 7}),
            message_delta("", {"output_tokens": 9}),
            message_delta("max_tokens"),
            message_delta(None),
            STOP,
        ]
    )
    assert response.choices[0].raw_stop == "max_tokens"
    assert response.usage is not None
    assert response.usage.output_tokens == 9


def test_a_refusal_without_any_block() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "No."}
    choice = answer([START, PING, message_delta("refusal", stop_details=details), STOP]).choices[0]
    assert choice.parts == []
    assert choice.stop is StopReason.REFUSAL
    assert choice.extensions == {"anthropic": {"stop_details": details}}


def test_a_refusal_inside_a_tool_call_discards_it() -> None:
    events = read([START, tool(0), arguments(0, '{"a":'), message_delta("refusal"), STOP])
    assert ev.BlockStop(0, complete=False) in events
    call = assemble(events).choices[0].parts[0]
    assert isinstance(call, ToolCall)
    assert not call.complete


def test_what_the_stop_is_told_with() -> None:
    payload = {
        **message_delta("end_turn", container={"id": "c_1"}),
        "context_management": {"applied_edits": []},
    }
    choice = answer([START, payload, STOP]).choices[0]
    assert choice.extensions == {"anthropic": {"container": {"id": "c_1"}, "context_management": {"applied_edits": []}}}


class TestBlocks:
    def parts(self, *payloads: dict[str, Any]) -> list[Any]:
        return answer([START, *payloads, message_delta(), STOP]).choices[0].parts

    def test_citations_come_before_the_text_they_belong_to(self) -> None:
        citation = {"type": "char_location", "cited_text": "x"}
        parts = self.parts(begin(0), delta(0, "citations_delta", citation=citation), text(0, "so"), end(0))
        assert parts == [Text(text="so", citations=[Citation("anthropic", citation)])]

    def test_what_a_start_already_holds_is_not_lost(self) -> None:
        parts = self.parts(
            begin(0, "text", text="He", citations=[{"type": "page_location"}]),
            text(0, "llo"),
            end(0),
            begin(1, "thinking", thinking="hm", signature="sig"),
            end(1),
        )
        assert parts == [
            Text(text="Hello", citations=[Citation("anthropic", {"type": "page_location"})]),
            Reasoning(text="hm", signature="sig", vendor="anthropic"),
        ]

    def test_redacted_thinking_is_whole_at_its_start(self) -> None:
        parts = self.parts(begin(0, "redacted_thinking", data="xyz"), end(0))
        assert parts == [RedactedReasoning(data="xyz", vendor="anthropic")]

    @pytest.mark.parametrize(
        ("deltas", "expected"),
        [
            ([], "{}"),
            ([""], "{}"),
            (["{}"], "{}"),
            (['{"a":', "1}"], '{"a":1}'),
        ],
    )
    def test_tool_arguments(self, deltas: list[str], expected: str) -> None:
        call = self.parts(tool(0), *[arguments(0, each) for each in deltas], end(0))[0]
        assert (call.arguments, call.complete) == (expected, True)

    def test_arguments_that_end_half_way_are_marked(self) -> None:
        call = self.parts(tool(0), arguments(0, '{"a":"b'), end(0))[0]
        assert (call.arguments, call.complete) == ('{"a":"b', False)

    def test_a_lone_surrogate_in_the_arguments_is_valid_json(self) -> None:
        call = self.parts(tool(0), arguments(0, '{"a":"\\ud83d"}'), end(0))[0]
        assert call.complete

    def test_arguments_in_the_start_count_where_no_delta_brings_them(self) -> None:
        whole = tool(0, input={"a": 1})
        assert self.parts(whole, end(0))[0].arguments == '{"a":1}'
        assert self.parts(whole, arguments(0, ""), end(0))[0].arguments == '{"a":1}'
        assert self.parts(whole, arguments(0, '{"a":'), arguments(0, "1}"), end(0))[0].arguments == '{"a":1}'

    @pytest.mark.parametrize(
        ("block", "role"),
        [
            ({"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"x": 1}]}, "server_tool_result"),
            ({"type": "mcp_tool_result", "tool_use_id": "s", "content": []}, "server_tool_result"),
            ({"type": "container_upload", "file_id": "f"}, "other"),
            ({"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}}, "other"),
            ({"type": "something_new", "deep": {"er": [1, None, 2.5]}}, "other"),
        ],
    )
    def test_blocks_without_a_word_are_kept_whole(self, block: dict[str, Any], role: str) -> None:
        start = {"type": "content_block_start", "index": 0, "content_block": block}
        assert self.parts(start, end(0)) == [Opaque(vendor="anthropic", payload=block, role=role)]

    @pytest.mark.parametrize("kind", ["server_tool_use", "mcp_tool_use"])
    def test_a_server_tools_input_is_put_together(self, kind: str) -> None:
        start = begin(0, kind, id="s", name="web_search", input={})
        part = self.parts(start, arguments(0, '{"q":'), arguments(0, '"x"}'), end(0))[0]
        assert part.role == "server_tool_call"
        assert part.payload == {"type": kind, "id": "s", "name": "web_search", "input": '{"q":"x"}'}

    def test_compaction(self) -> None:
        part = self.parts(
            begin(0, "compaction", content=None),
            delta(0, "compaction_delta", content="Sum", encrypted_content="EN"),
            delta(0, "compaction_delta", content="mary", encrypted_content=None),
            end(0),
        )[0]
        assert part.payload == {"type": "compaction", "content": "Summary", "encrypted_content": "EN"}

    def test_an_unknown_delta_of_an_unknown_block_keeps_its_payload(self) -> None:
        events = read(
            [START, begin(0, "hologram"), delta(0, "hologram_delta", voxels=[1]), end(0), message_delta(), STOP]
        )
        assert ev.OpaqueDelta(0, {"type": "hologram_delta", "voxels": [1]}) in events

    def test_an_unknown_delta_of_a_known_block_is_told_as_content(self) -> None:
        events = read(
            [START, begin(0), delta(0, "sparkle_delta", glitter=1), text(0, "a"), end(0), message_delta(), STOP]
        )
        assert ev.Opaque(vendor="anthropic", name="sparkle_delta", content=True) in events
        assert assemble(events).choices[0].parts == [Text(text="a")]

    def test_parallel_tool_calls_keep_their_arguments_apart(self) -> None:
        parts = self.parts(
            tool(1, "A", "a"),
            tool(2, "B", "b"),
            arguments(1, '{"x":'),
            arguments(2, '{"y":'),
            arguments(1, "1}"),
            arguments(2, "2}"),
            end(1),
            end(2),
        )
        assert [(call.id, call.arguments) for call in parts] == [("A", '{"x":1}'), ("B", '{"y":2}')]

    def test_fields_without_a_word_are_kept(self) -> None:
        call = self.parts(tool(0, caller={"type": "direct"}), end(0))[0]
        assert call.extensions == {"anthropic": {"caller": {"type": "direct"}}}

    def test_blocks_that_are_there_from_the_start(self) -> None:
        message = {**MESSAGE, "content": [{"type": "tool_use", "id": "t", "name": "w", "input": {"a": 1}}]}
        parts = (
            answer([{"type": "message_start", "message": message}, message_delta("tool_use"), STOP]).choices[0].parts
        )
        assert parts == [ToolCall(id="t", name="w", arguments='{"a":1}')]


class TestCompatibleServers:
    def test_the_type_in_the_json_decides(self) -> None:
        payloads = [START, begin(0), text(0, "a"), text(0, "b"), end(0), message_delta(), STOP]
        unnamed = [frame(each, named=False) for each in payloads]
        assert read(unnamed) == read(payloads)

    def test_the_name_of_the_frame_decides_where_the_json_has_no_type(self) -> None:
        events = read(
            [START, Frame(b'{"delta":{"stop_reason":"end_turn"}}', "message_delta"), Frame(b"{}", "message_stop")]
        )
        assert isinstance(events[-1], ev.End)

    @pytest.mark.parametrize(
        ("payload", "part"),
        [
            (text(0, "a"), Text(text="a")),
            (delta(0, "thinking_delta", thinking="a"), Reasoning(text="a", vendor="anthropic")),
        ],
    )
    def test_a_delta_without_a_start_opens_a_block(self, payload: dict[str, Any], part: Any) -> None:
        assert answer([START, payload, end(0), message_delta(), STOP]).choices[0].parts == [part]

    def test_a_tool_delta_without_a_start_is_an_error(self) -> None:
        with pytest.raises(ProtocolError, match="block 3"):
            read([START, arguments(3, "{}")])

    def test_a_block_that_goes_on_as_another_kind(self) -> None:
        parts = (
            answer(
                [START, begin(0), delta(0, "thinking_delta", thinking="a"), text(0, "b"), end(0), message_delta(), STOP]
            )
            .choices[0]
            .parts
        )
        assert parts == [Text(text=""), Reasoning(text="a", vendor="anthropic"), Text(text="b")]

    def test_a_stop_for_a_block_that_was_never_opened(self) -> None:
        assert answer([START, end(4), message_delta(), STOP]).choices[0].parts == []

    def test_blocks_left_open_are_closed(self) -> None:
        for tail in ([message_delta(), STOP], [STOP]):
            parts = answer([START, begin(0), text(0, "a"), tool(1), arguments(1, "{}"), *tail]).choices[0].parts
            assert parts == [Text(text="a"), ToolCall(id="toolu_1", name="w", arguments="{}")]

    def test_an_index_used_again_ends_the_block_before_it(self) -> None:
        events = read([START, begin(0), text(0, "a"), begin(0), text(0, "b"), end(0), message_delta(), STOP])
        assert ev.BlockStop(0, complete=False) in events
        assert assemble(events).choices[0].parts == [Text(text="a"), Text(text="b")]

    def test_no_message_start(self) -> None:
        assert answer([begin(0), text(0, "a"), end(0), message_delta(), STOP]).choices[0].parts == [Text(text="a")]

    def test_no_message_delta(self) -> None:
        choice = answer([START, begin(0), text(0, "a"), end(0), STOP]).choices[0]
        assert (choice.stop, choice.raw_stop) == (StopReason.OTHER, None)

    def test_padding_anywhere(self) -> None:
        padded = Frame(
            b' \t{ "type" : "content_block_delta" , "index": 0, "delta": {"type":"text_delta","text":"a"} }   '
        )
        assert answer([START, begin(0), padded, padded, end(0), message_delta(), STOP]).choices[0].parts == [  # type: ignore[list-item]  # frames pass, too
            Text(text="aa")
        ]

    def test_a_sentinel_of_another_format_is_no_end(self) -> None:
        events = read([START, message_delta(), Frame(b"[DONE]")])
        assert isinstance(events[-1], ev.Error)

    def test_cached_tokens_within_the_input(self) -> None:
        message = {**MESSAGE, "usage": {"input_tokens": 100, "cache_read_input_tokens": 80, "output_tokens": 1}}
        start = {"type": "message_start", "message": message}
        usage = assemble(read([start, message_delta(), STOP], quirks={"input_includes_cache": True})).usage
        assert usage is not None
        assert (usage.input_tokens, usage.cached_tokens) == (100, 80)

    def test_another_vendor_of_this_format(self) -> None:
        payloads = [
            START,
            begin(0, "thinking"),
            delta(0, "signature_delta", signature="s"),
            end(0),
            message_delta(),
            STOP,
        ]
        part = assemble(read(payloads, vendor="moonshot")).choices[0].parts[0]
        assert part == Reasoning(text="", signature="s", vendor="moonshot")


class TestSecondStart:
    def test_the_very_same_one_is_ignored(self) -> None:
        for at in (1, 2, 3):
            payloads = [START, begin(0), text(0, "a"), end(0), message_delta(), STOP]
            payloads.insert(at, START)
            assert answer(payloads).choices[0].parts == [Text(text="a")]

    def test_another_one_abandons_what_is_open(self) -> None:
        again = {"type": "message_start", "message": {**MESSAGE, "id": "msg_2"}}
        events = read(
            [
                *[START, begin(0), text(0, "a"), end(0), tool(1), arguments(1, '{"a'), again],
                *[tool(0, "T2"), arguments(0, '{"b":1}'), end(0), message_delta("tool_use"), STOP],
            ]
        )
        assert [event for event in events if isinstance(event, ev.BlockStop)] == [
            ev.BlockStop(0),
            ev.BlockStop(1, complete=False),
            ev.BlockStop(2),
        ]
        assert sum(isinstance(event, ev.Start) for event in events) == 1

    def test_what_the_first_attempt_said_of_its_end_does_not_count(self) -> None:
        again = {"type": "message_start", "message": {**MESSAGE, "id": "msg_2"}}
        choice = answer(
            [START, message_delta("refusal", stop_details={"a": 1}), again, message_delta(None), STOP]
        ).choices[0]
        assert (choice.raw_stop, choice.extensions) == (None, None)

    def test_nothing_of_a_second_message_after_the_end(self) -> None:
        events = read([START, message_delta(), STOP, START, begin(0), text(0, "a")])
        assert isinstance(events[-1], ev.End)
        assert not any(isinstance(event, ev.TextDelta) for event in events)


class TestErrors:
    @pytest.mark.parametrize(
        ("word", "code", "status"),
        [
            ("invalid_request_error", ErrorCode.INVALID_REQUEST, 400),
            ("authentication_error", ErrorCode.UNAUTHENTICATED, 401),
            ("billing_error", ErrorCode.BUDGET_EXCEEDED, 402),
            ("permission_error", ErrorCode.FORBIDDEN, 403),
            ("not_found_error", ErrorCode.MODEL_NOT_FOUND, 404),
            ("request_too_large", ErrorCode.INVALID_REQUEST, 413),
            ("rate_limit_error", ErrorCode.PROVIDER_RATE_LIMITED, 429),
            ("api_error", ErrorCode.PROVIDER_UNAVAILABLE, 503),
            ("timeout_error", ErrorCode.TIMEOUT, 504),
            ("overloaded_error", ErrorCode.PROVIDER_UNAVAILABLE, 503),
            ("brand_new_error", ErrorCode.PROVIDER_UNAVAILABLE, 503),
        ],
    )
    def test_error_events(self, word: str, code: ErrorCode, status: int) -> None:
        error = {"type": word, "message": "Overloaded"}
        events = read([START, begin(0), text(0, "a"), {"type": "error", "error": error, "request_id": "req_1"}])
        last = events[-1]
        assert isinstance(last, ev.Error)
        info = last.error
        assert (info.code, info.http_status, info.type, info.message) == (code, status, word, "Overloaded")
        assert (info.vendor, info.vendor_error, info.details) == ("anthropic", error, {"request_id": "req_1"})

    def test_as_the_very_first_event(self) -> None:
        events = read([{"type": "error", "error": {"type": "overloaded_error", "message": "x"}}])
        assert [type(event) for event in events] == [ev.Error]

    def test_an_error_object_without_a_type(self) -> None:
        events = read([START, {"error": {"message": "upstream died"}}])
        last = events[-1]
        assert isinstance(last, ev.Error)
        assert last.error.message == "upstream died"

    def test_the_end_without_message_stop(self) -> None:
        events = read([START, begin(0), text(0, "a"), end(0), message_delta("end_turn")], provider="claude")
        last = events[-1]
        assert isinstance(last, ev.Error)
        assert last.error.type == "upstream_truncated"
        assert "claude" in last.error.message

    def test_a_bare_error_body_after_the_stream(self) -> None:
        reader = FORMAT.stream_reader(ReaderOptions())
        reader.read([frame(START)])
        (event,) = reader.eof(b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}')
        assert isinstance(event, ev.Error)
        assert event.error.type == "overloaded_error"
        assert reader.eof() == []

    @pytest.mark.parametrize("leftover", [b"<html>502</html>", b"\xff\xfe", b"[1]", b'{"a":1}', b"[" * 100_000])
    def test_bytes_that_are_no_error_body(self, leftover: bytes) -> None:
        (event,) = FORMAT.stream_reader(ReaderOptions()).eof(leftover)
        assert isinstance(event, ev.Error)
        assert event.error.type == "upstream_truncated"

    @pytest.mark.parametrize(
        "data",
        [
            b"{",
            b"[]",
            b"null",
            b"\xff\xfe",
            b'{"a":1}',
            b'{"type":5}',
            b'{"type":"message_start"}',
            b'{"type":"message_start","message":{"content":[5]}}',
            b'{"type":"content_block_start","index":"0","content_block":{"type":"text"}}',
            b'{"type":"content_block_start","index":-1,"content_block":{"type":"text"}}',
            b'{"type":"content_block_start","index":0}',
            b'{"type":"content_block_start","index":0,"content_block":{"type":7}}',
            b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":7}}',
            b'{"type":"content_block_delta","index":0,"delta":null}',
            b'{"type":"content_block_delta","index":0,"delta":{"text":"a"}}',
            b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":["a"]}}',
            b'{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta"}}',
            b'{"type":"content_block_stop"}',
            b'{"a":' * 100_000,
        ],
    )
    def test_what_the_format_does_not_allow(self, data: bytes) -> None:
        reader = FORMAT.stream_reader(ReaderOptions())
        good = [frame(START), frame(begin(7)), frame(text(7, "a"))]
        with pytest.raises(ProtocolError) as caught:
            reader.read([*good, Frame(data), frame(text(7, "b"))])
        assert caught.value.consumed == 4
        assert len(caught.value.events) == 3
        assert reader.read([frame(text(7, "b"))]) == [ev.TextDelta(0, "b")]

    def test_half_a_surrogate_pair(self) -> None:
        halves = [Frame(b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\\ud83d"}}')] * 2
        part = (
            assemble(read([START, begin(0), text(0, "a"), *halves, end(0), message_delta(), STOP])).choices[0].parts[0]
        )
        assert part == Text(text="a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}")


class TestUsage:
    def usage(self, start: dict[str, Any], *later: dict[str, Any]) -> tuple[int | None, ...]:
        payload = {"type": "message_start", "message": {**MESSAGE, "usage": start}}
        found = answer([payload, *[message_delta(None, each) for each in later], message_delta(), STOP]).usage
        assert found is not None
        return found.input_tokens, found.output_tokens, found.cached_tokens, found.cache_write_tokens

    def test_a_later_zero_erases_nothing(self) -> None:
        start = {"input_tokens": 4, "cache_read_input_tokens": 30000, "output_tokens": 1}
        later = {"input_tokens": 4, "cache_read_input_tokens": 0, "output_tokens": 25}
        assert self.usage(start, later) == (30004, 25, 30000, None)

    def test_cumulative_counts_are_not_added(self) -> None:
        assert self.usage({"input_tokens": 10, "output_tokens": 1}, {"output_tokens": 25}) == (10, 25, None, None)

    def test_the_last_value_wins(self) -> None:
        assert self.usage({"input_tokens": 10, "output_tokens": 1}, {"input_tokens": 79, "output_tokens": 2})[:2] == (
            79,
            2,
        )

    def test_both_cache_counts_are_part_of_the_input(self) -> None:
        start = {"input_tokens": 5, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 100}
        assert self.usage(start) == (125, None, 100, 20)

    def test_odd_counts_are_ignored(self) -> None:
        start = {"input_tokens": True, "output_tokens": -1, "cache_read_input_tokens": "7"}
        assert self.usage(start) == (None, None, None, None)


class TestPassthrough:
    def origins(self, payloads: list[dict[str, Any]]) -> list[tuple[int | None, str]]:
        given = frames(payloads)
        numbers = {id(each): i for i, each in enumerate(given)}
        events = FORMAT.stream_reader(ReaderOptions(passthrough=True)).read(given)
        return [(numbers.get(id(event.origin)), type(event).__name__) for event in events]  # type: ignore[attr-defined]  # all have one

    def test_frames_stand_for_their_events(self) -> None:
        payloads = [START, PING, begin(0), text(0, "a"), text(0, "b"), end(0), message_delta(), STOP]
        assert [number for number, _ in self.origins(payloads)] == [0, 1, 2, 3, 4, 5, 6, None, 7]

    def test_unknown_events_and_deltas_pass(self) -> None:
        payloads = [START, {"type": "news"}, begin(0), delta(0, "sparkle_delta", x=1), end(0), message_delta(), STOP]
        assert [number for number, _ in self.origins(payloads)] == [0, 1, 2, 3, 4, 5, None, 6]

    def test_a_gap_in_the_indices_is_repaired(self) -> None:
        payloads = [START, begin(1), text(1, "a"), text(1, "b"), end(1), message_delta(), STOP]
        assert [number for number, _ in self.origins(payloads)] == [0, None, None, None, None, 5, None, 6]

    def test_blocks_side_by_side_are_repaired(self) -> None:
        payloads = [
            START,
            tool(0),
            tool(1),
            arguments(1, "{}"),
            arguments(0, "{}"),
            end(0),
            end(1),
            message_delta(),
            STOP,
        ]
        assert [number for number, _ in self.origins(payloads)] == [0, 1, None, None, 4, 5, None, 7, None, 8]

    def test_missing_names_are_filled_in(self) -> None:
        reader = FORMAT.stream_reader(ReaderOptions(passthrough=True))
        payloads = [START, begin(0), text(0, "a"), text(0, "b"), end(0), message_delta(), STOP]
        given = [frame(each, named=False) for each in payloads]
        origins = [event.origin for event in reader.read(given) if event.origin is not None]  # type: ignore[attr-defined]
        assert [(each.data, each.event) for each in origins] == [
            (each.data, payload["type"]) for each, payload in zip(given, payloads, strict=True)
        ]


TEXTS = st.text() | st.sampled_from(['"', '\\"', '"}}', '","text":"', "\u2028", "\\", "}}", '"}} '])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["text", "thinking", "tool"]),
            TEXTS,
            st.booleans(),
            st.text(alphabet=" \t", max_size=3),
            st.booleans(),
        ),
        max_size=12,
    )
)
@settings(deadline=None)
def test_the_short_cut_reads_what_the_long_way_reads(items: list[tuple[str, str, bool, str, bool]]) -> None:
    """All frames by one reader, in three blocks side by side, against each frame by its own words."""
    makes = {"text": (0, "text_delta", "text"), "thinking": (1, "thinking_delta", "thinking")}
    given = [frame(START), frame(begin(0)), frame(begin(1, "thinking")), frame(tool(2))]
    expected: list[ev.Event] = []
    for kind, value, ascii_only, padding, extra in items:
        index, name, field = makes.get(kind, (2, "input_json_delta", "partial_json"))
        payload = delta(index, name, **{field: value}, **({"estimated": 1} if extra else {}))
        data = json.dumps(payload, ensure_ascii=ascii_only)
        data = f"{data[:-1]}{padding}{data[-1]}{padding}"
        given.append(Frame(data.encode(), "content_block_delta"))
        make = {"text": ev.TextDelta, "thinking": ev.ReasoningDelta}.get(kind, ev.ToolDelta)
        expected.append(make(index, value))
    assert FORMAT.stream_reader(ReaderOptions()).read(given)[4:] == expected


HOT = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"'


@given(
    st.binary(max_size=40) | TEXTS.map(str.encode),
    st.sampled_from([b'"}}', b'"}} ', b'"}', b'"}}}', b"", b'","x":1}}']),
)
def test_the_short_cut_takes_nothing_that_is_not_json(middle: bytes, tail: bytes) -> None:
    data = HOT + middle + tail
    warm, cold = FORMAT.stream_reader(ReaderOptions()), FORMAT.stream_reader(ReaderOptions())
    warm.read([frame(START), frame(begin(0)), Frame(HOT + b'warm"}}')])
    cold.read([frame(START), frame(begin(0))])

    def outcome(reader: Any) -> Any:
        try:
            return reader.read([Frame(data)])
        except ProtocolError:
            return ProtocolError

    assert outcome(warm) == outcome(cold)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
FIELDS = [
    "type",
    "index",
    "message",
    "content_block",
    "delta",
    "usage",
    "error",
    "id",
    "text",
    "content",
    "input",
    "name",
]
TYPES = [
    *["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta"],
    *["message_stop", "error", "ping", "text", "thinking", "tool_use", "redacted_thinking", "text_delta", "odd"],
]
NEAR = st.recursive(
    JSON | st.sampled_from(TYPES) | st.integers(0, 2),
    lambda inner: st.dictionaries(st.sampled_from(FIELDS), inner | st.sampled_from(TYPES), max_size=5),
    max_leaves=12,
)


@given(st.lists(st.binary(max_size=30) | NEAR.map(lambda value: json.dumps(value).encode()), max_size=8), st.booleans())
@settings(deadline=None)
def test_any_bytes_give_events_or_a_protocol_error(payloads: list[bytes], passthrough: bool) -> None:
    reader = FORMAT.stream_reader(ReaderOptions(passthrough=passthrough))
    events: list[ev.Event] = []
    for data in payloads:
        try:
            events += reader.read([Frame(data)])
        except ProtocolError as error:
            events += error.events
    events += reader.eof()
    grammar = Grammar()
    for event in events:
        grammar.accept(event)
    assert grammar.ended
