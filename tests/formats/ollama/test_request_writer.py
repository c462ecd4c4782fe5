"""What providers of /api/chat are asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.formats.base import Target, WireRequest
from headrace.formats.ollama import FORMAT
from headrace.model.content import Part, Reasoning, Text, ToolCall, ToolResult
from headrace.model.request import Message, ReasoningConfig, Request, Tool, ToolChoice, VendorTool


def told(*messages: Message, target: Target | None = None, **fields: Any) -> WireRequest:
    held = list(messages) or [Message(role="user", parts=[Text(text="Hi")])]
    target = target or Target(model="their-model", vendor="ollama")
    return FORMAT.write_request(Request(model="m", messages=held, **fields), target)


def body(wire: WireRequest) -> dict[str, Any]:
    parsed = json.loads(wire.body)
    assert isinstance(parsed, dict)
    return parsed


def test_the_shortest() -> None:
    wire = told()
    assert body(wire) == {"model": "their-model", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    assert (wire.path, wire.lost) == ("/api/chat", ())
    assert dict(wire.headers)["accept"] == "application/x-ndjson"


def test_no_stream_is_said_too() -> None:
    assert body(told(target=Target(model="x", vendor="ollama", stream=False)))["stream"] is False


def test_a_configured_path() -> None:
    assert told(target=Target(model="x", vendor="ollama", path="/proxy/chat")).path == "/proxy/chat"


def test_a_call_and_its_result() -> None:
    wire = told(
        Message(role="assistant", parts=[ToolCall(id="c1", name="w", arguments='{"n": 1.50}')]),
        Message(role="tool", parts=[ToolResult(tool_call_id="c1", parts=[Text(text="rain")], is_error=True)]),
    )
    assert b'{"n": 1.50}' in wire.body
    assert body(wire)["messages"] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "function": {"index": 0, "name": "w", "arguments": {"n": 1.5}}}],
        },
        {"role": "tool", "content": "rain", "tool_name": "w", "tool_call_id": "c1"},
    ]
    assert wire.lost == ("messages[1].is_error",)


def test_arguments_that_are_no_object() -> None:
    wire = told(Message(role="assistant", parts=[ToolCall(id="c", name="f", arguments="[1]")]))
    (call,) = body(wire)["messages"][0]["tool_calls"]
    assert call["function"]["arguments"] == {"invalid_arguments": "[1]"}
    assert wire.lost == ("messages[0].parts[0].arguments: not a JSON object",)


def test_texts_are_joined() -> None:
    (message,) = body(told(Message(role="user", parts=[Text(text="a"), Text(text="b")])))["messages"]
    assert message["content"] == "a\nb"


@pytest.mark.parametrize(
    ("part", "sent"),
    [
        (Reasoning(text="Hm"), "Hm"),
        (Reasoning(text="Hm", vendor="ollama"), "Hm"),
        (Reasoning(text="Hm", vendor="anthropic"), None),
        (Reasoning(text="Hm", vendor="anthropic", signature="s"), None),
    ],
)
def test_thinking_of_no_other_vendor(part: Part, sent: str | None) -> None:
    wire = told(Message(role="assistant", parts=[part, Text(text="So")]))
    assert body(wire)["messages"][0].get("thinking") == sent
    assert wire.lost == (() if sent else ("messages[0].parts[0]: reasoning of anthropic",))


TOOL = Tool(name="f", description="d")


@pytest.mark.parametrize(
    ("choice", "tools", "lost"),
    [
        (None, True, ()),
        (ToolChoice(), True, ()),
        (ToolChoice(mode="none"), False, ()),
        (ToolChoice(mode="required"), True, ("request.tool_choice",)),
        (ToolChoice(mode="tool", name="f"), True, ("request.tool_choice",)),
        (ToolChoice(parallel=False), True, ("request.tool_choice.parallel",)),
    ],
)
def test_tool_choice(choice: ToolChoice | None, tools: bool, lost: tuple[str, ...]) -> None:
    wire = told(tools=[TOOL], tool_choice=choice)
    assert ("tools" in body(wire), wire.lost) == (tools, lost)


def test_vendors_tools() -> None:
    own = VendorTool(vendor="ollama", payload={"type": "x"})
    wire = told(tools=[own, VendorTool(vendor="openai", payload={"type": "web_search"})])
    assert body(wire)["tools"] == [{"type": "x"}]
    assert wire.lost == ("tools[1]: a tool of openai",)


@pytest.mark.parametrize(
    ("reasoning", "model", "quirks", "think", "lost"),
    [
        (ReasoningConfig(), "qwen3", {}, True, 0),
        (ReasoningConfig(enabled=False), "qwen3", {}, False, 0),
        (ReasoningConfig(enabled=False, effort="none"), "gpt-oss:20b", {}, False, 0),
        (ReasoningConfig(effort="low"), "qwen3", {}, True, 1),
        (ReasoningConfig(effort="low"), "gpt-oss:20b", {}, "low", 0),
        (ReasoningConfig(effort="minimal"), "gpt-oss:20b", {}, "low", 0),
        (ReasoningConfig(effort="low"), "gpt-oss:20b", {"think_levels": False}, True, 1),
        (ReasoningConfig(effort="high"), "own", {"think_levels": True}, "high", 0),
        (ReasoningConfig(budget_tokens=99), "qwen3", {}, True, 1),
    ],
)
def test_think(reasoning: ReasoningConfig, model: str, quirks: dict[str, Any], think: Any, lost: int) -> None:
    wire = told(reasoning=reasoning, target=Target(model=model, vendor="ollama", quirks=quirks))
    assert (body(wire)["think"], len(wire.lost)) == (think, lost)


def test_extensions_of_the_vendor_are_laid_over_the_body() -> None:
    extensions = {"ollama": {"keep_alive": "1h", "options": {"num_ctx": 9}}, "openai": {"x": 1}}
    sent = body(told(max_tokens=5, extensions=extensions))
    assert (sent["keep_alive"], sent["options"]) == ("1h", {"num_predict": 5, "num_ctx": 9})
    assert "x" not in sent


def test_a_caller_of_the_same_format_is_not_changed() -> None:
    given = {"model": "m", "messages": [{"role": "user", "content": "Hi", "x": 1}], "options": {"num_ctx": 9}, "y": 2}
    request = FORMAT.read_request(json.dumps(given).encode())
    sent = body(FORMAT.write_request(request, Target(model="z", vendor="ollama", stream=False)))
    assert sent == {**given, "model": "z", "stream": False}
