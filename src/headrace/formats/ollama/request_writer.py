"""A `Request` as the body of POST /api/chat.

The rule: a caller's own body of this format goes on as it is, but for model and stream. Everything else is composed, and
what the format has no place for is named in `lost`. Where a choice had to be made:

- Whether to stream is always said, since the default is yes.
- Ollama has no tool choice: `none` sends no tools, `auto` is what it does anyway, a call that is required cannot be had.
- A tool result carries the id of its call (newer servers) and the tool's name (all of them); images in it stay with it.
- Texts side by side in one message are joined by a line break.
- Reasoning goes back as `thinking`, but none that belongs to another vendor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.formats.base import Target, WireRequest
from headrace.formats.json import encode, merged
from headrace.model.content import Media, Opaque, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from headrace.model.request import Message, Request, Tool

from .arguments import json_object
from .options import write_format, write_options, write_think
from .words import NAME, VENDOR

PATH = "/api/chat"
Body = dict[str, Any]


def write_request(request: Request, target: Target) -> WireRequest:
    """Raises nothing: every request of the model has a body in this format."""
    return wire_request(PATH, NAME, _compose, request, target)


def wire_request(
    path: str, format: str, compose: Callable[[Request, Target, list[str]], Body], request: Request, target: Target
) -> WireRequest:
    """A request on its way to one of the two endpoints: the caller's own body where it is of this format, else what
    `compose` makes (and names as lost), with what every request says."""
    lost: list[str] = []
    if request.format == format and request.origin is not None:
        body = dict(request.origin)
    else:
        lost += request.lost
        body = compose(request, target, lost)
    body["model"] = target.model
    body["stream"] = target.stream
    extension = request.extensions.get(target.vendor)
    if isinstance(extension, dict):
        body = merged(body, extension)
    headers = (
        ("content-type", "application/json"),
        ("accept", "application/x-ndjson" if target.stream else "application/json"),
    )
    return WireRequest(path=target.path or path, body=encode(body), headers=headers, lost=tuple(lost))


def shared_fields(request: Request, target: Target, lost: list[str]) -> Body:
    """The fields that both endpoints have; names what neither has."""
    lost += [f"request.{name}" for name in ("n", "user") if getattr(request, name) not in (None, 1, "")]
    fields = {
        "options": write_options(request),
        "format": write_format(request.response_format),
        "think": write_think(request.reasoning, target, lost),
        "logprobs": request.logprobs,
        "top_logprobs": request.top_logprobs,
    }
    return {name: value for name, value in fields.items() if value is not None and value != {}}


def _compose(request: Request, target: Target, lost: list[str]) -> Body:
    body: Body = {"model": "", "messages": _Messages(target, lost).write(request.messages)}
    tools = _tools(request, target, lost)
    if tools:
        body["tools"] = tools
    return {**body, **shared_fields(request, target, lost)}


def _tools(request: Request, target: Target, lost: list[str]) -> list[Body]:
    choice = request.tool_choice
    if choice is not None:
        if choice.parallel is not None:
            lost.append("request.tool_choice.parallel")
        if choice.mode == "none":
            return []
        if choice.mode != "auto":
            lost.append("request.tool_choice")
    tools: list[Body] = []
    for position, tool in enumerate(request.tools):
        if isinstance(tool, Tool):
            tools.append(_tool(tool))
        elif tool.vendor in (target.vendor, VENDOR):
            tools.append(tool.payload)
        else:
            lost.append(f"tools[{position}]: a tool of {tool.vendor}")
    return tools


def _tool(tool: Tool) -> Body:
    parameters = tool.parameters if tool.parameters is not None else {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": parameters},
    }


class _Messages:
    def __init__(self, target: Target, lost: list[str]) -> None:
        self._target = target
        self._lost = lost
        self._names: dict[str, str] = {}  # of the calls so far, by their ids

    def write(self, messages: list[Message]) -> list[Body]:
        written: list[Body] = []
        for position, message in enumerate(messages):
            path = f"messages[{position}]"
            if message.name is not None:
                self._lost.append(f"{path}.name")
            if message.role == "tool":
                written += [self._result(part, path) for part in message.parts if isinstance(part, ToolResult)]
            else:
                written.append(self._message(message, path))
        return written

    def _message(self, message: Message, path: str) -> Body:
        written, rest = self._content(message.parts, path)
        calls: list[Body] = []
        thinking: list[str] = []
        for where, part in rest:
            if isinstance(part, ToolCall) and message.role == "assistant":
                calls.append(self._call(part, len(calls), where))
            elif isinstance(part, Reasoning) and self._may_go(part):
                thinking.append(part.text)
            else:
                self._lost.append(f"{where}: {what_is(part)}")
        if thinking:
            written["thinking"] = "".join(thinking)
        if calls:
            written["tool_calls"] = calls
        return {"role": message.role, **written}

    def _content(self, parts: list[Part], path: str) -> tuple[Body, list[tuple[str, Part]]]:
        texts, images, rest = split_parts(parts, path, self._lost)
        written: Body = {"content": "\n".join(texts)}
        if images:
            written["images"] = images
        return written, rest

    def _may_go(self, part: Reasoning) -> bool:
        return not part.signature and part.vendor in (None, "", self._target.vendor)

    def _call(self, call: ToolCall, index: int, path: str) -> Body:
        self._names[call.id] = call.name
        arguments: Any = json_object(call.arguments)
        if arguments is None:
            self._lost.append(f"{path}.arguments: not a JSON object")
            arguments = {"invalid_arguments": call.arguments}
        return {"id": call.id, "function": {"index": index, "name": call.name, "arguments": arguments}}

    def _result(self, result: ToolResult, path: str) -> Body:
        if result.is_error:
            self._lost.append(f"{path}.is_error")
        written, rest = self._content(result.parts, path)
        self._lost += [f"{where}: {what_is(part)}" for where, part in rest]
        name = self._names.get(result.tool_call_id) or result.name
        named = {"tool_name": name} if name else {}
        return {"role": "tool", **written, **named, "tool_call_id": result.tool_call_id}


def split_parts(parts: list[Part], path: str, lost: list[str]) -> tuple[list[str], list[str], list[tuple[str, Part]]]:
    """Texts, images (base64), and the parts that are neither, with their paths."""
    texts: list[str] = []
    images: list[str] = []
    rest: list[tuple[str, Part]] = []
    for position, part in enumerate(parts):
        where = f"{path}.parts[{position}]"
        text = _text_of(part)
        if text is not None:
            texts.append(text)
        elif isinstance(part, Media) and part.type == "image" and part.data:
            images.append(part.data)
            if part.detail is not None:
                lost.append(f"{where}.detail")
        else:
            rest.append((where, part))
    return texts, images, rest


def _text_of(part: Part) -> str | None:
    if isinstance(part, Text | Refusal):
        return part.text
    if isinstance(part, Media) and part.text is not None:
        return f"{part.title}\n{part.text}" if part.title else part.text
    return None


def what_is(part: Part) -> str:
    """A part's name among what is lost."""
    if isinstance(part, Media):
        return f"{part.type} by URL" if part.type == "image" and part.url else part.type
    if isinstance(part, Opaque):
        return f"{part.role} of {part.vendor}"
    if isinstance(part, Reasoning) and part.vendor:
        return f"reasoning of {part.vendor}"
    return "reasoning" if "Reasoning" in type(part).__name__ else type(part).__name__
