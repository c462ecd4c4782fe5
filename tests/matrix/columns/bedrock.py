"""Amazon Bedrock: Converse, and Claude's own API in Bedrock's envelope."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from headrace.formats import FORMATS
from headrace.formats.base import Located, WireRequest
from headrace.formats.bedrock.sealing import seal, told_redacted
from headrace.framing import EventStreamEncoder, Frame, NDJSONDecoder
from headrace.model.content import (
    Media,
    Opaque,
    Part,
    Reasoning,
    RedactedReasoning,
    Refusal,
    ToolCall,
)
from headrace.model.request import Request, ResponseFormat
from headrace.model.response import Choice
from headrace.model.stop import StopReason
from tests.fixtures import FixtureRow
from tests.matrix.limits import (
    Limit,
    each_choice,
    first_choice,
    no_logprobs,
    no_stop_sequence,
    no_transcripts,
    only_citations,
    refusals_as_text,
    unchanged,
    usage,
    without,
)
from tests.matrix.request_limits import (
    MERGED,
    OTHER_SAMPLING,
    STAYS,
    RequestLimit,
    bare_schema,
    clear,
    cooled,
    drop,
    is_reasoning,
    no_detail,
    no_names,
    no_text_format,
    nothing,
    only_tools_of,
    parts_of,
    text_documents_as_data,
)

from .base import Column

if TYPE_CHECKING:
    from tests.matrix.pipes import Digest

_S = StopReason
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
PNG = "iVBORw0KGgo="
PDF = "JVBERi0xLjQK"
WAV = "UklGRiQAAAA="
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
NO_ARGUMENTS = {"type": "object", "properties": {}}


# What of an answer arrives.


def _foreign(part: Part) -> bool:
    return isinstance(part, Opaque) and part.vendor != "bedrock"


def _not_an_image(part: Part) -> bool:
    return isinstance(part, Media) and (part.media_type not in IMAGES or not part.data or bool(part.url))


_STOPS = {_S.REFUSAL: _S.CONTENT_FILTER, _S.PAUSE: _S.END_TURN, _S.OTHER: _S.END_TURN}


def _stop(choice: Choice) -> None:
    """Where a provider says only that it stopped, a call or a refusal in the content says why."""
    stop = choice.stop or _S.OTHER
    if stop in (_S.END_TURN, _S.OTHER):
        if any(isinstance(part, ToolCall) for part in choice.parts):
            stop = _S.TOOL_USE
        elif any(isinstance(part, Refusal) and part.text for part in choice.parts):
            stop = _S.CONTENT_FILTER
    choice.stop = _STOPS.get(stop, stop)


def _sealed(choice: Choice) -> None:
    for part in choice.parts:
        if isinstance(part, Reasoning):
            if part.signature and part.vendor != "bedrock":
                part.signature = seal(part.vendor or "", part.id or "", part.signature)
            part.vendor = "bedrock"
        elif isinstance(part, RedactedReasoning):
            part.data, part.vendor = told_redacted(part.data, part.vendor), "bedrock"


LIMITS = (
    Limit("several choices", "only the first is sent: a message has one content", first_choice, lost="choices"),
    Limit(
        "server-side tool blocks",
        "those of other vendors left out: their shapes are their vendor's",
        without(_foreign),
        lost="server_tool_call|server_tool_result|opaque|other",
    ),
    Limit(
        "citations",
        "those of other vendors left out: their shapes are their vendor's",
        only_citations(lambda one: one.vendor == "bedrock"),
        lost="citations",
    ),
    Limit("log probabilities", "left out: there is no field for them", no_logprobs, lost="logprobs"),
    Limit(
        "images and audio",
        "images by URL and other media left out",
        without(_not_an_image),
        lost="image|audio|media|document|video",
    ),
    Limit("images and audio", "images have no transcript", each_choice(no_transcripts)),
    Limit(
        "stop reasons",
        "a refusal is `content_filtered`, a pause and unknown words are `end_turn`",
        each_choice(_stop),
    ),
    Limit("refusals", "sent as text, with the stop reason `content_filtered`", each_choice(refusals_as_text)),
    Limit(
        "signatures and redacted reasoning",
        "those of other vendors are sealed: they come out again when the turn is sent back",
        each_choice(_sealed),
    ),
    Limit(
        "tool calls", "an id of more than 64 characters, or of others than may be in one, is a digest of it", unchanged
    ),
    Limit(
        "the stop sequence that was met",
        "left out: there is no field for it",
        each_choice(no_stop_sequence),
        lost="stop_sequence",
    ),
    Limit(
        "token counts",
        "input without cached tokens, as Bedrock counts; not those of reasoning alone",
        usage(reasoning_tokens=None),
    ),
    Limit("cost, estimated counts", "left out: `metadata` holds counts", usage(cost_usd=None, estimated=False)),
    Limit("progress", "left out, and named", unchanged),
    Limit(
        "abandoned tool calls",
        "end as they are; left out, and named, where another block was being sent",
        unchanged,
    ),
)


def _unnamed(told: Digest) -> None:
    told.id = told.model = ""
    told.created = 0


def _check_whole_ending(frames: Sequence[Frame]) -> None:
    names = [frame.event for frame in frames]
    assert names[-2:] == ["messageStop", "metadata"] or sorted(names[-2:]) == ["messageStop", "metadata"]
    assert names.count("messageStop") == names.count("metadata") == 1
    assert not any(name.startswith("exception:") for name in names)


def _check_failed_ending(frames: Sequence[Frame], finished: Sequence[int]) -> None:
    names = [frame.event for frame in frames]
    assert names[-1].startswith("exception:")
    assert [name for name in names if name.startswith("exception:")] == names[-1:]
    assert names.count("messageStop") == finished.count(0)


# What of a request arrives.


def _is_by_url(part: Part) -> bool:
    return isinstance(part, Media) and bool(part.url)


def _names_of_documents(request: Request, lost: set[str]) -> None:
    number = 0
    for part in parts_of(request):
        if isinstance(part, Media) and part.type == "document":
            number += 1
            part.title = (part.title or f"document-{number}").removesuffix(".pdf")
            part.media_type = part.media_type or "application/pdf"


def _no_none(request: Request, lost: set[str]) -> None:
    choice = request.tool_choice
    if choice is None:
        return
    if choice.parallel is not None:
        lost.add(r"request\.tool_choice\.parallel")
        choice.parallel = None
    if choice.mode == "none":
        request.tools, request.tool_choice = [], None


def _schema(request: Request, lost: set[str]) -> None:
    output = request.response_format
    if output is not None and output.type == "json":
        bare_schema(request, lost)
    elif output is not None:
        request.response_format = ResponseFormat(
            type="json_schema", schema=output.schema, name=output.name, description=output.description
        )


def _no_empty_stops(request: Request, lost: set[str]) -> None:
    request.stop_sequences = [stop for stop in request.stop_sequences if stop]


REQUEST_LIMITS = (
    STAYS,
    MERGED,
    RequestLimit("names of messages", "left out, and named", no_names),
    RequestLimit(
        "images",
        "by URL left out, and named, but for `s3://`: Bedrock fetches nothing",
        drop("(image|document)", _is_by_url),
    ),
    RequestLimit("images", "`detail` left out, and named", no_detail),
    RequestLimit(
        "documents", "by URL left out, and named; names are put in the characters that they may have", nothing
    ),
    RequestLimit("documents", "plain text goes as base64 data", text_documents_as_data),
    RequestLimit("documents", "those without a name get one", _names_of_documents),
    RequestLimit("other sampling", "left out, and named", clear(*OTHER_SAMPLING)),
    RequestLimit("`user`", "left out, and named", clear("user")),
    RequestLimit("`temperature`, `top_p`", "above 1 it is 1, and named", cooled),
    RequestLimit("stop sequences", "empty ones left out, and named", _no_empty_stops),
    RequestLimit("vendors' own tools", "those of other vendors left out, and named", only_tools_of("bedrock")),
    RequestLimit("structured output", "`text` is not sent, being what is meant without it", no_text_format),
    RequestLimit("structured output", "any JSON: asked for in the system prompt; a schema is always strict", _schema),
    RequestLimit(
        "tool choice",
        "`none` sends no tools, unless the conversation holds calls; there is no flag for parallel calls, which is named",
        _no_none,
    ),
    RequestLimit("reasoning sent back", "Bedrock's alone, signed, byte for byte", drop("reasoning.*", is_reasoning)),
    RequestLimit(
        "reasoning effort and budget",
        "in the model's own words: Claude's, Nova's, or an effort for the others",
        nothing,
    ),
    RequestLimit("`top_k`", "among the model's own parameters", nothing),
)


# What callers can say.


def _sayable(request: Request) -> None:
    """No URLs, no flag for parallel calls, no choice "none", nobody's name; documents have names."""
    for message in request.messages:
        message.parts = [part for part in message.parts if not _is_by_url(part)]
    request.n, request.user = 1, None


