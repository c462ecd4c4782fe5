"""Cohere's chat, version 2."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.framing import Frame, SSEEncoder
from headrace.framing.ndjson import NDJSONDecoder
from headrace.model.content import Citation, Media, Opaque, Reasoning, RedactedReasoning, Text, ToolCall, ToolResult
from headrace.model.request import ReasoningConfig, Request
from headrace.model.response import Choice
from headrace.model.stop import StopReason
from tests.fixtures import FixtureRow
from tests.matrix.limits import (
    Limit,
    each_choice,
    first_choice,
    no_logprobs,
    no_stop_sequence,
    only_citations,
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
    only_tools_of,
    parts_of,
    text_documents_as_text,
    unnamed_schema,
)

from .base import Column

if TYPE_CHECKING:
    from tests.matrix.pipes import Digest

_S = StopReason
PNG = "iVBORw0KGgo="
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
NO_ARGUMENTS = {"type": "object", "properties": {}}
DONE = b"[DONE]"


# What of an answer arrives.


def _page(citation: Citation) -> bool:
    payload = citation.payload
    nested = payload.get("url_citation")
    url = (nested if isinstance(nested, dict) else payload).get("url")
    return isinstance(payload.get("sources"), list) or bool(isinstance(url, str) and url)


def _as_document(citation: Citation, content: int) -> Citation:
    payload = citation.payload
    if isinstance(payload.get("sources"), list):
        return Citation("cohere", payload)
    nested = payload.get("url_citation")
    said = nested if isinstance(nested, dict) else payload
    document = {"url": said["url"], **({"title": said["title"]} if isinstance(said.get("title"), str) else {})}
    start, end = (said.get(name) if isinstance(said.get(name), int) else 0 for name in ("start_index", "end_index"))
    text = said.get("cited_text")
    told: dict[str, Any] = {
        "start": start,
        "end": end,
        "text": text if isinstance(text, str) else "",
        "sources": [{"type": "document", "id": said["url"], "document": document}],
        "type": "TEXT_CONTENT",
        "content_index": content,
        **document,
        "start_index": start,
        "end_index": end,
    }
    return Citation("cohere", told)


def _documents(choice: Choice) -> None:
    content = 0
    for part in choice.parts:
        if isinstance(part, Text):
            if part.citations:
                part.citations = [_as_document(one, content) for one in part.citations]
            content += bool(part.text or part.citations)
        elif isinstance(part, Reasoning):
            content += bool(part.text)


_STOPS = {
    _S.CONTEXT_WINDOW: _S.MAX_TOKENS,
    _S.CONTENT_FILTER: _S.END_TURN,
    _S.REFUSAL: _S.END_TURN,
    _S.PAUSE: _S.END_TURN,
    _S.MALFORMED_TOOL_CALL: _S.END_TURN,
    _S.OTHER: _S.END_TURN,
}


def _planned(request: Request, lost: set[str]) -> None:
    for message in request.messages:
        if any(isinstance(part, ToolCall) for part in message.parts):
            for part in message.parts:
                if isinstance(part, Text):
                    part.extensions = {"cohere": {"tool_plan": True}}


LIMITS = (
    Limit("several choices", "only the first is sent: an answer has one message", first_choice, lost="choices"),
    Limit(
        "server-side tool blocks",
        "left out: the format has only tools that the caller executes",
        without(lambda part: isinstance(part, Opaque)),
        lost=r"(server_tool_call|server_tool_result|other|opaque)(: .*)?",
    ),
    Limit("citations", "left out where they cite no page", only_citations(_page), lost="citations"),
    Limit("log probabilities", "left out: Cohere's are of other shape", no_logprobs, lost="logprobs"),
    Limit("refusals", "sent as text", each_choice(refusals_as_text)),
    Limit(
        "images and audio",
        "left out",
        without(lambda part: isinstance(part, Media)),
        lost="image|audio|media|document|video",
    ),
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
    Limit("citations", "those of pages cite a document with its `url`", each_choice(_documents)),
    Limit(
        "stop reasons",
        "`COMPLETE` for all but a stop sequence, the limit of tokens and tool calls",
        told_by_calls(_STOPS),
    ),
    Limit(
        "the stop sequence that was met",
        "left out: there is no field for it",
        each_choice(no_stop_sequence),
        lost="stop_sequence",
    ),
    Limit("abandoned tool calls", "never ended; left out of a whole body", unchanged),
    Limit("progress", "left out, and named", unchanged),
    Limit(
        "token counts",
        "reasoning and writes to the cache are not told apart",
        usage(cache_write_tokens=None, reasoning_tokens=None),
    ),
    Limit("cost, estimated counts", "left out: the object holds counts", usage(cost_usd=None, estimated=False)),
)


def _unnamed(told: Digest) -> None:
    told.created, told.model = 0, ""


# What of a request arrives.


def _no_media_in_results(request: Request, lost: set[str]) -> None:
    for number, message in enumerate(request.messages):
        for part in message.parts:
            if isinstance(part, ToolResult) and any(isinstance(one, Media) for one in part.parts):
                part.parts = [one for one in part.parts if not isinstance(one, Media)]
                lost.add(rf"messages\[{number}\](: media in a tool's result|\.parts\[\d+\]: .*)")


def _required(request: Request, lost: set[str]) -> None:
    choice = request.tool_choice
    if choice is None:
        return
    if choice.parallel is not None:
        choice.parallel = None
        lost.add(r"request\.tool_choice\.parallel")
    if choice.mode == "tool":
        choice.mode, choice.name = "required", None
        lost.add(r"request\.tool_choice\.name")
    if choice.mode == "auto":
        request.tool_choice = None


def _budget(request: Request, lost: set[str]) -> None:
    reasoning = request.reasoning
    if reasoning is not None and reasoning.enabled and reasoning.effort is not None:
        request.reasoning = ReasoningConfig(budget_tokens={"low": 2048, "medium": 8192}.get(reasoning.effort))


REQUEST_LIMITS = (
    RequestLimit("names of messages", "left out", no_names),
    RequestLimit("documents", "plain text becomes text, others left out", text_documents_as_text),
    RequestLimit("documents", "", drop("document", lambda part: isinstance(part, Media) and part.type == "document")),
    RequestLimit("audio", "left out", drop("audio", is_audio)),
    RequestLimit("tool results", "the mark of an error left out", no_error_mark),
    RequestLimit("tool results", "images left out", _no_media_in_results),
    RequestLimit(
        "reasoning sent back", "as plain `thinking`, but none that is signed", drop("reasoning.*", is_reasoning)
    ),
    RequestLimit("tool choice", "`REQUIRED` or `NONE`; which tool is left out", _required),
    RequestLimit("tool calls", "what is said before them becomes `tool_plan`", _planned),
    RequestLimit("structured output", "a schema has no name", unnamed_schema),
    RequestLimit("structured output", "text, the default, is not said", no_text_format),
    RequestLimit("reasoning effort and budget", "an effort becomes a budget", _budget),
    RequestLimit("other sampling", "`top_logprobs`, `n` left out", clear("top_logprobs", "n")),
    RequestLimit("`user`", "left out", clear("user")),
    RequestLimit("vendors' own tools", "left out", only_tools_of("cohere")),
    STAYS,
    MERGED,
)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _call(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _tools(name: str, description: str, parameters: Any) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}]


WEATHER = _tools("weather", "The weather of a city", SCHEMA)


def _plain(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "Hi"}], **fields}


BODIES: dict[str, dict[str, Any]] = {
    "conversation": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": [_text("Hello.")]},
            {"role": "user", "content": [_text("Who\u2028are you? \U0001f600")]},
        ]
    },
    "image": {
        "messages": [
            {
                "role": "user",
                "content": [
                    _text("Look"),
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
                    {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
                ],
            }
        ]
    },
    "tool calls": {
        "messages": [
            {"role": "user", "content": "Weather in Oslo and Bergen?"},
            {
                "role": "assistant",
                "content": "I will look.",
                "tool_calls": [
                    _call("call_1", "weather", '{"city": "Oslo", "n": 1.50}'),
                    _call("call_2", "weather", '{"city":"Bergen"}'),
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
            {"role": "tool", "tool_call_id": "call_2", "content": [_text("no such city")]},
            {"role": "user", "content": "And now?"},
        ],
        "tools": WEATHER,
    },
    "a call without arguments": {
        "messages": [
            {"role": "user", "content": "Time?"},
            {"role": "assistant", "tool_calls": [_call("call_1", "now", "")]},
            {"role": "tool", "tool_call_id": "call_1", "content": "noon"},
        ],
        "tools": _tools("now", "The time", NO_ARGUMENTS),
    },
    "format: text": _plain(response_format={"type": "text"}),
    "format: json": _plain(response_format={"type": "json_object"}),
    "format: bare schema": _plain(response_format={"type": "json_object", "json_schema": SCHEMA}),
    "sampling": _plain(max_tokens=77, temperature=0.25, p=0.96, stop_sequences=["END", "\n\n"]),
    "sampling that all can do": _plain(max_tokens=77, temperature=1.0, stop_sequences=["END"]),
    "top_k": _plain(k=40, max_tokens=9),
    "reasoning budget": _plain(thinking={"type": "enabled", "token_budget": 2000}, max_tokens=9000),
    "no reasoning": _plain(thinking={"type": "disabled"}, max_tokens=9),
    "tool choice: required, parallel None": _plain(tools=WEATHER, tool_choice="REQUIRED"),
    "tool choice: none, parallel None": _plain(tools=WEATHER, tool_choice="NONE"),
}

UNKNOWN: dict[str, Any] = {
    "x_top": {"deep": [1, {"deeper": None}]},
    "messages": [
        {"role": "user", "x_message": 1, "content": [{"type": "text", "text": "Hi", "x_part": {"a": [0.10]}}]},
        {"role": "assistant", "tool_plan": "I look.", "tool_calls": [{**_call("c", "f", "{}"), "x_call": True}]},
        {
            "role": "tool",
            "tool_call_id": "c",
            "content": [{"type": "document", "document": {"data": {"a": 1}, "id": "d"}}],
        },
    ],
    "documents": [{"data": {"text": "All is well."}}],
    "safety_mode": "OFF",
    "citation_options": {"mode": "FAST"},
    "strict_tools": True,
}


# How its streams end.


def check_whole_ending(frames: Sequence[Frame]) -> None:
    assert [number for number, frame in enumerate(frames) if frame.data == DONE] == [len(frames) - 1]
    kinds = [json.loads(frame.data)["type"] for frame in frames[:-1]]
    assert kinds.count("message-end") == 1
    assert kinds[-1] == "message-end"
    assert json.loads(frames[-2].data)["delta"]["finish_reason"] != "ERROR"


def check_failed_ending(frames: Sequence[Frame], finished: Sequence[int]) -> None:
    assert not any(frame.data == DONE for frame in frames), "nothing has come to its end"
    payloads = [json.loads(frame.data) for frame in frames]
    assert [number for number, payload in enumerate(payloads) if payload["type"] == "message-end"] == [len(frames) - 1]
    assert payloads[-1]["delta"]["finish_reason"] == "ERROR"
    assert isinstance(payloads[-1]["delta"]["error"], str)


def recorded(row: FixtureRow, data: bytes) -> bytes:
    if row.framing == "sse-raw":
        return data
    decoder = NDJSONDecoder()
    frames = [*decoder.feed(data), *decoder.eof()]
    named = [Frame(frame.data, json.loads(frame.data)["type"]) for frame in frames]
    return SSEEncoder().encode([*named, Frame(DONE)])


def _caller(request: Request) -> None:
    no_error_mark(request, set())
    for part in parts_of(request):
        if isinstance(part, ToolCall):
            part.extensions = None


COLUMN = Column(
    name="cohere",
    limits=LIMITS,
    request_limits=REQUEST_LIMITS,
    bodies=BODIES,
    unknown=UNKNOWN,
    check_whole_ending=check_whole_ending,
    check_failed_ending=check_failed_ending,
    recordings=("cohere.v2",),
    recorded=recorded,
    caller_limits=_caller,
    unnamed=_unnamed,
)
