"""OpenAI's Responses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from headrace.formats.sealing import seal
from headrace.framing import Frame, SSEEncoder
from headrace.framing.ndjson import NDJSONDecoder
from headrace.model.content import Citation, Opaque, Reasoning, Refusal, Text, ToolCall
from headrace.model.request import Request, Tool
from headrace.model.response import Choice
from headrace.model.stop import StopReason
from tests.fixtures import FixtureRow
from tests.matrix.limits import (
    Limit,
    each_choice,
    first_choice,
    is_carried_image,
    no_refusal_logprobs,
    no_stop_sequence,
    no_transcripts,
    only_citations,
    unchanged,
    usage,
    without,
)
from tests.matrix.request_limits import (
    MERGED,
    STAYS,
    RequestLimit,
    clear,
    drop,
    effort,
    is_reasoning,
    named_schema,
    no_error_mark,
    no_names,
    no_text_format,
    only_tools_of,
    text_documents_as_text,
)

from .base import Column

_S = StopReason
PNG = "iVBORw0KGgo="
PDF = "JVBERi0xLjQK"
WAV = "UklGRiQAAAA="
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
NO_ARGUMENTS = {"type": "object", "properties": {}}
OWN = "openai_responses"


# What of an answer arrives.


def _page(citation: Citation) -> bool:
    payload = citation.payload
    if payload.get("type") in ("file_citation", "container_file_citation", "file_path"):
        return True
    return isinstance(payload.get("url_citation"), dict) or bool(isinstance(payload.get("url"), str) and payload["url"])


def _as_annotation(citation: Citation) -> Citation:
    payload = citation.payload
    if isinstance(payload.get("url_citation"), dict) or payload.get("type") in ("file_citation", "file_path"):
        return Citation("openai", payload)
    if payload.get("type") == "container_file_citation":
        return Citation("openai", payload)
    told = {"url": payload["url"], "title": payload.get("title") or "", "start_index": 0, "end_index": 0}
    told |= {name: payload[name] for name in ("start_index", "end_index") if isinstance(payload.get(name), int)}
    if payload.get("cited_text"):
        told["content"] = payload["cited_text"]
    return Citation("openai", {"type": "url_citation", "url_citation": told})


def _annotations(choice: Choice) -> None:
    for part in choice.parts:
        if isinstance(part, Text) and part.citations:
            part.citations = [_as_annotation(one) for one in part.citations]


def _known_reasoning(choice: Choice) -> None:
    """Reasoning that nobody signed is the provider's own."""
    for part in choice.parts:
        if isinstance(part, Reasoning) and not part.signature:
            part.vendor = part.vendor or "openai"
        if isinstance(part, Reasoning) and part.signature and not part.vendor:
            part.vendor = "openai"
            part.signature = seal("", part.id or "", part.signature)


_STOPS = {
    _S.STOP_SEQUENCE: _S.END_TURN,
    _S.CONTEXT_WINDOW: _S.MAX_TOKENS,
    _S.PAUSE: _S.END_TURN,
    _S.MALFORMED_TOOL_CALL: _S.END_TURN,
    _S.TOOL_USE: _S.END_TURN,
    _S.OTHER: _S.END_TURN,
}


def _stop(choice: Choice) -> None:
    stop = choice.stop or _S.OTHER
    refused = any(isinstance(part, Refusal) for part in choice.parts)
    if stop is _S.REFUSAL:
        stop = _S.END_TURN if refused else _S.CONTENT_FILTER
    stop = _STOPS.get(stop, stop)
    if stop is _S.END_TURN:
        called = any(isinstance(part, ToolCall) for part in choice.parts)
        stop = _S.TOOL_USE if called else _S.REFUSAL if refused else stop
    choice.stop = stop


LIMITS = (
    Limit("several choices", "only the first is sent: a response has one output", first_choice, lost="choices"),
    Limit(
        "server-side tool blocks",
        "those of other formats left out: an item's shape is OpenAI's",
        without(lambda part: isinstance(part, Opaque) and part.vendor != OWN),
        lost=r"(server_tool_call|server_tool_result|other|opaque)(: .*)?",
    ),
    Limit(
        "citations",
        "left out where they cite no web page: an annotation is a `url_citation`",
        only_citations(_page),
        lost="citations",
    ),
    Limit("citations", "those of web pages are annotations of type `url_citation`", each_choice(_annotations)),
    Limit(
        "images and audio",
        "an image is an item `image_generation_call`; images by URL and other media left out",
        without(lambda part: not is_carried_image(part)),
        lost="image|audio|media|document|video",
    ),
    Limit("images and audio", "without a transcript", each_choice(no_transcripts)),
    Limit("log probabilities", "those of a refusal left out", each_choice(no_refusal_logprobs), lost="logprobs"),
    Limit("reasoning", "told as a summary", each_choice(_known_reasoning)),
    Limit(
        "signatures and redacted reasoning",
        "in `encrypted_content`; those of other vendors sealed: they come out again when the turn is sent back",
        unchanged,
    ),
    Limit(
        "stop reasons",
        "`completed`, or `incomplete` for `max_output_tokens` or `content_filter`; all else is told by the content",
        each_choice(_stop),
    ),
    Limit(
        "the stop sequence that was met",
        "left out: there is no field for it",
        each_choice(no_stop_sequence),
        lost="stop_sequence",
    ),
    Limit("abandoned tool calls", "items that are `incomplete`", unchanged),
    Limit("progress", "left out, and named", unchanged),
    Limit("cost, estimated counts", "estimates are not marked", usage(estimated=False)),
)


