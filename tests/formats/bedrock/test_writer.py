"""Events -> a ConverseStream stream."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.formats.bedrock import FORMAT, in_turn
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.content import Citation
from headrace.model.errors import ErrorCode, ErrorInfo, ProtocolError
from headrace.model.events import BlockKind, BlockStart, Event
from headrace.model.stop import StopReason
from headrace.model.usage import Usage

from .helpers import START, arguments, delta, end, lost, message, metadata, read, stop, text, thought, tool, write

K = BlockKind
DONE = [ev.Finish(reason=StopReason.END_TURN), ev.End(usage=Usage(input_tokens=3, output_tokens=2))]


def block(number: int, kind: BlockKind, *deltas: Event, **fields: Any) -> list[Event]:
    return [BlockStart(block=number, type=kind, **fields), *deltas, ev.BlockStop(number)]


def stream(*events: Event | list[Event], done: bool = True) -> list[Event]:
    told: list[Event] = [ev.Start(id="x", model="m")]
    for event in events:
        told += event if isinstance(event, list) else [event]
    return told + (DONE if done else [])


def test_the_whole_ladder() -> None:
    events = stream(
        block(
            0,
            K.REASONING,
            ev.ReasoningDelta(0, "Hm"),
            ev.SignatureDelta(0, "c2"),
            ev.SignatureDelta(0, "ln"),
            vendor="bedrock",
        ),
        block(1, K.TEXT, ev.TextDelta(1, "I "), ev.TextDelta(1, "look")),
        block(2, K.TOOL_CALL, ev.ToolDelta(2, '{"a":'), ev.ToolDelta(2, "1}"), id="call_1", name="f"),
    )
    assert write(events) == [
        ("messageStart", {"role": "assistant"}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "Hm"}}}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"reasoningContent": {"signature": "c2ln"}}}),
        ("contentBlockStop", {"contentBlockIndex": 0}),
        ("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"text": "I "}}),
        ("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"text": "look"}}),
        ("contentBlockStop", {"contentBlockIndex": 1}),
        ("contentBlockStart", {"contentBlockIndex": 2, "start": {"toolUse": {"toolUseId": "call_1", "name": "f"}}}),
        ("contentBlockDelta", {"contentBlockIndex": 2, "delta": {"toolUse": {"input": '{"a":'}}}),
        ("contentBlockDelta", {"contentBlockIndex": 2, "delta": {"toolUse": {"input": "1}"}}}),
        ("contentBlockStop", {"contentBlockIndex": 2}),
        ("messageStop", {"stopReason": "tool_use"}),
        (
            "metadata",
            {"usage": {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5}, "metrics": {"latencyMs": 0}},
        ),
    ]
    assert lost(events) == set()


def test_nothing_empty_is_opened() -> None:
    events = stream(
        block(0, K.TEXT, ev.TextDelta(0, "")), block(1, K.REASONING), block(2, K.TOOL_CALL, id="c", name="f")
    )
    assert [name for name, _ in write(events)] == [
        *("messageStart", "contentBlockStart", "contentBlockStop", "messageStop", "metadata")
    ]


def test_blocks_side_by_side_come_one_after_the_other() -> None:
    events = stream(
        [
            BlockStart(block=0, type=K.TOOL_CALL, id="a", name="f"),
            BlockStart(block=1, type=K.TEXT),
            BlockStart(block=2, type=K.TOOL_CALL, id="b", name="g"),
            ev.TextDelta(1, "waits"),
            ev.ToolDelta(2, "{}"),
            ev.ToolDelta(0, '{"x":1}'),
            ev.BlockStop(2),
            ev.BlockStop(0),
            ev.TextDelta(1, "!"),
            ev.BlockStop(1),
        ]
    )
    said = [payload for name, payload in write(events) if name.startswith("contentBlock")]
    assert [one["contentBlockIndex"] for one in said] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert [one["delta"] for one in said if "delta" in one] == [
        {"toolUse": {"input": '{"x":1}'}},
        {"toolUse": {"input": "{}"}},
        {"text": "waits"},
        {"text": "!"},
    ]


def test_a_call_that_is_abandoned() -> None:
    live = stream(
        [BlockStart(block=0, type=K.TOOL_CALL, id="a", name="f"), ev.ToolDelta(0, '{"'), ev.BlockStop(0, False)]
    )
    assert ("messageStop", {"stopReason": "end_turn"}) in write(live)
    waiting = stream(
        [
            BlockStart(block=0, type=K.TEXT),
            ev.TextDelta(0, "x"),
            BlockStart(block=1, type=K.TOOL_CALL, id="a", name="f"),
            ev.BlockStop(1, complete=False),
            ev.BlockStop(0),
        ]
    )
    assert "contentBlockStart" not in [name for name, _ in write(waiting)]
    assert lost(waiting) == {"tool_call.incomplete"}


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_turn, "MAX_WAITING", 1000)
    writer = FORMAT.stream_writer(WriterOptions())
    writer.write([ev.Start(), BlockStart(block=0, type=K.TOOL_CALL, name="f"), BlockStart(block=1, type=K.TEXT)])
    with pytest.raises(ProtocolError, match="more than 1000 characters"):
        writer.write([ev.TextDelta(1, "x" * 100) for _ in range(20)])


def test_other_vendors_reasoning_is_sealed() -> None:
    events = stream(
        block(0, K.REASONING, ev.ReasoningDelta(0, "Hm"), ev.SignatureDelta(0, "sig"), vendor="openai", id="rs_1"),
        block(1, K.REDACTED_REASONING, vendor="anthropic", data="sealed=="),
        block(2, K.REDACTED_REASONING, vendor="bedrock", data="cmVk"),
    )
    said = [payload["delta"]["reasoningContent"] for name, payload in write(events) if name == "contentBlockDelta"]
    assert said[1] == {"signature": "headrace:openai:rs_1:sig"}
    assert base64.b64decode(said[2]["redactedContent"]) == b"headrace:anthropic::sealed=="
    assert said[3] == {"redactedContent": "cmVk"}


def test_ids_that_bedrock_does_not_allow() -> None:
    def id_of(given: str) -> str:
        (start,) = [
            one
            for name, one in write(stream(block(0, K.TOOL_CALL, id=given, name="f")), request_id="r")
            if name == "contentBlockStart"
        ]
        found = start["start"]["toolUse"]["toolUseId"]
        assert isinstance(found, str)
        return found

    assert id_of("functions.f:0") == "functions.f:0"
    assert id_of("call|1") == id_of("call|1") != id_of("call|2")
    assert len(id_of("x" * 100)) <= 64
    assert id_of("") == "call_r_0"


@pytest.mark.parametrize(
    ("reason", "raw", "word"),
    [
        (StopReason.END_TURN, None, "end_turn"),
        (StopReason.MAX_TOKENS, "length", "max_tokens"),
        (StopReason.CONTENT_FILTER, "guardrail_intervened", "guardrail_intervened"),
        (StopReason.CONTENT_FILTER, "content_filter", "content_filtered"),
        (StopReason.REFUSAL, "refusal", "content_filtered"),
        (StopReason.PAUSE, "pause_turn", "end_turn"),
        (StopReason.OTHER, "odd", "end_turn"),
        (StopReason.MALFORMED_TOOL_CALL, "malformed_model_output", "malformed_model_output"),
        (StopReason.CONTEXT_WINDOW, None, "model_context_window_exceeded"),
    ],
)
def test_stop_reasons(reason: StopReason, raw: str | None, word: str) -> None:
    events = [ev.Start(), ev.Finish(reason=reason, raw=raw), ev.End()]
    assert write(events)[1] == ("messageStop", {"stopReason": word})


def test_a_refusal_is_text() -> None:
    events = stream(block(0, K.REFUSAL, ev.RefusalDelta(0, "No.")))
    assert ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "No."}}) in write(events)
    assert ("messageStop", {"stopReason": "content_filtered"}) in write(events)


def test_counts_of_the_cache_stand_beside_the_input() -> None:
    usage = Usage(input_tokens=41, output_tokens=5, cached_tokens=30, cache_write_tokens=7, reasoning_tokens=2)
    events = [
        ev.Start(usage=Usage(input_tokens=41)),
        ev.UsageReport(usage),
        ev.Finish(reason=StopReason.END_TURN),
        ev.End(),
    ]
    assert write(events)[-1][1]["usage"] == {
        "inputTokens": 4,
        "outputTokens": 5,
        "totalTokens": 46,
        "cacheReadInputTokens": 30,
        "cacheWriteInputTokens": 7,
    }


def test_what_has_no_place_is_named() -> None:
    events = stream(
        block(0, K.TEXT, ev.TextDelta(0, "a", [{"token": "a"}]), ev.CitationDelta(0, Citation("anthropic", {"x": 1}))),
        block(1, K.OPAQUE, vendor="anthropic", role="server_tool_call", payload={"type": "server_tool_use"}),
        block(2, K.MEDIA, ev.MediaDelta(2, "aGk="), media_type="audio/wav"),
        block(3, K.MEDIA, ev.MediaDelta(3, url="https://x"), media_type="image/png"),
        [BlockStart(block=4, type=K.TEXT, choice=1), ev.TextDelta(4, "b"), ev.BlockStop(4)],
        ev.Progress(message="x"),
        ev.Opaque(vendor="openai", name="chunk", content=True),
    )
    assert lost(events) == {
        *("logprobs", "citations", "server_tool_call", "audio", "image", "choices", "progress", "openai.chunk")
    }
    assert [payload["delta"] for name, payload in write(events) if name == "contentBlockDelta"] == [{"text": "a"}]


# How a stream fails.


@pytest.mark.parametrize(
    ("info", "name"),
    [
        (ErrorInfo(code=ErrorCode.PROVIDER_RATE_LIMITED, message="No"), "throttlingException"),
        (ErrorInfo(code=ErrorCode.QUOTA_EXCEEDED, message="No"), "throttlingException"),
        (ErrorInfo(code=ErrorCode.INVALID_REQUEST, message="No"), "validationException"),
        (ErrorInfo(code=ErrorCode.BUDGET_EXCEEDED, message="No"), "validationException"),
        (ErrorInfo(code=ErrorCode.PROVIDER_UNAVAILABLE, message="No"), "serviceUnavailableException"),
        (
            ErrorInfo(code=ErrorCode.PROVIDER_UNAVAILABLE, message="No", type="upstream_truncated"),
            "modelStreamErrorException",
        ),
        (ErrorInfo(code=ErrorCode.TIMEOUT, message="No"), "modelStreamErrorException"),
        (ErrorInfo(code=ErrorCode.INTERNAL_ERROR, message="No"), "internalServerException"),
    ],
)
def test_an_exception_is_the_end(info: ErrorInfo, name: str) -> None:
    events = [ev.Start(), BlockStart(block=0, type=K.TEXT), ev.TextDelta(0, "a"), ev.Error(info)]
    said = write(events)
    assert said[-1] == (f"exception:{name}", {"message": "No"})
    assert "contentBlockStop" not in [name for name, _ in said]


def test_every_code_has_an_exception_of_converse_stream() -> None:
    known = {"internalServer", "modelStreamError", "serviceUnavailable", "throttling", "validation"}
    for code in ErrorCode:
        ((name, _),) = write([ev.Error(ErrorInfo(code=code, message="No"))])
        assert name.removeprefix("exception:").removesuffix("Exception") in known


def test_bedrocks_own_exception_keeps_its_fields() -> None:
    frame = Frame(
        b'{"message":"m","originalStatusCode":500,"originalMessage":"o"}', "exception:modelStreamErrorException"
    )
    events = read([START, frame])
    assert write(events)[-1] == (
        "exception:modelStreamErrorException",
        {"message": "m", "originalStatusCode": 500, "originalMessage": "o"},
    )


# Passing through.

WHOLE = [
    *(START, thought(0, text="Hm"), thought(0, signature="c2ln"), end(0)),
    *(message("contentBlockStart", contentBlockIndex=1, start={}, p="ab"), text(1, "a"), end(1)),
    *(tool(2, x_unknown=1), arguments(2, "{}"), end(2)),
    *(thought(3, redactedContent="cmVk"), end(3), message("somethingNew", x=1)),
    *(stop("tool_use", additionalModelResponseFields={"/x": 1}), metadata(trace={"guardrail": {}}, p="abc")),
]


def passed(frames: list[Frame]) -> list[Frame]:
    events = read(frames, passthrough=True)
    return FORMAT.stream_writer(WriterOptions(passthrough=True)).write(events)


def test_the_same_format_passes_every_frame_through() -> None:
    assert passed(WHOLE) == WHOLE
    error = Frame(b'{"message":"m","x":1}', "exception:throttlingException")
    assert passed([*WHOLE[:6], error]) == [*WHOLE[:6], error]


def test_indices_with_a_gap_are_put_in_order() -> None:
    frames = [START, text(1, "a"), end(1), text(2, "b"), end(2), stop(), metadata()]
    said = [json.loads(frame.data) for frame in passed(frames) if frame.event == "contentBlockDelta"]
    assert [one["contentBlockIndex"] for one in said] == [0, 1]


def test_an_empty_block_shifts_no_index() -> None:
    """A block that is left out, being empty and renumbered, must not leave a gap before those that pass."""
    frames = [
        START,
        tool(0),
        text(5, ""),
        end(5),
        end(0),
        text(1, "a"),
        text(2, "b"),
        end(1),
        end(2),
        stop(),
        metadata(),
    ]
    indices = [json.loads(frame.data).get("contentBlockIndex") for frame in passed(frames)]
    opened = list(dict.fromkeys(index for index in indices if index is not None))
    assert opened == list(range(len(opened)))


def test_what_is_read_back_is_the_same() -> None:
    events = read(WHOLE)
    writer = FORMAT.stream_writer(WriterOptions())
    frames = writer.write(events)
    assert read(frames)[:-1] == [event for event in events if not isinstance(event, ev.Opaque)][:-1]


def test_deltas_of_bedrocks_own_blocks_go_on() -> None:
    result = message(
        "contentBlockStart", contentBlockIndex=0, start={"toolResult": {"toolUseId": "t", "status": "success"}}
    )
    frames = [START, result, delta(0, toolResult=[{"json": {"a": 1}}]), end(0), stop(), metadata()]
    again = FORMAT.stream_writer(WriterOptions()).write(read(frames))
    assert [json.loads(frame.data) for frame in again[:4]] == [json.loads(frame.data) for frame in frames[:4]]
    assert FORMAT.stream_reader(ReaderOptions()).read(again)
