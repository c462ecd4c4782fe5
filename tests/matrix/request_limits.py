"""RequestLimit: one thing of a request that providers of a format cannot be told; and the changes that several are made of."""

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


def drop(word: str, test: Callable[[Part], bool]) -> Change:
    """Leave out the parts that the test says, and messages that hold nothing else."""

    def change(request: Request, lost: set[str]) -> None:
        for number, message in enumerate(request.messages):
            for position, part in enumerate(message.parts):
                if test(part):
                    lost.add(rf"messages\[{number}\]\.parts\[{position}\]: {word}")
            message.parts = [part for part in message.parts if not test(part)]
        request.messages = [message for message in request.messages if message.parts]

    return change


def clear(*names: str) -> Change:
    """Leave out fields."""

    def change(request: Request, lost: set[str]) -> None:
        blank = Request(model="", messages=[])
        for name in names:
            if getattr(request, name) != getattr(blank, name):
                lost.add(f"request\\.{name}")
                setattr(request, name, getattr(blank, name))

    return change


def only_tools_of(vendor: str) -> Change:
    def change(request: Request, lost: set[str]) -> None:
        for number, tool in enumerate(request.tools):
            if not isinstance(tool, Tool) and tool.vendor != vendor:
                lost.add(rf"(request\.)?tools\[{number}\]: a tool of {tool.vendor}")
        request.tools = [tool for tool in request.tools if isinstance(tool, Tool) or tool.vendor == vendor]

    return change


def no_text_format(request: Request, lost: set[str]) -> None:
    if request.response_format is not None and request.response_format.type == "text":
        request.response_format = None


# OpenAI chat.


def no_error_mark(request: Request, lost: set[str]) -> None:
    for number, message in enumerate(request.messages):
        for part in message.parts:
            if isinstance(part, ToolResult) and part.is_error:
                part.is_error = False
                lost.add(rf"messages\[{number}\]\.is_error")


def images_after_results(request: Request, lost: set[str]) -> None:
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


def text_documents_as_text(request: Request, lost: set[str]) -> None:
    for message in request.messages:
        message.parts = [
            Text(text=f"{part.title}\n{part.text}") if isinstance(part, Media) and part.text else part
            for part in message.parts
        ]


def named_schema(request: Request, lost: set[str]) -> None:
    if request.response_format is not None and request.response_format.type == "json_schema":
        request.response_format.name = request.response_format.name or "response"


def effort(request: Request, lost: set[str]) -> None:
    reasoning = request.reasoning
    if reasoning is not None and not reasoning.enabled:
        request.reasoning = None
        lost.add(r"request\.reasoning: that it is switched off")
    elif reasoning is not None and reasoning.budget_tokens is not None:
        budget = reasoning.budget_tokens
        lost.add(r"request\.reasoning\.budget_tokens: sent as effort (low|medium|high)")
        request.reasoning = ReasoningConfig(effort="low" if budget <= 2048 else "medium" if budget <= 8192 else "high")


# Anthropic.


def no_names(request: Request, lost: set[str]) -> None:
    for number, message in enumerate(request.messages):
        if message.name is not None:
            message.name = None
            lost.add(rf"messages\[{number}\]\.name")


def no_detail(request: Request, lost: set[str]) -> None:
    for number, message in enumerate(request.messages):
        for position, part in enumerate(message.parts):
            if isinstance(part, Media) and part.detail is not None:
                part.detail = None
                lost.add(rf"messages\[{number}\]\.parts\[{position}\]\.detail")


def default_max_tokens(request: Request, lost: set[str]) -> None:
    request.max_tokens = request.max_tokens or 4096


def cooled(request: Request, lost: set[str]) -> None:
    if request.temperature is not None and request.temperature > 1:
        request.temperature = 1.0
        lost.add(r"request\.temperature: clamped to 1")


def no_blank_stops(request: Request, lost: set[str]) -> None:
    stops = [stop for stop in request.stop_sequences if stop.strip()]
    if len(stops) < len(request.stop_sequences):
        request.stop_sequences = stops
        lost.add(r"request\.stop_sequences: blank ones")


def bare_schema(request: Request, lost: set[str]) -> None:
    output = request.response_format
    if output is not None and output.type == "json":
        request.response_format = None
        only = "Answer with one valid JSON object and nothing else: no explanation, no code fence."
        request.messages.insert(0, Message(role="system", parts=[Text(text=only)]))
    elif output is not None:
        request.response_format = ResponseFormat(type="json_schema", schema=output.schema)


def unnamed_schema(request: Request, lost: set[str]) -> None:
    if request.response_format is not None and request.response_format.type == "json_schema":
        request.response_format = ResponseFormat(type="json_schema", schema=request.response_format.schema)


def no_flag_beside_none(request: Request, lost: set[str]) -> None:
    if request.tool_choice is not None and request.tool_choice.mode == "none":
        request.tool_choice.parallel = None


# Our own formats.


def text_documents_as_data(request: Request, lost: set[str]) -> None:
    for part in parts_of(request):
        if isinstance(part, Media) and part.text is not None:
            part.data, part.text = base64.b64encode(part.text.encode()).decode(), None


def nothing(request: Request, lost: set[str]) -> None:
    """For limits that show elsewhere."""


def is_audio(part: Part) -> bool:
    return isinstance(part, Media) and part.type == "audio"


def is_document_by_url(part: Part) -> bool:
    return isinstance(part, Media) and part.type == "document" and bool(part.url)


def is_reasoning(part: Part) -> bool:
    return isinstance(part, Reasoning | RedactedReasoning)


OTHER_SAMPLING = ("n", "seed", "presence_penalty", "frequency_penalty", "logprobs", "top_logprobs")

STAYS = RequestLimit("metadata, budget", "not sent: they are the gateway's", nothing)
MERGED = RequestLimit("vendors' extensions", "merged into the body for their own vendor, else left out", nothing)