# What of a request arrives.


def _no_marks(request: Request) -> None:
    no_error_mark(request, set())


def _lax(request: Request, lost: set[str]) -> None:
    for tool in request.tools:
        if isinstance(tool, Tool):
            tool.strict = bool(tool.strict)


REQUEST_LIMITS = (
    RequestLimit("names of messages", "left out", no_names),
    RequestLimit("tool results", "the mark of an error left out", no_error_mark),
    RequestLimit(
        "reasoning sent back",
        "only OpenAI's own, as items with their `encrypted_content`",
        drop("reasoning.*", lambda part: is_reasoning(part) and getattr(part, "vendor", None) != "openai"),
    ),
    RequestLimit("documents", "those of plain text sent as text", text_documents_as_text),
    RequestLimit("`top_k`", "left out", clear("top_k")),
    RequestLimit(
        "other sampling",
        "`seed`, penalties, `n` left out",
        clear("seed", "presence_penalty", "frequency_penalty", "n"),
    ),
    RequestLimit("stop sequences", "left out: there is no field for them", clear("stop_sequences")),
    RequestLimit("structured output", "a schema without a name is called `response`", named_schema),
    RequestLimit("structured output", "text, the default, is not said", no_text_format),
    RequestLimit(
        "reasoning effort and budget", "a budget becomes an effort; switched off only as the effort `none`", effort
    ),
    RequestLimit(
        "tool calls", "a tool's `strict` is said to be false where it is not said: left out it would be true", _lax
    ),
    RequestLimit("vendors' own tools", "those of other formats left out", only_tools_of(OWN)),
    STAYS,
    MERGED,
)


def _say(role: str, *content: Any) -> dict[str, Any]:
    return {"role": role, "content": content[0] if len(content) == 1 and isinstance(content[0], str) else list(content)}


