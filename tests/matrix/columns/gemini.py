"""Google's Gemini."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from headrace.formats import FORMATS
from headrace.formats.base import Located, WireRequest
from headrace.formats.gemini.parts import media_type_of, url_type
from headrace.formats.gemini.words import sealed
from headrace.framing import FRAMINGS, Frame, SSEEncoder
from headrace.model.content import Citation, Media, Opaque, Reasoning, Text, ToolCall, ToolResult
from headrace.model.request import Message, ReasoningConfig, Request, Tool
from headrace.model.response import Choice
from headrace.model.stop import StopReason
from tests.fixtures import FixtureRow
from tests.matrix.limits import (
    Limit,
    each_choice,
    no_refusal_logprobs,
    no_stop_sequence,
    only_citations,
    refusals_as_text,
    told_by_calls,
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
    is_reasoning,
    no_detail,
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
PDF = "JVBERi0xLjQK"
WAV = "UklGRiQAAAA="
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
NO_ARGUMENTS = {"type": "object", "properties": {}}


# What of an answer arrives.


def _page(citation: Citation) -> str | None:
    payload = citation.payload
    nested = payload.get("url_citation")
    url = (nested if isinstance(nested, dict) else payload).get("url")
    return url if isinstance(url, str) and url else None


def _as_source(citation: Citation) -> Citation:
    payload = citation.payload
    nested = payload.get("url_citation")
    said = nested if isinstance(nested, dict) else payload
    told: dict[str, Any] = {"uri": said["url"], "url": said["url"]}
    if said.get("title") is not None:
        told["title"] = said["title"]
    for theirs, ours in (("startIndex", "start_index"), ("endIndex", "end_index")):
        if said.get(ours) is not None:
            told[theirs] = told[ours] = said[ours]
    if isinstance(payload.get("license"), str):
        told["license"] = payload["license"]
    return Citation("google", told)


def _sources(choice: Choice) -> None:
    for part in choice.parts:
        if isinstance(part, Text) and part.citations:
            part.citations = [_as_source(one) for one in part.citations]


def _logprobs(choice: Choice) -> None:
    """Google has no bytes; they are those of the token."""
    for part in choice.parts:
        if isinstance(part, Text) and part.logprobs:
            part.logprobs = [_token(token) for token in part.logprobs]


def _token(token: dict[str, Any]) -> dict[str, Any]:
    def one(raw: dict[str, Any]) -> dict[str, Any]:
        return {"token": raw["token"], "logprob": raw["logprob"], "bytes": list(raw["token"].encode())}

    return {**one(token), "top_logprobs": [one(top) for top in token.get("top_logprobs") or []]}


def _sealed(choice: Choice) -> None:
    for part in choice.parts:
        if isinstance(part, Reasoning):
            if part.signature and part.vendor != "google":
                part.signature = sealed(part.vendor or "", part.id or "", part.signature)
            part.vendor = "google"


def _whole_calls(choice: Choice) -> None:
    choice.parts = [part for part in choice.parts if not isinstance(part, ToolCall) or part.complete]
    for part in choice.parts:
        if isinstance(part, ToolCall):
            try:
                said = json.loads(part.arguments or "{}")
            except ValueError:
                said = part.arguments
            if not isinstance(said, dict):
                part.arguments = json.dumps({"arguments": said})


def _media(choice: Choice) -> None:
    for part in choice.parts:
        if isinstance(part, Media):
            part.transcript = None
            if part.url:
                part.media_type, part.data = part.media_type or url_type(part.url, part.type), None


_STOPS = {
    _S.STOP_SEQUENCE: _S.END_TURN,
    _S.CONTEXT_WINDOW: _S.MAX_TOKENS,
    _S.REFUSAL: _S.CONTENT_FILTER,
    _S.PAUSE: _S.END_TURN,
    _S.TOOL_USE: _S.END_TURN,
}


LIMITS = (
    Limit(
        "server-side tool blocks",
        "those of other vendors left out: a part's shape is Google's",
        without(lambda part: isinstance(part, Opaque) and part.vendor != "google"),
        lost=r"(server_tool_call|server_tool_result|other|opaque)(: .*)?",
    ),
    Limit("citations", "left out where they cite no page", only_citations(_page), lost="citations"),
    Limit("citations", "those of pages are `citationSources`", each_choice(_sources)),
    Limit("log probabilities", "those of a refusal left out", each_choice(no_refusal_logprobs), lost="logprobs"),
    Limit("log probabilities", "without bytes", each_choice(_logprobs)),
    Limit("refusals", "sent as text, with the finish reason `PROHIBITED_CONTENT`", each_choice(refusals_as_text)),
    Limit("images and audio", "without a transcript", each_choice(_media), lost="transcript"),
    Limit("reasoning", "parts with `thought`", unchanged),
    Limit(
        "signatures and redacted reasoning",
        "in `thoughtSignature`; those of other vendors sealed: they come out again when the turn is sent back",
        each_choice(_sealed),
    ),
    Limit(
        "tool calls",
        "whole, never in pieces; arguments that are no object under `arguments`",
        each_choice(_whole_calls),
    ),
    Limit(
        "stop reasons",
        "Google's words: a stop sequence, a pause and a call are `STOP`, a full context window `MAX_TOKENS`",
        told_by_calls(_STOPS),
    ),
    Limit(
        "the stop sequence that was met",
        "left out: there is no field for it",
        each_choice(no_stop_sequence),
        lost="stop_sequence",
    ),
    Limit("abandoned tool calls", "left out, and named", unchanged),
    Limit("progress", "left out, and named", unchanged),
    Limit("token counts", "writes to the cache are not told apart", usage(cache_write_tokens=None)),
    Limit("cost, estimated counts", "left out: the object holds counts", usage(cost_usd=None, estimated=False)),
)


def _unnamed(told: Digest) -> None:
    told.created = 0


# What of a request arrives.


def _typed(request: Request, lost: set[str]) -> None:
    for part in parts_of(request):
        if isinstance(part, Media) and part.url:
            part.media_type = part.media_type or url_type(part.url, part.type)
            part.type = media_type_of(part.media_type)


def _untitled(request: Request, lost: set[str]) -> None:
    for number, message in enumerate(request.messages):
        for position, part in enumerate(message.parts):
            if isinstance(part, Media) and part.title is not None:
                part.title = None
                lost.add(rf"messages\[{number}\]\.parts\[{position}\]\.title")


def _one_system(request: Request, lost: set[str]) -> None:
    parts = [part for message in request.messages if message.role == "system" for part in message.parts]
    others = [message for message in request.messages if message.role != "system"]
    request.messages = [Message(role="system", parts=parts), *others] if parts else others


def _aside(request: Request, lost: set[str]) -> None:
    messages: list[Message] = []
    for message in request.messages:
        messages.append(message)
        for part in message.parts:
            if isinstance(part, ToolResult) and any(isinstance(one, Media) for one in part.parts):
                others = [one for one in part.parts if isinstance(one, Media)]
                part.parts = [one for one in part.parts if not isinstance(one, Media)]
                intro = Text(text=f"(from the result of tool call {part.tool_call_id})")
                messages.append(Message(role="user", parts=[intro, *others]))
    request.messages = messages


def _no_flag(request: Request, lost: set[str]) -> None:
    choice = request.tool_choice
    if choice is not None and choice.parallel is not None:
        choice.parallel = None
        lost.add(r"request\.tool_choice\.parallel")


def _lax(request: Request, lost: set[str]) -> None:
    for tool in request.tools:
        if isinstance(tool, Tool):
            tool.strict = None


def _budget(request: Request, lost: set[str]) -> None:
    reasoning = request.reasoning
    if reasoning is not None and reasoning.enabled and reasoning.effort is not None:
        request.reasoning = ReasoningConfig(budget_tokens={"low": 2048, "medium": 8192}.get(reasoning.effort, 24576))


REQUEST_LIMITS = (
    RequestLimit("system prompts", "all of them first, as one", _one_system),
    RequestLimit("names of messages", "left out", no_names),
    RequestLimit("images", "`detail` left out", no_detail),
    RequestLimit("documents", "those of plain text sent as text", text_documents_as_text),
    RequestLimit("documents", "titles left out", _untitled),
    RequestLimit("images", "those by URL get a type by their name", _typed),
    RequestLimit("tool results", "images follow in the same content", _aside),
    RequestLimit(
        "reasoning sent back",
        "only Google's own, as thoughts with their signature",
        drop("reasoning.*", lambda part: is_reasoning(part) and getattr(part, "vendor", None) != "google"),
    ),
    RequestLimit("tool choice", "the flag of parallel calls left out", _no_flag),
    RequestLimit("tool calls", "`strict` left out", _lax),
    RequestLimit("structured output", "a schema has no name", unnamed_schema),
    RequestLimit("structured output", "text, the default, is not said", no_text_format),
    RequestLimit(
        "reasoning effort and budget", "an effort becomes a budget, or a level where the model has them", _budget
    ),
    RequestLimit("`user`", "left out", clear("user")),
    RequestLimit("vendors' own tools", "those of other vendors left out", only_tools_of("google")),
    STAYS,
    MERGED,
)


def _user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": [_part(part) for part in parts]}


def _model(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": [_part(part) for part in parts]}


def _part(part: Any) -> dict[str, Any]:
    return {"text": part} if isinstance(part, str) else dict(part)


def _call(id: str, name: str, args: Any) -> dict[str, Any]:
    return {"functionCall": {"id": id, "name": name, "args": args}}


def _result(id: str, name: str, response: Any) -> dict[str, Any]:
    return {"functionResponse": {"id": id, "name": name, "response": response}}


def _declared(name: str, description: str, schema: Any) -> list[dict[str, Any]]:
    return [{"functionDeclarations": [{"name": name, "description": description, "parametersJsonSchema": schema}]}]


WEATHER = _declared("weather", "The weather of a city", SCHEMA)
_HI = {"contents": [_user("Hi")]}


def _plain(**config: Any) -> dict[str, Any]:
    return {**_HI, "generationConfig": config}


def _inline(mime: str, data: str) -> dict[str, Any]:
    return {"inlineData": {"mimeType": mime, "data": data}}


BODIES: dict[str, dict[str, Any]] = {
    "conversation": {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [_user("Hi"), _model("Hello."), _user("Who\u2028are you? \U0001f600")],
    },
    "audio": {"contents": [_user("Listen", _inline("audio/wav", WAV))]},
    "a call without arguments": {
        "contents": [
            _user("Time?"),
            _model(_call("call_1", "now", {})),
            _user(_result("call_1", "now", {"output": "noon"})),
        ],
        "tools": _declared("now", "The time", NO_ARGUMENTS),
    },
    "tool calls": {
        "contents": [
            _user("Weather in Oslo and Bergen?"),
            _model(
                "I will look.",
                _call("call_1", "weather", {"city": "Oslo", "n": 1.50}),
                _call("call_2", "weather", {"city": "Bergen"}),
            ),
            _user(
                _result("call_1", "weather", {"output": "rain"}),
                _result("call_2", "weather", {"error": "no such city"}),
            ),
            _user("And now?"),
        ],
        "tools": WEATHER,
    },
    "reasoning sent back": {
        "contents": [
            _user("Think"),
            _model(
                {"text": "First", "thought": True, "thoughtSignature": sealed("anthropic", "", "sig+/=1")},
                {"text": "", "thought": True, "thoughtSignature": sealed("anthropic", "-redacted", "sealed==")},
                {"text": "Sec", "thought": True},
                {"text": "ond", "thought": True},
                {"text": "", "thought": True, "thoughtSignature": sealed("anthropic", "", "sig2")},
                "So.",
            ),
            _user("On"),
        ]
    },
    "format: json": _plain(responseMimeType="application/json"),
    "format: bare schema": _plain(responseMimeType="application/json", responseJsonSchema=SCHEMA),
    "sampling": _plain(maxOutputTokens=77, temperature=0.25, topP=0.96, stopSequences=["END", "\n\n"]),
    "sampling that all can do": _plain(maxOutputTokens=77, temperature=1.0, stopSequences=["END"]),
    "hot": {**_HI, "generation_config": {"temperature": 1.5}},
    "top_k": _plain(topK=40, maxOutputTokens=9),
    "reasoning effort": _plain(thinkingConfig={"thinkingLevel": "low", "includeThoughts": True}),
    "reasoning budget": _plain(thinkingConfig={"thinkingBudget": 2000}, maxOutputTokens=9000),
    "no reasoning": _plain(thinkingConfig={"thinkingBudget": 0}, maxOutputTokens=9),
}

for _mode, _said in (("auto", "AUTO"), ("none", "NONE"), ("required", "ANY"), ("tool", "ANY")):
    _allowed = {"allowedFunctionNames": ["weather"]} if _mode == "tool" else {}
    BODIES[f"tool choice: {_mode}, parallel None"] = {
        **_HI,
        "tools": WEATHER,
        "toolConfig": {"functionCallingConfig": {"mode": _said, **_allowed}},
    }

UNKNOWN: dict[str, Any] = {
    "x_top": {"deep": [1, {"deeper": None}]},
    "contents": [
        {"role": "user", "x_content": 1, "parts": [{"text": "Hi", "x_part": {"a": [0.10]}}, {"xKind": {"x": 1}}]},
        {"role": "model", "parts": [{**_call("c", "f", {"a": 1}), "thoughtSignature": "c2ln"}]},
        {"role": "user", "parts": [_result("c", "f", {"anything": [1]})]},
    ],
    "tools": [{"googleSearch": {"x": 1}}, {"functionDeclarations": [{"name": "f", "xFunction": {"y": 2}}]}],
    "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
    "generationConfig": {"responseModalities": ["TEXT"], "speechConfig": {"x": 1}},
    "cachedContent": "cachedContents/1",
}


def _prepared(body: dict[str, Any], stream: bool) -> dict[str, Any]:
    return {**body, "model": "m", "stream": stream}  # where callers have them in the URL


_PATH = re.compile(r"/models/([^:]+):(streamGenerateContent\?alt=sse|generateContent)")


def _arriving(wire: WireRequest) -> Request:
    found = _PATH.fullmatch(wire.path)
    assert found is not None, wire.path
    assert unquote(found[1]) == "their-model"
    return FORMATS["gemini"].read_request(wire.body, Located(unquote(found[1]), "stream" in found[2]))


# How its streams end.


def check_whole_ending(frames: Sequence[Frame]) -> None:
    """One chunk has the finish reasons, and it is the last; nothing follows."""
    payloads = [json.loads(frame.data) for frame in frames]
    assert not any("error" in payload for payload in payloads)
    if frames:
        said = [
            number
            for number, payload in enumerate(payloads)
            if any(candidate.get("finishReason") for candidate in payload.get("candidates", ()))
            or payload.get("promptFeedback")
        ]
        assert said
        assert said[-1] == len(frames) - 1 or "usageMetadata" in payloads[-1]


def check_failed_ending(frames: Sequence[Frame], finished: Sequence[int]) -> None:
    payloads = [json.loads(frame.data) for frame in frames]
    assert "error" in payloads[-1]
    assert isinstance(payloads[-1]["error"]["message"], str)
    assert [number for number, payload in enumerate(payloads) if "error" in payload] == [len(frames) - 1]


def recorded(row: FixtureRow, data: bytes) -> bytes:
    if row.framing == "sse-raw":
        return data
    decoder = FRAMINGS["json_array" if row.framing == "json-array-raw" else "ndjson"].decoder()
    frames = [*decoder.feed(data), *decoder.eof()]
    return SSEEncoder().encode([Frame(json.dumps(json.loads(frame.data)).encode()) for frame in frames])


COLUMN = Column(
    name="gemini",
    limits=LIMITS,
    request_limits=REQUEST_LIMITS,
    bodies=BODIES,
    unknown=UNKNOWN,
    check_whole_ending=check_whole_ending,
    check_failed_ending=check_failed_ending,
    recordings=("google.gemini",),
    recorded=recorded,
    prepared=_prepared,
    arriving=_arriving,
    unnamed=_unnamed,
)
