"""A `Request` as the body of `POST /chat/completions`, for OpenAI and for everybody who is compatible with it.

The rule: a caller's own body of this format goes on as it is, but for what only the gateway reads, for reasoning that
belongs to another vendor, and for usage, which is always asked for. Everything else is composed, and what the format has
no place for is named in `lost`. Where a choice had to be made:

- The output limit is `max_completion_tokens` for OpenAI and `max_tokens` for everybody else (quirk `max_tokens_field`).
- A budget for reasoning becomes an effort by EFFORTS; reasoning that is switched off is sent only as the effort "none"
  that a caller itself has named, since models that cannot reason reject it.
- A tool result that is an error is sent as it is, and the mark is lost: its text is the caller's. Images and files in a
  tool result, where OpenAI allows text alone, follow in a user message after the results.
- `top_k` is sent only with the quirk `top_k`; `stream_options` are left out with the quirk `stream_options: false`, for
  servers that reject them.
"""

from __future__ import annotations

import re
from typing import Any

from headrace.formats.base import Target, WireRequest
from headrace.formats.json import encode, merged
from headrace.model.content import (
    Media,
    Opaque,
    Part,
    Reasoning,
    RedactedReasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from headrace.model.request import Message, ReasoningConfig, Request, ResponseFormat, Tool, ToolChoice

from .errors import VENDOR
from .media import audio_format, data_url
from .request_reader import NAME
from .writer import redacted_item, signature_item

PATH = "/chat/completions"
EFFORTS = ((2048, "low"), (8192, "medium"))
"""(largest budget in tokens, effort); above them all: "high"."""

_GATEWAY_FIELDS = ("budget", "extensions")
_REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text", "reasoning_details", "thinking_blocks")
_FOREIGN_FORMAT = re.compile(
    r"(?!unknown$)(?!.*-v\d+$).+"
)  # ours are names of vendors; other routers' end in a version
_PLAIN_FIELDS = ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty", "logprobs", "top_logprobs")

Body = dict[str, Any]


def write_request(request: Request, target: Target) -> WireRequest:
    """Raises nothing: every request of the model has a body in this format."""
    lost: list[str] = []
    if request.format == NAME and request.origin is not None:
        body = _own_body(request.origin, target, lost)
    else:
        lost += request.lost
        body = _Composer(request, target, lost).body()
    body["model"] = target.model
    options = body.pop("stream_options", None)
    body.pop("stream", None)
    if target.stream:
        body["stream"] = True
        if target.quirks.get("stream_options") is not False:
            body["stream_options"] = {**(options if isinstance(options, dict) else {}), "include_usage": True}
    extension = request.extensions.get(target.vendor)
    if isinstance(extension, dict):
        body = merged(body, extension)
    headers = (
        ("content-type", "application/json"),
        ("accept", "text/event-stream" if target.stream else "application/json"),
    )
    return WireRequest(path=target.path or PATH, body=encode(body), headers=headers, lost=tuple(lost))


def _own_body(origin: Body, target: Target, lost: list[str]) -> Body:
    """A shallow copy of the caller's body; messages are rewritten only where they hold reasoning not for this provider."""
    body = {name: value for name, value in origin.items() if name not in _GATEWAY_FIELDS}
    if target.vendor != VENDOR and body.pop("metadata", None):
        lost.append("metadata")  # OpenAI alone has a place for it
    field = target.quirks.get("max_tokens_field")
    for other in ("max_tokens", "max_completion_tokens"):
        if isinstance(field, str) and other != field and body.get(other) is not None:
            body.setdefault(field, body[other])
            del body[other]
    body["messages"] = [
        _own_message(message, f"messages[{i}]", target, lost) for i, message in enumerate(origin["messages"])
    ]
    return body


def _own_message(message: Body, path: str, target: Target, lost: list[str]) -> Body:
    present = [name for name in _REASONING_FIELDS if message.get(name)]
    if not present:
        return message
    if target.vendor == VENDOR:  # OpenAI itself has no such fields, and rejects them
        lost += [f"{path}.{name}" for name in present]
        return {name: value for name, value in message.items() if name not in _REASONING_FIELDS}
    details = message.get("reasoning_details")
    if not isinstance(details, list):
        return message
    kept = [item for item in details if not _is_foreign(item, target.vendor)]
    if len(kept) == len(details):
        return message
    lost.append(f"{path}.reasoning_details: of another vendor")
    message = {name: value for name, value in message.items() if name != "reasoning_details"}
    return {**message, "reasoning_details": kept} if kept else message


def _is_foreign(item: Any, vendor: str) -> bool:
    """Whether this gateway made the item, for another vendor than this."""
    format = item.get("format") if isinstance(item, dict) else None
    return isinstance(format, str) and format != vendor and _FOREIGN_FORMAT.fullmatch(format) is not None


class _Composer:
    """One body from a request of another format."""

    def __init__(self, request: Request, target: Target, lost: list[str]) -> None:
        self._request = request
        self._target = target
        self._lost = lost

    def body(self) -> Body:
        request = self._request
        body: Body = {"model": "", "messages": self._messages()}
        self._tools(body)
        if request.max_tokens is not None:
            default = "max_completion_tokens" if self._target.vendor == VENDOR else "max_tokens"
            field = self._target.quirks.get("max_tokens_field")
            body[field if isinstance(field, str) else default] = request.max_tokens
        for name in _PLAIN_FIELDS:
            value = getattr(request, name)
            if value is not None:
                body[name] = value
        if request.top_k is not None:
            if self._target.quirks.get("top_k"):
                body["top_k"] = request.top_k
            else:
                self._lost.append("request.top_k")
        if request.stop_sequences:
            body["stop"] = request.stop_sequences
        if request.n > 1:
            body["n"] = request.n
        if request.user:
            body["user"] = request.user
        if request.response_format is not None and request.response_format.type != "text":
            body["response_format"] = _response_format(request.response_format)
        effort = _effort(request.reasoning)
        if effort is not None:
            body["reasoning_effort"] = effort
        if request.reasoning is not None:
            self._name_reasoning(request.reasoning, effort)
        return body

    def _name_reasoning(self, asked: ReasoningConfig, effort: str | None) -> None:
        if asked.budget_tokens is not None:
            self._lost.append(f"request.reasoning.budget_tokens: sent as effort {effort}")
        if not asked.enabled and effort is None:
            self._lost.append("request.reasoning: that it is switched off")

    def _tools(self, body: Body) -> None:
        tools = []
        for position, tool in enumerate(self._request.tools):
            if isinstance(tool, Tool):
                tools.append(_tool(tool))
            elif tool.vendor in (self._target.vendor, VENDOR):
                tools.append(tool.payload)
            else:
                self._lost.append(f"tools[{position}]: a tool of {tool.vendor}")
        if not tools:
            return
        body["tools"] = tools
        choice = self._request.tool_choice
        if choice is not None:
            body["tool_choice"] = _tool_choice(choice)
            if choice.parallel is not None:
                body["parallel_tool_calls"] = choice.parallel

    # Messages.

    def _messages(self) -> list[Body]:
        messages: list[Body] = []
        aside: list[Body] = []  # what tool results hold beside text
        for position, message in enumerate(self._request.messages):
            path = f"messages[{position}]"
            if message.role == "tool":
                messages += self._results(message, path, aside)
                continue
            if aside:
                messages.append({"role": "user", "content": aside})
                aside = []
            written = self._assistant(message, path) if message.role == "assistant" else self._plain(message, path)
            if message.name is not None:
                written["name"] = message.name
            messages.append(written)
        if aside:
            messages.append({"role": "user", "content": aside})
        return messages

    def _plain(self, message: Message, path: str) -> Body:
        return {"role": message.role, "content": _content(self._parts(message.parts, path))}

    def _parts(self, parts: list[Part], path: str) -> list[Body]:
        written = []
        for position, part in enumerate(parts):
            where = f"{path}.parts[{position}]"
            one = self._part(part)
            if one is None:
                self._lost.append(f"{where}: {_what(part)}")
            else:
                written.append(one)
        return written

    def _part(self, part: Part) -> Body | None:
        if isinstance(part, Text):
            return {"type": "text", "text": part.text}
        if isinstance(part, Refusal):
            return {"type": "text", "text": part.text}
        if isinstance(part, Opaque):
            return part.payload if part.vendor in (self._target.vendor, VENDOR) and part.role == "other" else None
        return _media(part) if isinstance(part, Media) else None

    def _results(self, message: Message, path: str, aside: list[Body]) -> list[Body]:
        written = []
        for part in message.parts:
            if not isinstance(part, ToolResult):
                self._lost.append(f"{path}: {_what(part)}")
                continue
            if part.is_error:
                self._lost.append(f"{path}.is_error")
            content = self._parts(part.parts, path)
            texts = [one for one in content if one["type"] == "text"]
            others = [one for one in content if one["type"] != "text"]
            if others:
                aside += [{"type": "text", "text": f"(from the result of tool call {part.tool_call_id})"}, *others]
            written.append({"role": "tool", "tool_call_id": part.tool_call_id, "content": _content(texts)})
        return written

    def _assistant(self, message: Message, path: str) -> Body:
        texts: list[Body] = []
        calls: list[Body] = []
        details: list[Body] = []
        reasoning: list[str] = []
        written: Body = {"role": "assistant", "content": None}
        for position, part in enumerate(message.parts):
            where = f"{path}.parts[{position}]"
            if isinstance(part, Text):
                texts.append({"type": "text", "text": part.text})
            elif isinstance(part, Refusal):
                written["refusal"] = written.get("refusal", "") + part.text
            elif isinstance(part, ToolCall):
                calls.append(self._call(part))
            elif isinstance(part, Reasoning | RedactedReasoning):
                if not self._reasoning(part, reasoning, details):
                    whose = f" of {part.vendor}" if part.vendor else ""
                    self._lost.append(f"{where}: reasoning{whose}")
            elif isinstance(part, Media) and part.type == "audio" and part.file_id:
                written["audio"] = {"id": part.file_id}
            elif isinstance(part, Opaque) and part.vendor in (self._target.vendor, VENDOR) and part.payload.get("id"):
                calls.append(part.payload)  # a call of a custom tool
            else:
                self._lost.append(f"{where}: {_what(part)}")
        if texts:
            written["content"] = _content(texts)
        elif not calls and len(written) == 2:
            written["content"] = ""
        if reasoning:
            written["reasoning_content"] = "".join(reasoning)
        if details:
            written["reasoning_details"] = details
        if calls:
            written["tool_calls"] = calls
        return written

    def _reasoning(self, part: Reasoning | RedactedReasoning, texts: list[str], details: list[Body]) -> bool:
        """Whether the part could be kept: signed and redacted reasoning for its own vendor, text for none but others'."""
        vendor = self._target.vendor
        if part.vendor and part.vendor != vendor:
            return False
        if isinstance(part, RedactedReasoning):
            if part.vendor:
                details.append(redacted_item(part.data, vendor, part.extensions, len(details)))
            return bool(part.vendor)
        if part.signature and part.vendor:
            details.append(signature_item(part.signature, vendor, part.extensions, len(details), part.text))
            return True
        if vendor == VENDOR:
            return False  # OpenAI itself has no place for it, and rejects it
        texts.append(part.text)
        return not part.signature

    def _call(self, call: ToolCall) -> Body:
        written: Body = {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        own = (call.extensions or {}).get(self._target.vendor)
        if own and self._target.vendor != VENDOR:
            written["extra_content"] = {self._target.vendor: own}
        return written


def _content(parts: list[Body]) -> str | list[Body]:
    """One text as a string, which every server takes; else the parts."""
    if not parts:
        return ""
    if len(parts) == 1 and parts[0].keys() == {"type", "text"}:
        return str(parts[0]["text"])
    return parts


def _media(media: Media) -> Body | None:
    if media.type == "image":
        url = data_url(media.media_type, media.data) if media.data else media.url
        if not url:
            return None
        image = {"url": url} if media.detail is None else {"url": url, "detail": media.detail}
        return {"type": "image_url", "image_url": image}
    if media.type == "audio":
        if not media.data:
            return None
        return {"type": "input_audio", "input_audio": {"data": media.data, "format": audio_format(media.media_type)}}
    if media.text is not None:
        return {"type": "text", "text": f"{media.title}\n{media.text}" if media.title else media.text}
    if media.file_id:
        return {"type": "file", "file": {"file_id": media.file_id}}
    if not media.data:
        return None
    name = media.title or f"document.{media.media_type.rpartition('/')[2] or 'bin'}"
    return {"type": "file", "file": {"filename": name, "file_data": data_url(media.media_type, media.data)}}


def _what(part: Part) -> str:
    if isinstance(part, Media):
        return part.type
    if isinstance(part, Opaque):
        return f"{part.role} of {part.vendor}"
    return type(part).__name__


def _tool(tool: Tool) -> Body:
    function: Body = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = tool.parameters if tool.parameters is not None else {"type": "object", "properties": {}}
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _tool_choice(choice: ToolChoice) -> str | Body:
    if choice.mode == "tool":
        return {"type": "function", "function": {"name": choice.name}}
    return choice.mode


def _response_format(format: ResponseFormat) -> Body:
    if format.type == "json":
        return {"type": "json_object"}
    schema: Body = {"name": format.name or "response"}
    if format.description:
        schema["description"] = format.description
    schema["schema"] = format.schema or {}
    if format.strict is not None:
        schema["strict"] = format.strict
    return {"type": "json_schema", "json_schema": schema}


def _effort(reasoning: ReasoningConfig | None) -> str | None:
    if reasoning is None:
        return None
    if not reasoning.enabled:
        return reasoning.effort if reasoning.effort == "none" else None
    if reasoning.effort is not None or reasoning.budget_tokens is None:
        return reasoning.effort
    return next((effort for most, effort in EFFORTS if reasoning.budget_tokens <= most), "high")
