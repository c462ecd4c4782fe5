"""Ollama's two endpoints: /api/chat, and /api/generate, whose answers are the same in other fields."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.formats.ollama.images import image_type
from headrace.framing import Frame
from headrace.model.content import (
    Media,
    Opaque,
    Part,
    Reasoning,
    RedactedReasoning,
    Text,
    ToolCall,
    ToolResult,
)
from headrace.model.request import Message, ReasoningConfig, Request, ResponseFormat
from headrace.model.response import Choice
from headrace.model.stop import StopReason
from tests.matrix.limits import (
    Limit,
    each_choice,
    first_choice,
    is_carried_image,
    no_stop_sequence,
    refusals_as_text,
    told_by_calls,
    unchanged,
    unsigned,
    usage,
    without,
)
from tests.matrix.request_limits import (
    MERGED,
    STAYS,
    RequestLimit,
    clear,
    drop,
    is_audio,
    is_reasoning,
    no_error_mark,
    no_names,
    no_text_format,
    nothing,
    only_tools_of,
    parts_of,
    text_documents_as_text,
)

from .base import Column

if TYPE_CHECKING:
    from tests.matrix.pipes import Digest

_S = StopReason
PNG = "iVBORw0KGgo="
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
NO_ARGUMENTS = {"type": "object", "properties": {}}


# What of an answer arrives.


def _typed_by_its_bytes(choice: Choice) -> None:
    for part in choice.parts:
        if isinstance(part, Media):
            part.media_type, part.transcript = image_type(part.data or ""), None


def _no_citations(choice: Choice) -> None:
    for part in choice.parts:
        if isinstance(part, Text):
            part.citations = None


_STOPS = {
    _S.STOP_SEQUENCE: _S.END_TURN,
    _S.CONTEXT_WINDOW: _S.MAX_TOKENS,
    _S.TOOL_USE: _S.END_TURN,
    _S.PAUSE: _S.END_TURN,
    _S.MALFORMED_TOOL_CALL: _S.END_TURN,
    _S.OTHER: _S.END_TURN,
}


LIMITS = (
    Limit("several choices", "only the first is sent: an answer has one message", first_choice, lost="choices"),
    Limit(
        "server-side tool blocks",
        "left out: the format has only tools that the caller executes",
        without(lambda part: isinstance(part, Opaque)),
        lost="server_tool_call|server_tool_result|opaque|other",
    ),
    Limit("citations", "left out: there is no field for them", each_choice(_no_citations), lost="citations"),
    Limit(
        "images and audio",
        "images by URL and other media left out",
        without(lambda part: not is_carried_image(part)),
        lost="image|audio|media|document",
    ),
    Limit("images and audio", "images come without their type, told by their bytes", each_choice(_typed_by_its_bytes)),
    Limit("refusals", "sent as text, with the `done_reason` `refusal`", each_choice(refusals_as_text)),
    Limit(
        "signatures and redacted reasoning",
        "redacted reasoning left out: there is no field for it",
        without(lambda part: isinstance(part, RedactedReasoning)),
        lost="redacted_reasoning",
    ),
    Limit(
        "signatures and redacted reasoning",
        "signatures left out: `thinking` is plain text",
        each_choice(unsigned),
        lost="reasoning.signature",
    ),
    Limit("tool calls", "whole, never in pieces, in the order in which they began", unchanged),
    Limit(
        "abandoned tool calls",
        "left out: arguments are an object",
        without(lambda part: isinstance(part, ToolCall) and not part.complete),
        lost="tool_call.incomplete",
    ),
    Limit(
        "stop reasons",
        "`stop` and `length`, beside them `content_filter` and `refusal`; calls are `stop`",
        told_by_calls(_STOPS),
    ),
    Limit(
        "the stop sequence that was met",
        "left out: there is no field for it",
        each_choice(no_stop_sequence),
        lost="stop_sequence",
    ),
    Limit(
        "token counts",
        "those of the prompt, of them cached, of the answer; not of reasoning alone and of what was written to the cache",
        usage(reasoning_tokens=None, cache_write_tokens=None),
    ),
    Limit("cost, estimated counts", "left out: the last line holds counts", usage(cost_usd=None, estimated=False)),
    Limit("progress", "left out, and named", unchanged),
)


def _unnamed(told: Digest) -> None:
    told.id = ""


def _check_whole_ending(frames: Sequence[Frame]) -> None:
    lines = [json.loads(frame.data) for frame in frames]
    assert [number for number, line in enumerate(lines) if line.get("done")] == [len(lines) - 1]
    assert not any("error" in line for line in lines)


def _check_failed_ending(frames: Sequence[Frame], finished: Sequence[int]) -> None:
    lines = [json.loads(frame.data) for frame in frames]
    assert [number for number, line in enumerate(lines) if line.get("error")] == [len(lines) - 1]
    assert not any(line.get("done") for line in lines)


# What of a request arrives.


def _not_sent(test: Any, word: str) -> Any:
    """`drop`, but a message that holds nothing else stays, empty."""

    def change(request: Request, lost: set[str]) -> None:
        held = [list(message.parts) for message in request.messages]
        probe = Request(model="", messages=[Message(role=m.role, parts=m.parts) for m in request.messages])
        drop(word, test)(probe, lost)
        for message, parts in zip(request.messages, held, strict=True):
            message.parts = [part for part in parts if not test(part)] or [Text(text="")]

    return change


def _is_image_by_url(part: Part) -> bool:
    return isinstance(part, Media) and part.type == "image" and bool(part.url)


def _is_document(part: Part) -> bool:
    return isinstance(part, Media) and part.type == "document" and part.text is None


def _no_choice(request: Request, lost: set[str]) -> None:
    choice, request.tool_choice = request.tool_choice, None
    if choice is None:
        return
    if choice.parallel is not None:
        lost.add(r"request\.tool_choice\.parallel")
    if choice.mode == "none":
        request.tools = []
    elif choice.mode != "auto":
        lost.add(r"request\.tool_choice")


def _bare_schema(request: Request, lost: set[str]) -> None:
    if request.response_format is not None:
        request.response_format = ResponseFormat(
            type=request.response_format.type, schema=request.response_format.schema
        )


def _think(request: Request, lost: set[str]) -> None:
    reasoning = request.reasoning
    if reasoning is None:
        return
    if reasoning.budget_tokens is not None:
        lost.add(r"request\.reasoning\.budget_tokens")
    if reasoning.effort is not None:
        lost.add(r"request\.reasoning\.effort: sent as `think`")
    request.reasoning = ReasoningConfig(enabled=reasoning.enabled)


_BOTH = (
    STAYS,
    MERGED,
    RequestLimit("names of messages", "left out, and named", no_names),
    RequestLimit(
        "images", "by URL left out, and named: they are bare base64", _not_sent(_is_image_by_url, "image by URL")
    ),
    RequestLimit("documents", "left out, and named", _not_sent(_is_document, "document")),
    RequestLimit("documents", "plain text becomes text", text_documents_as_text),
    RequestLimit("audio", "left out, and named", _not_sent(is_audio, "audio")),
    RequestLimit("other sampling", "`n` left out, and named", clear("n")),
    RequestLimit("`user`", "left out, and named", clear("user")),
    RequestLimit("structured output", "`text` is not sent, being what is meant without it", no_text_format),
    RequestLimit("structured output", "a schema goes without its name and description", _bare_schema),
    RequestLimit(
        "reasoning effort and budget",
        "`think`: whether at all; how much only to models that know levels (see the quirk `think_levels`), else named",
        _think,
    ),
)
_CHAT = (
    RequestLimit(
        "reasoning sent back", "as plain `thinking`, but none that has a vendor", drop("reasoning.*", is_reasoning)
    ),
    RequestLimit("tool results", "the mark of an error is left out, and named", no_error_mark),
    RequestLimit("tool choice", "`none` sends no tools; that a call is required is left out, and named", _no_choice),
    RequestLimit("vendors' own tools", "those of other vendors left out, and named", only_tools_of("ollama")),
)


# /api/generate: a conversation in one prompt.


def _no_tools(request: Request, lost: set[str]) -> None:
    if request.tools:
        lost.add(r"request\.tools")
    request.tools, request.tool_choice = [], None


def _one_prompt(request: Request, lost: set[str]) -> None:
    """What the model is told, worked out here anew."""
    system: list[str] = []
    turns: list[str] = []
    images: list[Media] = []
    names: dict[str, str] = {}
    for number, message in enumerate(request.messages):
        pieces = []
        for position, part in enumerate(message.parts):
            if isinstance(part, Text):
                pieces.append(part.text)
            elif isinstance(part, Media):
                images.append(part)
            elif isinstance(part, Reasoning | RedactedReasoning):
                lost.add(rf"messages\[{number}\]\.parts\[{position}\]: reasoning.*")
        text = "\n".join(pieces)
        if message.role == "system":
            system.append(text)
        elif message.role == "tool":
            (result,) = message.parts
            assert isinstance(result, ToolResult)
            if result.is_error:
                lost.add(rf"messages\[{number}\]\.is_error")
            said = "\n".join(part.text for part in result.parts if isinstance(part, Text))
            images += [part for part in result.parts if isinstance(part, Media)]
            turns.append(f"Result of {names[result.tool_call_id]}: {said}")
        elif text or message.role == "user":
            turns.append(f"{message.role.capitalize()}: {text}")
        for part in message.parts:
            if isinstance(part, ToolCall):
                names[part.id] = part.name
                turns.append(f"Assistant: (calls {part.name} with {part.arguments})")
    alone = [message for message in request.messages if message.role != "system"]
    prompt = turns[0].removeprefix("User: ")
    if len(alone) > 1 or not (prompt or images):
        lost.add("messages: told as one prompt")
        prompt = "\n\n".join([*turns, "Assistant:"])
    user = Message(role="user", parts=[*([Text(text=prompt)] if prompt else []), *images])
    request.messages = [user]
    if system:
        request.messages.insert(0, Message(role="system", parts=[Text(text="\n\n".join(system))]))


_TOLD = "told in the one prompt that there is, which is named"
_GENERATE = (
    RequestLimit("tool choice", "left out with the tools, which are named", _no_tools),
    RequestLimit("vendors' own tools", "left out, and named", nothing),
    RequestLimit("tool calls", _TOLD, _one_prompt),
    RequestLimit("tool results", _TOLD, nothing),
    RequestLimit("system prompts", "all in one", nothing),
    RequestLimit("reasoning sent back", "left out, and named", nothing),
)


# What callers can say.


def _sayable(request: Request) -> None:
    """No URLs of images, no marks of errors, no choice of tools, one answer, nobody's name."""
    for message in request.messages:
        message.parts = [part for part in message.parts if not _is_image_by_url(part)]
    for part in parts_of(request):
        if isinstance(part, ToolResult):
            part.is_error = False
    request.tool_choice, request.n, request.user = None, 1, None