def _in(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


def _out(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}


def _call(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": id, "name": name, "arguments": arguments}


def _result(id: str, output: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": output}


def _tool(name: str, description: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "name": name, "description": description, "parameters": parameters}


WEATHER = _tool("weather", "The weather of a city", SCHEMA)


def _plain(**fields: Any) -> dict[str, Any]:
    return {"input": "Hi", **fields}


BODIES: dict[str, dict[str, Any]] = {
    "conversation": {
        "instructions": "Be brief.",
        "input": [
            _say("user", "Hi"),
            {"type": "message", "role": "assistant", "content": [_out("Hello.")], "id": "msg_1", "status": "completed"},
            _say("user", _in("Who\u2028are you? \U0001f600")),
        ],
    },
    "image": {
        "input": [
            _say(
                "user",
                _in("Look"),
                {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
                {"type": "input_image", "image_url": "https://example.com/a.png"},
            )
        ]
    },
    "image detail": {
        "input": [_say("user", {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "low"})]
    },
    "document": {
        "input": [
            _say(
                "user",
                _in("Read"),
                {"type": "input_file", "filename": "report.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
            )
        ]
    },
    "document by URL": {
        "input": [_say("user", _in("Read"), {"type": "input_file", "file_url": "https://example.com/a.pdf"})]
    },
    "audio": {
        "input": [_say("user", _in("Listen"), {"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}})]
    },
    "tool calls": {
        "input": [
            _say("user", "Weather in Oslo and Bergen?"),
            _say("assistant", _out("I will look.")),
            _call("call_1", "weather", '{"city": "Oslo", "n": 1.50}'),
            {**_call("call_2", "weather", '{"city":"Bergen"}'), "id": "fc_2", "status": "completed"},
            _result("call_1", "rain"),
            _result("call_2", [_in("no such city")]),
            _say("user", "And now?"),
        ],
        "tools": [WEATHER],
    },
    "a call without arguments": {
        "input": [_say("user", "Time?"), _call("call_1", "now", ""), _result("call_1", "noon")],
        "tools": [_tool("now", "The time", NO_ARGUMENTS)],
    },
    "an image as a tool's result": {
        "input": [
            _say("user", "Draw"),
            _call("call_1", "draw", "{}"),
            _result("call_1", [_in("Done"), {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}]),
        ],
        "tools": [_tool("draw", "Draws", NO_ARGUMENTS)],
    },
    "reasoning sent back": {
        "input": [
            _say("user", "Think"),
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "First"}],
                "encrypted_content": seal("anthropic", "", "sig+/=1"),
            },
            {
                "type": "reasoning",
                "id": "rs_2",
                "summary": [],
                "encrypted_content": seal("anthropic", "-redacted", "sealed=="),
            },
            {
                "type": "reasoning",
                "id": "rs_3",
                "summary": [{"type": "summary_text", "text": "Second"}],
                "encrypted_content": seal("anthropic", "", "sig2"),
            },
            _say("assistant", _out("So.")),
            _say("user", "On"),
        ]
    },
    "format: text": _plain(text={"format": {"type": "text"}}),
    "format: json": _plain(text={"format": {"type": "json_object"}}),
    "format: schema": _plain(
        text={
            "format": {"type": "json_schema", "name": "city", "description": "A city", "schema": SCHEMA, "strict": True}
        }
    ),
    "hot": _plain(temperature=1.5),
    "user": _plain(user="u-1", max_output_tokens=9),
    "reasoning effort": _plain(reasoning={"effort": "low", "summary": "auto"}),
}

for _mode in ("auto", "none", "required", "tool"):
    for _parallel in (None, True, False):
        BODIES[f"tool choice: {_mode}, parallel {_parallel}"] = _plain(
            tools=[WEATHER],
            tool_choice={"type": "function", "name": "weather"} if _mode == "tool" else _mode,
            **({} if _parallel is None else {"parallel_tool_calls": _parallel}),
        )

UNKNOWN: dict[str, Any] = {
    "x_top": {"deep": [1, {"deeper": None}]},
    "instructions": "S",
    "input": [
        {
            "role": "user",
            "x_message": 1,
            "content": [{**_in("Hi"), "x_part": {"a": [0.10]}}, {"type": "x_kind", "x": 1}],
        },
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
        {**_call("c", "f", "{}"), "x_call": True},
        {**_result("c", ""), "x_result": "r"},
        {"type": "item_reference", "id": "msg_9"},
    ],
    "tools": [{**WEATHER, "x_tool": 1}, {"type": "web_search", "search_context_size": "low"}],
    "text": {"format": {"type": "x_grammar", "grammar": "root ::= x"}, "verbosity": "low"},
    "store": True,
    "include": ["web_search_call.results"],
    "truncation": "auto",
    "service_tier": "flex",
}


# How its streams end.


def _payloads(frames: Sequence[Frame]) -> list[dict[str, Any]]:
    return [json.loads(frame.data) for frame in frames]


_ENDS = {"response.completed", "response.incomplete", "response.failed"}


def _check_numbers(payloads: list[dict[str, Any]]) -> None:
    assert [payload["sequence_number"] for payload in payloads] == list(range(len(payloads)))


def check_whole_ending(frames: Sequence[Frame]) -> None:
    payloads = _payloads(frames)
    kinds = [payload["type"] for payload in payloads]
    assert [n for n, kind in enumerate(kinds) if kind in _ENDS] == [len(frames) - 1]
    assert kinds[-1] != "response.failed"
    output = payloads[-1]["response"]["output"]
    done = {p["output_index"]: p["item"] for p in payloads if p["type"] == "response.output_item.done"}
    if kinds[0] == "response.created" and "sequence_number" in payloads[0]:
        _check_numbers(payloads)
        assert [done[index] for index in sorted(done)] == output, "the last response holds what the events have told"


def check_failed_ending(frames: Sequence[Frame], finished: Sequence[int]) -> None:
    payloads = _payloads(frames)
    kinds = [payload["type"] for payload in payloads]
    assert [n for n, kind in enumerate(kinds) if kind in _ENDS] == [len(frames) - 1]
    assert kinds[-1] == "response.failed"
    response = payloads[-1]["response"]
    assert response["status"] == "failed"
    assert isinstance(response["error"]["message"], str)


def recorded(row: FixtureRow, data: bytes) -> bytes:
    if row.framing == "sse-raw":
        return data
    decoder = NDJSONDecoder()
    frames = [*decoder.feed(data), *decoder.eof()]
    kinds = [json.loads(frame.data)["type"] for frame in frames]
    # One of the recordings holds the four responses of a whole conversation: the first is one stream.
    last = next((n for n, kind in enumerate(kinds) if kind in _ENDS), len(kinds) - 1)
    return SSEEncoder().encode([Frame(frame.data, kind) for frame, kind in zip(frames, kinds, strict=True)][: last + 1])


COLUMN = Column(
    name="openai_responses",
    limits=LIMITS,
    request_limits=REQUEST_LIMITS,
    bodies=BODIES,
    unknown=UNKNOWN,
    check_whole_ending=check_whole_ending,
    check_failed_ending=check_failed_ending,
    recordings=("openai.responses",),
    recorded=recorded,
    caller_limits=_no_marks,
)
