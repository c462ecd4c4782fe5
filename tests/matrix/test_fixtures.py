"""Every recorded stream of our formats, through every writer and back, and cut at every place.

What a caller must find is computed from the recording itself: the events that the provider's reader makes, less what the
caller's format cannot carry (CANNOT). What a same-format caller gets is compared with the recorded frames byte by byte;
PASSED_ON lists, recording by recording, what the gateway changes there and why.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from difflib import SequenceMatcher
from functools import lru_cache

import pytest

from headrace.framing import FRAMINGS, Frame
from headrace.model import events as ev
from headrace.model.content import ToolCall
from headrace.model.events import Event
from headrace.model.grammar import Grammar
from headrace.model.request import Request
from headrace.model.response import Response
from tests.fixtures import FixtureRow, requires_fixtures

from .cannot import check_lost, expected
from .pipes import (
    ALL,
    DONE,
    PIPES,
    Digest,
    byte_by_byte,
    check_failed_ending,
    check_seq,
    check_whole_ending,
    digest,
    digest_events,
    finished_choices,
    format_of,
    frames_of,
    native_framing,
    random_pieces,
    read,
    recorded_bytes,
    recordings,
    response_of,
    through,
    write,
)

ROWS = recordings()


def native(row: FixtureRow) -> str:
    name = format_of(row)
    assert name is not None
    return name


def each(rows: list[FixtureRow]) -> pytest.MarkDecorator:
    """One case a recording; one that is skipped with the reason where the recordings are absent."""
    cases = [pytest.param(row, id=row.file) for row in rows]
    return pytest.mark.parametrize("row", cases or [pytest.param(None, marks=requires_fixtures, id="no-fixtures")])


EACH = each(ROWS)
EACH_CHAT = each([row for row in ROWS if native(row) == "openai_chat"])
EACH_PIPE = pytest.mark.parametrize(("name", "framing"), PIPES, ids=["-".join(pipe) for pipe in PIPES])
EACH_NAME = pytest.mark.parametrize("name", ALL)

WITHOUT_USAGE = Request(model="m", messages=[], include_usage=False)

PASSED_ON: dict[str, tuple[int, int, str]] = {
    # recording: (frames that do not go on as they are, frames written in their place, why)
    "anthropic/anthropic-tool-search-regex-1.jsonl": (19, 0, "a second answer follows the end of the first"),
    "anthropic/spliced-message-start.jsonl": (7, 7, "the provider began anew: one message_start, blocks renumbered"),
    "gemini/googleai-streaming-failure-image-rejected.sse": (0, 1, "a bare JSON error becomes a frame"),
    "gemini/vertexai-streaming-failure-error-mid-stream.sse": (0, 1, "a bare JSON error becomes a frame"),
    "openai-responses/agw-stream-custom-tool.sse": (1, 0, "an end marker that is another format's follows the end"),
    "openai-responses/openai-error-1.jsonl": (1, 1, "the error is told, and then the response that failed, by us"),
    "bedrock/amazon-bedrock-tool-call-1.jsonl": (0, 1, "no messageStart comes"),
    "bedrock/amazon-bedrock-tool-no-args.jsonl": (0, 1, "no messageStart comes"),
    "openai-chat/completions-legacy.jsonl": (17, 19, "the legacy format becomes this one; a role, a usage chunk"),
    "openai-compatible/cerebras-structured-tools.jsonl": (1, 1, "a second answer: its finish reason comes twice"),
    "openai-compatible/claude-compat-index1-tool.sse": (4, 3, "the first tool call has index 1; an empty fragment"),
    "openai-compatible/openrouter-web-annotations.sse": (1, 1, "the finish reason comes twice"),
    "openai-compatible/snowflake-thinking.sse": (0, 1, "no finish reason comes at all"),
}
"""Everything else goes on byte for byte to a caller of the same format who asked for usage."""


@lru_cache(maxsize=64)
def data_of(file: str) -> bytes:
    return recorded_bytes(next(row for row in ROWS if row.file == file))


def events_of(row: FixtureRow, *, passthrough: bool = False) -> list[Event]:
    return read(native(row), [data_of(row.file)], passthrough=passthrough)


def test_there_are_recordings_of_both_formats() -> None:
    if not ROWS:
        pytest.skip("the recorded streams are not on this machine")
    counts = Counter(native(row) for row in ROWS)
    assert counts["anthropic"] >= 16
    assert counts["openai_chat"] >= 30


@EACH
def test_the_events_do_not_depend_on_the_cuts(row: FixtureRow) -> None:
    name, data = native(row), data_of(row.file)
    whole = read(name, [data])
    assert read(name, byte_by_byte(data)) == whole
    for seed in range(3):
        assert read(name, random_pieces(data, seed)) == whole


@EACH
@pytest.mark.parametrize("passthrough", [False, True])
def test_the_events_are_legal(row: FixtureRow, passthrough: bool) -> None:
    grammar = Grammar()
    for event in events_of(row, passthrough=passthrough):
        grammar.accept(event)
    assert grammar.ended


@EACH
def test_passing_through_reads_the_same(row: FixtureRow) -> None:
    assert digest_events(events_of(row, passthrough=True)) == digest_events(events_of(row))


@EACH
@EACH_PIPE
def test_every_writer_carries_it(row: FixtureRow, name: str, framing: str) -> None:
    events = events_of(row)
    came, written = through(name, events, framing)
    response, error = response_of(events)
    arrives, applied = expected(name, response)
    without_stops(response, arrives)
    check_lost(applied, written.lost)
    cut = cut_calls(response)
    assert comparable(digest_events(came), cut) == comparable(digest(arrives, error), cut)
    check_seq(name, written.frames)
    if error is None:
        check_whole_ending(name, written.frames)
    else:
        check_failed_ending(name, written.frames, finished_choices(events))
    grammar = Grammar()
    for event in came:
        grammar.accept(event)


def without_stops(response: Response, arrives: Response) -> None:
    """Of choices that broke off: no reason is made up for them."""
    for choice, arriving in zip(response.choices, arrives.choices, strict=False):
        if choice.stop is None:
            arriving.stop = None


def cut_calls(response: Response) -> set[str]:
    """Ids of the calls that were abandoned half-way. Callers may have seen their beginning (test_cut_calls...)."""
    parts = [part for choice in response.choices for part in choice.parts]
    return {part.id for part in parts if isinstance(part, ToolCall) and not part.complete}


def comparable(told: Digest, cut: set[str]) -> Digest:
    """Without what is filled in where the provider did not say it, and calls that were cut off."""
    answers = {
        index: replace(answer, calls=[call for call in answer.calls if call.id not in cut])
        for index, answer in told.answers.items()
    }
    return replace(told, id="", model="", created=0, answers=answers)


@EACH
@EACH_NAME
def test_a_stream_cut_at_any_event_ends_as_failed(row: FixtureRow, name: str) -> None:
    frames = frames_of(data_of(row.file), native_framing(native(row)))
    whole = events_of(row)
    if not frames:
        return  # nothing but a bare error: there is no event to cut at
    ended = next(index for index in range(len(frames) + 1) if is_over(row, frames[:index]))
    for cut in range(ended):
        events = read_frames(row, frames[:cut])
        assert isinstance(events[-1], ev.Error)
        assert events[-1].error.type == "upstream_truncated"
        assert events[:-1] == whole[: len(events) - 1]
        written = write(name, events)
        check_failed_ending(name, written.frames, finished_choices(events))
        check_seq(name, written.frames)
        if cut % 7 == 0:
            check_nothing_made_up(name, events, written.data)


def check_nothing_made_up(name: str, events: list[Event], data: bytes) -> None:
    """What a caller's own reader makes of the cut stream: the error, and no call whole that was cut."""
    came = read(name, [data])
    assert isinstance(came[-1], ev.Error)
    before, after = digest_events(events), digest_events(came)
    carried = digest(expected(name, response_of(events)[0])[0])
    for index, answer in after.answers.items():
        whole = {call.id for call in before.answers[index].calls if call.complete}
        assert {call.id for call in answer.calls if call.complete} <= whole
        assert carried.answers[index].text.startswith(answer.text) or name == "anthropic"
    assert after.error == before.error


