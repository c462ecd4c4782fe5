"""Writing /api/chat and /api/generate: lines as Ollama's clients read them."""

from __future__ import annotations

import json

import ollama as sdk
import pytest

from headrace.formats import FORMATS
from headrace.formats.base import WriterOptions
from headrace.formats.ollama import FORMAT
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.errors import ErrorCode, ErrorInfo
from headrace.model.events import BlockKind, BlockStart, BlockStop, Event
from headrace.model.stop import StopReason
from headrace.model.usage import Usage

from .helpers import call, last, line, lost, read, write

START = ev.Start(model="their-model", created=1_767_225_600)
FINISH = ev.Finish(reason=StopReason.END_TURN)
END = ev.End(usage=Usage(input_tokens=5, output_tokens=2))
TEXT: list[Event] = [
    START,
    BlockStart(block=0, type=BlockKind.REASONING),
    ev.ReasoningDelta(0, "Hm"),
    BlockStop(0),
    BlockStart(block=1, type=BlockKind.TEXT),
    ev.TextDelta(1, "Hi"),
    ev.TextDelta(1, ""),
    BlockStop(1),
    FINISH,
    END,
]
HEAD = {"model": "their-model", "created_at": "2026-01-01T00:00:00Z"}
TAIL = {
    "done": True,
    "done_reason": "stop",
    "total_duration": 0,
    "load_duration": 0,
    "prompt_eval_count": 5,
    "prompt_eval_duration": 0,
    "eval_count": 2,
    "eval_duration": 0,
}


def tool(block: int, name: str, *fragments: str, complete: bool = True, start: bool = True) -> list[Event]:
    begin: list[Event] = [BlockStart(block=block, type=BlockKind.TOOL_CALL, id=f"c{block}", name=name)]
    return [*(begin if start else []), *(ev.ToolDelta(block, one) for one in fragments), BlockStop(block, complete)]


def test_chat() -> None:
    assert write(TEXT) == [
        {**HEAD, "message": {"role": "assistant", "content": "", "thinking": "Hm"}, "done": False},
        {**HEAD, "message": {"role": "assistant", "content": "Hi"}, "done": False},
        {**HEAD, "message": {"role": "assistant", "content": ""}, **TAIL},
    ]


def test_generate() -> None:
    assert write(TEXT, FORMATS["ollama_generate"]) == [
        {**HEAD, "response": "", "thinking": "Hm", "done": False},
        {**HEAD, "response": "Hi", "done": False},
        {**HEAD, "response": "", **TAIL},
    ]


def test_a_call_is_told_whole() -> None:
    (told, _) = write([START, *tool(0, "f", '{"a": 1', '.50, "b":"<"}'), FINISH, END])
    written = {"id": "c0", "function": {"index": 0, "name": "f", "arguments": {"a": 1.5, "b": "<"}}}
    assert told["message"] == {"role": "assistant", "content": "", "tool_calls": [written]}


def test_arguments_are_set_in_as_they_were_generated() -> None:
    writer = FORMAT.stream_writer(WriterOptions())
    frames = writer.write([START, *tool(0, "f", '{"a": 1.50}')])
    assert b'"arguments":{"a": 1.50}' in frames[0].data


def test_calls_side_by_side_keep_their_order() -> None:
    begun: list[Event] = [
        BlockStart(block=n, type=BlockKind.TOOL_CALL, id=f"c{n}", name=name) for n, name in enumerate("abc")
    ]
    rest = [*tool(2, "c", start=False), *tool(0, "a", start=False), *tool(1, "b", complete=False, start=False)]
    told = write([START, *begun, *rest, FINISH, END])
    functions = [one["function"] for said in told for one in said["message"].get("tool_calls", ())]
    assert [(function["index"], function["name"]) for function in functions] == [(0, "a"), (1, "c")]


def test_whole_calls_are_told_before_an_error() -> None:
    begun: list[Event] = [BlockStart(block=0, type=BlockKind.TOOL_CALL, id="c0", name="a"), *tool(1, "b")]
    told = write([START, *begun, ev.Error(ErrorInfo(code=ErrorCode.TIMEOUT, message="Too late"))])
    assert told[0]["message"]["tool_calls"][0]["function"]["name"] == "b"
    assert told[1]["error"] == "Too late"
    assert len(told) == 2


@pytest.mark.parametrize("arguments", ["[1]", '{"a":', "no"])
def test_arguments_that_are_no_object_are_left_out(arguments: str) -> None:
    events = [START, *tool(0, "f", arguments), FINISH, END]
    assert len(write(events)) == 1
    assert lost(events) == {"tool_call.incomplete"}


