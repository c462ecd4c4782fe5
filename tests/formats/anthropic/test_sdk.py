"""Anthropic's own client reads what we write (in this process; no socket is opened)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from headrace.formats.anthropic import FORMAT
from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.framing import SSEEncoder
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.assemble import assemble
from headrace.model.errors import ErrorCode, ErrorInfo
from headrace.model.events import BlockKind, BlockStart, Event
from headrace.model.stop import StopReason
from headrace.model.usage import Usage
from tests.fixtures import FixtureRow, fixture_params

from .helpers import fixture_frames

anthropic = pytest.importorskip("anthropic", reason="Anthropic's client is not installed")
httpx = pytest.importorskip("anthropic._base_client").httpx2  # the HTTP library that this client is built on

K = BlockKind
SPLICED = "spliced-message-start.jsonl"
"""The client cannot read the recording itself: a second start makes its indices go wrong."""


def client(status: int, media_type: str, body: bytes) -> Any:
    def answer(request: Any) -> Any:
        return httpx.Response(status, headers={"content-type": media_type}, content=body)

    transport = httpx.MockTransport(answer)
    return anthropic.Anthropic(api_key="none", max_retries=0, http_client=httpx.Client(transport=transport))


def final(frames: Iterable[Frame]) -> Any:
    """The message that the client puts together from a stream."""
    sdk = client(200, "text/event-stream", SSEEncoder().encode(frames))
    with sdk.beta.messages.stream(model="m", max_tokens=1, messages=[{"role": "user", "content": "x"}]) as stream:
        return stream.get_final_message()


def named(frames: Iterable[Frame]) -> list[Frame]:
    """A recording's frames with their names, up to the end of its first message."""
    kept = []
    for frame in frames:
        kept.append(Frame(frame.data, json.loads(frame.data)["type"]))
        if kept[-1].event == "message_stop":
            break
    return kept


def events_of(frames: list[Frame]) -> list[Event]:
    return FORMAT.stream_reader(ReaderOptions()).read(frames)


@pytest.mark.parametrize("row", fixture_params(provider="anthropic"))
def test_a_recording_written_anew_is_the_same_message(row: FixtureRow) -> None:
    recorded = fixture_frames(row)
    written = FORMAT.stream_writer(WriterOptions()).write(events_of(recorded))
    message = final(written).model_dump(exclude={"usage"}, exclude_none=True)
    if row.file.endswith(SPLICED):
        assert [block.get("id") for block in message["content"]] == [None, "toolu_first", None, "toolu_second"]
    else:
        assert message == final(named(recorded)).model_dump(exclude={"usage"}, exclude_none=True)


@pytest.mark.parametrize("row", fixture_params(provider="anthropic"))
def test_a_whole_answer_is_the_same_message(row: FixtureRow) -> None:
    events = events_of(fixture_frames(row))
    sdk = client(200, "application/json", FORMAT.write_response(assemble(events), WriterOptions()))
    message = sdk.beta.messages.create(model="m", max_tokens=1, messages=[{"role": "user", "content": "x"}])
    streamed = final(FORMAT.stream_writer(WriterOptions()).write(events))
    expected = [
        block.model_dump(exclude_none=True)
        for block in streamed.content
        if getattr(block, "id", "") != "toolu_first"  # the spliced recording's abandoned call
    ]
    assert [block.model_dump(exclude_none=True) for block in message.content] == expected
    assert message.stop_reason == streamed.stop_reason


def test_what_another_provider_says() -> None:
    events: list[Event] = [
        ev.Start(id="chatcmpl-1", model="gpt"),
        BlockStart(block=0, type=K.REASONING, vendor="openai"),
        ev.ReasoningDelta(0, "hm"),
        ev.BlockStop(0),
        BlockStart(block=1, type=K.TEXT),
        ev.TextDelta(1, "Let me look. "),
        BlockStart(block=2, type=K.TOOL_CALL, id="call.1", name="f"),
        BlockStart(block=3, type=K.TOOL_CALL, id="call_2", name="g"),
        ev.ToolDelta(3, '{"b":'),
        ev.ToolDelta(2, '{"a":1}'),
        ev.TextDelta(1, "Wait."),
        ev.BlockStop(1),
        ev.BlockStop(2),
        ev.ToolDelta(3, "2}"),
        ev.BlockStop(3),
        BlockStart(block=4, type=K.TOOL_CALL, id="call_3", name="h"),
        ev.BlockStop(4),
        ev.Finish(reason=StopReason.END_TURN, raw="stop"),
        ev.UsageReport(Usage(input_tokens=10, output_tokens=5, cached_tokens=4)),
        ev.End(),
    ]
    message = final(FORMAT.stream_writer(WriterOptions()).write(events))
    blocks = [block.model_dump(exclude_none=True) for block in message.content]
    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use", "tool_use", "tool_use"]
    assert blocks[1]["text"] == "Let me look. Wait."
    assert [block["input"] for block in blocks[2:]] == [{"a": 1}, {"b": 2}, {}]
    assert message.stop_reason == "tool_use"
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens, message.usage.output_tokens) == (6, 4, 5)


def test_an_error_in_the_stream_is_raised() -> None:
    info = ErrorInfo(code=ErrorCode.PROVIDER_UNAVAILABLE, type="upstream_truncated", message="cut off")
    events: list[Event] = [ev.Start(), BlockStart(block=0, type=K.TEXT), ev.TextDelta(0, "a"), ev.Error(info)]
    with pytest.raises(anthropic.APIStatusError, match="cut off"):
        final(FORMAT.stream_writer(WriterOptions()).write(events))


@pytest.mark.parametrize(
    ("type", "error"),
    [
        ("overloaded_error", "OverloadedError"),
        ("rate_limit_error", "RateLimitError"),
        ("not_found_error", "NotFoundError"),
    ],
)
def test_an_error_over_http(type: str, error: str) -> None:
    body = json.dumps({"type": "error", "error": {"type": type, "message": "m"}}).encode()
    info = FORMAT.read_error(500, {}, body)
    sdk = client(FORMAT.error_status(info), "application/json", FORMAT.write_error(info))
    with pytest.raises(anthropic.APIStatusError) as caught:
        sdk.messages.create(model="m", max_tokens=1, messages=[{"role": "user", "content": "x"}])
    assert caught.value.__class__.__name__ == error