def read_frames(row: FixtureRow, frames: list[Frame]) -> list[Event]:
    return read(native(row), [FRAMINGS[native_framing(native(row))].encoder().encode(frames)])


def is_over(row: FixtureRow, frames: list[Frame]) -> bool:
    last = read_frames(row, frames)[-1]
    return not (isinstance(last, ev.Error) and last.error.type == "upstream_truncated")


@EACH
def test_a_caller_of_the_same_format_gets_the_recorded_frames(row: FixtureRow) -> None:
    recorded, sent = frames_of(data_of(row.file), native_framing(native(row))), passed_on(row, None)
    gone, new = difference(recorded, sent)
    assert (len(gone), len(new)) == PASSED_ON.get(row.file, (0, 0, ""))[:2]
    response, error = response_of(events_of(row))
    arrives, _ = expected(native(row), response)
    without_stops(response, arrives)
    assert digest_events(read_frames(row, sent)) == digest(arrives, error)


@EACH_CHAT
def test_usage_that_was_not_asked_for_stays_away(row: FixtureRow) -> None:
    """The chunk that holds nothing else is left out; what stands beside usage in a chunk survives. Callers of the other
    formats get usage without asking."""
    asked, sent = passed_on(row, None), passed_on(row, WITHOUT_USAGE)
    composed = [Frame(frame.data.replace(b',"usage":null}', b"}")) for frame in asked]
    gone, _ = difference(composed, [Frame(frame.data.replace(b',"usage":null}', b"}")) for frame in sent])
    assert all(b'"usage":{' in frame.data.replace(b" ", b"") for frame in gone)
    assert not any(b'"choices":[],"usage":{' in frame.data for frame in sent)
    assert unknown_fields(sent) >= unknown_fields(asked) - {"usage"}
    told, asked_told = digest_events(read_frames(row, sent)), digest_events(read_frames(row, asked))
    assert replace(told, usage=asked_told.usage, cost=asked_told.cost) == asked_told


def passed_on(row: FixtureRow, request: Request | None) -> list[Frame]:
    return write(native(row), events_of(row, passthrough=True), request=request, passthrough=True).frames


def difference(before: list[Frame], after: list[Frame]) -> tuple[list[Frame], list[Frame]]:
    """(frames that are gone, frames that are new), by bytes and order."""
    one, other = ([(frame.event, frame.data) for frame in frames] for frames in (before, after))
    steps = [step for step in SequenceMatcher(None, one, other, autojunk=False).get_opcodes() if step[0] != "equal"]
    return (
        [frame for _, start, stop, _, _ in steps for frame in before[start:stop]],
        [frame for _, _, _, start, stop in steps for frame in after[start:stop]],
    )


def unknown_fields(frames: list[Frame]) -> set[str]:
    """Names of the fields at the top of all chunks."""
    return {name for frame in frames if frame.data != DONE for name in json.loads(frame.data)}