def test_durations_of_an_ollama_server_are_told() -> None:
    finish = ev.Finish(reason=StopReason.END_TURN, extensions={"ollama": {"eval_duration": 7, "total_duration": "x"}})
    (told,) = write([START, finish, END])
    assert (told["eval_duration"], told["total_duration"]) == (7, 0)


def test_counts_are_numbers_where_nobody_said_them() -> None:
    (told,) = write([START, FINISH, ev.End()])
    assert (told["prompt_eval_count"], told["eval_count"]) == (0, 0)


def test_cached_tokens() -> None:
    (told,) = write([START, FINISH, ev.End(usage=Usage(input_tokens=9, cached_tokens=4, output_tokens=1))])
    assert told["prompt_eval_cached_count"] == 4


def test_one_ending_whatever_happens() -> None:
    error = ev.Error(ErrorInfo(code=ErrorCode.PROVIDER_UNAVAILABLE, message="Gone"))
    assert [one.get("error") for one in write([*TEXT[:6], error])] == [None, None, "Gone"]
    assert [one.get("error") for one in write([error])] == ["Gone"]


def test_what_is_left_out_is_named() -> None:
    from headrace.model.content import Citation

    events: list[Event] = [
        START,
        BlockStart(block=0, type=BlockKind.REASONING),
        ev.SignatureDelta(0, "sig"),
        BlockStop(0),
        BlockStart(block=1, type=BlockKind.REDACTED_REASONING, data="x", vendor="anthropic"),
        BlockStop(1),
        BlockStart(block=2, type=BlockKind.TEXT),
        ev.CitationDelta(2, Citation("anthropic", {})),
        BlockStop(2),
        BlockStart(block=3, type=BlockKind.MEDIA, media_type="audio/wav"),
        ev.MediaDelta(3, "UklGRg=="),
        BlockStop(3),
        BlockStart(block=4, type=BlockKind.OPAQUE, vendor="anthropic", role="server_tool_call", payload={}),
        ev.OpaqueDelta(4, {}),
        BlockStop(4),
        ev.Progress(message="x"),
        ev.Finish(reason=StopReason.STOP_SEQUENCE, stop_sequence="END"),
        ev.Finish(choice=1, reason=StopReason.END_TURN),
        END,
    ]
    assert lost(events) == {
        "reasoning.signature",
        "redacted_reasoning",
        "citations",
        "audio",
        "server_tool_call",
        "progress",
        "stop_sequence",
        "choices",
    }


def test_lines_end_only_where_a_line_ends() -> None:
    """Official clients split at every line end that Unicode knows."""
    said = "a\x85b\u2028c\u2029d\x0be\x1cf"
    events: list[Event] = [START, BlockStart(block=0, type=BlockKind.TEXT), ev.TextDelta(0, said)]
    events += [BlockStop(0), *tool(1, "f", json.dumps({"x": said}, ensure_ascii=False)), FINISH, END]
    writer = FORMAT.stream_writer(WriterOptions())
    frames = writer.write(events)
    for frame in frames:
        assert len(frame.data.decode().splitlines()) == 1
    assert json.loads(frames[0].data)["message"]["content"] == said
    assert json.loads(frames[1].data)["message"]["tool_calls"][0]["function"]["arguments"] == {"x": said}


def test_passing_on_and_writing_alternate() -> None:
    frames = [line("a"), line("b", tool_calls=[call("f", {"x": 1})]), line("c"), last()]
    events = read(frames, passthrough=True)
    for event in events:
        if getattr(event, "origin", None) is frames[2]:
            event.origin = None  # type: ignore[attr-defined]  # as if it had to be mended
    writer = FORMAT.stream_writer(WriterOptions(passthrough=True))
    sent = [frame for event in events for frame in writer.write([event])]
    assert [sent[0], sent[1], sent[3]] == [frames[0], frames[1], frames[3]]
    assert json.loads(sent[2].data)["message"]["content"] == "c"
    assert writer.lost == set()


def test_a_provider_that_does_not_say_its_model() -> None:
    (told,) = write([ev.Start(), FINISH, END])
    assert (told["model"], told["created_at"]) == ("m", "2026-01-01T00:00:00Z")


@pytest.mark.parametrize("name", ["ollama", "ollama_generate"])
def test_the_sdk_takes_every_line(name: str) -> None:
    shape = sdk.ChatResponse if name == "ollama" else sdk.GenerateResponse
    lines = write([*TEXT[:-2], *tool(2, "f", "{}"), *TEXT[-2:]], FORMATS[name])
    said = [shape(**one) for one in lines]
    assert [one.done for one in said] == [False, False, False, True]
    assert said[-1].eval_count == 2


def test_frames_have_neither_event_nor_id() -> None:
    writer = FORMAT.stream_writer(WriterOptions())
    assert all(frame == Frame(frame.data) for frame in writer.write(TEXT))
