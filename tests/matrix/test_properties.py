"""Whatever a stream may say, through any two formats in a row, for streams that no recording holds.

Two properties: what was said survives both formats (less what each cannot carry), and every stream ends exactly once, in
its format's own way, numbered without gaps where the format numbers its events.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings

from headrace.model import events as ev
from headrace.model.content import Reasoning, Text, ToolCall
from headrace.model.errors import ErrorCode, ErrorInfo
from headrace.model.events import BlockKind, Event
from headrace.model.grammar import Grammar
from headrace.model.response import Response
from headrace.model.stop import StopReason
from tests.strategies import legal_events

from .cannot import check_lost, expected
from .pipes import (
    ALL,
    PIPES,
    Digest,
    check_failed_ending,
    check_seq,
    check_whole_ending,
    digest,
    digest_events,
    finished_choices,
    parsed,
    read,
    response_of,
    through,
    write,
)

PAIRS = [(first, second) for first in ALL for second in ALL]
KINDS = (BlockKind.TEXT, BlockKind.REASONING, BlockKind.TOOL_CALL, BlockKind.REFUSAL)
NOT_OPAQUE = tuple(kind for kind in BlockKind if kind is not BlockKind.OPAQUE)

quick = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def with_one_usage(events: list[Event]) -> list[Event]:
    """The stream with counts that agree, and whose parts are within their totals: how snapshots merge is tested elsewhere."""
    last = next((event.usage for event in reversed(events) if isinstance(event, Counting) and event.usage), None)
    if last is not None:
        last.cached_tokens = min(last.cached_tokens or 0, last.input_tokens or 0)
        last.reasoning_tokens = min(last.reasoning_tokens or 0, last.output_tokens or 0)
    for event in events:
        if isinstance(event, Counting):
            event.usage = last
    return events


Counting = ev.Start | ev.UsageReport | ev.End


def check_one_format(name: str, events: list[Event]) -> None:
    events = with_one_usage(events)
    came, written = through(name, events)
    response, _ = response_of(events)
    arrives, applied = expected(name, response)
    check_lost(applied, written.lost)
    assert comparable(digest_events(came), name) == comparable(digest(arrives), name)


whole_events = partial(legal_events, errors_allowed=False, finish_always=True, abandon=False)
"""Streams that end well, with nothing left out by their provider."""

in_turn = partial(whole_events, side_by_side=False)
calls_side_by_side = whole_events(kinds=(BlockKind.TOOL_CALL,))


@pytest.mark.parametrize("name", ["llm_stream", "gateway"])
@quick
@given(events=in_turn() | calls_side_by_side)
def test_our_own_formats(name: str, events: list[Event]) -> None:
    check_one_format(name, events)


@pytest.mark.parametrize("name", ["llm_stream", "gateway", "anthropic"])
@quick
@given(events=whole_events(kinds=(BlockKind.TEXT, BlockKind.REASONING, BlockKind.TOOL_CALL), max_choices=1))
def test_blocks_side_by_side_are_not_mixed(name: str, events: list[Event]) -> None:
    """Each block comes back as one, though perhaps after another that had begun later and was the first to say something."""
    came, _ = through(name, events)
    assert pieces(response_of(came)[0]) == pieces(response_of(events)[0])


def pieces(response: Response) -> list[tuple[str, str]]:
    """What each block holds, in no order."""
    parts = [part for choice in response.choices for part in choice.parts]
    texts = [(type(part).__name__, part.text) for part in parts if isinstance(part, Text | Reasoning) and part.text]
    return sorted(texts + [(part.name, part.arguments) for part in parts if isinstance(part, ToolCall)])


@quick
@given(events=in_turn(kinds=NOT_OPAQUE) | calls_side_by_side)
def test_anthropic(events: list[Event]) -> None:
    """Opaque blocks are in the recordings; made-up ones say nothing about their vendor's."""
    check_one_format("anthropic", events)


