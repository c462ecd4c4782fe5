"""A ConverseStream stream -> events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats import FORMATS
from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.formats.bedrock import FORMAT
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.assemble import assemble
from headrace.model.content import Citation, Media, Opaque, Reasoning, RedactedReasoning, Text, ToolCall
from headrace.model.errors import ErrorCode, ProtocolError
from headrace.model.stop import StopReason
from headrace.model.usage import Usage

from .helpers import START, answer, arguments, delta, end, legal, message, metadata, read, stop, text, thought, tool


def test_text_has_no_start_of_its_own() -> None:
    events = read([START, text(0, "Hel"), text(0, "lo"), end(0), stop(), metadata()])
    assert [type(event).__name__ for event in events] == [
        "Start",
        "BlockStart",
        "TextDelta",
        "TextDelta",
        "BlockStop",
        "Finish",
        "UsageReport",
        "End",
    ]
    response = assemble(events)
    assert response.choices[0].parts == [Text(text="Hello")]
    assert (response.choices[0].stop, response.choices[0].raw_stop) == (StopReason.END_TURN, "end_turn")
    assert response.usage == Usage(input_tokens=10, output_tokens=5)
    assert response.extensions == {"bedrock": {"metrics": {"latencyMs": 7}}}


def test_padding_is_ignored() -> None:
    padded = Frame(b'{"contentBlockIndex":0,"delta":{"text":"Hi"},"p":"abcdefghijk"}', "contentBlockDelta")
    events = read([START, padded, stop(), message("metadata", usage={}, metrics={}, p="abc")])
    assert assemble(events).choices[0].parts == [Text(text="Hi")]
    assert assemble(events).extensions == {"bedrock": {"metrics": {}}}


def test_a_start_of_text_and_a_missing_stop() -> None:
    """Some models say `start: {}`, some never close a block."""
    empty = message("contentBlockStart", contentBlockIndex=0, start={})
    response = answer(empty, text(0, "a"), tool(1), arguments(1, '{"a":1}'), stop("tool_use"), metadata())
    assert response.choices[0].parts == [Text(text="a"), ToolCall(id="tooluse_1", name="f", arguments='{"a":1}')]


def test_an_empty_text_before_reasoning() -> None:
    """As some open models do: text 0 is empty, reasoning 1, text 2."""
    response = answer(
        *(text(0, ""), end(0)), *(thought(1, text="Hm"), end(1)), *(text(2, "So"), end(2)), *(stop(), metadata())
    )
    assert response.choices[0].parts == [Text(text=""), Reasoning(text="Hm", vendor="bedrock"), Text(text="So")]


def test_reasoning_its_signature_and_what_is_redacted() -> None:
    response = answer(
        *(thought(0, text="One"), thought(0, text=" two"), thought(0, signature="c2ln+/=="), end(0)),
        *(thought(1, redactedContent="cmVk"), end(1), text(2, "So"), end(2), stop(), metadata()),
    )
    assert response.choices[0].parts == [
        Reasoning(text="One two", signature="c2ln+/==", vendor="bedrock"),
        RedactedReasoning(data="cmVk", vendor="bedrock"),
        Text(text="So"),
    ]


def test_what_claude_redacts_is_anthropics_where_the_vendor_is() -> None:
    """The blob is base64 of the text that Anthropic itself calls data: decoded once."""
    response = answer(thought(0, redactedContent="RW1Cd2M9"), end(0), stop(), metadata(), vendor="anthropic")
    assert response.choices[0].parts == [RedactedReasoning(data="EmBwc=", vendor="anthropic")]


@pytest.mark.parametrize("pieces", [[], [""], ['{"a":', '"b"}'], ["{}"]])
def test_arguments_in_pieces(pieces: list[str]) -> None:
    response = answer(tool(0), *(arguments(0, piece) for piece in pieces), end(0), stop("tool_use"), metadata())
    (call,) = response.choices[0].parts
    assert call == ToolCall(id="tooluse_1", name="f", arguments="".join(pieces) or "{}")
    assert response.choices[0].stop is StopReason.TOOL_USE


def test_arguments_that_were_cut() -> None:
    response = answer(tool(0), arguments(0, '{"a": "b'), end(0), stop("max_tokens"), metadata())
    assert response.choices[0].parts == [ToolCall(id="tooluse_1", name="f", arguments='{"a": "b', complete=False)]


def test_calls_side_by_side_are_kept_apart() -> None:
    """The index of a call is that of its block, from 1 where text came first."""
    response = answer(
        *(text(0, "I look"), end(0), tool(1, "a", "f"), tool(2, "b", "g")),
        *(arguments(1, '{"x":'), arguments(2, '{"y":'), arguments(1, "1}"), arguments(2, "2}"), end(1), end(2)),
        *(stop("tool_use"), metadata()),
    )
    assert [part.arguments for part in response.choices[0].parts if isinstance(part, ToolCall)] == [
        '{"x":1}',
        '{"y":2}',
    ]


def test_the_index_of_a_call_is_not_that_of_its_block() -> None:
    """BerriAI/litellm#32759: text is block 0, the call block 1, and OpenAI's callers got index 1."""
    events = read([START, text(0, "I look"), end(0), tool(1), arguments(1, "{}"), end(1), stop("tool_use"), metadata()])
    frames = FORMATS["openai_chat"].stream_writer(WriterOptions()).write(events)
    chunks = [json.loads(frame.data) for frame in frames if frame.data != b"[DONE]"]
    calls = [call for chunk in chunks for each in chunk["choices"] for call in each["delta"].get("tool_calls", ())]
    assert {call["index"] for call in calls} == {0}


