"""What Mistral says otherwise than OpenAI."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from headrace.formats import FORMATS
from headrace.formats.base import ReaderOptions, Target, WriterOptions
from headrace.formats.mistral.shapes import nine
from headrace.framing import FRAMINGS, Frame
from headrace.model import events as ev
from headrace.model.assemble import assemble, explode
from headrace.model.content import Reasoning, Text, ToolCall, ToolResult
from headrace.model.errors import ErrorCode, ErrorInfo
from headrace.model.request import Message, Request, ToolChoice
from headrace.model.response import Choice, Response
from headrace.model.stop import StopReason
from tests.fixtures import fixture_bytes

MISTRAL = FORMATS["mistral"]
TARGET = Target(model="their-model", vendor="mistral")


def read(file: str) -> Response:
    decoder = FRAMINGS["ndjson"].decoder()
    data = fixture_bytes(file)
    reader = MISTRAL.stream_reader(ReaderOptions(vendor="mistral"))
    events = reader.read([*decoder.feed(data), *decoder.eof(), Frame(b"[DONE]")])
    return assemble([*events, *reader.eof()])


def test_recorded_thinking() -> None:
    (choice,) = read("mistral/mistral-reasoning.jsonl").choices
    reasoning, text = choice.parts
    assert isinstance(reasoning, Reasoning)
    assert reasoning.text == "The user is asking for 2+2. This is basic arithmetic. 2+2=4."
    assert isinstance(text, Text)
    assert text.text == "2 + 2 = 4"
    assert choice.stop is StopReason.END_TURN


def test_recorded_text_and_tool_call() -> None:
    assert read("mistral/mistral-text.jsonl").choices[0].parts
    (call,) = [part for part in read("mistral/mistral-tool-call.jsonl").choices[0].parts if isinstance(part, ToolCall)]
    assert (call.id, call.name) == ("gSIMJiOkT", "weather")
    assert json.loads(call.arguments) == {"location": "San Francisco"}


@pytest.mark.parametrize("id", ["call_1", "toolu_01ABC", "", "x" * 500, "ünï", "gSIMJiOkT"])
def test_ids_have_nine_letters(id: str) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9]{9}", nine(id))
    assert nine(nine(id)) == nine(id)
    assert nine("gSIMJiOkT") == "gSIMJiOkT"
    assert nine(id) == nine(id + "") != nine(id + "1")


def sent(request: Request) -> tuple[dict[str, Any], tuple[str, ...]]:
    wire = MISTRAL.write_request(request, TARGET)
    return json.loads(wire.body), wire.lost


def test_a_request_in_mistrals_words() -> None:
    body, lost = sent(
        Request(
            model="m",
            stream=True,
            messages=[
                Message(role="user", parts=[Text(text="Hi")]),
                Message(
                    role="assistant",
                    parts=[
                        Reasoning(text="Hm."),
                        Text(text="Let me see."),
                        ToolCall(id="call_1", name="f", arguments="{}"),
                    ],
                ),
                Message(role="tool", parts=[ToolResult(tool_call_id="call_1", parts=[Text(text="12")])]),
            ],
            tool_choice=ToolChoice(mode="required"),
            max_tokens=5,
            seed=7,
            logprobs=True,
            user="u",
            extensions={"mistral": {"safe_prompt": True}},
        )
    )
    assert body["random_seed"] == 7
    assert body["max_tokens"] == 5
    assert body["safe_prompt"] is True
    assert body.keys().isdisjoint({"seed", "stream_options", "user", "logprobs", "max_completion_tokens"})
    assert set(lost) == {"request.logprobs", "request.user"}
    _, assistant, result = body["messages"]
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    assert assistant["content"] == [thinking, {"type": "text", "text": "Let me see."}]
    (call,) = assistant["tool_calls"]
    assert result["tool_call_id"] == call["id"] == nine("call_1")


def test_required_is_any() -> None:
    from headrace.model.request import Tool

    body, _ = sent(
        Request(
            model="m",
            messages=[Message(role="user", parts=[Text(text="Hi")])],
            tools=[Tool(name="f")],
            tool_choice=ToolChoice(mode="required"),
        )
    )
    assert body["tool_choice"] == "any"


def test_a_callers_body() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    body = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": [thinking, {"type": "text", "text": "So."}], "prefix": True},
        ],
        "random_seed": 7,
        "safe_prompt": True,
        "tool_choice": "any",
        "stream": True,
    }
    request = MISTRAL.read_request(json.dumps(body).encode())
    assert [type(part).__name__ for part in request.messages[1].parts] == ["Reasoning", "Text"]
    assert request.seed == 7
    assert request.tool_choice == ToolChoice(mode="required")
    wire = MISTRAL.write_request(request, TARGET)
    assert json.loads(wire.body) == {**body, "model": "their-model"}


REASONED = Response(
    id="r",
    model="m",
    choices=[Choice(parts=[Reasoning(text="Hm."), Text(text="So.")], stop=StopReason.END_TURN)],
)


def test_thinking_is_a_chunk_of_the_content() -> None:
    writer = MISTRAL.stream_writer(WriterOptions(request_id="r"))
    frames = writer.write(list(explode(REASONED)))
    assert frames[-1].data == b"[DONE]"
    deltas = [choice["delta"] for frame in frames[:-1] for choice in json.loads(frame.data)["choices"]]
    assert not any("reasoning_content" in delta for delta in deltas)
    assert [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}] in [d.get("content") for d in deltas]
    reader = MISTRAL.stream_reader(ReaderOptions())
    again = assemble([*reader.read(frames), *reader.eof()])
    assert [part.text for part in again.choices[0].parts if isinstance(part, Reasoning | Text)] == ["Hm.", "So."]
    whole = json.loads(MISTRAL.write_response(REASONED, WriterOptions(request_id="r")))
    assert [chunk["type"] for chunk in whole["choices"][0]["message"]["content"]] == ["thinking", "text"]
    assert MISTRAL.read_response(json.dumps(whole).encode(), ReaderOptions()).choices[0].parts


def test_a_failed_stream_ends_with_the_error_alone() -> None:
    writer = MISTRAL.stream_writer(WriterOptions(request_id="r"))
    events = [*list(explode(REASONED))[:3], ev.Error(ErrorInfo(code=ErrorCode.TIMEOUT, message="Too late"))]
    frames = [frame for event in events for frame in writer.write([event])]
    assert json.loads(frames[-1].data)["object"] == "error"
    assert json.loads(frames[-1].data)["message"] == "Too late"
    assert not any(frame.data == b"[DONE]" for frame in frames)
    info = MISTRAL.read_error(422, {}, frames[-1].data)
    assert info.message == "Too late"


def test_ids_of_another_provider_are_made_nine_letters_in_a_callers_own_body() -> None:
    """Its earlier turn may have been another provider's."""
    call = {"id": "call_vienna", "type": "function", "function": {"name": "f", "arguments": "{}"}, "x": 1}
    kept = {**call, "id": "gSIMJiOkT"}
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", "tool_calls": [call, kept]},
        {"role": "tool", "tool_call_id": "call_vienna", "content": "12 degrees"},
        {"role": "tool", "tool_call_id": "gSIMJiOkT", "content": "13 degrees"},
    ]
    request = MISTRAL.read_request(json.dumps({"model": "m", "messages": messages}).encode())
    sent = json.loads(MISTRAL.write_request(request, TARGET).body)["messages"]
    first, second = sent[1]["tool_calls"]
    assert re.fullmatch("[a-zA-Z0-9]{9}", first["id"])
    assert first == {**call, "id": sent[2]["tool_call_id"]}
    assert second == kept
    assert sent[3] == messages[3]
    assert request.origin is not None
    assert request.origin["messages"] == messages, "the caller's own is not changed"


