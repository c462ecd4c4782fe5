"""Cohere's requests, read and written: what the matrix does not say of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.formats import FORMATS
from headrace.formats.base import Target
from headrace.formats.cohere import FORMAT
from headrace.model.content import Media, Part, Reasoning, Text, ToolCall, ToolResult
from headrace.model.errors import InvalidRequest
from headrace.model.request import Message, ReasoningConfig, Request, Tool, ToolChoice, VendorTool

USER = {"role": "user", "content": "Hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TARGET = Target(model="their-model", vendor="cohere")


def ask(*messages: dict[str, Any], **fields: Any) -> Request:
    body = {"model": "m", "messages": list(messages) or [USER], **fields}
    return FORMAT.read_request(json.dumps(body).encode())


def sent(request: Request, **target: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    wire = FORMAT.write_request(request, Target(model="their-model", vendor="cohere", **target))
    return json.loads(wire.body), wire.lost


def function(name: str = "f") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def test_a_plan_and_calls_and_results() -> None:
    document = {"data": {"weather": "rain"}, "id": "d1"}
    request = ask(
        USER,
        {"role": "assistant", "tool_plan": "I look.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "document", "document": document}]},
    )
    plan, call = request.messages[1].parts
    assert plan == Text(text="I look.", extensions={"cohere": {"tool_plan": True}})
    assert call == ToolCall(id="c1", name="f", arguments="{}")
    (result,) = request.messages[2].parts
    assert isinstance(result, ToolResult)
    (held,) = result.parts
    assert isinstance(held, Text)
    assert json.loads(held.text) == {"weather": "rain"}
    request.format = ""  # written anew
    body, lost = sent(request)
    assert body["messages"][1] == {"role": "assistant", "tool_plan": "I look.", "tool_calls": [CALL]}
    assert body["messages"][2]["content"] == [{"type": "document", "document": document}]
    assert lost == ()


def test_what_was_said_before_calls_is_their_plan() -> None:
    parts: list[Part] = [Reasoning(text="Hm"), Text(text="I look."), ToolCall(id="c1", name="f", arguments="{}")]
    body, _ = sent(Request(model="m", messages=[Message(role="assistant", parts=parts)]))
    assert body["messages"] == [
        {
            "role": "assistant",
            "tool_plan": "I look.",
            "content": [{"type": "thinking", "thinking": "Hm"}],
            "tool_calls": [CALL],
        }
    ]


def test_what_was_said_without_calls_is_content() -> None:
    body, _ = sent(Request(model="m", messages=[Message(role="assistant", parts=[Text(text="So.")])]))
    assert body["messages"] == [{"role": "assistant", "content": [{"type": "text", "text": "So."}]}]


def test_reasoning_of_another_vendor_stays_here() -> None:
    parts: list[Part] = [Reasoning(text="Hm", signature="sig", vendor="anthropic"), Text(text="So.")]
    body, lost = sent(Request(model="m", messages=[Message(role="assistant", parts=parts)]))
    assert "Hm" not in json.dumps(body)
    assert lost == ("messages[0].parts[0]: reasoning of anthropic",)


@pytest.mark.parametrize("missing", ["null", "absent"])
def test_a_call_may_have_no_arguments(missing: str) -> None:
    inner: dict[str, Any] = {"name": "f", **({"arguments": None} if missing == "null" else {})}
    request = ask({"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": inner}]})
    assert request.messages[0].parts == [ToolCall(id="c1", name="f", arguments="{}")]


def test_what_is_coheres_alone_is_named() -> None:
    request = ask(documents=["x"], safety_mode="OFF", citation_options={"mode": "FAST"}, priority=None)
    assert request.lost == ["request.documents", "request.safety_mode", "request.citation_options"]
    wire = FORMATS["openai_chat"].write_request(request, Target(model="m", vendor="openai"))
    assert set(request.lost) <= set(wire.lost)
    body, lost = sent(request)
    assert (body["documents"], body["safety_mode"], lost) == (["x"], "OFF", ())


@pytest.mark.parametrize(("choice", "mode"), [("REQUIRED", "required"), ("NONE", "none")])
def test_tool_choice(choice: str, mode: str) -> None:
    request = ask(tools=[function()], tool_choice=choice)
    assert request.tool_choice == ToolChoice(mode=mode)
    request.format = ""
    assert sent(request)[0]["tool_choice"] == choice


def test_a_tool_that_must_be_called_is_only_required() -> None:
    request = Request(model="m", messages=[], tools=[Tool(name="f")], tool_choice=ToolChoice(mode="tool", name="f"))
    body, lost = sent(request)
    assert body["tool_choice"] == "REQUIRED"
    assert lost == ("request.tool_choice.name",)


def test_strict_tools_are_all_or_none() -> None:
    request = ask(tools=[function("f"), function("g")], strict_tools=True)
    assert [tool.strict for tool in request.tools if isinstance(tool, Tool)] == [True, True]
    request.format = ""
    assert sent(request)[0]["strict_tools"] is True
    request.tools = [Tool(name="f", strict=True), Tool(name="g")]
    body, lost = sent(request)
    assert "strict_tools" not in body
    assert lost == ("tools[0].strict",)


def test_tools_of_other_vendors_are_left_out() -> None:
    request = Request(model="m", messages=[], tools=[VendorTool(vendor="anthropic", payload={"type": "web_search"})])
    body, lost = sent(request)
    assert "tools" not in body
    assert lost == ("tools[0]: a tool of anthropic",)


@pytest.mark.parametrize(
    ("asked", "thinking"),
    [
        (ReasoningConfig(enabled=False), {"type": "disabled"}),
        (ReasoningConfig(budget_tokens=500), {"type": "enabled", "token_budget": 500}),
        (ReasoningConfig(effort="low"), {"type": "enabled", "token_budget": 2048}),
        (ReasoningConfig(effort="high"), {"type": "enabled"}),
    ],
)
def test_thinking(asked: ReasoningConfig, thinking: dict[str, Any]) -> None:
    assert sent(Request(model="m", messages=[], reasoning=asked))[0]["thinking"] == thinking


def test_media_in_a_tools_result_is_left_out() -> None:
    result = ToolResult(
        tool_call_id="c1", parts=[Text(text="Done"), Media(type="image", media_type="image/png", data="AA==")]
    )
    body, lost = sent(Request(model="m", messages=[Message(role="tool", parts=[result])]))
    assert body["messages"] == [{"role": "tool", "tool_call_id": "c1", "content": "Done"}]
    assert lost == ("messages[0]: media in a tool's result",)


@pytest.mark.parametrize("stream", [True, False])
def test_the_same_format_changes_model_and_stream_alone(stream: bool) -> None:
    body, lost = sent(ask(USER, x={"y": [1.0]}, k=0), stream=stream)
    assert body == {"model": "their-model", "messages": [USER], "x": {"y": [1.0]}, "k": 0, "stream": stream}
    assert lost == ()


def test_an_extension_is_merged_in_for_cohere() -> None:
    request = Request(model="m", messages=[], extensions={"cohere": {"safety_mode": "OFF"}, "openai": {"x": 1}})
    body, _ = sent(request)
    assert body["safety_mode"] == "OFF"
    assert "x" not in body


def test_k_of_zero_switches_it_off() -> None:
    assert ask(k=0).top_k is None
    assert ask(k=40).top_k == 40


BAD: dict[str, tuple[dict[str, Any], str]] = {
    # what is wrong: (fields of the body, path of the field)
    "role": ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
    "message": ({"messages": ["x"]}, "messages[0]"),
    "no messages": ({"messages": []}, "messages"),
    "content": ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    "no content": ({"messages": [{"role": "user"}]}, "messages[0].content"),
    "part": ({"messages": [{"role": "user", "content": [5]}]}, "messages[0].content[0]"),
    "text": ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    "image": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "ftp://x"}}]}]},
        "messages[0].content[0].image_url.url",
    ),
    "base64": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:a/b;base64,%"}}]}]},
        "messages[0].content[0].image_url.url",
    ),
    "call": ({"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]}, "messages[0].tool_calls[0].function"),
    "calls": ({"messages": [{"role": "assistant", "tool_calls": "x"}]}, "messages[0].tool_calls"),
    "plan": ({"messages": [{"role": "assistant", "tool_plan": 5}]}, "messages[0].tool_plan"),
    "result": ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
    "tool": ({"tools": [{"type": "function", "function": {"name": 5}}]}, "tools[0].function.name"),
    "tool choice": ({"tool_choice": "auto"}, "tool_choice"),
    "format": ({"response_format": {"type": "xml"}}, "response_format.type"),
    "thinking": ({"thinking": {"type": "maybe"}}, "thinking.type"),
    "budget": ({"thinking": {"type": "enabled", "token_budget": -1}}, "thinking.token_budget"),
    "k": ({"k": -1}, "k"),
    "seed": ({"seed": 10**30}, "seed"),
    "max_tokens": ({"max_tokens": 0}, "max_tokens"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_field_is_named(case: str) -> None:
    fields, path = BAD[case]
    with pytest.raises(InvalidRequest) as raised:
        FORMAT.read_request(json.dumps({"model": "m", "messages": [USER], **fields}).encode())
    assert raised.value.info.param == path
    assert path in raised.value.info.message


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"model":"m"}', b'{"messages":[{}]}'])
def test_a_body_that_is_none(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        FORMAT.read_request(data)