def _tools(name: str, description: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}},
    ]


def _call(id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"id": id, "function": {"name": name, "arguments": arguments}}


_WEATHER = _tools("weather", "The weather of a city", SCHEMA)
_KNOBS: dict[str, dict[str, Any]] = {
    "format: json": {"format": "json"},
    "format: bare schema": {"format": SCHEMA},
    "sampling": {"options": {"num_predict": 77, "temperature": 0.25, "top_p": 0.96, "stop": ["END", "\n\n"]}},
    "sampling that all can do": {"options": {"num_predict": 77, "temperature": 1, "stop": "END"}},
    "hot": {"options": {"temperature": 1.5}},
    "top_k": {"options": {"top_k": 40, "num_predict": 9}},
    "every other knob": {
        "options": {"seed": 7, "presence_penalty": 0.5, "frequency_penalty": -0.5},
        "logprobs": True,
        "top_logprobs": 3,
    },
    "reasoning effort": {"think": "low"},
    "no reasoning": {"think": False, "options": {"num_predict": 9}},
}
_HI = {"messages": [{"role": "user", "content": "Hi"}]}
_BODIES: dict[str, dict[str, Any]] = {
    "conversation": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello."},
            {"role": "user", "content": "Who\u2028are you? \U0001f600"},
        ]
    },
    "image": {"messages": [{"role": "user", "content": "Look", "images": [PNG]}]},
    "tool calls": {
        "messages": [
            {"role": "user", "content": "Weather in Oslo and Bergen?"},
            {
                "role": "assistant",
                "content": "I will look.",
                "tool_calls": [
                    _call("call_1", "weather", {"city": "Oslo", "n": 1.50}),
                    _call("call_2", "weather", {"city": "Bergen"}),
                ],
            },
            {"role": "tool", "content": "rain", "tool_name": "weather"},
            {"role": "tool", "content": "no such city", "tool_call_id": "call_2"},
            {"role": "user", "content": "And now?"},
        ],
        "tools": _WEATHER,
    },
    "a call without arguments": {
        "messages": [
            {"role": "user", "content": "Time?"},
            {"role": "assistant", "content": "", "tool_calls": [_call("call_1", "now", {})]},
            {"role": "tool", "content": "noon"},
        ],
        "tools": _tools("now", "The time", NO_ARGUMENTS),
    },
    "an image as a tool's result": {
        "messages": [
            {"role": "user", "content": "Draw"},
            {"role": "assistant", "tool_calls": [_call("call_1", "draw", {})]},
            {"role": "tool", "content": "Done", "images": [PNG], "tool_name": "draw"},
        ],
        "tools": _tools("draw", "Draws", NO_ARGUMENTS),
    },
    "tool choice: auto, parallel None": {**_HI, "tools": _WEATHER},
    **{id: {**_HI, **knobs} for id, knobs in _KNOBS.items()},
}
_UNKNOWN = {
    "x_top": {"deep": [1, {"deeper": None}]},
    "keep_alive": "5m",
    "options": {"num_ctx": 4096, "x_option": [0.10]},
    "messages": [
        {"role": "user", "content": "Hi", "x_message": 1},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"x_call": True, "function": {"name": "f", "arguments": {"a": 1}, "x_function": []}}],
        },
        {"role": "tool", "content": "", "tool_name": "f", "x_result": "r"},
    ],
    "tools": [{"type": "function", "x_tool": 1, "function": {"name": "f", "x_function": {"y": 2}}}],
}

OLLAMA = Column(
    name="ollama",
    limits=LIMITS,
    request_limits=(*_BOTH, *_CHAT),
    bodies=_BODIES,
    unknown=_UNKNOWN,
    check_whole_ending=_check_whole_ending,
    check_failed_ending=_check_failed_ending,
    recordings=("ollama.chat",),
    caller_limits=_sayable,
    unnamed=_unnamed,
)
OLLAMA_GENERATE = Column(
    name="ollama_generate",
    limits=LIMITS,
    request_limits=(*_BOTH, *_GENERATE),
    bodies={
        "image": {"prompt": "Look", "images": [PNG]},
        **{id: {"prompt": "Hi", **knobs} for id, knobs in _KNOBS.items()},
    },
    unknown={"prompt": "Hi", "suffix": "!", "raw": True, "context": [1, 2], "x_top": {"deep": [1, {"deeper": None}]}},
    check_whole_ending=_check_whole_ending,
    check_failed_ending=_check_failed_ending,
    recordings=("ollama.generate",),
    caller_limits=_sayable,
    unnamed=_unnamed,
)
