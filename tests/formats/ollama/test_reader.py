"""Reading /api/chat: blocks, calls without ids, ends and errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.formats.base import ReaderOptions
from headrace.formats.ollama import FORMAT
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.assemble import assemble
from headrace.model.content import Media, Reasoning, Text, ToolCall
from headrace.model.errors import ErrorCode, ProtocolError
from headrace.model.stop import StopReason
from headrace.model.usage import Usage

from .helpers import HEAD, call, last, line, parts, read


def test_text() -> None:
    events = read([line("Hel"), line("lo"), last(prompt_eval_count=5, eval_count=2)])
    assert events == [
        ev.Start(model="m", created=1_767_225_600),
        ev.BlockStart(block=0, type=ev.BlockKind.TEXT),
        ev.TextDelta(0, "Hel"),
        ev.TextDelta(0, "lo"),
        ev.BlockStop(0),
        ev.Finish(reason=StopReason.END_TURN, raw="stop"),
        ev.End(usage=Usage(input_tokens=5, output_tokens=2)),
    ]


def test_thinking_then_text() -> None:
    assert parts([line(thinking="Hm"), line(thinking="."), line("So"), last()]) == [
        Reasoning(text="Hm.", vendor="ollama"),
        Text(text="So"),
    ]


def test_both_in_one_line() -> None:
    said = parts([line("So", thinking="Hm"), last()])
    assert [type(part) for part in said] == [Reasoning, Text]


def test_calls_in_one_line_and_in_several() -> None:
    one = line(tool_calls=[call("a", {"x": 1}), call("b", {"y": 2})])
    response = assemble(read([one, line(tool_calls=[call("a", {"x": 1})]), last()]))
    calls = response.choices[0].parts
    assert [(part.name, part.arguments) for part in calls if isinstance(part, ToolCall)] == [
        ("a", '{"x": 1}'),
        ("b", '{"y": 2}'),
        ("a", '{"x": 1}'),
    ]
    assert len({part.id for part in calls if isinstance(part, ToolCall)}) == 3
    assert response.choices[0].stop is StopReason.TOOL_USE


def test_made_up_ids_follow_from_what_was_said() -> None:
    frames = [line(tool_calls=[call("a", {"x": 1})]), last()]
    (first,), (again,) = parts(frames), parts(frames)
    assert first == again
    assert isinstance(first, ToolCall)
    assert first.id.startswith("call_")
    later = [Frame(frame.data.replace(b"2026", b"2027")) for frame in frames]
    (other,) = parts(later)
    assert isinstance(other, ToolCall)
    assert other.id != first.id, "in another turn the same call is another one"


def test_ids_of_newer_servers_are_kept_and_told_apart() -> None:
    (one, two) = parts([line(tool_calls=[call(id="call_x"), call(id="call_x")]), last()])
    assert isinstance(one, ToolCall)
    assert isinstance(two, ToolCall)
    assert (one.id, two.id) == ("call_x", "call_x-1")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"a": 1.50, "b":[1]}', '{"a": 1.50, "b":[1]}'),
        ('"{\\"a\\": 1}"', '{"a": 1}'),
        ('""', "{}"),
        ("null", "{}"),
        ("{}", "{}"),
    ],
)
def test_arguments_stay_as_they_were_generated(arguments: str, text: str) -> None:
    raw = json.dumps({**HEAD, "message": {"tool_calls": [{"function": {"name": "f", "arguments": "?"}}]}})
    (part,) = parts([Frame(raw.replace('"?"', arguments).encode()), last()])
    assert isinstance(part, ToolCall)
    assert part.arguments == text


@pytest.mark.parametrize("arguments", [[1], 5, "[1]", "no JSON"])
def test_arguments_that_are_no_object(arguments: Any) -> None:
    reader = FORMAT.stream_reader(ReaderOptions())
    with pytest.raises(ProtocolError, match="must be an object") as caught:
        reader.read([line("a"), line("b", tool_calls=[call(arguments=arguments)])])
    assert caught.value.consumed == 2
    assert [event.text for event in caught.value.events if isinstance(event, ev.TextDelta)] == ["a"]
    assert isinstance(reader.read([last()])[-1], ev.End), "the lines after it are read"


def test_images() -> None:
    (image,) = parts([line(images=["iVBORw0KGgo="]), last()])
    assert image == Media(type="image", media_type="image/png", data="iVBORw0KGgo=")


def test_logprobs() -> None:
    tokens = [{"token": "Hi", "logprob": -0.5}]
    (text,) = parts([line("Hi", top={"logprobs": tokens}), last()])
    assert text == Text(text="Hi", logprobs=tokens)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("stop", StopReason.END_TURN),
        (None, StopReason.END_TURN),
        ("length", StopReason.MAX_TOKENS),
        ("load", StopReason.OTHER),
        ("content_filter", StopReason.CONTENT_FILTER),
    ],
)
def test_stop_reasons(said: str | None, reason: StopReason) -> None:
    response = assemble(read([line("x"), last(said)]))
    assert (response.choices[0].stop, response.choices[0].raw_stop) == (reason, said)


def test_counts_and_durations() -> None:
    end = last(prompt_eval_count=20, prompt_eval_cached_count=8, eval_count=12, total_duration=9, eval_duration=5)
    response = assemble(read([line("x"), end]))
    assert response.usage == Usage(input_tokens=20, cached_tokens=8, output_tokens=12)
    assert response.choices[0].extensions == {"ollama": {"total_duration": 9, "eval_duration": 5}}


@pytest.mark.parametrize("count", [None, "many", -1, True, 2**80, 1e300])
def test_counts_that_are_none(count: Any) -> None:
    usage = assemble(read([line("x"), last(prompt_eval_count=count, eval_count=3)])).usage
    assert usage == Usage(output_tokens=3)


def test_content_on_the_last_line() -> None:
    response = assemble(read([line("All", done=True, top={"done_reason": "stop"})]))
    assert response.choices[0].parts == [Text(text="All")]


@pytest.mark.parametrize("frames", [[], [line("Half")], [line("Half"), line("")]])
def test_a_stream_without_its_last_line_is_cut(frames: list[Frame]) -> None:
    error = read(frames, provider="p")[-1]
    assert isinstance(error, ev.Error)
    assert (error.error.type, error.error.provider) == ("upstream_truncated", "p")


def test_an_error_as_a_line() -> None:
    error = read([line("Half"), Frame(b'{"error":"the model is gone"}'), line("more"), last()])[-1]
    assert isinstance(error, ev.Error)
    assert (error.error.code, error.error.message) == (ErrorCode.PROVIDER_UNAVAILABLE, "the model is gone")


def test_an_error_first() -> None:
    (error,) = read([Frame(b'{"error":"no","StatusCode":429}')])
    assert isinstance(error, ev.Error)
    assert error.error.code is ErrorCode.PROVIDER_RATE_LIMITED


def test_nothing_follows_the_end() -> None:
    assert isinstance(read([line("x"), last(), line("y"), last(), Frame(b"garbage")])[-1], ev.End)


@pytest.mark.parametrize(
    "data", [b"{", b"[]", b"null", b'"x"', b'{"message":5}', b'{"message":{"content":5}}', b"\xff"]
)
def test_what_is_no_line(data: bytes) -> None:
    reader = FORMAT.stream_reader(ReaderOptions())
    with pytest.raises(ProtocolError):
        reader.read([Frame(data)])


def test_a_line_of_something_else() -> None:
    events = read([Frame(b'{"status":"pulling"}'), line("x"), last()])
    assert events[0] == ev.Opaque(vendor="ollama", name="line", content=True)
    assert isinstance(events[-1], ev.End)


def test_half_a_surrogate_pair_is_mended() -> None:
    raw = b'{"message":{"content":"a\\ud83d"},"done":false}'
    assert parts([Frame(raw), last()]) == [Text(text="a\ufffd")]


def test_in_passthrough_every_event_has_its_line() -> None:
    frames = [line(""), line(thinking="Hm"), line("So", tool_calls=[call()]), last()]
    events = read(frames, passthrough=True)
    carried = [event.origin for event in events]  # type: ignore[attr-defined]  # all have one
    assert list(dict.fromkeys(id(frame) for frame in carried)) == [id(frame) for frame in frames]
