"""Every recording of the family: what is in it (read off the recordings), however it is cut, and through the writer."""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any, NamedTuple

import pytest

from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.formats.openai_chat import FORMAT
from headrace.model import events as ev
from headrace.model.assemble import assemble
from headrace.model.content import Reasoning, Text, ToolCall
from headrace.model.request import Request
from headrace.model.stop import StopReason as S
from tests.fixtures import fixture_bytes, requires_fixtures

from .helpers import bodies, checked, decode, fixture_stream, plain, read, summary, write

pytestmark = requires_fixtures


class Told(NamedTuple):
    """`text`: length and the first 12 digits of its SHA-256. `usage`: input, output, cached, reasoning."""

    text: tuple[int, str]
    stop: S
    usage: tuple[Any, ...] | None
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    reasoning: int = 0


NOTHING = (0, "e3b0c44298fc")
SF = {"location": "San Francisco"}

TOLD = {
    "azure-openai/azure-model-router.jsonl": Told((19, "53f836c9fbda"), S.END_TURN, (15, 78, 0, 64)),
    "ollama/ollama-openai-broken-tool.jsonl": Told((50, "687cb1b46c6e"), S.END_TURN, None),
    "ollama/ollama-openai-tool.jsonl": Told(NOTHING, S.TOOL_USE, None, (("get_current_time", {}),)),
    "openai-chat/chat-length-truncated-json.sse": Told((2, "6017dbca8e3e"), S.MAX_TOKENS, (79, 1, None, 0)),
    "openai-chat/chat-logprobs.sse": Told((4, "dfb72b5d6af4"), S.END_TURN, (9, 2, None, 0)),
    "openai-chat/chat-refusal-logprobs.sse": Told((45, "00e05d9ee990"), S.REFUSAL, (79, 12, None, 0)),
    "openai-chat/chat-refusal.sse": Told((44, "401a711e087e"), S.REFUSAL, (79, 11, None, 0)),
    "openai-chat/chat-structured-usage.sse": Told((53, "652849b5dd35"), S.END_TURN, (79, 14, None, 0)),
    "openai-chat/chat-text-obfuscation.jsonl": Told((1724, "53b2d9e583d0"), S.END_TURN, (16, 300, 0, 0)),
    "openai-chat/chat-tool-call-single.sse": Told(
        NOTHING, S.TOOL_USE, (44, 16, None, 0), (("get_weather", {"city": "New York City"}),)
    ),
    "openai-chat/chat-tool-calls-parallel.sse": Told(
        NOTHING,
        S.TOOL_USE,
        (149, 60, None, 0),
        (
            ("GetWeatherArgs", {"city": "Edinburgh", "country": "GB", "units": "c"}),
            ("get_stock_price", {"ticker": "AAPL", "exchange": "NASDAQ"}),
        ),
    ),
    "openai-chat/chat-tools-parallel-2024.sse": Told(
        NOTHING, S.TOOL_USE, None, (("get_current_weather", SF), ("get_current_weather", {"location": "Boston"}))
    ),
    "openai-chat/completions-legacy.jsonl": Told((66, "a02d42179263"), S.MAX_TOKENS, (14, 16, None, None)),
    "openai-compatible/agw-stream-tool-empty-content.sse": Told(
        NOTHING, S.TOOL_USE, (12, 8, None, None), (("Bash", {"command": "pwd"}),)
    ),
    "openai-compatible/claude-compat-index1-tool.sse": Told(
        (11, "3f1e3d85c76a"), S.TOOL_USE, None, (("read_file", {"path": "a.txt"}),)
    ),
    "openai-compatible/deepseek-thinking.sse": Told((40, "cf0e60278f7f"), S.END_TURN, (6, 212, 0, 198), reasoning=882),
    "openai-compatible/deepseek-tool-call.jsonl": Told(
        NOTHING, S.TOOL_USE, (339, 83, 320, 39), (("weather", SF),), reasoning=191
    ),
    "openai-compatible/deepseek-usage-finish-chunk.sse": Told((340, "0bcbbcd649b4"), S.END_TURN, (12, 89, 0, None)),
    "openai-compatible/groq-tool-call.jsonl": Told(NOTHING, S.TOOL_USE, (210, 15, None, None), (("weather", {}),)),
    "openai-compatible/hf-nebius.sse": Told((111, "a16c934872ec"), S.MAX_TOKENS, None),
    "openai-compatible/hf-together.sse": Told((112, "b650db00175c"), S.MAX_TOKENS, (26, 20, None, None)),
    "openai-compatible/moonshot-stream.jsonl": Told((6, "334d016f755c"), S.END_TURN, (9, 12, None, 7), reasoning=16),
    "openai-compatible/openrouter-reasoning.sse": Told((9, "e93dff0d1076"), S.END_TURN, (43, 36, 0, 13), reasoning=51),
    "openai-compatible/openrouter-web-annotations.sse": Told((90, "11ddbdd385e1"), S.END_TURN, (2317, 53, 0, 0)),
    "openai-compatible/perplexity-citations.jsonl": Told((34, "602a838182e6"), S.END_TURN, (10, 336, None, None)),
    # this provider never sends a finish reason
    "openai-compatible/snowflake-thinking.sse": Told((93, "a1b5313205c6"), S.OTHER, (45, 73, 0, 0), reasoning=13),
    "openai-compatible/tgi-chat.sse": Told((104, "3eaf24413a68"), S.MAX_TOKENS, None),
    "openai-compatible/vllm-qwen3-tool.jsonl": Told(
        (330, "c7344692cd55"), S.TOOL_USE, None, (("get_time", {"timezone": "UTC"}),)
    ),
    # completion_tokens leaves reasoning out here: 1 + 290 and 26 + 196
    "openai-compatible/xai-text.jsonl": Told((5, "185f8db32271"), S.END_TURN, (12, 291, 11, 290), reasoning=20),
    "openai-compatible/xai-tool-call.jsonl": Told(
        NOTHING, S.TOOL_USE, (291, 222, 290, 196), (("weather", SF),), reasoning=18
    ),
    "openai-compatible/zai-thinking.sse": Told((1, "4b227777d4dd"), S.END_TURN, (13, 564, 0, 561), reasoning=2173),
}

