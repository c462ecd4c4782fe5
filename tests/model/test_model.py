"""The vocabulary's own rules: the legal order, the assembler and its inverse, the arithmetic of usage, errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model import events as ev
from headrace.model.assemble import Assembler, assemble, explode
from headrace.model.content import Citation, Media, Opaque, Reasoning, RedactedReasoning, Refusal, Text, ToolCall
from headrace.model.errors import ERROR_TABLE, ErrorCode, ErrorInfo, InvalidRequest, code_for_status
from headrace.model.events import BlockKind, Event
from headrace.model.grammar import DELTAS, TRANSITIONS, Grammar, IllegalOrder
from headrace.model.response import Choice, Response
from headrace.model.stop import StopReason
from headrace.model.usage import Usage
from tests.strategies import legal_events

START = ev.Start(id="r1", model="m")
TEXT = ev.BlockStart(block=0, type=BlockKind.TEXT)
CALL = ev.BlockStart(block=0, type=BlockKind.TOOL_CALL, id="c", name="f")
DONE = ev.Finish(reason=StopReason.END_TURN)
FAILURE = ev.Error(ErrorInfo(code=ErrorCode.TIMEOUT, message="late"))


def walk(events: list[Event]) -> Grammar:
    grammar = Grammar()
    for event in events:
        grammar.accept(event)
    return grammar


@pytest.mark.parametrize(
    "events",
    [
        [START, ev.End()],
        [START, TEXT, ev.TextDelta(0, "a"), ev.BlockStop(0), DONE, ev.UsageReport(Usage()), ev.End()],
        [FAILURE],
        [ev.Opaque(vendor="v"), START, FAILURE],
        [START, TEXT, FAILURE],
        [START, TEXT, ev.BlockStart(block=1, type=BlockKind.TOOL_CALL), ev.ToolDelta(1, "{}"), ev.TextDelta(0, "x"),
         ev.BlockStop(1), ev.BlockStop(0), DONE, ev.End()],
        [START, TEXT, ev.BlockStop(0), DONE, ev.BlockStart(block=1, type=BlockKind.TEXT, choice=1), ev.BlockStop(1),
         ev.Finish(choice=1, reason=StopReason.OTHER), ev.End()],
    ],
)  # fmt: skip
def test_legal(events: list[Event]) -> None:
    assert walk(events).ended


@pytest.mark.parametrize(
    "events",
    [
        [TEXT],
        [START, START],
        [ev.End()],
        [START, ev.TextDelta(0, "a")],
        [START, CALL, ev.TextDelta(0, "a")],
        [START, TEXT, ev.BlockStop(0), ev.TextDelta(0, "a")],
        [START, TEXT, ev.BlockStop(0), ev.BlockStop(0)],
        [START, ev.BlockStart(block=1, type=BlockKind.TEXT)],
        [START, TEXT, ev.BlockStart(block=0, type=BlockKind.TEXT)],
        [START, TEXT, ev.End()],
        [START, TEXT, DONE],
        [START, DONE, DONE],
        [START, DONE, TEXT],
        [START, ev.End(), ev.End()],
        [START, ev.End(), FAILURE],
        [FAILURE, START],
        [START, FAILURE, ev.TextDelta(0, "a")],
    ],
)
def test_illegal(events: list[Event]) -> None:
    with pytest.raises(IllegalOrder):
        walk(events)


def test_every_kind_of_event_has_its_place_in_the_table() -> None:
    everywhere = set().union(*(row.keys() for row in TRANSITIONS.values()))
    assert everywhere == set(ev.AnyEvent.__args__)
    assert set().union(*DELTAS.values()) | {BlockKind.REDACTED_REASONING} == set(BlockKind)


WHOLE = Response(
    id="r1",
    model="m",
    created=5,
    choices=[
        Choice(
            index=0,
            parts=[
                Reasoning(text="hm", signature="sig", vendor="anthropic"),
                RedactedReasoning(data="xyz", vendor="anthropic"),
                Text(text="a b", citations=[Citation("anthropic", {"type": "page"})], logprobs=[{"token": "a"}]),
                ToolCall(id="c1", name="f", arguments='{"x":1}'),
                ToolCall(id="c2", name="g", arguments="{", complete=False),
                Media(type="audio", media_type="audio/pcm", data="AAAA", transcript="la"),
                Opaque(vendor="anthropic", payload={"type": "server_tool_use"}, role="server_tool_call"),
            ],
            stop=StopReason.TOOL_USE,
            raw_stop="tool_use",
            stop_sequence="END",
            extensions={"anthropic": {"x": 1}},
        ),
        Choice(index=1, parts=[Refusal(text="no")], stop=StopReason.REFUSAL),
    ],
    usage=Usage(input_tokens=3, output_tokens=4),
    extensions={"openai": {"service_tier": "x"}},
)


def test_a_response_told_as_events_is_legal_and_comes_back() -> None:
    events = list(explode(WHOLE))
    assert walk(events).ended
    assert assemble(events) == WHOLE


def test_a_call_without_arguments_has_an_empty_object() -> None:
    events = [START, CALL, ev.BlockStop(0), DONE, ev.End()]
    assert assemble(events).choices[0].parts == [ToolCall(id="c", name="f", arguments="{}")]


def test_the_assembler_keeps_what_came_before_an_error() -> None:
    assembler = Assembler()
    assembler.feed([START, TEXT, ev.TextDelta(0, "half "), ev.TextDelta(0, "an answer"), FAILURE])
    assert assembler.ended
    assert assembler.error == FAILURE.error
    assert assembler.response().choices[0].parts == [Text(text="half an answer")]


@given(legal_events())
def test_folding_piecewise_is_folding_whole(events: list[Event]) -> None:
    walk(events)
    piecewise = Assembler()
    for event in events:
        piecewise.feed([event])
    assert piecewise.response() == assemble(events)


def test_usage_is_merged_per_field_and_never_summed() -> None:
    first = Usage(input_tokens=10, output_tokens=1, cached_tokens=30_000)
    second = Usage(output_tokens=25, cached_tokens=0, vendor={"anthropic": {"a": 1}})
    merged = first.merge(second)
    assert merged == Usage(input_tokens=10, output_tokens=25, cached_tokens=30_000, vendor={"anthropic": {"a": 1}})
    assert merged.total_tokens == 35
    assert Usage().total_tokens is None
    assert Usage().merge(Usage(output_tokens=0)).output_tokens == 0


_counts = st.none() | st.integers(0, 9)


@given(*[st.builds(Usage, input_tokens=_counts, output_tokens=_counts, reasoning_tokens=_counts)] * 3)
def test_merging_snapshots_is_associative(a: Usage, b: Usage, c: Usage) -> None:
    assert a.merge(b).merge(c) == a.merge(b.merge(c))


@given(st.builds(Usage, input_tokens=_counts, output_tokens=_counts))
def test_repeating_a_snapshot_changes_nothing(usage: Usage) -> None:
    assert usage.merge(usage) == usage


def test_every_code_has_a_status_and_every_status_a_code() -> None:
    assert set(ERROR_TABLE) == set(ErrorCode)
    assert ErrorInfo(code=ErrorCode.TIMEOUT, message="x").http_status == 504
    assert ErrorInfo(code=ErrorCode.TIMEOUT, message="x", status=408).http_status == 408
    assert ErrorInfo(code=ErrorCode.TIMEOUT, message="x").is_retryable
    assert not ErrorInfo(code=ErrorCode.TIMEOUT, message="x", retryable=False).is_retryable
    for status in range(300, 600):
        code = code_for_status(status)
        assert (code is ErrorCode.INVALID_REQUEST) == (
            400 <= status < 500 and status not in (401, 402, 403, 404, 408, 429)
        )


def test_invalid_request_names_the_field() -> None:
    error = InvalidRequest("wrong", param="messages[0]")
    assert (error.info.http_status, error.info.param, str(error)) == (400, "messages[0]", "wrong")