def test_tools_that_bedrock_runs_itself_are_kept_whole() -> None:
    events = read(
        [
            START,
            tool(0, "t1", "nova_code_interpreter", type="server_tool_use"),
            arguments(0, '{"snippet":'),
            arguments(0, '"1+1"}'),
            end(0),
            message(
                "contentBlockStart", contentBlockIndex=1, start={"toolResult": {"toolUseId": "t1", "status": "success"}}
            ),
            delta(1, toolResult=[{"json": {"stdOut": "2"}}]),
            delta(1, toolResult=[{"text": "x"}]),
            end(1),
            stop(),
            metadata(),
        ]
    )
    call, result = assemble(events).choices[0].parts
    assert isinstance(call, Opaque)
    assert isinstance(result, Opaque)
    assert (call.role, result.role) == ("server_tool_call", "server_tool_result")
    assert call.payload == {
        "toolUse": {"toolUseId": "t1", "name": "nova_code_interpreter", "type": "server_tool_use"},
        "input": '{"snippet":"1+1"}',
    }
    assert result.payload["toolResult"] == {"toolUseId": "t1", "status": "success"}


def test_images_and_citations() -> None:
    cited = {"title": "A", "location": {"documentChar": {"documentIndex": 0, "start": 1, "end": 2}}}
    response = answer(
        *(text(0, "So"), delta(0, citation=cited), end(0)),
        message("contentBlockStart", contentBlockIndex=1, start={"image": {"format": "png"}}),
        *(delta(1, image={"source": {"bytes": "aGk="}}), end(1), stop(), metadata()),
    )
    assert response.choices[0].parts == [
        Text(text="So", citations=[Citation("bedrock", cited)]),
        Media(type="image", media_type="image/png", data="aGk="),
    ]


# The end.


def test_the_end_is_the_metadata_after_the_stop() -> None:
    reader = FORMAT.stream_reader(ReaderOptions())
    events = reader.read([START, text(0, "a"), end(0), stop()])
    assert isinstance(events[-1], ev.Finish)
    last = reader.read([metadata()])
    assert isinstance(last[-1], ev.End)
    assert last[-1].usage == Usage(input_tokens=10, output_tokens=5)
    assert reader.read([text(1, "noise"), metadata()]) == []
    assert reader.eof() == []


def test_the_end_does_not_wait_for_metadata_for_ever() -> None:
    events = read([START, text(0, "a"), end(0), stop()])
    assert isinstance(events[-1], ev.End)
    assert events[-1].usage is None


def test_metadata_before_the_stop() -> None:
    events = read([START, text(0, "a"), end(0), metadata(), stop()], eof=False)
    assert [type(event).__name__ for event in events[-3:]] == ["UsageReport", "Finish", "End"]
    assert assemble(events).usage == Usage(input_tokens=10, output_tokens=5)


