"""Every recording of this format: what it says, however it is cut, and that it survives the way through."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from headrace.formats.anthropic import FORMAT
from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.framing import FRAMINGS, Decoder, SSEEncoder
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.assemble import assemble
from headrace.model.content import Opaque, Part, Reasoning, RedactedReasoning, Text, ToolCall
from headrace.model.events import Event
from headrace.model.response import Response
from headrace.model.usage import Usage
from tests.fixtures import FixtureRow, fixture_bytes, fixture_params

from .helpers import fixture_frames, legal

ROWS = fixture_params(provider="anthropic")


@dataclass
class Expected:
    """What one recording says, read off it by eye and by counting."""

    stop: str
    counts: tuple[int, int, int]
    """Input (with cached tokens), output, cached."""
    characters: int = 0
    """Of all text."""
    begins: str = ""
    citations: int = 0
    reasoning: list[tuple[int, int]] = field(default_factory=list)
    """Characters of text and of signature, a block."""
    redacted: list[int] = field(default_factory=list)
    tools: list[tuple[str, str, bool]] = field(default_factory=list)
    opaque: list[str] = field(default_factory=list)
    extensions: set[str] = field(default_factory=set)
    thinking_tokens: int | None = None


EXPECTED = {
    "anthropic-clear-tool-uses-1.jsonl": Expected(
        "end_turn",
        (859, 122, 0),
        440,
        "\n\nHere's a comparison of the weather in both cities:",
        extensions={"context_management"},
    ),
    "anthropic-code-execution-20250825-1.jsonl": Expected(
        "end_turn",
        (8050, 771, 0),
        795,
        "I'll create a Python script to calculate",
        opaque=[
            "server_tool_use",
            "text_editor_code_execution_tool_result",
            "server_tool_use",
            "bash_code_execution_tool_result",
        ],
        extensions={"container"},
    ),
    "anthropic-fallback.jsonl": Expected(
        "end_turn", (412, 264, 0), 66, "The printing press was invented by Johannes", opaque=["fallback"]
    ),
    "anthropic-mcp-1.jsonl": Expected(
        "end_turn", (1250, 83, 0), 112, "The echo tool responded back", opaque=["mcp_tool_use", "mcp_tool_result"]
    ),
    "anthropic-refusal.jsonl": Expected("refusal", (18, 5, 0), extensions={"stop_details"}),
    "anthropic-tool-search-regex-1.jsonl": Expected(
        "tool_use",
        (1681, 163, 0),
        85,
        "Great! I found a weather tool.",
        tools=[("get_temp_data", '{"location": "San Francisco, CA"}', True)],
        opaque=["server_tool_use", "tool_search_tool_result"],
    ),
    "anthropic-web-fetch-tool-1.jsonl": Expected(
        "end_turn",
        (4230, 446, 0),
        1664,
        "I'll fetch the content from that Wikiped",
        opaque=["server_tool_use", "web_fetch_tool_result"],
    ),
    "anthropic-web-search-tool-1.jsonl": Expected(
        "end_turn",
        (15665, 795, 0),
        2402,
        "Based on my search results",
        citations=14,
        opaque=["server_tool_use", "web_search_tool_result"],
    ),
    "cache-read.sse": Expected("end_turn", (4 + 1165, 221, 1165), 1016, "Here are concise summaries of the three"),
    "pyai-compaction_usage_with_cache_streaming.sse": Expected(
        # The cached tokens are those of the compaction: the last object repeats them as 0, which erases nothing.
        "end_turn",
        (181 + 55096, 8, 55096),
        8,
        "Hello! 👋",
        opaque=["compaction"],
        extensions={"context_management"},
    ),
    "pyai-model_thinking_part_redacted_stream.sse": Expected(
        "end_turn", (92, 189, 0), 359, "I notice that you've sent what appears", redacted=[744, 296]
    ),
    "pyai-model_thinking_part_stream.sse": Expected(
        "end_turn", (43, 282, 0), 1021, "Here are the basic steps for safely cros", reasoning=[(202, 504)]
    ),
    "sdk-compaction_response.sse": Expected("end_turn", (30, 8, 0), 12, "Hello there!", opaque=["compaction"]),
    "sdk-stream-a-refusal.sse": Expected(
        "refusal", (28, 106, 0), 2, "Hi", reasoning=[(212, 68)], extensions={"stop_details"}, thinking_tokens=67
    ),
    "sdk-stream-a-toolrefusal.sse": Expected(
        "refusal",
        (28, 106, 0),
        54,
        "Here's a summary of this year's solar eclipses and how",
        opaque=["server_tool_use", "web_search_tool_result"],
        extensions={"stop_details"},
        thinking_tokens=67,
    ),
    "spliced-message-start.jsonl": Expected(
        "tool_use",
        (17, 65, 0),
        reasoning=[(21, 9), (21, 10)],
        tools=[("test-tool", '{"value":"Spark', False), ("test-tool", '{"value":"Sparkle Day"}', True)],
    ),
}

REPAIRED = {
    "spliced-message-start.jsonl": "the second start makes the provider's indices begin again",
    "anthropic-tool-search-regex-1.jsonl": "a second message follows the first one's end",
}
"""Recordings that do not go through byte by byte, and why."""

INPUTS = {
    # the assembled input of server-side tools, as text
    "anthropic-mcp-1.jsonl": ['{"message": "hello world"}'],
    "sdk-stream-a-toolrefusal.sse": ['{"query": "solar eclipse viewing safety news 2026"}'],
    "anthropic-web-search-tool-1.jsonl": ['{"query": "tech news today September 26 2025"}'],
}


def events_of(frames: list[Frame], *, passthrough: bool = False) -> list[Event]:
    reader = FORMAT.stream_reader(ReaderOptions(passthrough=passthrough))
    return legal(reader.read(frames) + reader.eof())


def parts(response: Response, kind: type) -> list[Any]:
    return [part for part in response.choices[0].parts if isinstance(part, kind)]


def test_every_recording_has_its_expectation() -> None:
    names = {row.file.removeprefix("anthropic/") for row in (each.values[0] for each in ROWS) if row is not None}
    assert not names or names == set(EXPECTED)


@pytest.mark.parametrize("row", ROWS)
def test_what_it_says(row: FixtureRow) -> None:
    name = row.file.removeprefix("anthropic/")
    expected = EXPECTED[name]
    response = assemble(events_of(fixture_frames(row)))
    choice, usage = response.choices[0], response.usage
    assert len(response.choices) == 1
    assert choice.raw_stop == expected.stop
    assert choice.stop is not None
    assert choice.stop.value == expected.stop
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens or 0) == expected.counts
    assert usage.reasoning_tokens == expected.thinking_tokens
    said = "".join(part.text for part in parts(response, Text))
    assert len(said) == expected.characters
    assert said.startswith(expected.begins)
    assert sum(len(part.citations or ()) for part in parts(response, Text)) == expected.citations
    assert [(len(part.text), len(part.signature)) for part in parts(response, Reasoning)] == expected.reasoning
    assert all(part.vendor == "anthropic" for part in parts(response, Reasoning))
    assert [len(part.data) for part in parts(response, RedactedReasoning)] == expected.redacted
    assert [(call.name, call.arguments, call.complete) for call in parts(response, ToolCall)] == expected.tools
    assert [part.payload["type"] for part in parts(response, Opaque)] == expected.opaque
    assert set((choice.extensions or {}).get("anthropic", ())) == expected.extensions
    if name in INPUTS:
        calls = [part for part in parts(response, Opaque) if part.role == "server_tool_call"]
        assert [part.payload["input"] for part in calls] == INPUTS[name]


def test_usage_iterations_are_kept() -> None:
    row = next(each.values[0] for each in ROWS)
    if row is None:
        pytest.skip("the recorded streams are not on this machine")
    data = fixture_bytes("anthropic/anthropic-fallback.jsonl")
    usage = assemble(events_of(fixture_frames(row, data))).usage
    assert usage is not None
    assert usage.vendor is not None
    assert [each["model"] for each in usage.vendor["anthropic"]["iterations"]] == ["claude-fable-5", "claude-opus-4-8"]


@pytest.mark.parametrize("row", ROWS)
def test_cuts_make_no_difference(row: FixtureRow) -> None:
    data = fixture_bytes(row.file)
    framing = FRAMINGS["sse" if row.framing == "sse-raw" else "ndjson"]
    randomness = random.Random(row.file)
    whole = events_of(framing_frames(framing.decoder(), [data]))
    random_cuts = sorted(randomness.sample(range(len(data)), 40))
    bounds = [0, *random_cuts, len(data)]
    pieces = [data[a:b] for a, b in pairwise(bounds)]
    assert events_of(framing_frames(framing.decoder(), pieces)) == whole
    single = [data[i : i + 1] for i in range(len(data))]
    assert events_of(framing_frames(framing.decoder(), single)) == whole


def framing_frames(decoder: Decoder, pieces: list[bytes]) -> list[Frame]:
    frames: list[Frame] = []
    for piece in pieces:
        frames += decoder.feed(piece)
    return frames + decoder.eof()


@pytest.mark.parametrize("row", ROWS)
def test_frame_by_frame_is_the_same_as_all_at_once(row: FixtureRow) -> None:
    frames = fixture_frames(row)
    reader = FORMAT.stream_reader(ReaderOptions())
    events: list[Event] = []
    for frame in frames:
        events += reader.read([frame])
    assert events + reader.eof() == events_of(frames)


@pytest.mark.parametrize("row", ROWS)
def test_written_and_read_back(row: FixtureRow) -> None:
    events = events_of(fixture_frames(row))
    writer = FORMAT.stream_writer(WriterOptions())
    frames = writer.write(events)
    assert not writer.lost
    before, after = assemble(events), assemble(events_of(frames))
    assert with_zeros(after.usage) == with_zeros(before.usage)
    before.usage = after.usage = None
    assert after == before


def with_zeros(usage: Usage | None) -> Usage | None:
    """Writing says 0 for counts that are not known (Anthropic's clients add them up)."""
    assert usage is not None
    usage.cached_tokens = usage.cached_tokens or 0
    usage.cache_write_tokens = usage.cache_write_tokens or 0
    return usage


@pytest.mark.parametrize("row", ROWS)
def test_whole_answer_and_back(row: FixtureRow) -> None:
    response = assemble(events_of(fixture_frames(row)))
    body = FORMAT.write_response(response, WriterOptions())
    back = FORMAT.read_response(body, ReaderOptions())

    def told(part: Part) -> Any:
        if isinstance(part, Opaque):  # an assembled input is text, one in a body an object
            return {key: value for key, value in part.payload.items() if key != "input"}
        return part

    kept = [
        part
        for part in response.choices[0].parts
        if not (isinstance(part, ToolCall) and not part.complete)  # has no place in a whole answer
    ]
    assert [told(part) for part in back.choices[0].parts] == [told(part) for part in kept]
    assert back.choices[0].raw_stop == response.choices[0].raw_stop
    assert back.choices[0].extensions == response.choices[0].extensions
    assert with_zeros(back.usage) == with_zeros(response.usage)


@pytest.mark.parametrize("row", ROWS)
def test_passes_through_unchanged(row: FixtureRow) -> None:
    frames = fixture_frames(row)
    events = events_of(frames, passthrough=True)
    sent = FORMAT.stream_writer(WriterOptions(passthrough=True)).write(events)
    name = row.file.removeprefix("anthropic/")
    if name in REPAIRED:
        assert assemble(events_of(sent)).choices == assemble(events_of(frames)).choices
        return
    assert [each.data for each in sent] == [each.data for each in frames]
    assert all(each.event for each in sent)
    if row.framing == "sse-raw":
        encoded = SSEEncoder().encode(sent)
        assert encoded.strip() == fixture_bytes(row.file).strip()


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("passthrough", [False, True])
def test_a_stream_that_is_cut_ends_in_an_error(row: FixtureRow, passthrough: bool) -> None:
    frames = fixture_frames(row)
    ends = next(i for i, each in enumerate(frames) if b'"message_stop"' in each.data)
    for cut in range(ends + 1):
        events = events_of(frames[:cut], passthrough=passthrough)
        assert isinstance(events[-1], ev.Error)
        assert events[-1].error.type == "upstream_truncated"
        sent = FORMAT.stream_writer(WriterOptions(passthrough=passthrough)).write(events)
        assert sent[-1].event == "error"
        assert sum(each.event == "error" for each in sent) == 1
        assert not any(each.event == "message_stop" for each in sent)