def _prepared(body: dict[str, Any], stream: bool) -> dict[str, Any]:
    return {"modelId": "m", **body, "stream": stream}


def _arriving(wire: WireRequest) -> Request:
    _, _, model, operation = wire.path.split("/")
    assert unquote(model) == "their-model"
    assert "stream" not in json.loads(wire.body)
    return FORMATS["bedrock"].read_request(wire.body, Located("their-model", operation == "converse-stream"))


def _tool(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"toolSpec": {"name": name, "description": description, "inputSchema": {"json": schema}}}


def _use(id: str, name: str, input: dict[str, Any]) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": id, "name": name, "input": input}}


def _result(id: str, *content: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"toolResult": {"toolUseId": id, "content": list(content), **fields}}


def _user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"text": one} if isinstance(one, str) else one for one in content]}


def _assistant(*content: Any) -> dict[str, Any]:
    return {**_user(*content), "role": "assistant"}


_WEATHER = [_tool("weather", "The weather of a city", SCHEMA)]
_HI = {"messages": [_user("Hi")]}
_REDACTED = base64.b64encode(b"headrace:anthropic::sealed==").decode()

_BODIES: dict[str, dict[str, Any]] = {
    "conversation": {
        "system": [{"text": "Be brief."}],
        "messages": [_user("Hi"), _assistant("Hello."), _user("Who\u2028are you? \U0001f600")],
    },
    "image": {"messages": [_user("Look", {"image": {"format": "png", "source": {"bytes": PNG}}})]},
    "audio": {"messages": [_user("Listen", {"audio": {"format": "wav", "source": {"bytes": WAV}}})]},
    "tool calls": {
        "messages": [
            _user("Weather in Oslo and Bergen?"),
            _assistant(
                "I will look.",
                _use("call_1", "weather", {"city": "Oslo", "n": 1.50}),
                _use("call_2", "weather", {"city": "Bergen"}),
            ),
            _user(
                _result("call_1", {"text": "rain"}, status="success"),
                _result("call_2", {"text": "no such city"}, status="error"),
                "And now?",
            ),
        ],
        "toolConfig": {"tools": _WEATHER},
    },
    "a call without arguments": {
        "messages": [
            _user("Time?"),
            _assistant(_use("call_1", "now", {})),
            _user(_result("call_1", {"text": "noon"})),
        ],
        "toolConfig": {"tools": [_tool("now", "The time", NO_ARGUMENTS)]},
    },
    "an image as a tool's result": {
        "messages": [
            _user("Draw"),
            _assistant(_use("call_1", "draw", {})),
            _user(_result("call_1", {"text": "Done"}, {"image": {"format": "png", "source": {"bytes": PNG}}})),
        ],
        "toolConfig": {"tools": [_tool("draw", "Draws", NO_ARGUMENTS)]},
    },
    "reasoning sent back": {
        "messages": [
            _user("Think"),
            _assistant(
                {"reasoningContent": {"reasoningText": {"text": "First", "signature": "headrace:anthropic::sig+/=1"}}},
                {"reasoningContent": {"redactedContent": _REDACTED}},
                {"reasoningContent": {"reasoningText": {"text": "Second", "signature": "headrace:anthropic::sig2"}}},
                "So.",
            ),
            _user("On"),
        ]
    },
    "format: bare schema": {
        **_HI,
        "outputConfig": {
            "textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": json.dumps(SCHEMA)}}}
        },
    },
    "sampling": {
        **_HI,
        "inferenceConfig": {"maxTokens": 77, "temperature": 0.25, "topP": 0.96, "stopSequences": ["END", "\n\n"]},
    },
    "sampling that all can do": {
        **_HI,
        "inferenceConfig": {"maxTokens": 77, "temperature": 1, "stopSequences": ["END"]},
    },
    "top_k": {**_HI, "inferenceConfig": {"maxTokens": 9}, "additionalModelRequestFields": {"top_k": 40}},
    "reasoning effort": {**_HI, "outputConfig": {"effort": "low"}},
    "reasoning budget": {
        **_HI,
        "inferenceConfig": {"maxTokens": 9000},
        "additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 2000}},
    },
    "no reasoning": {
        **_HI,
        "inferenceConfig": {"maxTokens": 9},
        "additionalModelRequestFields": {"thinking": {"type": "disabled"}},
    },
    **{
        f"tool choice: {mode}, parallel None": {**_HI, "toolConfig": {"tools": _WEATHER, "toolChoice": choice}}
        for mode, choice in {
            "auto": {"auto": {}},
            "required": {"any": {}},
            "tool": {"tool": {"name": "weather"}},
        }.items()
    },
}
_UNKNOWN = {
    "x_top": {"deep": [1, {"deeper": None}]},
    "guardrailConfig": {"guardrailIdentifier": "g", "guardrailVersion": "1"},
    "requestMetadata": {"tenant": "t"},
    "system": [{"text": "S"}, {"cachePoint": {"type": "default"}}],
    "messages": [
        {
            "role": "user",
            "x_message": 1,
            "content": [{"text": "Hi", "x": [0.10]}, {"cachePoint": {"type": "default"}}, {"x_kind": {"y": [None]}}],
        },
        _assistant({"toolUse": {"toolUseId": "c", "name": "f", "input": {"n": 1.0}, "x_use": True}}),
        _user(_result("c", {"json": {"a": 1}}, x_result="r")),
    ],
    "toolConfig": {"tools": [{**_tool("f", "d", {"type": "object", "x": 1}), "x_tool": 1}], "x_config": 1},
    "inferenceConfig": {"maxTokens": 5, "x_knob": 3},
    "additionalModelRequestFields": {"x": {"y": 1}},
}


def _recorded(row: FixtureRow, data: bytes) -> bytes:
    """Payloads were recorded with the union's member around them: the message's name."""
    if row.framing == "binary":
        return data
    decoder = NDJSONDecoder()
    frames = []
    for frame in (*decoder.feed(data), *decoder.eof()):
        ((name, payload),) = json.loads(frame.data).items()
        frames.append(Frame(json.dumps(payload).encode(), name))
    return EventStreamEncoder().encode(frames)


BEDROCK = Column(
    name="bedrock",
    limits=LIMITS,
    request_limits=REQUEST_LIMITS,
    bodies=_BODIES,
    unknown=_UNKNOWN,
    check_whole_ending=_check_whole_ending,
    check_failed_ending=_check_failed_ending,
    recordings=("bedrock.converse",),
    damaged=("bedrock/agw-broken.eventstream",),
    recorded=_recorded,
    prepared=_prepared,
    arriving=_arriving,
    caller_limits=_sayable,
    unnamed=_unnamed,
    seals=True,
)
