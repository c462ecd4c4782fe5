"""What callers of /api/chat ask."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.formats.ollama import FORMAT
from headrace.model.content import Media, Part, Reasoning, Text, ToolCall, ToolResult
from headrace.model.errors import InvalidRequest
from headrace.model.request import ReasoningConfig, Request, ResponseFormat

HI = [{"role": "user", "content": "Hi"}]


def ask(messages: Any = HI, **fields: Any) -> Request:
    return FORMAT.read_request(json.dumps({"model": "m", "messages": messages, **fields}).encode())


def sent(*messages: dict[str, Any]) -> list[list[Part]]:
    return [message.parts for message in ask([*HI, *messages]).messages[1:]]


@pytest.mark.parametrize(("said", "stream"), [({}, True), ({"stream": None}, True), ({"stream": False}, False)])
def test_streaming_is_the_default(said: dict[str, Any], stream: bool) -> None:
    assert ask(**said).stream is stream


def test_calls_without_ids_are_called_by_their_place() -> None:
    call = {"function": {"name": "w", "arguments": {"city": "Oslo"}}}
    parts = sent(
        {"role": "assistant", "content": "", "tool_calls": [call, call]},
        {"role": "tool", "content": "rain", "tool_name": "w"},
        {"role": "tool", "content": "snow", "tool_name": "w"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "sun"},
    )
    ids = [part.id if isinstance(part, ToolCall) else part.tool_call_id for group in parts for part in group]  # type: ignore[union-attr]  # there are no others
    assert ids == ["call_1_0", "call_1_1", "call_1_0", "call_1_1", "call_4_0", "call_4_0"]


@pytest.mark.parametrize("named", ["tool_name", "nothing"])
def test_results_out_of_order(named: str) -> None:
    a, b = ({"id": f"id-{name}", "function": {"name": name, "arguments": {}}} for name in "ab")
    results = [{"role": "tool", "content": "of b", "tool_call_id": "id-b"}, {"role": "tool", "content": "of a"}]
    if named == "tool_name":
        results = [{"role": "tool", "content": f"of {name}", "tool_name": name} for name in "ba"]
    _, first, second = sent({"role": "assistant", "tool_calls": [a, b]}, *results)
    assert first == [ToolResult(tool_call_id="id-b", parts=[Text(text="of b")])]
    assert second == [ToolResult(tool_call_id="id-a", parts=[Text(text="of a")])]


def test_a_result_of_no_call_is_kept() -> None:
    ((result,),) = sent({"role": "tool", "content": "x", "tool_name": "lost"})
    assert result == ToolResult(tool_call_id="call_1", parts=[Text(text="x")], name="lost")


def test_an_assistant_message_in_the_order_of_an_answer() -> None:
    said = {"role": "assistant", "content": "So", "thinking": "Hm", "images": ["iVBORw0KGgo="]}
    ((*parts,),) = sent({**said, "tool_calls": [{"function": {"name": "f"}}]})
    assert parts == [
        Reasoning(text="Hm"),
        Text(text="So"),
        Media(type="image", media_type="image/png", data="iVBORw0KGgo="),
        ToolCall(id="call_1_0", name="f", arguments="{}"),
    ]


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        ("iVBORw0KGgo=", "image/png"),
        ("/9j/4AAQ", "image/jpeg"),
        ("R0lGODlh", "image/gif"),
        ("UklGRiQAAABXRUJQ", "image/webp"),
        ("AAAA", "image/png"),
    ],
)
def test_images_get_their_type(data: str, media_type: str) -> None:
    (message,) = ask([{"role": "user", "content": "", "images": [data]}]).messages
    assert message.parts == [Media(type="image", media_type=media_type, data=data)]


@pytest.mark.parametrize(
    ("think", "config"),
    [
        (None, None),
        (True, ReasoningConfig()),
        (False, ReasoningConfig(enabled=False)),
        ("high", ReasoningConfig(effort="high")),
        ("none", ReasoningConfig(enabled=False, effort="none")),
    ],
)
def test_think(think: Any, config: ReasoningConfig | None) -> None:
    assert ask(think=think).reasoning == config


@pytest.mark.parametrize(
    ("format", "wanted"),
    [
        ("", None),
        ("json", ResponseFormat(type="json")),
        ({"type": "object"}, ResponseFormat(type="json_schema", schema={"type": "object"})),
    ],
)
def test_format(format: Any, wanted: ResponseFormat | None) -> None:
    assert ask(format=format).response_format == wanted


def test_options() -> None:
    options = {"num_predict": 9, "temperature": 0.5, "top_k": 3, "seed": 7, "stop": "END", "num_ctx": 1, "mirostat": 2}
    request = ask(options=options, keep_alive=0)
    assert (request.max_tokens, request.temperature, request.top_k, request.seed) == (9, 0.5, 3, 7)
    assert request.stop_sequences == ["END"]
    assert request.lost == ["keep_alive", "options.num_ctx", "options.mirostat"]


@pytest.mark.parametrize("limit", [-1, -2, 0])
def test_limits_that_are_none(limit: int) -> None:
    assert ask(options={"num_predict": limit}).max_tokens is None


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": [5]}, "messages[0]"),
        ({"messages": [{"content": "Hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "wizard", "content": "Hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": ["Hi"]}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "images": "x"}]}, "messages[0].images"),
        ({"messages": [{"role": "user", "images": ["?"]}]}, "messages[0].images[0]"),
        ({"messages": [{"role": "user", "images": [5]}]}, "messages[0].images[0]"),
        ({"messages": [{"role": "assistant", "tool_calls": {}}]}, "messages[0].tool_calls"),
        ({"messages": [{"role": "assistant", "tool_calls": [5]}]}, "messages[0].tool_calls[0].function"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": ""}}]}]},
            "messages[0].tool_calls[0].function.name",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": [1]}}]}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
        ({"tools": "all"}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
        ({"options": {"temperature": "hot"}}, "options.temperature"),
        ({"options": {"num_predict": 2**70}}, "options.num_predict"),
        ({"options": []}, "options"),
        ({"think": 5}, "think"),
        ({"format": 5}, "format"),
        ({"stream": "yes"}, "stream"),
    ],
)
def test_bad_fields_are_named(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ask(**{"messages": HI, **fields})
    assert caught.value.info.param == path
    assert path in caught.value.info.message


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_what_is_no_body(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        FORMAT.read_request(body)