@pytest.mark.parametrize("frames", [[], [START], [START, text(0, "a")], [START, text(0, "a"), end(0), metadata()]])
def test_the_end_of_the_bytes_is_not_the_end_of_the_answer(frames: list[Frame]) -> None:
    last = read(frames, provider="acme")[-1]
    assert isinstance(last, ev.Error)
    assert (last.error.code, last.error.type) == (ErrorCode.PROVIDER_UNAVAILABLE, "upstream_truncated")
    assert "acme closed the stream before messageStop" in last.error.message


def test_a_bare_error_body_in_place_of_a_stream() -> None:
    reader = FORMAT.stream_reader(ReaderOptions())
    (event,) = reader.eof(b'{"message":"The security token is expired","__type":"ExpiredTokenException"}')
    assert isinstance(event, ev.Error)
    assert (event.error.code, event.error.message) == (ErrorCode.UNAUTHENTICATED, "The security token is expired")


STOPS = {
    "end_turn": StopReason.END_TURN,
    "tool_use": StopReason.TOOL_USE,
    "max_tokens": StopReason.MAX_TOKENS,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "guardrail_intervened": StopReason.CONTENT_FILTER,
    "content_filtered": StopReason.CONTENT_FILTER,
    "malformed_model_output": StopReason.MALFORMED_TOOL_CALL,
    "malformed_tool_use": StopReason.MALFORMED_TOOL_CALL,
    "model_context_window_exceeded": StopReason.CONTEXT_WINDOW,
    "something_new": StopReason.OTHER,
}


@pytest.mark.parametrize("word", STOPS)
def test_stop_reasons(word: str) -> None:
    choice = answer(text(0, "a"), stop(word), metadata()).choices[0]
    assert (choice.stop, choice.raw_stop) == (STOPS[word], word)


# Errors.

EXCEPTIONS = {
    "internalServerException": ErrorCode.PROVIDER_UNAVAILABLE,
    "modelStreamErrorException": ErrorCode.PROVIDER_UNAVAILABLE,
    "serviceUnavailableException": ErrorCode.PROVIDER_UNAVAILABLE,
    "throttlingException": ErrorCode.PROVIDER_RATE_LIMITED,
    "validationException": ErrorCode.INVALID_REQUEST,
    "modelTimeoutException": ErrorCode.TIMEOUT,
    "somethingNewException": ErrorCode.PROVIDER_UNAVAILABLE,
}


@pytest.mark.parametrize("name", EXCEPTIONS)
@pytest.mark.parametrize("before", [[], [START, text(0, "a")], [START, text(0, "a"), end(0), stop()]])
def test_an_exception_is_an_error_in_any_position(name: str, before: list[Frame]) -> None:
    frame = Frame(b'{"message":"It went wrong","originalStatusCode":500}', f"exception:{name}")
    events = read([*before, frame, text(0, "noise")], provider="acme")
    last = events[-1]
    assert isinstance(last, ev.Error)
    assert (last.error.code, last.error.message, last.error.provider) == (EXCEPTIONS[name], "It went wrong", "acme")
    assert last.error.type == name[0].upper() + name[1:]
    assert last.error.vendor_error == {"message": "It went wrong", "originalStatusCode": 500}


def test_an_unmodelled_error() -> None:
    last = read([START, Frame(b"Internal failure", "error:InternalFailure")])[-1]
    assert isinstance(last, ev.Error)
    assert (last.error.type, last.error.message) == ("InternalFailure", "Internal failure")


# Counts.


def test_input_includes_what_the_cache_served_and_took() -> None:
    usage = {"cacheReadInputTokens": 30, "cacheWriteInputTokens": 7, "cacheDetails": [{"ttl": "5m", "inputTokens": 7}]}
    response = answer(text(0, "a"), stop(), metadata(4, 5, usage=usage))
    assert response.usage == Usage(
        input_tokens=41,
        output_tokens=5,
        cached_tokens=30,
        cache_write_tokens=7,
        vendor={"bedrock": {"cacheDetails": [{"ttl": "5m", "inputTokens": 7}]}},
    )
    quirks = {"input_includes_cache": True}
    included = answer(text(0, "a"), stop(), metadata(40, 5, usage=usage), quirks=quirks)
    assert included.usage is not None
    assert included.usage.input_tokens == 40


