"""A caller's body as a Request: what is understood, what is kept, what is refused and where it says the fault is."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.anthropic import FORMAT
from headrace.formats.sealing import encode_id, seal
from headrace.model.content import Citation, Media, Opaque, Reasoning, RedactedReasoning, Text, ToolCall, ToolResult
from headrace.model.errors import InvalidRequest
from headrace.model.request import Message, ReasoningConfig, Request, ResponseFormat, Tool, ToolChoice, VendorTool

PNG = "iVBORw0KGgo="
HELLO = [{"role": "user", "content": "Hello"}]


def read(**fields: Any) -> Request:
    body = {"model": "claude", "max_tokens": 100, "messages": HELLO, **fields}
    return FORMAT.read_request(json.dumps(body).encode())


def parts(*blocks: dict[str, Any], role: str = "user") -> list[Any]:
    (message,) = read(messages=[{"role": role, "content": list(blocks)}]).messages
    assert message.role == role
    return message.parts


def test_a_small_request() -> None:
    request = read(stream=True)
    assert request.messages == [Message(role="user", parts=[Text(text="Hello")])]
    assert (request.model, request.max_tokens, request.stream, request.format) == ("claude", 100, True, "anthropic")
    assert request.origin == {"model": "claude", "max_tokens": 100, "messages": HELLO, "stream": True}
    assert request.lost == []


def test_everything_with_a_word() -> None:
    request = read(
        system="Be brief.",
        stop_sequences=["END"],
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        metadata={"user_id": "u1"},
        thinking={"type": "enabled", "budget_tokens": 2000},
        output_config={"effort": "high", "format": {"type": "json_schema", "schema": {"type": "object"}}},
    )
    assert request.messages[0] == Message(role="system", parts=[Text(text="Be brief.")])
    assert request.stop_sequences == ["END"]
    assert (request.temperature, request.top_p, request.top_k, request.user) == (0.5, 0.9, 40, "u1")
    assert request.reasoning == ReasoningConfig(enabled=True, effort="high", budget_tokens=2000)
    assert request.response_format == ResponseFormat(type="json_schema", schema={"type": "object"})


def test_what_has_no_word_is_kept_and_named() -> None:
    request = read(service_tier="auto", container=None, mcp_servers=[{"url": "x"}], metadata={"user_id": "u", "x": 1})
    assert request.lost == ["request.service_tier", "request.mcp_servers", "request.metadata.x"]
    assert request.origin is not None
    assert request.origin["mcp_servers"] == [{"url": "x"}]


def test_the_system_prompt_as_blocks() -> None:
    cached = {"type": "ephemeral"}
    blocks = [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": cached}]
    expected = [Text(text="a"), Text(text="b", extensions={"anthropic": {"cache_control": cached}})]
    assert read(system=blocks).messages[0].parts == expected


def test_a_system_message_in_the_conversation_keeps_its_place() -> None:
    messages = [*HELLO, {"role": "system", "content": "Now in French."}, {"role": "user", "content": "Go on"}]
    assert [message.role for message in read(messages=messages).messages] == ["user", "system", "user"]


@pytest.mark.parametrize(
    ("block", "part"),
    [
        ({"type": "text", "text": "a"}, Text(text="a")),
        (
            {"type": "text", "text": "a", "citations": [{"type": "char_location"}]},
            Text(text="a", citations=[Citation("anthropic", {"type": "char_location"})]),
        ),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
            Media(type="image", media_type="image/png", data=PNG),
        ),
        ({"type": "image", "source": {"type": "url", "url": "https://x/y"}}, Media(type="image", url="https://x/y")),
        ({"type": "image", "source": {"type": "file", "file_id": "f_1"}}, Media(type="image", file_id="f_1")),
        (
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": PNG},
                "title": "T",
                "citations": {"enabled": True},
            },
            Media(
                type="document",
                media_type="application/pdf",
                data=PNG,
                title="T",
                extensions={"anthropic": {"citations": {"enabled": True}}},
            ),
        ),
        (
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
            Media(type="document", media_type="text/plain", text="words"),
        ),
        ({"type": "document", "source": {"type": "url", "url": "https://x"}}, Media(type="document", url="https://x")),
        ({"type": "document", "source": {"type": "file", "file_id": "f"}}, Media(type="document", file_id="f")),
        (
            {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "a"}] * 2}},
            Media(
                type="document",
                text="a\na",
                extensions={
                    "anthropic": {"source": {"type": "content", "content": [{"type": "text", "text": "a"}] * 2}}
                },
            ),
        ),
        (
            {"type": "search_result", "source": "s", "title": "t", "content": []},
            Opaque(vendor="anthropic", payload={"type": "search_result", "source": "s", "title": "t", "content": []}),
        ),
    ],
)
def test_user_blocks(block: dict[str, Any], part: Any) -> None:
    assert parts(block) == [part]


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (
            {"type": "thinking", "thinking": "hm", "signature": "S"},
            Reasoning(text="hm", signature="S", vendor="anthropic"),
        ),
        ({"type": "thinking", "thinking": "hm", "signature": ""}, Reasoning(text="hm")),
        ({"type": "thinking", "thinking": "hm"}, Reasoning(text="hm")),
        (
            {"type": "thinking", "thinking": "hm", "signature": seal("gemini", "rs:1", "a:b")},
            Reasoning(text="hm", signature="a:b", vendor="gemini", id="rs:1"),
        ),
        ({"type": "redacted_thinking", "data": "D"}, RedactedReasoning(data="D", vendor="anthropic")),
        ({"type": "redacted_thinking", "data": seal("openai", "", "D")}, RedactedReasoning(data="D", vendor="openai")),
        (
            {"type": "tool_use", "id": encode_id("functions.f:0"), "name": "f", "input": {}},
            ToolCall(id="functions.f:0", name="f", arguments="{}"),
        ),
        (
            {"type": "server_tool_use", "id": "s", "name": "n", "input": {"q": 1}},
            Opaque(
                vendor="anthropic",
                payload={"type": "server_tool_use", "id": "s", "name": "n", "input": {"q": 1}},
                role="server_tool_call",
            ),
        ),
    ],
)
def test_assistant_blocks(block: dict[str, Any], part: Any) -> None:
    assert parts(block, role="assistant") == [part]


def test_a_tools_input_stays_the_text_it_was() -> None:
    text = '{"b": 1.0, "a": 12345678901234567890123, "b2":1e2}'
    body = (
        '{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":'
        '[{"type":"text","text":"t"},{"type":"tool_use","id":"a","name":"n","input":' + text + "}]}]}"
    )
    call = FORMAT.read_request(body.encode()).messages[1].parts[1]
    assert isinstance(call, ToolCall)
    assert call.arguments == text


def test_tool_results_become_tool_messages_in_their_order() -> None:
    content = [
        {"type": "text", "text": "before"},
        {"type": "tool_result", "tool_use_id": "a", "content": "72"},
        {"type": "tool_result", "tool_use_id": encode_id("b.b"), "is_error": True},
        {"type": "text", "text": "after"},
        {
            "type": "tool_result",
            "tool_use_id": "c",
            "content": [
                {"type": "text", "text": "see"},
                {"type": "image", "source": {"type": "url", "url": "https://x"}},
                {"type": "tool_reference", "tool_name": "t"},
            ],
            "cache_control": {"type": "ephemeral"},
        },
    ]
    reference = Opaque(vendor="anthropic", payload={"type": "tool_reference", "tool_name": "t"})
    assert read(messages=[{"role": "user", "content": content}]).messages == [
        Message(role="user", parts=[Text(text="before")]),
        Message(role="tool", parts=[ToolResult(tool_call_id="a", parts=[Text(text="72")])]),
        Message(role="tool", parts=[ToolResult(tool_call_id="b.b", parts=[], is_error=True)]),
        Message(role="user", parts=[Text(text="after")]),
        Message(
            role="tool",
            parts=[
                ToolResult(
                    tool_call_id="c",
                    parts=[Text(text="see"), Media(type="image", url="https://x"), reference],
                    extensions={"anthropic": {"cache_control": {"type": "ephemeral"}}},
                )
            ],
        ),
    ]


def test_tools() -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    own = {"name": "f", "description": "d", "input_schema": {"type": "object"}, "strict": True, "defer_loading": True}
    assert read(tools=[own, search, {"type": "custom", "name": "g", "input_schema": {}}]).tools == [
        Tool(
            name="f",
            description="d",
            parameters={"type": "object"},
            strict=True,
            extensions={"anthropic": {"defer_loading": True}},
        ),
        VendorTool(vendor="anthropic", payload=search),
        Tool(name="g", parameters={}),
    ]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"type": "auto"}, ToolChoice(mode="auto")),
        ({"type": "any", "disable_parallel_tool_use": True}, ToolChoice(mode="required", parallel=False)),
        ({"type": "tool", "name": "f"}, ToolChoice(mode="tool", name="f")),
        ({"type": "none"}, ToolChoice(mode="none")),
        ({"type": "auto", "disable_parallel_tool_use": False}, ToolChoice(mode="auto", parallel=True)),
    ],
)
def test_tool_choice(given: dict[str, Any], expected: ToolChoice) -> None:
    assert read(tool_choice=given).tool_choice == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"thinking": {"type": "disabled"}}, ReasoningConfig(enabled=False)),
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, ReasoningConfig()),
        ({"output_config": {"effort": "low"}}, ReasoningConfig(effort="low")),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, ReasoningConfig(effort="max")),
        ({}, None),
    ],
)
def test_reasoning(fields: dict[str, Any], expected: ReasoningConfig | None) -> None:
    assert read(**fields).reasoning == expected


def test_the_betas_name_of_the_output_format() -> None:
    request = read(output_format={"type": "json_schema", "schema": {"a": 1}})
    assert request.response_format == ResponseFormat(type="json_schema", schema={"a": 1})


def block(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, fields]}]}


def call(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "assistant", "content": [fields]}]}


BAD: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": None}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": "5"}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"model": ""}, "model"),
    ({"model": 5}, "model"),
    ({"messages": []}, "messages"),
    ({"messages": {}}, "messages"),
    ({"messages": ["a"]}, "messages[0]"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"content": "a"}]}, "messages[0].role"),
    ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": ["a"]}]}, "messages[0].content[0]"),
    (block(), "messages[0].content[1].type"),
    (block(type=7), "messages[0].content[1].type"),
    (block(type="text"), "messages[0].content[1].text"),
    (block(type="text", text=None), "messages[0].content[1].text"),
    (block(type="text", text="a", citations=[1]), "messages[0].content[1].citations[0]"),
    (block(type="image"), "messages[0].content[1].source"),
    (block(type="image", source={"type": "ftp"}), "messages[0].content[1].source.type"),
    (block(type="image", source={"type": "text", "data": "x"}), "messages[0].content[1].source.type"),
    (block(type="image", source={"type": "base64", "data": PNG}), "messages[0].content[1].source"),
    (
        block(type="image", source={"type": "base64", "media_type": "image/png", "data": "not base64!"}),
        "messages[0].content[1].source.data",
    ),
    (block(type="document", source={"type": "url", "url": 5}), "messages[0].content[1].source.url"),
    (block(type="tool_result"), "messages[0].content[1].tool_use_id"),
    (block(type="tool_result", tool_use_id="a", content=5), "messages[0].content[1].content"),
    (
        block(type="tool_result", tool_use_id="a", content=[{"type": "text"}]),
        "messages[0].content[1].content[0].text",
    ),
    (block(type="tool_use", id="a", name="n", input={}), "messages[0].content[1].type"),
    (call(type="tool_result", tool_use_id="a"), "messages[0].content[0].type"),
    (call(type="tool_use", id="a", name="n"), "messages[0].content[0].input"),
    (call(type="tool_use", id="a", name="n", input="{}"), "messages[0].content[0].input"),
    (call(type="tool_use", id=5, name="n", input={}), "messages[0].content[0].id"),
    (call(type="thinking", signature="s"), "messages[0].content[0].thinking"),
    (call(type="thinking", thinking="a", signature=5), "messages[0].content[0].signature"),
    (call(type="redacted_thinking"), "messages[0].content[0].data"),
    ({"system": 5}, "system"),
    ({"system": [{"type": "text"}]}, "system[0].text"),
    ({"system": [{"type": "image", "source": {"type": "url", "url": "u"}}]}, "system[0].type"),
    ({"stream": "yes"}, "stream"),
    ({"temperature": 1.5}, "temperature"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": "warm"}, "temperature"),
    ({"top_p": 2}, "top_p"),
    ({"top_k": -1}, "top_k"),
    ({"stop_sequences": "END"}, "stop_sequences"),
    ({"stop_sequences": [5]}, "stop_sequences[0]"),
    ({"metadata": {"user_id": 5}}, "metadata.user_id"),
    ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
    ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
    ({"tools": [{"name": "f", "input_schema": []}]}, "tools[0].input_schema"),
    ({"tool_choice": {"type": "maybe"}}, "tool_choice.type"),
    ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ({"tool_choice": "auto"}, "tool_choice"),
    ({"thinking": {"type": "deep"}}, "thinking.type"),
    ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
    ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens"),
    ({"output_config": {"format": {"type": "xml", "schema": {}}}}, "output_config.format.type"),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
]


@pytest.mark.parametrize(("fields", "path"), BAD, ids=[f"{path}-{i}" for i, (_, path) in enumerate(BAD)])
def test_what_is_refused(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(**fields)
    info = caught.value.info
    assert (info.http_status, info.param) == (400, path)
    assert info.message.startswith(path)


@pytest.mark.parametrize("field", ["model", "max_tokens", "messages"])
def test_required_fields(field: str) -> None:
    body = {"model": "m", "max_tokens": 1, "messages": HELLO}
    del body[field]
    with pytest.raises(InvalidRequest, match=f"^{field}: Field required$") as caught:
        FORMAT.read_request(json.dumps(body).encode())
    assert caught.value.info.param == field


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"model":"\x00"}',
        b'{"a":' * 200_000,
        b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"\\ud800"}]}',
    ],
)
def test_bodies_that_are_no_json_object(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        FORMAT.read_request(body)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.sampled_from(["text", "user", "tool_use", "image"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "text", "content", "source", "role", "id", "input", "data"]), inner)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["messages", "system", "tools", "tool_choice", "thinking", "metadata"]), JSON))
def test_anything_is_read_or_refused(fields: dict[str, Any]) -> None:
    with suppress(InvalidRequest):
        assert read(**fields).messages


def test_a_message_that_is_said_for_every_role() -> None:
    with pytest.raises(InvalidRequest, match="tool_use blocks belong in assistant messages"):
        read(**block(type="tool_use", id="a", name="n", input={}))
