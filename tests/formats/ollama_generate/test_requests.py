"""One prompt: what callers of /api/generate ask, and how a conversation is told to a provider of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.formats import FORMATS
from headrace.formats.base import ReaderOptions, Target
from headrace.formats.ollama_generate import FORMAT
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.assemble import assemble
from headrace.model.content import Media, Text, ToolCall, ToolResult
from headrace.model.errors import InvalidRequest
from headrace.model.request import Message, Request, Tool

TARGET = Target(model="their-model", vendor="ollama")


def ask(**fields: Any) -> Request:
    return FORMAT.read_request(json.dumps({"model": "m", **fields}).encode())


def told(*messages: Message, **fields: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    wire = FORMAT.write_request(Request(model="m", messages=list(messages), **fields), TARGET)
    assert wire.path == "/api/generate"
    return json.loads(wire.body), wire.lost


def says(role: str, text: str) -> Message:
    return Message(role=role, parts=[Text(text=text)])


def test_a_prompt() -> None:
    request = ask(prompt="Hi", system="Be brief.", images=["iVBORw0KGgo="], think=True, options={"seed": 1})
    assert request.messages == [
        says("system", "Be brief."),
        Message(role="user", parts=[Text(text="Hi"), Media(type="image", media_type="image/png", data="iVBORw0KGgo=")]),
    ]
    assert (request.stream, request.seed) == (True, 1)
    assert ask(prompt="Hi", stream=False).stream is False


def test_what_no_other_format_has_is_named() -> None:
    request = ask(prompt="a", suffix="b", raw=True, context=[1], template="{{ .Prompt }}", keep_alive=1)
    assert set(request.lost) == {"suffix", "raw", "context", "template", "keep_alive"}
    assert ask(prompt="a", raw=False, suffix="", context=None).lost == []


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": "a", "images": ["?"]}, "images[0]"),
        ({"prompt": "a", "system": 5}, "system"),
        ({"model": None, "prompt": "a"}, "model"),
    ],
)
def test_bad_fields_are_named(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ask(**fields)
    assert caught.value.info.param == path


def test_one_message_is_the_prompt() -> None:
    assert told(says("system", "A"), says("system", "B"), says("user", "Hi")) == (
        {"model": "their-model", "prompt": "Hi", "system": "A\n\nB", "stream": True},
        (),
    )


def test_a_conversation_is_told() -> None:
    body, lost = told(
        says("user", "Weather?"),
        Message(role="assistant", parts=[ToolCall(id="c", name="w", arguments='{"x":1}')]),
        Message(role="tool", parts=[ToolResult(tool_call_id="c", parts=[Text(text="rain")])]),
        says("assistant", "It rains."),
        says("user", "And now?"),
        tools=[Tool(name="w")],
    )
    assert body["prompt"] == (
        'User: Weather?\n\nAssistant: (calls w with {"x":1})\n\nResult of w: rain\n\nAssistant: It rains.\n\n'
        "User: And now?\n\nAssistant:"
    )
    assert lost == ("request.tools", "messages: told as one prompt")


def test_a_prompt_is_never_empty() -> None:
    """An empty one would only load the model."""
    body, lost = told(says("user", ""))
    assert body["prompt"] == "User: \n\nAssistant:"
    assert lost == ("messages: told as one prompt",)


def test_a_caller_of_the_same_format_is_not_changed() -> None:
    given = {"model": "m", "prompt": "a", "suffix": "b", "context": [1, 2], "x": 1}
    request = FORMAT.read_request(json.dumps(given).encode())
    assert json.loads(FORMAT.write_request(request, TARGET).body) == {**given, "model": "their-model", "stream": True}


def test_chat_to_generate_and_back() -> None:
    request = FORMATS["ollama"].read_request(
        json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "keep_alive": 5}).encode()
    )
    wire = FORMAT.write_request(request, TARGET)
    assert json.loads(wire.body)["prompt"] == "Hi"
    assert wire.lost == ("keep_alive",)


def test_progress_and_an_image() -> None:
    lines = [
        {"model": "m", "response": "", "completed": 1, "total": 4, "done": False},
        {"model": "m", "response": "", "completed": 10**400, "total": 4, "done": False},
        {"model": "m", "image": "iVBORw0KGgo=", "done": True, "done_reason": "stop"},
    ]
    reader = FORMAT.stream_reader(ReaderOptions())
    events = reader.read([Frame(json.dumps(line).encode()) for line in lines])
    assert [event.percent for event in events if isinstance(event, ev.Progress)] == [25.0, None]
    (image,) = assemble(events).choices[0].parts
    assert image == Media(type="image", media_type="image/png", data="iVBORw0KGgo=")
