"""REQUEST_CANNOT: what of a request a provider of each format cannot be told, with the reason.

The tests of the matrix apply a limit's `change` to what a caller asked and demand that exactly this arrives, and that
`WireRequest.lost` names what the change says it does; docs/formats.md is made from the reasons. Only requests that come in
another format are changed: in the same format a body goes on as it is.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass

from headrace.model.content import Media, Part, Reasoning, RedactedReasoning, Text, ToolResult
from headrace.model.request import Message, ReasoningConfig, Request, ResponseFormat, Tool

Change = Callable[[Request, set[str]], None]
"""Makes of a request, in place, what arrives of it; adds the expressions that a name in `lost` must match."""


@dataclass(frozen=True)
class RequestLimit:
    what: str
    """Row of the document."""
    reason: str
    """Cell of the document."""
    change: Change


def parts_of(request: Request) -> list[Part]:
    return [part for message in request.messages for part in message.parts]


def _drop(word: str, test: Callable[[Part], bool]) -> Change:
    """Leave out the parts that the test says, and messages that hold nothing else."""

    def change(request: Request, lost: set[str]) -> None:
        for number, message in enumerate(request.messages):
            for position, part in enumerate(message.parts):
                if test(part):
                    lost.add(rf"messages\[{number}\]\.parts\[{position}\]: {word}")
            message.parts = [part for part in message.parts if not test(part)]
        request.messages = [message for message in request.messages if message.parts]

    return change


def _clear(*names: str) -> Change:
    """Leave out fields."""

    def change(request: Request, lost: set[str]) -> None:
        blank = Request(model="", messages=[])
        for name in names:
            if getattr(request, name) != getattr(blank, name):
                lost.add(f"request\\.{name}")
                setattr(request, name, getattr(blank, name))

    return change


def _only_tools_of(vendor: str) -> Change:
    def change(request: Request, lost: set[str]) -> None:
        for number, tool in enumerate(request.tools):
            if not isinstance(tool, Tool) and tool.vendor != vendor:
                lost.add(rf"(request\.)?tools\[{number}\]: a tool of {tool.vendor}")
        request.tools = [tool for tool in request.tools if isinstance(tool, Tool) or tool.vendor == vendor]

    return change


def _no_text_format(request: Request, lost: set[str]) -> None:
    if request.response_format is not None and request.response_format.type == "text":
        request.response_format = None


# OpenAI chat.


def _no_error_mark(request: Request, lost: set[str]) -> None:
    for number, message in enumerate(request.messages):
        for part in message.parts:
            if isinstance(part, ToolResult) and part.is_error:
                part.is_error = False
                lost.add(rf"messages\[{number}\]\.is_error")


def _images_after_results(request: Request, lost: set[str]) -> None:
    messages = []
    for message in request.messages:
        messages.append(message)
        for part in message.parts:
            if isinstance(part, ToolResult) and any(isinstance(one, Media) for one in part.parts):
                intro = Text(text=f"(from the result of tool call {part.tool_call_id})")
                others = [one for one in part.parts if isinstance(one, Media)]
                part.parts = [one for one in part.parts if not isinstance(one, Media)]
                messages.append(Message(role="user", parts=[intro, *others]))
    request.messages = messages


def _text_documents_as_text(request: Request, lost: set[str]) -> None:
    for message in request.messages:
        message.parts = [
            Text(text=f"{part.title}\n{part.text}") if isinstance(part, Media) and part.text else part
            for part in message.parts
        ]


def _named_schema(request: Request, lost: set[str]) -> None:
    if request.response_format is not None and request.response_format.type == "json_schema":
        request.response_format.name = request.response_format.name or "response"


def _effort(request: Request, lost: set[str]) -> None:
    reasoning = request.reasoning
    if reasoning is not None and not reasoning.enabled:
        request.reasoning = None
        lost.add(r"request\.reasoning: that it is switched off")
    elif reasoning is not None and reasoning.budget_tokens is not None:
        budget = reasoning.budget_tokens
        lost.add(r"request\.reasoning\.budget_tokens: sent as effort (low|medium|high)")
        request.reasoning = ReasoningConfig(effort="low" if budget <= 2048 else "medium" if budget <= 8192 else "high")


# Anthropic.


def _no_names(request: Request, lost: set[str]) -> None:
    for number, message in enumerate(request.messages):
        if message.name is not None:
            message.name = None
            lost.add(rf"messages\[{number}\]\.name")


def _no_detail(request: Request, lost: set[str]) -> None:
    for number, message in enumerate(request.messages):
        for position, part in enumerate(message.parts):
            if isinstance(part, Media) and part.detail is not None:
                part.detail = None
                lost.add(rf"messages\[{number}\]\.parts\[{position}\]\.detail")


def _max_tokens(request: Request, lost: set[str]) -> None:
    request.max_tokens = request.max_tokens or 4096


def _cooled(request: Request, lost: set[str]) -> None:
    if request.temperature is not None and request.temperature > 1:
        request.temperature = 1.0
        lost.add(r"request\.temperature: clamped to 1")


def _no_blank_stops(request: Request, lost: set[str]) -> None:
    stops = [stop for stop in request.stop_sequences if stop.strip()]
    if len(stops) < len(request.stop_sequences):
        request.stop_sequences = stops
        lost.add(r"request\.stop_sequences: blank ones")


def _bare_schema(request: Request, lost: set[str]) -> None:
    output = request.response_format
    if output is not None and output.type == "json":
        request.response_format = None
        only = "Answer with one valid JSON object and nothing else: no explanation, no code fence."
        request.messages.insert(0, Message(role="system", parts=[Text(text=only)]))
    elif output is not None:
        request.response_format = ResponseFormat(type="json_schema", schema=output.schema)


def _no_flag_beside_none(request: Request, lost: set[str]) -> None:
    if request.tool_choice is not None and request.tool_choice.mode == "none":
        request.tool_choice.parallel = None


# Our own formats.


def _text_documents_as_data(request: Request, lost: set[str]) -> None:
    for part in parts_of(request):
        if isinstance(part, Media) and part.text is not None:
            part.data, part.text = base64.b64encode(part.text.encode()).decode(), None


def _nothing(request: Request, lost: set[str]) -> None:
    """For limits that show elsewhere."""


def _is_audio(part: Part) -> bool:
    return isinstance(part, Media) and part.type == "audio"


def _is_document_by_url(part: Part) -> bool:
    return isinstance(part, Media) and part.type == "document" and bool(part.url)


def _is_reasoning(part: Part) -> bool:
    return isinstance(part, Reasoning | RedactedReasoning)


OTHER_SAMPLING = ("n", "seed", "presence_penalty", "frequency_penalty", "logprobs", "top_logprobs")

_STAYS = RequestLimit("metadata, budget", "not sent: they are the gateway's", _nothing)
_MERGED = RequestLimit("vendors' extensions", "merged into the body for their own vendor, else left out", _nothing)

_OURS: tuple[RequestLimit, ...] = (
    RequestLimit("vendors' extensions", "handed on under their vendors' names", _nothing),
    RequestLimit("metadata, budget", "metadata stay here, a budget goes on", _nothing),
    RequestLimit("documents", "plain text goes as base64 data", _text_documents_as_data),
    RequestLimit("vendors' own tools", "left out, and named", _only_tools_of("")),
)

REQUEST_CANNOT: dict[str, tuple[RequestLimit, ...]] = {
    "openai_chat": (
        _STAYS,
        _MERGED,
        RequestLimit(
            "reasoning sent back",
            "to OpenAI none, which refuses it; to its family in `reasoning_details`, each vendor's own alone",
            _drop("reasoning.*", _is_reasoning),
        ),
        RequestLimit("documents", "by URL left out, and named", _drop("document", _is_document_by_url)),
        RequestLimit("tool results", "the mark of an error is left out, and named", _no_error_mark),
        RequestLimit("tool results", "images follow in a user message: results hold text alone", _images_after_results),
        RequestLimit("documents", "plain text becomes text", _text_documents_as_text),
        RequestLimit("`top_k`", "left out, and named (sent with the provider's quirk `top_k`)", _clear("top_k")),
        RequestLimit("vendors' own tools", "those of other vendors left out, and named", _only_tools_of("openai")),
        RequestLimit("structured output", "`text` is not sent, being what is meant without it", _no_text_format),
        RequestLimit("structured output", "a schema without a name is called `response`", _named_schema),
        RequestLimit(
            "reasoning effort and budget",
            "a budget becomes an effort; that it is switched off is not sent, as models that cannot reason refuse it; "
            "both are named",
            _effort,
        ),
    ),
    "anthropic": (
        _STAYS,
        _MERGED,
        RequestLimit("audio", "left out, and named", _drop("audio", _is_audio)),
        RequestLimit("names of messages", "left out, and named", _no_names),
        RequestLimit("images", "`detail` left out, and named", _no_detail),
        RequestLimit("other sampling", "left out, and named", _clear(*OTHER_SAMPLING)),
        RequestLimit("`max_tokens`", "4096 where the caller sets none: it is required", _max_tokens),
        RequestLimit("`temperature`, `top_p`", "above 1 it is 1, and named", _cooled),
        RequestLimit("stop sequences", "blank ones left out, and named: they are refused", _no_blank_stops),
        RequestLimit("vendors' own tools", "those of other vendors left out, and named", _only_tools_of("anthropic")),
        RequestLimit("structured output", "`text` is not sent, being what is meant without it", _no_text_format),
        RequestLimit(
            "structured output",
            "any JSON: asked for in the system prompt; a schema goes without its name and description, and is always strict",
            _bare_schema,
        ),
        RequestLimit("tool choice", "`none` has no flag for parallel calls beside it", _no_flag_beside_none),
        RequestLimit("reasoning sent back", "Anthropic's alone, signed, byte for byte", _nothing),
    ),
    "llm_stream": _OURS,
    "gateway": _OURS,
}

REQUEST_ROWS = (
    "system prompts",
    "names of messages",
    "images",
    "documents",
    "audio",
    "tool calls",
    "tool results",
    "reasoning sent back",
    "structured output",
    "tool choice",
    "stop sequences",
    "`max_tokens`",
    "`temperature`, `top_p`",
    "`top_k`",
    "other sampling",
    "`user`",
    "reasoning effort and budget",
    "vendors' own tools",
    "vendors' extensions",
    "metadata, budget",
)
"""What a request can hold: the document's rows."""
