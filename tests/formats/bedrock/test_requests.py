"""A caller's Converse body as a `Request`, and a `Request` as Converse's body."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.base import Located, Target, WireRequest
from headrace.formats.bedrock import FORMAT
from headrace.formats.bedrock.sealing import seal
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
    ToolResult,
)
from headrace.model.errors import InvalidRequest
from headrace.model.request import Message, ReasoningConfig, Request, ResponseFormat, Tool, ToolChoice, VendorTool

CLAUDE = "anthropic.claude-sonnet-4-20250514-v1:0"
NOVA = "us.amazon.nova-pro-v1:0"
HI: dict[str, Any] = {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]}
HERE = Located("m", True)


def ask(body: dict[str, Any] | bytes, located: Located = HERE) -> Request:
    return FORMAT.read_request(body if isinstance(body, bytes) else json.dumps(body).encode(), located)


def blocks(*content: Any, role: str = "user") -> dict[str, Any]:
    return {"messages": [{"role": role, "content": list(content)}]}


def parts(*content: Any, role: str = "user") -> list[Part]:
    return [part for message in ask(blocks(*content, role=role)).messages for part in message.parts]


# Reading.


def test_the_path_says_model_and_stream() -> None:
    request = ask(HI, Located("anthropic/claude:0", False))
    assert (request.model, request.stream) == ("anthropic/claude:0", False)
    assert ask(HI).stream is True
    assert ask({**HI, "modelId": "x", "stream": True}, Located()).stream is True
    with pytest.raises(InvalidRequest, match="modelId: Field required"):
        ask(HI, Located())


def test_results_of_tools_become_messages_of_their_own() -> None:
    def result(id: str, **fields: Any) -> dict[str, Any]:
        return {"toolResult": {"toolUseId": id, "content": [{"json": {"a": [1.0]}}], **fields}}

    request = ask(blocks({"text": "a"}, result("1"), result("2", status="error"), {"text": "b"}))
    assert [(message.role, message.parts) for message in request.messages] == [
        ("user", [Text(text="a")]),
        ("tool", [ToolResult(tool_call_id="1", parts=[Text(text='{"a":[1.0]}')])]),
        ("tool", [ToolResult(tool_call_id="2", parts=[Text(text='{"a":[1.0]}')], is_error=True)]),
        ("user", [Text(text="b")]),
    ]


def test_arguments_stay_the_text_that_they_were() -> None:
    use = b'{"toolUse":{"toolUseId":"a","name":"f","input":{"n": 1.50, "b":1}}}'
    body = b'{"messages":[{"role":"assistant","content":[{"text":"x"},%b]}]}' % use
    call = ask(body).messages[0].parts[1]
    assert isinstance(call, ToolCall)
    assert call.arguments == '{"n": 1.50, "b":1}'


def test_seals_are_opened() -> None:
    blob = base64.b64encode(b"headrace:gemini::data").decode()
    assert parts(
        {"reasoningContent": {"reasoningText": {"text": "a", "signature": "headrace:openai:rs_1:sig"}}},
        {"reasoningContent": {"reasoningText": {"text": "b", "signature": "own"}}},
        {"reasoningContent": {"reasoningText": {"text": "c"}}},
        {"reasoningContent": {"redactedContent": blob}},
        {"reasoningContent": {"redactedContent": "cmVk"}},
        role="assistant",
    ) == [
        Reasoning(text="a", signature="sig", vendor="openai", id="rs_1"),
        Reasoning(text="b", signature="own", vendor="bedrock"),
        Reasoning(text="c"),
        RedactedReasoning(data="data", vendor="gemini"),
        RedactedReasoning(data="cmVk", vendor="bedrock"),
    ]


def test_media() -> None:
    location = {"s3Location": {"uri": "s3://bucket/key", "bucketOwner": "1"}}
    assert parts(
        {"image": {"format": "jpeg", "source": {"bytes": "aGk="}}},
        {"document": {"format": "pdf", "name": "report", "source": {"bytes": "aGk="}, "citations": {"enabled": True}}},
        {"document": {"name": "note", "source": {"text": "All is well."}}},
        {"document": {"format": "txt", "name": "n", "source": {"content": [{"text": "a"}, {"text": "b"}]}}},
        {"video": {"format": "three_gp", "source": location}},
        {"audio": {"format": "mp3", "source": {"bytes": "aGk="}}},
    ) == [
        Media(type="image", media_type="image/jpeg", data="aGk="),
        Media(
            type="document",
            media_type="application/pdf",
            data="aGk=",
            title="report",
            extensions={"bedrock": {"citations": {"enabled": True}}},
        ),
        Media(type="document", media_type="text/plain", text="All is well.", title="note"),
        Media(
            type="document",
            media_type="text/plain",
            text="a\nb",
            title="n",
            extensions={"bedrock": {"source": {"content": [{"text": "a"}, {"text": "b"}]}}},
        ),
        Media(
            type="video",
            media_type="video/3gpp",
            file_id="s3://bucket/key",
            extensions={"bedrock": {"source": location}},
        ),
        Media(type="audio", media_type="audio/mpeg", data="aGk="),
    ]


def test_cache_points_guarded_text_and_citations() -> None:
    point = {"cachePoint": {"type": "default", "ttl": "1h"}}
    guarded = {"text": {"text": "secret", "qualifiers": ["guard_content"]}}
    cited = {"content": [{"text": "a"}, {"text": "b"}], "citations": [{"title": "t"}]}
    first, second, third, fourth = parts(
        {"text": "a"}, point, {"guardContent": guarded}, {"citationsContent": cited}, {"searchResult": {"x": 1}}
    )
    assert first.extensions == {
        "bedrock": {"cachePoint": {"type": "default", "ttl": "1h"}},
        "anthropic": {"cache_control": {"type": "ephemeral", "ttl": "1h"}},
    }
    assert second == Text(text="secret", extensions={"bedrock": {"guardContent": guarded}})
    assert third == Text(text="ab", citations=[Citation("bedrock", {"title": "t"})])
    assert fourth == Opaque(vendor="bedrock", payload={"searchResult": {"x": 1}})


def test_tools_and_choices() -> None:
    spec = {"name": "f", "inputSchema": {"json": {"type": "object"}}, "strict": True}
    tools: list[dict[str, Any]] = [
        {"toolSpec": spec},
        {"cachePoint": {"type": "default"}},
        {"systemTool": {"name": "nova_grounding"}},
    ]
    request = ask({**HI, "toolConfig": {"tools": tools, "toolChoice": {"tool": {"name": "f"}}}})
    one, other = request.tools
    assert isinstance(one, Tool)
    assert (one.name, one.parameters, one.strict) == ("f", {"type": "object"}, True)
    assert one.extensions is not None
    assert other == VendorTool(vendor="bedrock", payload=tools[2])
    assert request.tool_choice == ToolChoice(mode="tool", name="f")


@pytest.mark.parametrize(
    ("fields", "reasoning"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, ReasoningConfig(budget_tokens=2000)),
        ({"reasoning_config": {"type": "enabled", "budget_tokens": 2000}}, ReasoningConfig(budget_tokens=2000)),
        ({"thinking": {"type": "disabled"}}, ReasoningConfig(enabled=False)),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, ReasoningConfig(effort="max")),
        ({"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}}, ReasoningConfig(effort="low")),
        ({"reasoningConfig": {"type": "disabled"}}, ReasoningConfig(enabled=False)),
        ({"reasoning_effort": "high"}, ReasoningConfig(effort="high")),
        ({"top_k": 3}, None),
    ],
)
def test_models_own_words_for_reasoning(fields: dict[str, Any], reasoning: ReasoningConfig | None) -> None:
    request = ask({**HI, "additionalModelRequestFields": fields})
    assert request.reasoning == reasoning
    assert request.lost == []


def test_what_nobody_reads_is_named() -> None:
    request = ask(
        {
            **HI,
            "guardrailConfig": {"guardrailIdentifier": "g"},
            "inferenceConfig": {"maxTokens": 3, "x": 1},
            "additionalModelRequestFields": {"top_k": 3, "y": 1, "inferenceConfig": {"topK": 5, "z": 1}},
        }
    )
    assert request.lost == [
        "request.guardrailConfig",
        "request.inferenceConfig.x",
        "request.additionalModelRequestFields.y",
        "request.additionalModelRequestFields.inferenceConfig.z",
    ]
    assert (request.max_tokens, request.top_k) == (3, 5)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": []}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": "Hi"}]}, "messages[0].content"),
        (blocks({"text": 1}), "messages[0].content[0].text"),
        (blocks({"toolUse": {"toolUseId": "a", "name": "f", "input": {}}}), "messages[0].content[0].toolUse"),
        (
            blocks({"toolUse": {"toolUseId": "a", "name": "f"}}, role="assistant"),
            "messages[0].content[0].toolUse.input",
        ),
        (blocks({"toolUse": {"name": "f", "input": {}}}, role="assistant"), "messages[0].content[0].toolUse.toolUseId"),
        (blocks({"toolResult": {"content": []}}), "messages[0].content[0].toolResult.toolUseId"),
        (blocks({"image": {"format": "png"}}), "messages[0].content[0].image.source"),
        (blocks({"image": {"format": "png", "source": {}}}), "messages[0].content[0].image.source"),
        (blocks({"image": {"format": "png", "source": {"bytes": "!"}}}), "messages[0].content[0].image.source.bytes"),
        ({**HI, "system": [{"image": {"format": "png", "source": {"bytes": "aGk="}}}]}, "system[0]"),
        ({**HI, "inferenceConfig": {"maxTokens": 0}}, "inferenceConfig.maxTokens"),
        ({**HI, "inferenceConfig": {"temperature": 2}}, "inferenceConfig.temperature"),
        ({**HI, "toolConfig": {}}, "toolConfig.tools"),
        ({**HI, "toolConfig": {"tools": [{"toolSpec": {"name": "f"}}]}}, "toolConfig.tools[0].toolSpec.inputSchema"),
        ({**HI, "toolConfig": {"tools": [], "toolChoice": {}}}, "toolConfig.toolChoice"),
        ({**HI, "toolConfig": {"tools": [], "toolChoice": {"tool": {}}}}, "toolConfig.toolChoice.tool"),
        ({**HI, "additionalModelRequestFields": {"top_k": "x"}}, "additionalModelRequestFields.top_k"),
        (
            {
                **HI,
                "outputConfig": {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": "{"}}}},
            },
            "outputConfig.textFormat.structure.jsonSchema.schema",
        ),
    ],
)
def test_a_bad_field_is_named(body: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ask(body)
    assert caught.value.info.param == param


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    "text",
                    "role",
                    "content",
                    "toolUse",
                    "toolResult",
                    "image",
                    "source",
                    "bytes",
                    "json",
                    "name",
                    "toolUseId",
                    "input",
                    "reasoningContent",
                    "cachePoint",
                    "guardContent",
                    "tools",
                    "toolSpec",
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=10,
)


@given(
    st.dictionaries(
        st.sampled_from(
            ["messages", "system", "toolConfig", "outputConfig", "inferenceConfig", "additionalModelRequestFields"]
        ),
        JSON,
        max_size=4,
    ),
    JSON,
)
def test_any_body_is_a_request_or_invalid(body: dict[str, Any], content: Any) -> None:
    for each in (body, {**body, "messages": [{"role": "user", "content": [content]}]}):
        try:
            request = ask(each)
        except InvalidRequest:
            continue
        FORMAT.write_request(request, Target(model="m", vendor="bedrock"))


# Writing.


def user(*given: Part) -> Message:
    return Message(role="user", parts=list(given) or [Text(text="Hi")])


def assistant(*given: Part) -> Message:
    return Message(role="assistant", parts=list(given))


def result(id: str, *given: Part, **fields: Any) -> Message:
    return Message(role="tool", parts=[ToolResult(tool_call_id=id, parts=list(given), **fields)])


def send(*messages: Message, model: str = CLAUDE, quirks: dict[str, Any] | None = None, **fields: Any) -> WireRequest:
    """A request that came in another format."""
    request = Request(model="m", messages=list(messages) or [user()], format="openai_chat", **fields)
    return FORMAT.write_request(request, Target(model=model, vendor="bedrock", quirks=quirks or {}))


def body_of(wire: WireRequest) -> dict[str, Any]:
    body = json.loads(wire.body)
    assert isinstance(body, dict)
    return body


def test_the_smallest_request() -> None:
    wire = send()
    assert body_of(wire) == HI
    assert wire.path == "/model/anthropic.claude-sonnet-4-20250514-v1%3A0/converse-stream"
    assert dict(wire.headers) == {"content-type": "application/json", "accept": "application/vnd.amazon.eventstream"}
    assert wire.lost == ()


def test_where_and_how() -> None:
    arn = "arn:aws:bedrock:us-east-1:1:inference-profile/x"
    wire = FORMAT.write_request(
        Request(model="m", messages=[user()]), Target(model=arn, vendor="bedrock", stream=False)
    )
    assert wire.path == "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fx/converse"
    assert dict(wire.headers)["accept"] == "application/json"
    own = Target(model="a:b", vendor="bedrock", path="/own/{model}/x")
    assert FORMAT.write_request(Request(model="m", messages=[user()]), own).path == "/own/a%3Ab/x"


def test_a_conversation() -> None:
    wire = send(
        Message(role="system", parts=[Text(text="Be brief.")]),
        user(),
        assistant(Text(text="I look"), Text(text=" "), ToolCall(id="a", name="f", arguments='{"x": 1.0}')),
        user(Text(text="hurry")),
        result("a", Text(text="72")),
        result("b", Media(type="image", media_type="image/png", data="aGk="), is_error=True),
        result("c"),
        assistant(Refusal(text="No.")),
        tools=[Tool(name="f", description="d", parameters={"type": "object", "x": 1}, strict=True), Tool(name="g")],
        tool_choice=ToolChoice(mode="required"),
    )
    body = body_of(wire)
    assert body["system"] == [{"text": "Be brief."}]
    assert body["messages"] == [
        {"role": "user", "content": [{"text": "Hi"}]},
        {
            "role": "assistant",
            "content": [{"text": "I look"}, {"toolUse": {"toolUseId": "a", "name": "f", "input": {"x": 1.0}}}],
        },
        {
            "role": "user",
            "content": [
                {"toolResult": {"toolUseId": "a", "content": [{"text": "72"}]}},
                {
                    "toolResult": {
                        "toolUseId": "b",
                        "content": [{"image": {"format": "png", "source": {"bytes": "aGk="}}}],
                        "status": "error",
                    }
                },
                {"toolResult": {"toolUseId": "c", "content": [{"text": "(nothing)"}]}},
                {"text": "hurry"},
            ],
        },
        {"role": "assistant", "content": [{"text": "No."}]},
    ]
    assert body["toolConfig"] == {
        "tools": [
            {
                "toolSpec": {
                    "name": "f",
                    "description": "d",
                    "inputSchema": {"json": {"type": "object", "x": 1}},
                    "strict": True,
                }
            },
            {"toolSpec": {"name": "g", "inputSchema": {"json": {"type": "object", "properties": {}}}}},
        ],
        "toolChoice": {"any": {}},
    }
    assert b'"input":{"x": 1.0}' in wire.body
    assert wire.lost == ()


def test_nothing_is_left() -> None:
    with pytest.raises(InvalidRequest, match="nothing is left"):
        send(user(Media(type="image", url="https://x")))


def test_arguments_that_are_no_object() -> None:
    wire = send(user(), assistant(ToolCall(id="a", name="f", arguments='{"x')))
    assert body_of(wire)["messages"][1]["content"][0]["toolUse"]["input"] == {"invalid_arguments": '{"x'}
    assert wire.lost == ("messages[1].parts[0].arguments: not a JSON object",)


def test_calls_need_tools() -> None:
    """Converse refuses calls and results in a request without tools."""
    talk = (user(), assistant(ToolCall(id="a", name="f", arguments="{}")), result("a", Text(text="1")))
    spec = {"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object", "properties": {}}}}}
    assert body_of(send(*talk))["toolConfig"] == {"tools": [spec]}
    none = send(*talk, tools=[Tool(name="f")], tool_choice=ToolChoice(mode="none"))
    assert body_of(none)["toolConfig"] == {"tools": [spec]}
    assert none.lost == ("request.tool_choice: none",)
    assert "toolConfig" not in body_of(send(tools=[Tool(name="f")], tool_choice=ToolChoice(mode="none")))


def test_documents_have_names_of_few_characters() -> None:
    def named(title: str | None, **fields: Any) -> str:
        media = Media(type="document", media_type="application/pdf", data="aGk=", title=title, **fields)
        block = body_of(send(user(media)))["messages"][0]["content"][0]["document"]
        name = block["name"]
        assert isinstance(name, str)
        return name

    assert named("report.pdf") == "report"
    assert named("Jahresbericht_2025: Mühle.v2.pdf") == "Jahresbericht-2025- M-hle-v2"
    assert named(None) == "document-1"
    assert named("...") == "document-1"
    assert len(named("x" * 500)) == 200


def test_media_that_bedrock_takes() -> None:
    wire = send(
        user(
            Media(type="image", media_type="image/jpg", data="aGk="),
            Media(type="image", data="aGk="),
            Media(type="image", url="s3://bucket/key", media_type="image/png"),
            Media(type="document", media_type="text/markdown; charset=utf-8", text="# é", title="n"),
            Media(type="audio", media_type="audio/x-wav", data="aGk="),
            Media(type="video", media_type="video/mp4", file_id="s3://b/v"),
            Media(type="image", media_type="image/tiff", data="aGk="),
            Media(type="image", file_id="file-1"),
            Media(type="image", media_type="image/png", data="aGk=", detail="low"),
        )
    )
    assert body_of(wire)["messages"][0]["content"] == [
        {"image": {"format": "jpeg", "source": {"bytes": "aGk="}}},
        {"image": {"format": "png", "source": {"bytes": "aGk="}}},
        {"image": {"format": "png", "source": {"s3Location": {"uri": "s3://bucket/key"}}}},
        {"document": {"format": "md", "name": "n", "source": {"bytes": "IyDDqQ=="}}},
        {"audio": {"format": "wav", "source": {"bytes": "aGk="}}},
        {"video": {"format": "mp4", "source": {"s3Location": {"uri": "s3://b/v"}}}},
        {"image": {"format": "png", "source": {"bytes": "aGk="}}},
    ]
    assert wire.lost == ("messages[0].parts[6]: image", "messages[0].parts[7]: image", "messages[0].parts[8].detail")


def test_reasoning_goes_to_its_vendor_alone() -> None:
    wire = send(
        user(),
        assistant(
            Reasoning(text="a", signature="s", vendor="bedrock"),
            Reasoning(text="b", signature="t", vendor="anthropic"),
            Reasoning(text="c", vendor="bedrock"),
            RedactedReasoning(data="cmVk", vendor="bedrock"),
            RedactedReasoning(data="x", vendor="openai"),
            Text(text="So"),
        ),
    )
    assert body_of(wire)["messages"][1]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "a", "signature": "s"}}},
        {"reasoningContent": {"redactedContent": "cmVk"}},
        {"text": "So"},
    ]
    assert wire.lost == (
        "messages[1].parts[1]: reasoning of anthropic",
        "messages[1].parts[2]: reasoning of bedrock",
        "messages[1].parts[4]: reasoning of openai",
    )


def test_what_claude_redacted_is_encoded_again() -> None:
    request = Request(model="m", messages=[user(), assistant(RedactedReasoning(data="EmBwc=", vendor="anthropic"))])
    body = body_of(FORMAT.write_request(request, Target(model=CLAUDE, vendor="anthropic")))
    assert body["messages"][1]["content"] == [{"reasoningContent": {"redactedContent": "RW1Cd2M9"}}]


def test_a_callers_cache_control_becomes_a_cache_point() -> None:
    cached = {"anthropic": {"cache_control": {"type": "ephemeral"}}}
    wire = send(user(Text(text="long", extensions=cached), Text(text="x")), tools=[Tool(name="f", extensions=cached)])
    point = {"cachePoint": {"type": "default"}}
    assert body_of(wire)["messages"][0]["content"] == [{"text": "long"}, point, {"text": "x"}]
    assert body_of(wire)["toolConfig"]["tools"][1] == point


@pytest.mark.parametrize(
    ("model", "asked", "fields", "output", "lost"),
    [
        (CLAUDE, ReasoningConfig(effort="high"), {"thinking": {"type": "adaptive"}}, {"effort": "high"}, ()),
        (
            CLAUDE,
            ReasoningConfig(budget_tokens=500),
            {"thinking": {"type": "enabled", "budget_tokens": 1024}},
            None,
            (),
        ),
        (CLAUDE, ReasoningConfig(enabled=False), {"thinking": {"type": "disabled"}}, None, ()),
        (CLAUDE, ReasoningConfig(effort="none"), {"thinking": {"type": "disabled"}}, None, ()),
        (
            NOVA,
            ReasoningConfig(effort="xhigh"),
            {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}},
            None,
            (),
        ),
        (
            NOVA,
            ReasoningConfig(budget_tokens=9),
            {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "medium"}},
            None,
            ("request.reasoning.budget_tokens",),
        ),
        (NOVA, ReasoningConfig(enabled=False), {"reasoningConfig": {"type": "disabled"}}, None, ()),
        ("openai.gpt-oss-120b-1:0", ReasoningConfig(effort="low"), {"reasoning_effort": "low"}, None, ()),
        (
            "us.deepseek.r1-v1:0",
            ReasoningConfig(enabled=False),
            None,
            None,
            ("request.reasoning: that it is switched off",),
        ),
    ],
)
def test_reasoning_in_the_models_own_words(
    model: str, asked: ReasoningConfig, fields: Any, output: Any, lost: tuple[str, ...]
) -> None:
    wire = send(model=model, reasoning=asked)
    assert body_of(wire).get("additionalModelRequestFields") == fields
    assert body_of(wire).get("outputConfig") == output
    assert wire.lost == lost


def test_a_profile_that_does_not_say_its_model() -> None:
    arn = "arn:aws:bedrock:us-east-1:1:application-inference-profile/abc"
    fields = body_of(send(model=arn, top_k=5))["additionalModelRequestFields"]
    assert fields == {"top_k": 5}
    fields = body_of(send(model=arn, top_k=5, quirks={"family": "nova"}))["additionalModelRequestFields"]
    assert fields == {"inferenceConfig": {"topK": 5}}
    body = body_of(send(reasoning=ReasoningConfig(effort="low"), quirks={"effort_as_budget": True}))
    assert body["additionalModelRequestFields"] == {"thinking": {"type": "enabled", "budget_tokens": 1024}}


def test_what_thinking_excludes() -> None:
    wire = send(reasoning=ReasoningConfig(budget_tokens=5000), max_tokens=3000, temperature=0.5, top_k=3, top_p=0.5)
    assert body_of(wire)["inferenceConfig"] == {"maxTokens": 3000}
    assert body_of(wire)["additionalModelRequestFields"] == {"thinking": {"type": "enabled", "budget_tokens": 2999}}
    assert [name.partition(":")[0] for name in wire.lost] == [
        "request.reasoning.budget_tokens",
        "request.temperature",
        "request.top_k",
        "request.top_p",
    ]
    forced = send(
        reasoning=ReasoningConfig(budget_tokens=5000), tools=[Tool(name="f")], tool_choice=ToolChoice(mode="required")
    )
    assert "additionalModelRequestFields" not in body_of(forced)
    assert forced.lost == ("request.reasoning: not possible with a forced tool choice",)
    narrow = send(reasoning=ReasoningConfig(budget_tokens=5000), max_tokens=1000)
    assert "additionalModelRequestFields" not in body_of(narrow)


def test_structured_output() -> None:
    schema = ResponseFormat(type="json_schema", schema={"type": "object"}, name="n", description="d")
    assert body_of(send(response_format=schema))["outputConfig"] == {
        "textFormat": {
            "type": "json_schema",
            "structure": {"jsonSchema": {"schema": '{"type":"object"}', "name": "n", "description": "d"}},
        }
    }
    assert "JSON" in body_of(send(response_format=ResponseFormat(type="json")))["system"][0]["text"]


# A caller's own body.


def forward(body: dict[str, Any], vendor: str = "bedrock", **fields: Any) -> WireRequest:
    request = ask(body)
    for name, value in fields.items():
        setattr(request, name, value)
    return FORMAT.write_request(request, Target(model="x", vendor=vendor))


def test_a_callers_own_body_goes_on_as_it_is() -> None:
    body = {**HI, "guardrailConfig": {"x": 1}, "modelId": "m", "stream": True, "inferenceConfig": {"topP": 0.10}}
    sent = {name: value for name, value in body.items() if name not in ("modelId", "stream")}
    wire = forward(body, extensions={"bedrock": {"inferenceConfig": {"maxTokens": 3}}})
    assert body_of(wire) == {**sent, "inferenceConfig": {"topP": 0.10, "maxTokens": 3}}
    assert wire.lost == ()


def test_seals_are_opened_for_their_vendor_and_left_out_for_others() -> None:
    sealed = base64.b64encode(seal("acme", "", "data").encode()).decode()
    turn = [
        {"reasoningContent": {"reasoningText": {"text": "a", "signature": seal("acme", "", "sig")}}},
        {"reasoningContent": {"redactedContent": sealed}},
    ]
    own = {"reasoningContent": {"reasoningText": {"text": "b", "signature": "own"}}}
    body = {
        "messages": [
            *HI["messages"],
            {"role": "assistant", "content": [*turn, own]},
            {"role": "assistant", "content": turn[:1]},
        ]
    }
    wire = forward(body)
    assert body_of(wire)["messages"] == [*HI["messages"], {"role": "assistant", "content": [own]}]
    assert wire.lost == (
        "messages[1].content[0]: reasoning of acme",
        "messages[1].content[1]: reasoning of acme",
        "messages[2].content[0]: reasoning of acme",
    )
    assert body_of(forward(body, "acme"))["messages"][1]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "a", "signature": "sig"}}},
        {"reasoningContent": {"redactedContent": "data"}},
        own,
    ]