def test_a_guardrails_trace_and_the_models_own_fields_are_kept() -> None:
    trace: dict[str, Any] = {"guardrail": {"inputAssessment": {}}}
    response = answer(
        text(0, "a"), stop("end_turn", additionalModelResponseFields={"/x": 1}), metadata(trace=trace, p="abc")
    )
    assert response.extensions == {"bedrock": {"metrics": {"latencyMs": 7}, "trace": trace}}
    assert response.choices[0].extensions == {"bedrock": {"additionalModelResponseFields": {"/x": 1}}}


# What is not as it should be.


@pytest.mark.parametrize(
    "frame",
    [
        Frame(b"{", "contentBlockDelta"),
        Frame(b"[]", "messageStart"),
        Frame(b'{"contentBlockIndex":0}', "contentBlockDelta"),
        Frame(b'{"contentBlockIndex":"0","delta":{"text":"a"}}', "contentBlockDelta"),
        Frame(b'{"contentBlockIndex":0,"delta":{"text":1}}', "contentBlockDelta"),
        Frame(b'{"contentBlockIndex":0,"start":{"toolUse":{"name":"f"}}}', "contentBlockStart"),
        Frame(b"{}", "contentBlockStop"),
        Frame(b'{"stopReason":1}', "messageStop"),
        text(-1, "a"),
        arguments(0, "{}"),
    ],
)
def test_malformed_frames_lose_nothing_around_them(frame: Frame) -> None:
    reader = FORMAT.stream_reader(ReaderOptions())
    with pytest.raises(ProtocolError) as caught:
        reader.read([START, frame, text(5, "after")])
    assert caught.value.consumed == 2
    assert [type(event) for event in caught.value.events] == [ev.Start]
    events = [*caught.value.events, *reader.read([text(5, "after"), stop(), metadata()])]
    assert assemble(legal(events)).choices[0].parts == [Text(text="after")]


def test_a_block_after_the_stop() -> None:
    reader = FORMAT.stream_reader(ReaderOptions())
    with pytest.raises(ProtocolError, match="after messageStop"):
        reader.read([START, stop(), text(0, "a")])


def test_an_unknown_message_passes_opaque() -> None:
    events = read([START, message("somethingNew", x=1), text(0, "a"), stop(), metadata()])
    assert [event.name for event in events if isinstance(event, ev.Opaque)] == ["somethingNew"]


NAMES = [
    *("messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata"),
    *("exception:throttlingException", "error:x", "", "other"),
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(["text", "{}", "png", "a"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    "contentBlockIndex",
                    "delta",
                    "start",
                    "text",
                    "toolUse",
                    "input",
                    "reasoningContent",
                    "signature",
                    "usage",
                    "redactedContent",
                    "toolResult",
                    "image",
                    "source",
                    "bytes",
                    "stopReason",
                    "role",
                    "toolUseId",
                    "name",
                    "format",
                    "citation",
                    "inputTokens",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(st.tuples(st.sampled_from(NAMES), VALUES | st.binary(max_size=20)), max_size=8), st.booleans())
def test_anything_is_a_legal_stream_or_a_protocol_error(said: list[tuple[str, Any]], passthrough: bool) -> None:
    reader = FORMAT.stream_reader(ReaderOptions(passthrough=passthrough))
    events: list[ev.Event] = []
    for name, value in said:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        try:
            events += reader.read([Frame(data, name)])
        except ProtocolError as error:
            events += error.events
    events += reader.eof()
    legal(events)
    assert isinstance(events[-1], ev.End | ev.Error)


@pytest.mark.parametrize("named", ["union", "bare"])
def test_payloads_without_names(named: str) -> None:
    """As decoded by an SDK, the name around them; or in a framing without names."""
    frames = [
        *(START, tool(0), arguments(0, "{}"), end(0), text(1, "a"), thought(2, text="b"), end(2)),
        *(stop("tool_use"), metadata()),
    ]
    bare = [
        Frame(frame.data if named == "bare" else b'{"%b":%b}' % (frame.event.encode(), frame.data)) for frame in frames
    ]
    assert read(bare) == read(frames)