@quick
@given(events=in_turn(kinds=NOT_OPAQUE) | calls_side_by_side)
def test_openai_chat(events: list[Event]) -> None:
    """A message has one text: blocks of text side by side would be mixed as they come. No provider sends such."""
    check_one_format("openai_chat", events)


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
@quick
@given(events=in_turn(kinds=KINDS) | calls_side_by_side)
def test_two_formats_in_a_row(first: str, second: str, events: list[Event]) -> None:
    came, _ = through(first, with_one_usage(events))
    again, _ = through(second, came)
    response, _ = response_of(came)
    arrives, _ = expected(second, response)
    assert comparable(digest_events(again), second) == comparable(digest(arrives), second)
    for event in (*came, *again):
        assert isinstance(event, ev.Event)
    check_legal(came)
    check_legal(again)


@pytest.mark.parametrize(("name", "framing"), PIPES, ids=["-".join(pipe) for pipe in PIPES])
@quick
@given(events=legal_events())
def test_every_stream_ends_exactly_once(name: str, framing: str, events: list[Event]) -> None:
    written = write(name, events, framing)
    check_seq(name, written.frames)
    if isinstance(events[-1], ev.Error):
        check_failed_ending(name, written.frames, finished_choices(events))
    else:
        check_whole_ending(name, written.frames)
    came = read(name, [written.data], framing)
    check_legal(came)
    if name in ("openai_chat", "mistral") and not tells_its_end(events, framing):
        return
    assert isinstance(came[-1], type(events[-1]))


def tells_its_end(events: list[Event], framing: str) -> bool:
    """Whether OpenAI's stream shows that it is whole: an answer has a choice, and without [DONE] all have finished."""
    choices = {event.choice for event in events if isinstance(event, ev.BlockStart | ev.Finish)}
    return bool(choices) and (framing == "sse" or len(choices) == len(finished_choices(events)))


def test_another_choice_that_finished_is_no_end_of_the_first() -> None:
    """Formats of one message have no word for the end of another choice."""
    events: list[Event] = [
        ev.Start(),
        ev.BlockStart(block=0, type=BlockKind.TEXT, choice=1),
        ev.BlockStop(0),
        ev.Finish(choice=1, reason=StopReason.END_TURN),
        ev.Error(ErrorInfo(code=ErrorCode.PROVIDER_UNAVAILABLE, message="gone")),
    ]
    for name in ALL:
        check_failed_ending(name, write(name, events).frames, finished_choices(events))


@pytest.mark.parametrize("name", ALL)
@quick
@given(events=legal_events(kinds=(BlockKind.TEXT, BlockKind.TOOL_CALL), max_choices=1))
def test_nothing_that_was_cut_becomes_whole(name: str, events: list[Event]) -> None:
    """Every call that a reader finds whole was whole, or its arguments happen to be."""
    response, _ = response_of(events)
    given = {part.id: part for told in (response, expected(name, response)[0]) for part in calls(told)}
    for call in calls(response_of(read(name, [write(name, events).data]))[0]):
        known = given[call.id]
        if call.complete and not known.complete:
            assert name == "openai_chat" or call.arguments in ("{}", known.arguments)
        if known.complete and call.complete:
            assert parsed(call.arguments) == parsed(known.arguments), "formats that have objects write them anew"


def calls(response: Response) -> list[ToolCall]:
    return [part for choice in response.choices for part in choice.parts if isinstance(part, ToolCall)]


def check_legal(events: list[Event]) -> None:
    grammar = Grammar()
    for event in events:
        grammar.accept(event)
    assert grammar.ended


def comparable(told: Digest, name: str) -> Digest:
    """Without what is filled in where the provider did not say it, and the order of blocks that ran side by side where
    a format sends them when they are whole: calls in llm-stream, images in OpenAI chat."""
    for answer in told.answers.values():
        answer.media.sort()
        if name == "llm_stream":
            answer.calls.sort(key=lambda call: call.id)
    return replace(told, id="", model="", created=0)