every_recording = pytest.mark.parametrize("name", TOLD)


@every_recording
def test_says_what_is_in_the_recording(name: str) -> None:
    told = TOLD[name]
    frames, leftover = decode(fixture_stream(name))
    events = read(frames, leftover=leftover)
    assert isinstance(events[-1], ev.End)
    response = assemble(events)
    (choice,) = response.choices
    (said,) = summary(response)
    text = said["text"] + said["refusal"]
    assert (len(text), hashlib.sha256(text.encode()).hexdigest()[:12]) == told.text
    assert bool(said["refusal"]) == (told.stop is S.REFUSAL)
    assert tuple((call[1], call[2]) for call in said["calls"]) == told.calls
    assert all(call[0] for call in said["calls"])
    assert len(said["reasoning"]) == told.reasoning
    assert choice.stop is told.stop
    usage = response.usage
    counts = usage and (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens)
    assert counts == told.usage


@every_recording
def test_any_cut_of_the_bytes_gives_the_same_events(name: str) -> None:
    data = fixture_stream(name)
    frames, leftover = decode(data)
    whole = read(frames, leftover=leftover)
    chance = random.Random(name)
    every_byte = range(1, len(data))
    for cuts in (every_byte, chance.sample(every_byte, 40)):
        frames, leftover = decode(data, cuts)
        assert read(frames, leftover=leftover) == whole


@every_recording
def test_frame_by_frame_gives_the_same_events(name: str) -> None:
    frames, _ = decode(fixture_stream(name))
    reader = FORMAT.stream_reader(ReaderOptions())
    one_by_one = [event for frame in frames for event in reader.read([frame])]
    assert one_by_one + reader.eof() == read(frames)


@every_recording
def test_a_template_reads_what_the_long_way_reads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    frames, _ = decode(fixture_stream(name))
    short = read(frames)
    monkeypatch.setattr("headrace.formats.openai_chat.template.Templates.learn", lambda *args: None)
    assert read(frames) == short


@every_recording
@pytest.mark.parametrize("passthrough", [False, True])
def test_through_the_writer_and_back(name: str, passthrough: bool) -> None:
    frames, _ = decode(fixture_stream(name))
    events = read(frames, passthrough=passthrough)
    written = write(events, passthrough=passthrough)
    assert [body for body in bodies(written) if body == "[DONE]"] == ["[DONE]"]
    assert written[-1].data == b"[DONE]"
    before, after = assemble(events), assemble(read(written))
    if name == "openai-compatible/snowflake-thinking.sse":
        assert after.choices[0].stop is S.END_TURN  # OpenAI's clients need a word, and OTHER has none
        after.choices[0].stop = S.OTHER
    assert summary(after) == summary(before)
    if before.usage is None:
        assert after.usage is None
    else:
        assert after.usage is not None
        for count in ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "cost_usd"):
            assert (getattr(after.usage, count) or 0) == (getattr(before.usage, count) or 0)


@every_recording
def test_a_stream_cut_after_any_frame_is_an_error(name: str) -> None:
    frames, _ = decode(fixture_stream(name))
    assert frames[-1].data == b"[DONE]"
    for count in range(len(frames)):
        events = read(frames[:count])
        last = events[-1]
        assert isinstance(last, ev.Error)
        assert last.error.type == "upstream_truncated"
        written = write(events)
        assert [frame.data for frame in written[-1:]] == [b"[DONE]"]
        assert "error" in json.loads(written[-2].data)


@every_recording
def test_passthrough_says_the_same(name: str) -> None:
    frames, _ = decode(fixture_stream(name))
    passed = [event for event in read(frames, passthrough=True) if not isinstance(event, ev.Opaque)]
    assert plain(passed) == read(frames)


