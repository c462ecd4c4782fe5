"""Whole answers, both ways."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.anthropic import FORMAT
from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.formats.sealing import encode_id, seal
from headrace.model.content import (
    Citation,
    Media,
    Opaque,
    Part,
    Reasoning,
    RedactedReasoning,
    Refusal,
    Text,
    ToolCall,
)
from headrace.model.errors import ErrorCode, GatewayError, ProtocolError
from headrace.model.response import Choice, Response
from headrace.model.stop import StopReason
from headrace.model.usage import Usage

CITATION = {"type": "char_location", "cited_text": "x"}
BODY: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "S"},
        {"type": "redacted_thinking", "data": "D"},
        {"type": "text", "text": "a", "citations": [CITATION]},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": 1}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"b": 1, "a": 2}, "caller": {"type": "direct"}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "container": {"id": "c"},
    "diagnostics": {"x": 1},
    "usage": {
        "input_tokens": 4,
        "cache_creation_input_tokens": 10,
        "cache_read_input_tokens": 100,
        "output_tokens": 9,
        "output_tokens_details": {"thinking_tokens": 3},
        "service_tier": "standard",
    },
}


def read(body: dict[str, Any] | bytes, **options: Any) -> Response:
    given = body if isinstance(body, bytes) else json.dumps(body).encode()
    return FORMAT.read_response(given, ReaderOptions(**options))


def write(*parts: Part, stop: StopReason | None = StopReason.END_TURN, **fields: Any) -> dict[str, Any]:
    response = Response(id="x", model="m", choices=[Choice(parts=list(parts), stop=stop)], **fields)
    written: dict[str, Any] = json.loads(FORMAT.write_response(response, WriterOptions()))
    return written


def test_reading() -> None:
    response = read(BODY, provider="claude")
    (choice,) = response.choices
    assert (response.id, response.model, response.provider) == ("msg_1", "claude-x", "claude")
    assert choice.parts == [
        Reasoning(text="hm", signature="S", vendor="anthropic"),
        RedactedReasoning(data="D", vendor="anthropic"),
        Text(text="a", citations=[Citation("anthropic", CITATION)]),
        Opaque(vendor="anthropic", payload=BODY["content"][3], role="server_tool_call"),
        Opaque(vendor="anthropic", payload=BODY["content"][4], role="server_tool_result"),
        ToolCall(
            id="t", name="f", arguments='{"b": 1, "a": 2}', extensions={"anthropic": {"caller": {"type": "direct"}}}
        ),
    ]
    assert (choice.stop, choice.raw_stop) == (StopReason.TOOL_USE, "tool_use")
    assert choice.extensions == {"anthropic": {"container": {"id": "c"}}}
    assert response.extensions == {"anthropic": {"diagnostics": {"x": 1}}}
    usage = response.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens) == (114, 9, 3)
    assert (usage.cached_tokens, usage.cache_write_tokens) == (100, 10)


def test_writing_what_was_read() -> None:
    assert json.loads(FORMAT.write_response(read(BODY), WriterOptions())) == BODY


def test_passing_through() -> None:
    body = b' {"content" : [], "new":1.0}\n'
    response = read(body, passthrough=True)
    assert FORMAT.write_response(response, WriterOptions(passthrough=True)) == body
    assert FORMAT.write_response(response, WriterOptions()) != body
    assert read(body).origin is None


def test_writing_what_others_say() -> None:
    written = write(
        Text(text=""),
        Reasoning(text="unsigned"),
        Reasoning(text="hm", signature="S", vendor="gemini", id="i"),
        Reasoning(text=""),
        RedactedReasoning(data="D", vendor="openai"),
        Refusal(text="No."),
        ToolCall(id="a.b", name="f", arguments=""),
        ToolCall(id="c", name="cut", arguments='{"a":', complete=False),
        Media(type="image", data="AA=="),
        Opaque(vendor="openai", payload={"type": "x"}),
        usage=Usage(input_tokens=5, output_tokens=2, cached_tokens=3),
    )
    assert written["content"] == [
        {"type": "thinking", "thinking": "unsigned"},
        {"type": "thinking", "thinking": "hm", "signature": seal("gemini", "i", "S")},
        {"type": "redacted_thinking", "data": seal("openai", "", "D")},
        {"type": "text", "text": "No."},
        {"type": "tool_use", "id": encode_id("a.b"), "name": "f", "input": {}},
    ]
    assert written["stop_reason"] == "tool_use"
    assert written["usage"]["input_tokens"] == 2


@pytest.mark.parametrize(
    ("parts", "stop", "word"),
    [
        ([Text(text="a")], StopReason.END_TURN, "end_turn"),
        ([Refusal(text="a")], StopReason.END_TURN, "refusal"),
        ([Text(text="a")], StopReason.CONTENT_FILTER, "refusal"),
        ([ToolCall(id="a", name="f", arguments="{}")], StopReason.END_TURN, "tool_use"),
        ([ToolCall(id="a", name="f", arguments="{}")], StopReason.MAX_TOKENS, "max_tokens"),
        ([], None, None),
    ],
)
def test_stop_reasons(parts: list[Part], stop: StopReason | None, word: str | None) -> None:
    assert write(*parts, stop=stop)["stop_reason"] == word


def test_an_assembled_server_tool_input_is_an_object_again() -> None:
    payload = {"type": "server_tool_use", "id": "s", "name": "n", "input": '{"q": 1}'}
    for text, expected in (('{"q": 1}', {"q": 1}), ("", {}), ('{"q', {})):
        part = Opaque(vendor="anthropic", payload={**payload, "input": text})
        assert write(part)["content"] == [{**payload, "input": expected}]


def test_of_several_choices_the_first() -> None:
    choices = [
        Choice(index=1, parts=[Text(text="b")]),
        Choice(index=0, parts=[Text(text="a")], stop=StopReason.END_TURN),
    ]
    written = json.loads(FORMAT.write_response(Response(choices=choices), WriterOptions(request_id="r", model="m")))
    assert written["content"] == [{"type": "text", "text": "a"}]
    assert (written["id"], written["model"]) == ("msg_r", "m")


@pytest.mark.parametrize(
    "body",
    [
        {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}},
        {"error": {"type": "overloaded_error"}},
    ],
)
def test_an_error_in_disguise(body: dict[str, Any]) -> None:
    with pytest.raises(GatewayError) as caught:
        read(body)
    assert caught.value.info.code is ErrorCode.PROVIDER_UNAVAILABLE


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"\xff",
        b"{}",
        b'{"content":"a"}',
        b'{"content":[5]}',
        b'{"content":[{}]}',
        b'{"content":[{"type":"text","text":5}]}',
        b'{"content":[{"type":"tool_use","id":"a","name":"f","input":5}]}',
    ],
)
def test_what_is_no_answer(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        read(body)


@given(st.binary(max_size=50))
def test_any_bytes_are_refused_or_read(body: bytes) -> None:
    with pytest.raises((ProtocolError, GatewayError)):  # the latter: bytes that happen to tell of an error
        read(body)