DETAIL = [
    {"type": "missing", "loc": ["body", "messages", 0, "content"], "msg": "Field required"},
    {"type": "extra_forbidden", "loc": ["body", "user"], "msg": "Extra inputs are not permitted"},
    "of no shape",
]


@pytest.mark.parametrize(
    "body",
    [
        {"detail": DETAIL},
        {
            "object": "error",
            "message": {"detail": DETAIL},
            "type": "invalid_request_error",
            "param": None,
            "code": None,
        },
    ],
)
def test_a_list_of_what_is_wrong_is_told_as_a_sentence(body: dict[str, Any]) -> None:
    info = MISTRAL.read_error(422, {}, json.dumps(body).encode())
    assert (info.code, info.http_status, info.param) == (ErrorCode.INVALID_REQUEST, 422, "messages[0].content")
    assert info.message == "messages[0].content: Field required; user: Extra inputs are not permitted"
    written = json.loads(MISTRAL.write_error(info))
    assert written["object"] == "error"
    assert written["message"] == info.message


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b'{"detail": []}', b'{"detail": "No"}', b'{"message": {}}', b"[" * 100_000]
)
def test_an_error_of_any_kind(body: bytes) -> None:
    info = MISTRAL.read_error(422, {}, body)
    assert info.code is ErrorCode.INVALID_REQUEST
    assert isinstance(json.loads(MISTRAL.write_error(info))["message"], str)