# Every frame of these is fit for any client, so it goes on as it is.
CLEAN = [
    name
    for name in TOLD
    if name.startswith("openai-chat/chat-")
    or name.split("/")[1].startswith(("agw-", "azure-", "deepseek-", "groq-", "hf-", "moonshot-", "perplexity-"))
    or name.split("/")[1].startswith(("tgi-", "vllm-", "xai-", "zai-", "openrouter-reasoning", "ollama-"))
]


@pytest.mark.parametrize("name", CLEAN)
def test_passthrough_is_byte_for_byte(name: str) -> None:
    frames, _ = decode(fixture_stream(name))
    assert write(read(frames, passthrough=True), passthrough=True) == frames


@pytest.mark.parametrize("name", CLEAN)
def test_without_include_usage_no_frame_tells_of_it(name: str) -> None:
    frames, _ = decode(fixture_stream(name))
    events = read(frames, passthrough=True)
    written = write(events, passthrough=True, include_usage=False)
    for body in bodies(written)[:-1]:
        assert not body.get("usage")
        assert body["choices"] or "usage" not in body
    assert summary(assemble(read(written))) == summary(assemble(events))


def test_mended_frames_are_written_anew_and_the_others_passed_on() -> None:
    frames, _ = decode(fixture_stream("openai-compatible/claude-compat-index1-tool.sse"))
    written = write(read(frames, passthrough=True), passthrough=True)
    assert written[:3] == frames[:3]
    indices = {
        call["index"]
        for body in bodies(written)[:-1]
        for choice in body["choices"]
        for call in choice["delta"].get("tool_calls", [])
    }
    assert indices == {0}
    assert written[-2:] == frames[-2:]


def test_two_answers_of_one_file_each_for_itself() -> None:
    lines = [line for line in fixture_bytes("openai-compatible/cerebras-structured-tools.jsonl").split(b"\n") if line]
    told = []
    for id in sorted({json.loads(line)["id"] for line in lines}):
        stream = b"".join(b"data: " + line + b"\n\n" for line in lines if id.encode() in line) + b"data: [DONE]\n\n"
        told += summary(assemble(read(decode(stream)[0])))
    assert {len(one["reasoning"]) for one in told} == {423, 461}
    with_call = next(one for one in told if one["calls"])
    assert [call[1:] for call in with_call["calls"]] == [("nonUsefulTool", {})]
    assert with_call["stop"] is S.TOOL_USE


def test_logprobs_come_with_their_text() -> None:
    response = assemble(read(decode(fixture_stream("openai-chat/chat-logprobs.sse"))[0]))
    (part,) = response.choices[0].parts
    assert isinstance(part, Text)
    assert part.logprobs is not None
    assert [token["token"] for token in part.logprobs] == ["Foo", "!"]


def test_reasoning_details_are_not_doubled_and_keep_their_signature() -> None:
    frames, _ = decode(fixture_stream("openai-compatible/openrouter-reasoning.sse"))
    response = assemble(read(frames, vendor="openrouter"))
    first = response.choices[0].parts[0]
    assert isinstance(first, Reasoning)
    assert first.text == "This is a simple arithmetic question. 2+2 equals 4."
    assert first.signature
    signatures = [
        item.get("signature") or ""
        for frame in frames[:-1]
        for choice in json.loads(frame.data)["choices"]
        for item in choice["delta"].get("reasoning_details") or []
    ]
    assert first.signature == "".join(signatures)
    assert first.vendor == "openrouter"
    assert first.extensions == {"openrouter": {"format": "anthropic-claude-v1"}}


def test_annotations_become_citations() -> None:
    response = assemble(read(decode(fixture_stream("openai-compatible/openrouter-web-annotations.sse"))[0]))
    (part,) = response.choices[0].parts
    assert isinstance(part, Text)
    assert [c.payload["url_citation"]["url"] for c in part.citations or []][:2] == [
        "https://github.com/pydantic/pydantic-ai",
        "https://pydantic.dev/pydantic-ai",
    ]
    assert len(part.citations or []) == 5


def test_think_tags_are_reasoning_when_the_profile_says_so() -> None:
    frames, _ = decode(fixture_stream("openai-compatible/vllm-qwen3-tool.jsonl"))
    response = assemble(read(frames, quirks={"think_tags": True}))
    reasoning, text, call = response.choices[0].parts
    assert isinstance(reasoning, Reasoning)
    assert isinstance(text, Text)
    assert isinstance(call, ToolCall)
    assert reasoning.text.startswith("\nOkay, the user is asking")
    assert reasoning.text.endswith("the time correctly.\n")
    assert text.text == "\n\n"


def test_streams_of_other_formats_end_as_errors() -> None:
    for name in ("openai-chat/assistants-run-stream.sse", "openai-compatible/watsonx-generate.sse"):
        frames, leftover = decode(fixture_bytes(name))
        events = checked(read(frames, leftover=leftover))
        assert isinstance(events[-1], ev.Error)


def test_the_writer_needs_no_request() -> None:
    frames, _ = decode(fixture_stream("openai-chat/chat-logprobs.sse"))
    writer = FORMAT.stream_writer(WriterOptions())
    assert bodies(writer.write(read(frames)))[-2]["usage"]["total_tokens"] == 11
    assert Request(model="m", messages=[]).include_usage
