"""Requests for providers: the caller's own body kept, others composed, what cannot be said named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.formats.base import Target
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
from headrace.model.request import (
    Message,
    ReasoningConfig,
    Request,
    ResponseFormat,
    Tool,
    ToolChoice,
    VendorTool,
)

from .helpers import message

USER = {"role": "user", "content": "hi"}
HI = Message(role="user", parts=[Text(text="hi")])


def sent(request: Request, vendor: str = "openai", **target: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    wire = FORMAT.write_request(request, Target(model="up", vendor=vendor, **target))
    return json.loads(wire.body), wire.lost


def passed(said: dict[str, Any], vendor: str = "openai", **target: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    return sent(FORMAT.read_request(json.dumps({"model": "m", "messages": [USER], **said}).encode()), vendor, **target)


def composed(*messages: Message, vendor: str = "openai", **fields: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    return sent(Request(model="m", messages=list(messages or (HI,)), **fields), vendor)


def test_the_wire() -> None:
    request = Request(model="m", messages=[HI])
    wire = FORMAT.write_request(request, Target(model="up", vendor="openai"))
    assert wire.path == "/chat/completions"
    assert dict(wire.headers) == {"content-type": "application/json", "accept": "text/event-stream"}
    whole = FORMAT.write_request(request, Target(model="up", vendor="openai", stream=False, path="/x"))
    assert whole.path == "/x"
    assert dict(whole.headers)["accept"] == "application/json"
    assert json.loads(whole.body) == {"model": "up", "messages": [USER]}


# The caller's own body.


def test_the_callers_body_goes_on_with_usage_asked_for() -> None:
    said = {
        "stream": False,
        "stream_options": {"include_obfuscation": False},
        "temperature": 1,
        "service_tier": "flex",
        "prediction": {"type": "content", "content": "x"},
        "metadata": {"k": "v"},
        "functions": [{"name": "f"}],
        "max_tokens": 5,
    }
    body, lost = passed(said)
    assert body == {
        **said,
        "model": "up",
        "messages": [USER],
        "stream": True,
        "stream_options": {"include_obfuscation": False, "include_usage": True},
    }
    assert lost == ()
    body, _ = passed(said, stream=False)
    assert "stream" not in body
    assert "stream_options" not in body


def test_servers_that_reject_stream_options_get_none() -> None:
    body, _ = passed({"stream_options": {"x": 1}}, vendor="old", quirks={"stream_options": False})
    assert body["stream"] is True
    assert "stream_options" not in body


def test_what_is_for_the_gateway_stays_here() -> None:
    said = {
        "budget": {"max_tokens": 5},
        "extensions": {"vendor:openai": {"store": True, "web": {"a": 1}}, "vendor:groq": {"x": 1}},
        "web": {"b": 2},
        "metadata": {"k": "v"},
    }
    body, lost = passed(said)
    assert body["store"] is True
    assert body["web"] == {"a": 1, "b": 2}
    assert not {"budget", "extensions", "x"} & body.keys()
    assert lost == ()
    body, lost = passed(said, vendor="groq")
    assert body["x"] == 1
    assert "store" not in body
    assert "metadata" not in body
    assert lost == ("metadata",)


def test_an_extension_wins_over_the_field() -> None:
    body, _ = passed({"temperature": 0, "extensions": {"vendor:openai": {"temperature": 1}}})
    assert body["temperature"] == 1
    assert composed(extensions={"openai": {"store": True}})[0]["store"] is True


DETAILS = [
    {"type": "reasoning.text", "text": "", "signature": "s", "format": "anthropic", "index": 0},
    {"type": "reasoning.text", "text": "t", "signature": "s", "format": "anthropic-claude-v1", "index": 1},
    {"type": "reasoning.encrypted", "data": "d", "format": "unknown"},
]


def test_reasoning_goes_back_to_its_vendor_only() -> None:
    turn = {"role": "assistant", "content": "a", "reasoning_content": "r", "reasoning_details": DETAILS}
    body, lost = passed({"messages": [USER, turn]}, vendor="openai")
    assert body["messages"][1] == {"role": "assistant", "content": "a"}
    assert lost == ("messages[1].reasoning_content", "messages[1].reasoning_details")
    body, lost = passed({"messages": [USER, turn]}, vendor="openrouter")
    assert body["messages"][1] == {**turn, "reasoning_details": DETAILS[1:]}
    assert lost == ("messages[1].reasoning_details: of another vendor",)
    body, lost = passed({"messages": [USER, turn]}, vendor="anthropic")
    assert body["messages"][1] == turn
    assert lost == ()
    only = {**turn, "reasoning_details": DETAILS[:1]}
    assert "reasoning_details" not in passed({"messages": [USER, only]}, vendor="x")[0]["messages"][1]


def test_the_name_of_the_limit_can_be_set() -> None:
    body, _ = passed({"max_completion_tokens": 5}, vendor="x", quirks={"max_tokens_field": "max_tokens"})
    assert body["max_tokens"] == 5
    assert "max_completion_tokens" not in body


# Composed.


def test_every_simple_field() -> None:
    body, lost = composed(
        max_tokens=5,
        temperature=0.5,
        top_p=0.1,
        top_k=3,
        stop_sequences=["x"],
        n=2,
        seed=1,
        presence_penalty=1.0,
        frequency_penalty=-1.0,
        logprobs=True,
        top_logprobs=2,
        user="u",
        metadata={"k": "v"},
    )
    assert body == {
        "model": "up",
        "messages": [USER],
        "max_completion_tokens": 5,
        "temperature": 0.5,
        "top_p": 0.1,
        "stop": ["x"],
        "n": 2,
        "seed": 1,
        "presence_penalty": 1.0,
        "frequency_penalty": -1.0,
        "logprobs": True,
        "top_logprobs": 2,
        "user": "u",
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert lost == ("request.top_k",)
    assert composed(vendor="vllm", max_tokens=5)[0]["max_tokens"] == 5
    request = Request(model="m", messages=[HI], top_k=3)
    assert sent(request, "vllm", quirks={"top_k": True})[0]["top_k"] == 3


def test_what_the_reader_could_not_say_stays_named() -> None:
    assert composed(lost=["request.thing"])[1] == ("request.thing",)


def test_parts_of_a_user() -> None:
    body, lost = composed(
        message(
            Text(text="a"),
            Media(type="image", media_type="image/png", data="AAAA", detail="high"),
            Media(type="image", url="https://e.org/a.png"),
            Media(type="audio", media_type="audio/wav", data="BBBB"),
            Media(type="document", media_type="application/pdf", data="CCCC"),
            Media(type="document", text="plain", title="T"),
            Media(type="document", file_id="file-1"),
            Opaque(vendor="openai", payload={"type": "video_url"}),
            Media(type="document", url="https://e.org/a.pdf"),
            Media(type="image", file_id="f"),
            Opaque(vendor="anthropic", payload={"type": "x"}),
        )
    )
    assert body["messages"][0]["content"] == [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "high"}},
        {"type": "image_url", "image_url": {"url": "https://e.org/a.png"}},
        {"type": "input_audio", "input_audio": {"data": "BBBB", "format": "wav"}},
        {"type": "file", "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,CCCC"}},
        {"type": "text", "text": "T\nplain"},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "video_url"},
    ]
    assert lost == (
        "messages[0].parts[8]: document",
        "messages[0].parts[9]: image",
        "messages[0].parts[10]: other of anthropic",
    )


def test_a_conversation_with_tools() -> None:
    body, lost = composed(
        message(Text(text="be brief"), role="system"),
        HI,
        message(
            Text(text="let me"),
            ToolCall(id="1", name="f", arguments='{"x": 1.0}'),
            ToolCall(id="2", name="g", arguments="{}"),
            role="assistant",
        ),
        message(ToolResult(tool_call_id="1", parts=[Text(text="r")], is_error=True), role="tool"),
        message(
            ToolResult(
                tool_call_id="2", parts=[Text(text="see"), Media(type="image", media_type="image/png", data="AAAA")]
            ),
            role="tool",
        ),
        message(Text(text="a"), Text(text="b")),
        message(ToolCall(id="3", name="f", arguments="{}"), role="assistant"),
        message(Refusal(text="no"), role="assistant"),
        message(Media(type="audio", file_id="au"), role="assistant"),
        message(role="assistant"),
    )
    assert body["messages"] == [
        {"role": "system", "content": "be brief"},
        USER,
        {
            "role": "assistant",
            "content": "let me",
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1.0}'}},
                {"id": "2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "1", "content": "r"},
        {"role": "tool", "tool_call_id": "2", "content": "see"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "(from the result of tool call 2)"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ],
        },
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "3", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "assistant", "content": None, "refusal": "no"},
        {"role": "assistant", "content": None, "audio": {"id": "au"}},
        {"role": "assistant", "content": ""},
    ]
    assert lost == ("messages[3].is_error",)


SIGNED = Reasoning(text="think", signature="sig", vendor="router", extensions={"router": {"format": "f-v1", "id": "i"}})


@pytest.mark.parametrize(
    ("part", "vendor", "said", "lost"),
    [
        (
            SIGNED,
            "router",
            {
                "reasoning_details": [
                    {
                        "type": "reasoning.text",
                        "text": "think",
                        "signature": "sig",
                        "format": "f-v1",
                        "id": "i",
                        "index": 0,
                    }
                ]
            },
            (),
        ),
        (
            RedactedReasoning(data="d", vendor="router"),
            "router",
            {"reasoning_details": [{"type": "reasoning.encrypted", "data": "d", "format": "router", "index": 0}]},
            (),
        ),
        (SIGNED, "openai", {}, ("messages[0].parts[0]: reasoning of router",)),
        (
            RedactedReasoning(data="d", vendor="anthropic"),
            "router",
            {},
            ("messages[0].parts[0]: reasoning of anthropic",),
        ),
        (RedactedReasoning(data="d", vendor=""), "router", {}, ("messages[0].parts[0]: reasoning",)),
        (Reasoning(text="r"), "deepseek", {"reasoning_content": "r"}, ()),
        (Reasoning(text="r", vendor="deepseek"), "deepseek", {"reasoning_content": "r"}, ()),
        (
            Reasoning(text="r", signature="s"),
            "deepseek",
            {"reasoning_content": "r"},
            ("messages[0].parts[0]: reasoning",),
        ),
        (Reasoning(text="r"), "openai", {}, ("messages[0].parts[0]: reasoning",)),
        (Reasoning(text="r", vendor="anthropic"), "deepseek", {}, ("messages[0].parts[0]: reasoning of anthropic",)),
    ],
)
def test_reasoning_parts(part: Any, vendor: str, said: dict[str, Any], lost: tuple[str, ...]) -> None:
    body, named = composed(message(part, Text(text="a"), role="assistant"), vendor=vendor)
    assert body["messages"] == [{"role": "assistant", "content": "a", **said}]
    assert named == lost


def test_what_a_call_carries_for_its_vendor() -> None:
    call = ToolCall(id="1", name="f", arguments="{}", extensions={"google": {"thought_signature": "x"}})
    (said,) = composed(message(call, role="assistant"), vendor="google")[0]["messages"]
    assert said["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "x"}}
    (said,) = composed(message(call, role="assistant"), vendor="openai")[0]["messages"]
    assert "extra_content" not in said["tool_calls"][0]


def test_tools() -> None:
    schema = {"type": "object", "properties": {}}
    tools = [
        Tool(name="f", description="d", parameters={"type": "object"}, strict=True),
        Tool(name="g"),
        VendorTool(vendor="openai", payload={"type": "custom", "custom": {"name": "c"}}),
        VendorTool(vendor="anthropic", payload={"type": "web_search"}),
    ]
    body, lost = composed(tools=tools, tool_choice=ToolChoice(mode="tool", name="f", parallel=False))
    assert body["tools"] == [
        {
            "type": "function",
            "function": {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True},
        },
        {"type": "function", "function": {"name": "g", "parameters": schema}},
        {"type": "custom", "custom": {"name": "c"}},
    ]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert body["parallel_tool_calls"] is False
    assert lost == ("tools[3]: a tool of anthropic",)
    assert "tool_choice" not in composed(tool_choice=ToolChoice(mode="auto"))[0]


@pytest.mark.parametrize(
    ("format", "said"),
    [
        (ResponseFormat(type="text"), None),
        (ResponseFormat(type="json"), {"type": "json_object"}),
        (
            ResponseFormat(type="json_schema", schema={"type": "object"}),
            {"type": "json_schema", "json_schema": {"name": "response", "schema": {"type": "object"}}},
        ),
        (
            ResponseFormat(type="json_schema", schema={}, name="n", description="d", strict=False),
            {"type": "json_schema", "json_schema": {"name": "n", "description": "d", "schema": {}, "strict": False}},
        ),
    ],
)
def test_response_formats(format: ResponseFormat, said: Any) -> None:
    assert composed(response_format=format)[0].get("response_format") == said


@pytest.mark.parametrize(
    ("reasoning", "effort"),
    [
        (ReasoningConfig(effort="minimal"), "minimal"),
        (ReasoningConfig(budget_tokens=1024), "low"),
        (ReasoningConfig(budget_tokens=4096), "medium"),
        (ReasoningConfig(budget_tokens=16384), "high"),
        (ReasoningConfig(effort="high", budget_tokens=1), "high"),
        (ReasoningConfig(), None),
        (ReasoningConfig(enabled=False), None),
        (ReasoningConfig(enabled=False, effort="none"), "none"),
        (None, None),
    ],
)
def test_effort(reasoning: ReasoningConfig | None, effort: str | None) -> None:
    assert composed(reasoning=reasoning)[0].get("reasoning_effort") == effort


def test_read_and_composed_again_says_the_same() -> None:
    said = {
        "messages": [
            {"role": "system", "content": "s"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "a"},
                    {"type": "image_url", "image_url": {"url": "https://e.org/a.png"}},
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "1", "content": "r"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "tool_choice": "required",
        "parallel_tool_calls": True,
        "response_format": {"type": "json_object"},
        "temperature": 0.0,
        "max_completion_tokens": 9,
        "stop": ["x"],
        "reasoning_effort": "low",
    }
    request = FORMAT.read_request(json.dumps({"model": "m", **said}).encode())
    request.origin = None
    body, lost = sent(request)
    assert {name: body[name] for name in said} == said
    assert lost == ()
