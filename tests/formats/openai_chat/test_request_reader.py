"""Callers' bodies: what is read from them, and what is refused, with the path of the field."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.openai_chat import FORMAT
from headrace.model.content import (
    Media,
    Opaque,
    Reasoning,
    RedactedReasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from headrace.model.errors import InvalidRequest
from headrace.model.request import (
    Budget,
    Message,
    ReasoningConfig,
    Request,
    ResponseFormat,
    Tool,
    ToolChoice,
    VendorTool,
)

PNG = base64.b64encode(b"\x89PNG").decode()
USER = {"role": "user", "content": "hi"}


def parsed(**fields: Any) -> Request:
    return FORMAT.read_request(json.dumps({"model": "m", "messages": [USER], **fields}).encode())


def read_one(message: dict[str, Any]) -> Message:
    return parsed(messages=[message]).messages[0]


def test_the_least_request() -> None:
    body = {"model": "m", "messages": [USER]}
    request = parsed()
    assert request == Request(
        model="m",
        messages=[Message(role="user", parts=[Text(text="hi")])],
        include_usage=False,
        format="openai_chat",
        origin=body,
    )


def test_everything_simple() -> None:
    request = parsed(
        stream=True,
        stream_options={"include_usage": True, "include_obfuscation": False},
        max_completion_tokens=7,
        temperature=1,
        top_p=0.5,
        top_k=3,
        stop=["a", "b"],
        n=2,
        seed=-1,
        presence_penalty=-2,
        frequency_penalty=2.0,
        logprobs=True,
        top_logprobs=5,
        user="u",
        metadata={"request_id": "r"},
        budget={"max_cost_usd": 0.5, "max_tokens": 100},
        extensions={"vendor:openai": {"store": True}, "else": 1},
        reasoning_effort="low",
    )
    assert request.stream
    assert request.include_usage
    assert (request.max_tokens, request.temperature, request.top_p, request.top_k) == (7, 1.0, 0.5, 3)
    assert (request.stop_sequences, request.n, request.seed) == (["a", "b"], 2, -1)
    assert (request.presence_penalty, request.frequency_penalty) == (-2, 2)
    assert (request.logprobs, request.top_logprobs, request.user) == (True, 5, "u")
    assert request.request_id == "r"
    assert request.budget == Budget(max_cost_usd=0.5, max_tokens=100)
    assert request.extensions == {"openai": {"store": True}}
    assert request.reasoning == ReasoningConfig(effort="low")


def test_nulls_are_absences() -> None:
    names = (
        "stream stream_options max_tokens max_completion_tokens temperature top_p stop n seed presence_penalty "
        "frequency_penalty logprobs top_logprobs tools tool_choice parallel_tool_calls response_format reasoning_effort "
        "user metadata functions function_call budget extensions"
    )
    request = parsed(**dict.fromkeys(names.split()))
    assert request == Request(
        **{**{f: getattr(parsed(), f) for f in Request.__struct_fields__}, "origin": request.origin}
    )


def test_one_stop_string_and_the_older_limit() -> None:
    request = parsed(stop="x", max_tokens=5)
    assert (request.stop_sequences, request.max_tokens) == (["x"], 5)


@pytest.mark.parametrize(
    ("message", "read"),
    [
        ({"role": "system", "content": "s"}, Message(role="system", parts=[Text(text="s")])),
        ({"role": "developer", "content": "s", "name": "n"}, Message(role="system", parts=[Text(text="s")], name="n")),
        (
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "a"},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"}},
                ],
            },
            Message(
                role="user", parts=[Text(text="a"), Media(type="image", media_type="image/png", data=PNG, detail="low")]
            ),
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": "https://e.org/a.png"}]},
            Message(role="user", parts=[Media(type="image", url="https://e.org/a.png")]),
        ),
        (
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": PNG, "format": "mp3"}}]},
            Message(role="user", parts=[Media(type="audio", media_type="audio/mpeg", data=PNG)]),
        ),
        (
            {
                "role": "user",
                "content": [
                    {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PNG}"}}
                ],
            },
            Message(role="user", parts=[Media(type="document", media_type="application/pdf", data=PNG, title="a.pdf")]),
        ),
        (
            {"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]},
            Message(role="user", parts=[Media(type="document", file_id="file-1")]),
        ),
        (
            {"role": "user", "content": [{"type": "video_url", "video_url": {"url": "u"}}]},
            Message(
                role="user", parts=[Opaque(vendor="openai", payload={"type": "video_url", "video_url": {"url": "u"}})]
            ),
        ),
        (
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}],
            },
            Message(role="assistant", parts=[ToolCall(id="1", name="f", arguments='{"x": 1}')]),
        ),
        (
            {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "no"}]},
            Message(role="assistant", parts=[Text(text="a"), Refusal(text="no")]),
        ),
        ({"role": "assistant", "refusal": "no"}, Message(role="assistant", parts=[Refusal(text="no")])),
        (
            {"role": "assistant", "audio": {"id": "au"}},
            Message(role="assistant", parts=[Media(type="audio", file_id="au")]),
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": "1", "type": "custom", "custom": {"name": "f", "input": "x"}}]},
            Message(
                role="assistant",
                parts=[
                    Opaque(
                        vendor="openai", payload={"id": "1", "type": "custom", "custom": {"name": "f", "input": "x"}}
                    )
                ],
            ),
        ),
        (
            {"role": "assistant", "function_call": {"name": "f", "arguments": ""}},
            Message(role="assistant", parts=[ToolCall(id="function_f", name="f", arguments="{}")]),
        ),
        (
            {"role": "function", "name": "f", "content": "r"},
            Message(role="tool", parts=[ToolResult(tool_call_id="function_f", parts=[Text(text="r")], name="f")]),
        ),
        (
            {"role": "tool", "tool_call_id": "1", "content": "r"},
            Message(role="tool", parts=[ToolResult(tool_call_id="1", parts=[Text(text="r")])]),
        ),
        (
            {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "r"}]},
            Message(role="tool", parts=[ToolResult(tool_call_id="1", parts=[Text(text="r")])]),
        ),
    ],
)
def test_messages(message: dict[str, Any], read: Message) -> None:
    assert read_one(message) == read


def test_reasoning_comes_back_with_its_signature() -> None:
    message = {
        "role": "assistant",
        "content": "a",
        "reasoning_content": "think",
        "reasoning_details": [
            {"type": "reasoning.text", "text": "", "signature": "sig", "format": "anthropic", "index": 0},
            {"type": "reasoning.encrypted", "data": "zzz", "format": "anthropic", "index": 1},
        ],
    }
    assert read_one(message).parts == [
        Reasoning(text="think", signature="sig", vendor="anthropic"),
        RedactedReasoning(data="zzz", vendor="anthropic"),
        Text(text="a"),
    ]
    plain = read_one({"role": "assistant", "content": "a", "reasoning": "r"})
    assert plain.parts == [Reasoning(text="r"), Text(text="a")]


def test_tools() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    custom = {"type": "custom", "custom": {"name": "c"}}
    request = parsed(
        tools=[
            {"type": "function", "function": {"name": "f", "description": "d", "parameters": schema, "strict": True}},
            {"type": "function", "function": {"name": "g"}},
            custom,
        ],
        functions=[{"name": "h", "parameters": schema}],
        parallel_tool_calls=False,
    )
    assert request.tools == [
        Tool(name="f", description="d", parameters=schema, strict=True),
        Tool(name="g"),
        VendorTool(vendor="openai", payload=custom),
        Tool(name="h", parameters=schema),
    ]
    assert request.tool_choice == ToolChoice(mode="auto", parallel=False)


@pytest.mark.parametrize(
    ("said", "choice"),
    [
        ("auto", ToolChoice(mode="auto")),
        ("none", ToolChoice(mode="none")),
        ("required", ToolChoice(mode="required")),
        ({"type": "function", "function": {"name": "f"}}, ToolChoice(mode="tool", name="f")),
        ({"type": "custom", "custom": {"name": "f"}}, ToolChoice(mode="tool", name="f")),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}}, ToolChoice(mode="required")),
    ],
)
def test_tool_choices(said: Any, choice: ToolChoice) -> None:
    assert parsed(tool_choice=said).tool_choice == choice


@pytest.mark.parametrize(
    ("said", "choice"), [("auto", ToolChoice()), ({"name": "f"}, ToolChoice(mode="tool", name="f"))]
)
def test_legacy_function_choices(said: Any, choice: ToolChoice) -> None:
    assert parsed(function_call=said).tool_choice == choice


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ({"type": "text"}, ResponseFormat(type="text")),
        ({"type": "json_object"}, ResponseFormat(type="json")),
        (
            {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True, "description": "d"},
            },
            ResponseFormat(type="json_schema", schema={"type": "object"}, name="n", strict=True, description="d"),
        ),
        ({"type": "grammar", "value": "x"}, None),
    ],
)
def test_response_formats(said: Any, read: ResponseFormat | None) -> None:
    assert parsed(response_format=said).response_format == read


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ({"reasoning_effort": "none"}, ReasoningConfig(enabled=False, effort="none")),
        ({"reasoning": {"max_tokens": 500}}, ReasoningConfig(budget_tokens=500)),
        ({"reasoning": {"effort": "high"}}, ReasoningConfig(effort="high")),
        ({"reasoning": {"enabled": False}}, ReasoningConfig(enabled=False)),
        ({}, None),
    ],
)
def test_reasoning_options(said: Any, read: ReasoningConfig | None) -> None:
    assert parsed(**said).reasoning == read


def messages(*said: Any) -> dict[str, Any]:
    return {"messages": list(said)}


def content(*parts: Any) -> dict[str, Any]:
    return messages(USER, {"role": "user", "content": list(parts)})


BAD: list[tuple[dict[str, Any], str]] = [
    ({"model": None}, "model"),
    ({"model": 5}, "model"),
    ({"model": ""}, "model"),
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": ["hi"]}, "messages[0]"),
    (messages({"content": "x"}), "messages[0].role"),
    (messages({"role": "robot", "content": "x"}), "messages[0].role"),
    (messages({"role": 1, "content": "x"}), "messages[0].role"),
    (messages({"role": ["user"], "content": "x"}), "messages[0].role"),
    (messages({"role": "user"}), "messages[0].content"),
    (messages({"role": "user", "content": 1}), "messages[0].content"),
    (messages({"role": "user", "content": "x", "name": 1}), "messages[0].name"),
    (content("x"), "messages[1].content[0]"),
    (content({"text": "x"}), "messages[1].content[0].type"),
    (content({"type": 7}), "messages[1].content[0].type"),
    (content({"type": "text"}), "messages[1].content[0].text"),
    (content({"type": "text", "text": None}), "messages[1].content[0].text"),
    (content({"type": "image_url"}), "messages[1].content[0].image_url"),
    (content({"type": "image_url", "image_url": {"url": 1}}), "messages[1].content[0].image_url.url"),
    (content({"type": "image_url", "image_url": {"url": "ftp://x"}}), "messages[1].content[0].image_url.url"),
    (content({"type": "image_url", "image_url": {"url": "data:image/png,x"}}), "messages[1].content[0].image_url.url"),
    (
        content({"type": "image_url", "image_url": {"url": "data:image/png;base64,***"}}),
        "messages[1].content[0].image_url.url",
    ),
    (
        content({"type": "image_url", "image_url": {"url": "data:image/png;base64,é"}}),
        "messages[1].content[0].image_url.url",
    ),
    (
        content({"type": "image_url", "image_url": {"url": "https://x", "detail": 1}}),
        "messages[1].content[0].image_url.detail",
    ),
    (content({"type": "input_audio", "input_audio": {"data": PNG}}), "messages[1].content[0].input_audio.format"),
    (
        content({"type": "input_audio", "input_audio": {"data": "!", "format": "wav"}}),
        "messages[1].content[0].input_audio.data",
    ),
    (content({"type": "file", "file": {}}), "messages[1].content[0].file.file_data"),
    (content({"type": "file", "file": {"file_data": "data:;base64,"}}), "messages[1].content[0].file.file_data"),
    (messages({"role": "tool", "content": "x"}), "messages[0].tool_call_id"),
    (messages({"role": "tool", "content": "x", "tool_call_id": ""}), "messages[0].tool_call_id"),
    (messages({"role": "tool", "tool_call_id": "1"}), "messages[0].content"),
    (messages({"role": "function", "content": "x"}), "messages[0].name"),
    (messages({"role": "assistant", "refusal": 1}), "messages[0].refusal"),
    (messages({"role": "assistant", "audio": {}}), "messages[0].audio.id"),
    (messages({"role": "assistant", "tool_calls": {}}), "messages[0].tool_calls"),
    (messages({"role": "assistant", "tool_calls": [1]}), "messages[0].tool_calls[0]"),
    (
        messages({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": ""}}]}),
        "messages[0].tool_calls[0].id",
    ),
    (
        messages({"role": "assistant", "tool_calls": [{"id": "1", "function": {"arguments": ""}}]}),
        "messages[0].tool_calls[0].function.name",
    ),
    (
        messages({"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {}}}]}),
        "messages[0].tool_calls[0].function.arguments",
    ),
    ({"temperature": 2.5}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": -0.1}, "top_p"),
    ({"n": 0}, "n"),
    ({"n": 1.5}, "n"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 10**40}, "max_tokens"),
    ({"seed": -(10**40)}, "seed"),
    ({"budget": {"max_tokens": 2**63}}, "budget.max_tokens"),
    ({"max_completion_tokens": "1"}, "max_completion_tokens"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"top_logprobs": 21}, "top_logprobs"),
    ({"stop": [1]}, "stop[0]"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"tools": [{"function": {"name": "f"}}]}, "tools[0].type"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function"),
    ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]}, "tools[0].function.parameters"),
    ({"tool_choice": "maybe"}, "tool_choice"),
    ({"tool_choice": {"type": "function"}}, "tool_choice.function.name"),
    ({"tool_choice": {"type": "x"}}, "tool_choice.type"),
    ({"tool_choice": {"type": []}}, "tool_choice.type"),
    ({"function_call": "x"}, "function_call"),
    ({"response_format": {"type": 1}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": 1}}}, "response_format.json_schema.schema"),
    ({"reasoning": "hard"}, "reasoning"),
    ({"metadata": []}, "metadata"),
    ({"budget": {"max_tokens": -1}}, "budget.max_tokens"),
    ({"extensions": {"vendor:x": 1}}, "extensions.vendor:x"),
]


@pytest.mark.parametrize(("said", "param"), BAD)
def test_bad_fields_are_named(said: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parsed(**said)
    assert caught.value.info.param == param
    assert caught.value.info.http_status == 400
    assert param in caught.value.info.message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"\xff\xfe",
        b'{"model": "\xff"}',
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"{\x00}",
    ],
)
def test_bodies_that_are_no_json_object(body: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        FORMAT.read_request(body)
    assert caught.value.info.type == "invalid_json"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "function", "name", "id", "url", "image_url"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)
FIELDS = ["messages", "tools", "tool_choice", "functions", "response_format", "stop", "reasoning", "extensions", "n"]


@given(
    st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4),
    st.lists(
        st.dictionaries(
            st.sampled_from(["role", "content", "tool_calls", "reasoning_details", "audio", "name"]),
            JSON | st.sampled_from(["user", "assistant", "tool"]),
            max_size=4,
        ),
        max_size=3,
    ),
)
def test_anything_is_read_or_refused(fields: dict[str, Any], said: list[Any]) -> None:
    body = {"model": "m", "messages": said, **fields}
    with suppress(InvalidRequest):
        FORMAT.read_request(json.dumps(body).encode())
