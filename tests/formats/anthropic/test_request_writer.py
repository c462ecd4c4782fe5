"""A Request as Anthropic's body: composed from other formats, and a caller's own sent on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.formats.anthropic import FORMAT
from headrace.formats.anthropic.request_writer import DEFAULT_MAX_TOKENS, JSON_INSTRUCTION
from headrace.formats.base import Target, WireRequest
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
    ToolResult,
)
from headrace.model.errors import InvalidRequest
from headrace.model.request import Message, ReasoningConfig, Request, ResponseFormat, Tool, ToolChoice, VendorTool

TARGET = Target(model="claude-x", vendor="anthropic")
PDF = "JVBERi0="


def user(*parts: Part) -> Message:
    return Message(role="user", parts=list(parts) or [Text(text="Hello")])


def assistant(*parts: Part) -> Message:
    return Message(role="assistant", parts=list(parts))


def result(id: str, *parts: Part, **fields: Any) -> Message:
    return Message(role="tool", parts=[ToolResult(tool_call_id=id, parts=list(parts), **fields)])


def send(*messages: Message, target: Target = TARGET, **fields: Any) -> tuple[dict[str, Any], list[str]]:
    """Body and losses of a request that came in another format."""
    request = Request(model="m", messages=list(messages) or [user()], format="openai_chat", **fields)
    wire = FORMAT.write_request(request, target)
    return json.loads(wire.body), list(wire.lost)


def forward(body: dict[str, Any], target: Target = TARGET, **fields: Any) -> WireRequest:
    """A body of a caller of this format, read and sent on."""
    request = FORMAT.read_request(json.dumps(body).encode())
    for name, value in fields.items():
        setattr(request, name, value)
    return FORMAT.write_request(request, target)


def test_the_smallest_request() -> None:
    request = Request(model="m", messages=[user()])
    wire = FORMAT.write_request(request, TARGET)
    assert json.loads(wire.body) == {
        "model": "claude-x",
        "max_tokens": DEFAULT_MAX_TOKENS,
        "messages": [{"role": "user", "content": "Hello"}],
        "stream": True,
    }
    assert wire.path == "/v1/messages"
    assert dict(wire.headers) == {
        "content-type": "application/json",
        "accept": "text/event-stream",
        "anthropic-version": "2023-06-01",
    }
    assert wire.lost == ()


def test_where_and_how() -> None:
    target = Target(model="c", vendor="anthropic", stream=False, path="/custom")
    wire = FORMAT.write_request(Request(model="m", messages=[user()]), target)
    assert wire.path == "/custom"
    assert dict(wire.headers)["accept"] == "application/json"
    assert "stream" not in json.loads(wire.body)


class TestMessages:
    def test_system_messages_are_gathered_at_the_front(self) -> None:
        def system(text: str, **fields: Any) -> Message:
            return Message(role="system", parts=[Text(text=text, **fields)])

        body, _ = send(system("One."), user())
        assert body["system"] == "One."
        cached = {"anthropic": {"cache_control": {"type": "ephemeral"}}}
        body, _ = send(system("One.", extensions=cached), user(), system("Two."), user(Text(text="again")))
        assert body["system"] == [
            {"type": "text", "text": "One.", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "Two."},
        ]
        assert body["messages"] == [
            {"role": "user", "content": [{"type": "text", "text": "Hello"}, {"type": "text", "text": "again"}]}
        ]

    def test_tool_results_and_what_the_user_adds_are_one_message(self) -> None:
        body, lost = send(
            user(),
            assistant(Text(text="I'll look.")),
            assistant(ToolCall(id="a", name="f", arguments='{"x": 1.0}'), ToolCall(id="b.b", name="g", arguments="")),
            user(Text(text="hurry")),
            result("a", Text(text="72")),
            result("b.b", Text(text="boom"), Media(type="image", url="https://x"), is_error=True),
            user(Text(text="and?")),
        )
        assert body["messages"][1:] == [
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I'll look."},
                    {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1.0}},
                    {"type": "tool_use", "id": encode_id("b.b"), "name": "g", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "72"},
                    {
                        "type": "tool_result",
                        "tool_use_id": encode_id("b.b"),
                        "content": [
                            {"type": "text", "text": "boom"},
                            {"type": "image", "source": {"type": "url", "url": "https://x"}},
                        ],
                        "is_error": True,
                    },
                    {"type": "text", "text": "hurry"},
                    {"type": "text", "text": "and?"},
                ],
            },
        ]
        assert lost == []

    def test_arguments_are_not_written_anew(self) -> None:
        arguments = '{"b": 1.0, "a": 12345678901234567890123}'
        request = Request(model="m", messages=[user(), assistant(ToolCall(id="a", name="f", arguments=arguments))])
        assert b'"input":' + arguments.encode() in FORMAT.write_request(request, TARGET).body

    @pytest.mark.parametrize("arguments", ['{"a":', "[1]", "nope", '"text"'])
    def test_arguments_that_are_no_object_are_told_as_such(self, arguments: str) -> None:
        body, lost = send(user(), assistant(ToolCall(id="a", name="f", arguments=arguments)))
        assert body["messages"][1]["content"][0]["input"] == {"invalid_arguments": arguments}
        assert lost == ["messages[1].parts[0].arguments: not a JSON object"]

    def test_what_is_empty_is_dropped(self) -> None:
        body, lost = send(user(Text(text=""), Text(text="a")), assistant(Text(text=" \n")), result("a", Text(text="")))
        assert body["messages"] == [
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "a"}, {"type": "text", "text": "a"}],
            }
        ]
        assert lost == []

    def test_nothing_left_is_the_callers_fault(self) -> None:
        with pytest.raises(InvalidRequest) as caught:
            send(user(Text(text="")))
        assert caught.value.info.param == "messages"

    def test_a_refusal_is_text(self) -> None:
        body, _ = send(user(), assistant(Refusal(text="No.")))
        assert body["messages"][1]["content"] == "No."

    @pytest.mark.parametrize(
        ("media", "source"),
        [
            (Media(type="image", media_type="image/jpeg", data="AA=="), ("base64", "image/jpeg", "AA==")),
            (Media(type="image", url="https://x/y.png"), ("url", "https://x/y.png")),
            (Media(type="document", media_type="application/pdf", data=PDF), ("base64", "application/pdf", PDF)),
            (Media(type="document", url="https://x/y.pdf"), ("url", "https://x/y.pdf")),
            (Media(type="document", text="words"), ("text", "text/plain", "words")),
            (Media(type="document", media_type="text/csv", data="YSxi"), ("text", "text/plain", "a,b")),
        ],
    )
    def test_media(self, media: Media, source: tuple[str, ...]) -> None:
        body, lost = send(user(media))
        (block,) = body["messages"][0]["content"]
        assert block["type"] == media.type
        assert tuple(block["source"].values()) == source
        assert lost == []

    def test_a_documents_title_and_extensions(self) -> None:
        citations = {"anthropic": {"citations": {"enabled": True}}}
        body, _ = send(user(Media(type="document", text="w", title="T", extensions=citations)))
        block = body["messages"][0]["content"][0]
        assert (block["title"], block["citations"]) == ("T", {"enabled": True})

    @pytest.mark.parametrize(
        ("part", "name"),
        [
            (Media(type="audio", media_type="audio/wav", data="AA=="), "audio"),
            (Media(type="image", file_id="file-of-another"), "image"),
            (Media(type="document", media_type="application/msword", data="AA=="), "document"),
            (Media(type="document", media_type="text/plain", data="/w=="), "document"),
            (Opaque(vendor="openai", payload={"type": "x"}, role="server_tool_result"), "server_tool_result of openai"),
        ],
    )
    def test_what_cannot_be_carried_is_named(self, part: Part, name: str) -> None:
        body, lost = send(user(Text(text="a"), part))
        assert body["messages"][0]["content"] == "a"
        assert lost == [f"messages[0].parts[1]: {name}"]

    def test_names_and_foreign_citations_are_named(self) -> None:
        cited = Text(text="a", citations=[Citation("openai", {}), Citation("anthropic", {"type": "char_location"})])
        body, lost = send(Message(role="user", parts=[Text(text="x")], name="Ann"), assistant(cited))
        assert lost == ["messages[0].name", "messages[1].parts[0].citations"]
        assert body["messages"][1]["content"][0]["citations"] == [{"type": "char_location"}]

    def test_anthropics_own_blocks_come_back_whole(self) -> None:
        payload = {"type": "server_tool_use", "id": "s", "name": "n", "input": '{"q":1}'}
        body, lost = send(user(), assistant(Opaque(vendor="anthropic", payload=payload, role="server_tool_call")))
        assert body["messages"][1]["content"] == [{**payload, "input": {"q": 1}}]
        assert lost == []


def test_the_detail_of_an_image_is_named_as_lost() -> None:
    body, lost = send(user(Media(type="image", url="https://example.com/a.png", detail="low")))
    assert body["messages"][0]["content"] == [
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    ]
    assert lost == ["messages[0].parts[0].detail"]


class TestReasoningParts:
    SIGNED = Reasoning(text="hm", signature="S/+=", vendor="anthropic")
    REDACTED = RedactedReasoning(data="D", vendor="anthropic")

    def test_signed_by_anthropic_goes_first_and_unchanged(self) -> None:
        body, lost = send(user(), assistant(Text(text="a"), self.SIGNED, self.REDACTED))
        assert body["messages"][1]["content"] == [
            {"type": "thinking", "thinking": "hm", "signature": "S/+="},
            {"type": "redacted_thinking", "data": "D"},
            {"type": "text", "text": "a"},
        ]
        assert lost == []

    def test_interleaved_thinking_keeps_its_place(self) -> None:
        body, _ = send(user(), assistant(self.SIGNED, Text(text="a"), self.REDACTED, Text(text="b")))
        types = [block["type"] for block in body["messages"][1]["content"]]
        assert types == ["thinking", "text", "redacted_thinking", "text"]

    @pytest.mark.parametrize(
        ("part", "whose"),
        [
            (Reasoning(text="hm", signature="S", vendor="gemini"), "gemini"),
            (Reasoning(text="hm", vendor="anthropic"), "anthropic"),
            (Reasoning(text="hm", signature="S"), "another provider"),
            (RedactedReasoning(data="D", vendor="openai"), "openai"),
        ],
    )
    def test_everything_else_is_dropped_and_named(self, part: Part, whose: str) -> None:
        body, lost = send(user(), assistant(part, Text(text="a")))
        assert body["messages"][1]["content"] == "a"
        assert lost == [f"messages[1].parts[0]: reasoning of {whose}"]


class TestOptions:
    def test_sampling(self) -> None:
        body, lost = send(temperature=0.3, top_p=0.5, top_k=5, stop_sequences=["a", " "], max_tokens=7, user="u")
        assert (body["temperature"], body["top_p"], body["top_k"], body["max_tokens"]) == (0.3, 0.5, 5, 7)
        assert body["stop_sequences"] == ["a"]
        assert body["metadata"] == {"user_id": "u"}
        assert lost == ["request.stop_sequences: blank ones"]

    def test_temperature_is_clamped(self) -> None:
        body, lost = send(temperature=1.7)
        assert body["temperature"] == 1
        assert lost == ["request.temperature: clamped to 1"]

    def test_what_anthropic_has_no_word_for(self) -> None:
        _, lost = send(seed=1, presence_penalty=0.5, frequency_penalty=0.5, logprobs=True, top_logprobs=2, n=3)
        names = ["seed", "presence_penalty", "frequency_penalty", "logprobs", "top_logprobs", "n"]
        assert lost == [f"request.{name}" for name in names]

    def test_losses_of_reading_are_told(self) -> None:
        assert send(lost=["request.logit_bias"])[1] == ["request.logit_bias"]

    def test_tools(self) -> None:
        search = {"type": "web_search_20250305", "name": "web_search"}
        extension = {"anthropic": {"cache_control": {"type": "ephemeral"}}}
        body, lost = send(
            tools=[
                Tool(name="f", description="d", parameters={"properties": {}}, strict=True, extensions=extension),
                Tool(name="g"),
                VendorTool(vendor="anthropic", payload=search),
                VendorTool(vendor="openai", payload={"type": "web_search"}),
            ]
        )
        assert body["tools"] == [
            {
                "name": "f",
                "description": "d",
                "input_schema": {"type": "object", "properties": {}},
                "strict": True,
                "cache_control": {"type": "ephemeral"},
            },
            {"name": "g", "input_schema": {"type": "object", "properties": {}}},
            search,
        ]
        assert lost == ["tools[3]: a tool of openai"]

    @pytest.mark.parametrize(
        ("choice", "expected"),
        [
            (ToolChoice(mode="auto"), {"type": "auto"}),
            (ToolChoice(mode="auto", parallel=False), {"type": "auto", "disable_parallel_tool_use": True}),
            (ToolChoice(mode="required", parallel=True), {"type": "any", "disable_parallel_tool_use": False}),
            (ToolChoice(mode="tool", name="f"), {"type": "tool", "name": "f"}),
            (ToolChoice(mode="none", parallel=False), {"type": "none"}),
        ],
    )
    def test_tool_choice(self, choice: ToolChoice, expected: dict[str, Any]) -> None:
        assert send(tools=[Tool(name="f")], tool_choice=choice)[0]["tool_choice"] == expected

    def test_a_tool_choice_without_tools(self) -> None:
        body, lost = send(tool_choice=ToolChoice(mode="required"))
        assert "tool_choice" not in body
        assert lost == ["request.tool_choice"]

    def test_structured_output(self) -> None:
        schema = {"type": "object", "properties": {"a": {}}}
        body, _ = send(response_format=ResponseFormat(type="json_schema", schema=schema, name="n", strict=True))
        assert body["output_config"] == {"format": {"type": "json_schema", "schema": schema}}
        assert "output_config" not in send(response_format=ResponseFormat(type="text"))[0]

    def test_json_without_a_schema_is_asked_for_in_words(self) -> None:
        assert send(response_format=ResponseFormat(type="json"))[0]["system"] == JSON_INSTRUCTION

    def test_extensions_win(self) -> None:
        extensions = {
            "anthropic": {"max_tokens": 9, "metadata": {"x": 1}, "service_tier": "auto"},
            "openai": {"seed": 1},
        }
        body, _ = send(user="u", extensions=extensions)
        assert (body["max_tokens"], body["metadata"], body["service_tier"]) == (9, {"user_id": "u", "x": 1}, "auto")
        assert "seed" not in body

    def test_extensions_choose_neither_model_nor_stream(self) -> None:
        body, _ = send(extensions={"anthropic": {"model": "other", "stream": False}})
        assert (body["model"], body["stream"]) == ("claude-x", True)

    def test_extensions_of_another_vendor_of_this_format(self) -> None:
        target = Target(model="k", vendor="moonshot")
        body, _ = send(target=target, extensions={"anthropic": {"a": 1}, "moonshot": {"b": 2}})
        assert "a" not in body
        assert body["b"] == 2

    def test_metadata_is_never_sent(self) -> None:
        assert "req_1" not in json.dumps(send(metadata={"request_id": "req_1"})[0])


class TestReasoning:
    def reasoning(self, **fields: Any) -> tuple[dict[str, Any], list[str]]:
        names = ("effort", "budget_tokens", "enabled")
        config = ReasoningConfig(**{name: fields.pop(name) for name in names if name in fields})
        return send(reasoning=config, **fields)

    @pytest.mark.parametrize(
        ("config", "thinking", "effort"),
        [
            ({}, {"type": "adaptive"}, None),
            ({"effort": "minimal"}, {"type": "adaptive"}, "low"),
            ({"effort": "xhigh"}, {"type": "adaptive"}, "xhigh"),
            ({"effort": "none"}, {"type": "disabled"}, None),
            ({"enabled": False}, {"type": "disabled"}, None),
            ({"budget_tokens": 2000}, {"type": "enabled", "budget_tokens": 2000}, None),
            ({"budget_tokens": 2000, "effort": "high"}, {"type": "enabled", "budget_tokens": 2000}, "high"),
            ({"budget_tokens": 5}, {"type": "enabled", "budget_tokens": 1024}, None),
        ],
    )
    def test_the_ways_to_ask(self, config: dict[str, Any], thinking: dict[str, Any], effort: str | None) -> None:
        body, lost = self.reasoning(**config)
        assert body["thinking"] == thinking
        assert body.get("output_config", {}).get("effort") == effort
        assert lost == []

    def test_max_tokens_has_room_for_the_budget(self) -> None:
        body, _ = self.reasoning(budget_tokens=10000)
        assert body["max_tokens"] == 10000 + DEFAULT_MAX_TOKENS

    def test_the_callers_max_tokens_stands(self) -> None:
        body, lost = self.reasoning(budget_tokens=10000, max_tokens=3000)
        assert (body["max_tokens"], body["thinking"]["budget_tokens"]) == (3000, 2999)
        assert lost == ["request.reasoning.budget_tokens: lowered to 2999, below max_tokens"]
        body, lost = self.reasoning(budget_tokens=10000, max_tokens=500)
        assert (body["max_tokens"], body.get("thinking")) == (500, None)
        assert len(lost) == 1

    def test_older_models_get_a_budget_for_an_effort(self) -> None:
        target = Target(model="m", vendor="anthropic", quirks={"effort_as_budget": True})
        body, _ = self.reasoning(effort="medium", target=target)
        assert body["thinking"] == {"type": "enabled", "budget_tokens": 4096}
        assert "output_config" not in body

    def test_an_effort_nobody_knows(self) -> None:
        body, lost = self.reasoning(effort="heroic")
        assert body["thinking"] == {"type": "adaptive"}
        assert lost == ["request.reasoning.effort: heroic"]

    def test_it_excludes_a_forced_tool_choice(self) -> None:
        body, lost = self.reasoning(tools=[Tool(name="f")], tool_choice=ToolChoice(mode="required"))
        assert "thinking" not in body
        assert lost == ["request.reasoning: not possible with a forced tool choice"]

    def test_it_excludes_sampling_options(self) -> None:
        body, lost = self.reasoning(temperature=0.5, top_k=3, top_p=0.5)
        assert not {"temperature", "top_k", "top_p"} & body.keys()
        assert [each.partition(":")[0] for each in lost] == ["request.temperature", "request.top_k", "request.top_p"]
        body, lost = self.reasoning(temperature=1.0, top_p=0.99)
        assert (body["temperature"], body["top_p"], lost) == (1, 0.99, [])


class TestOwnBody:
    BODY: dict[str, Any] = {
        "model": "alias",
        "max_tokens": 5,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "", "odd": None}]}],
        "stream": False,
        "service_tier": "auto",
        "betas_of_tomorrow": {"x": [1.0]},
    }

    def test_only_model_and_stream_change(self) -> None:
        wire = forward(self.BODY)
        assert json.loads(wire.body) == {**self.BODY, "model": "claude-x", "stream": True}
        assert wire.lost == ()

    def test_whole_answers(self) -> None:
        body = json.loads(
            forward({**self.BODY, "stream": True}, Target(model="c", vendor="anthropic", stream=False)).body
        )
        assert "stream" not in body

    def test_extensions_are_merged(self) -> None:
        body = json.loads(forward(self.BODY, extensions={"anthropic": {"betas_of_tomorrow": {"y": 2}}}).body)
        assert body["betas_of_tomorrow"] == {"x": [1.0], "y": 2}

    def test_the_callers_body_is_not_touched(self) -> None:
        request = FORMAT.read_request(json.dumps(self.BODY).encode())
        request.extensions = {"anthropic": {"betas_of_tomorrow": {"y": 2}}}
        FORMAT.write_request(request, TARGET)
        assert request.origin == self.BODY

    def test_thinking_that_is_not_anthropics_stays_here(self) -> None:
        own = {"type": "thinking", "thinking": "a", "signature": "EpwB"}
        turn = [
            own,
            {"type": "thinking", "thinking": "b", "signature": seal("gemini", "", "S")},
            {"type": "thinking", "thinking": "c", "signature": ""},
            {"type": "redacted_thinking", "data": seal("openai", "", "D")},
            {"type": "text", "text": "d"},
        ]
        messages = [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": turn},
            {"role": "assistant", "content": turn[1:2]},
            {"role": "user", "content": "y"},
        ]
        wire = forward({**self.BODY, "messages": messages})
        assert json.loads(wire.body)["messages"] == [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": [own, {"type": "text", "text": "d"}]},
            {"role": "user", "content": "y"},
        ]
        assert wire.lost == (
            "messages[1].content[1]: reasoning of gemini",
            "messages[1].content[2]: reasoning without a signature",
            "messages[1].content[3]: reasoning of openai",
            "messages[2].content[0]: reasoning of gemini",
        )
        assert b"headrace:" not in wire.body

    def test_sealed_thinking_goes_back_to_whom_it_belongs(self) -> None:
        turn = [{"type": "thinking", "thinking": "b", "signature": seal("moonshot", "", "S")}]
        messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": turn}]
        wire = forward({**self.BODY, "messages": messages}, Target(model="k", vendor="moonshot"))
        assert json.loads(wire.body)["messages"][1]["content"][0]["signature"] == "S"


def test_composing_what_was_read_says_the_same() -> None:
    """A request of this format whose own body is gone (changed on the way) is composed from what was understood."""
    body: dict[str, Any] = {
        "model": "claude-x",
        "max_tokens": 4000,
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "image", "source": {"type": "file", "file_id": "f_1"}},
                    {
                        "type": "document",
                        "source": {"type": "content", "content": [{"type": "text", "text": "a"}]},
                        "title": "T",
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "S"},
                    {"type": "text", "text": "I see."},
                    {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}, "caller": {"type": "direct"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t",
                        "content": [{"type": "text", "text": "r"}],
                        "is_error": True,
                    },
                    {"type": "text", "text": "go on"},
                ],
            },
        ],
        "tools": [{"name": "f", "input_schema": {"type": "object"}, "description": "d"}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "stop_sequences": ["END"],
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        "metadata": {"user_id": "u"},
        "stream": True,
    }
    wire = forward(body, origin=None)
    expected = json.loads(json.dumps(body))
    expected["messages"][2]["content"][0]["content"] = "r"
    assert json.loads(wire.body) == expected
    assert wire.lost == ()
