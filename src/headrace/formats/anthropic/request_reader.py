"""A caller's body (`POST /v1/messages`) as a `Request`.

The rule: what the model of a request has a word for is checked down to the field and read; everything else stays in
`origin` and is named in `lost`, for providers of other formats. A user message that holds tool results becomes tool
messages and user messages, in the order in which the blocks stand.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from headrace.formats.base import IN_THE_BODY, Located
from headrace.formats.json import Count, Positive, decode_object
from headrace.model.content import Part, Text, ToolResult
from headrace.model.errors import InvalidRequest
from headrace.model.request import Message, ReasoningConfig, Request, ResponseFormat, Tool, ToolChoice, VendorTool

from .blocks import checked, raw_inputs, read_block, read_content
from .words import NAME, VENDOR, extras

_Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Name = Annotated[str, msgspec.Meta(min_length=1)]


class _Message(msgspec.Struct):
    role: str
    content: str | list[dict[str, Any]]


class _Metadata(msgspec.Struct):
    user_id: str | None = None


class _Thinking(msgspec.Struct):
    type: str
    budget_tokens: Positive | None = None


class _OutputFormat(msgspec.Struct):
    type: str
    schema: dict[str, Any]


class _OutputConfig(msgspec.Struct):
    effort: str | None = None
    format: _OutputFormat | None = None


class _ToolChoice(msgspec.Struct):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _Tool(msgspec.Struct):
    name: _Name
    input_schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


class _Body(msgspec.Struct):
    model: _Name
    messages: Annotated[list[_Message], msgspec.Meta(min_length=1)]
    max_tokens: Positive
    system: str | list[dict[str, Any]] | None = None
    stream: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: _ToolChoice | None = None
    stop_sequences: list[str] | None = None
    temperature: _Fraction | None = None
    top_p: _Fraction | None = None
    top_k: Count | None = None
    thinking: _Thinking | None = None
    output_config: _OutputConfig | None = None
    output_format: _OutputFormat | None = None
    """The beta's name of output_config.format."""
    metadata: _Metadata | None = None


_ROLES = ("user", "assistant", "system")
_ROLE_OF_BLOCK = {
    "tool_use": "assistant",
    "thinking": "assistant",
    "redacted_thinking": "assistant",
    "tool_result": "user",
}
_CHOICES = {"auto": "auto", "any": "required", "tool": "tool", "none": "none"}
_THINKING = {"enabled": True, "adaptive": True, "between_tools": True, "disabled": False}
_LOST_UNDER = {
    # objects of which a part is read: the rest of their fields is lost elsewhere
    "output_config": frozenset(_OutputConfig.__struct_fields__),
    "thinking": frozenset(_Thinking.__struct_fields__),
    "metadata": frozenset(_Metadata.__struct_fields__),
}


def read_request(body: bytes, located: Located = IN_THE_BODY) -> Request:
    """Raises InvalidRequest with the path of the bad field, in Anthropic's names."""
    payload = decode_object(body)
    fields = checked(payload, _Body, "")
    inputs = raw_inputs(body) if b'"tool_use"' in body or b"\\u" in body else None
    messages: list[Message] = []
    if fields.system:
        messages.append(Message(role="system", parts=_system(fields.system, "system")))
    for i, message in enumerate(fields.messages):
        messages += _messages(message, f"messages[{i}]", inputs[i] if inputs else None)
    return Request(
        model=fields.model,
        messages=messages,
        stream=bool(fields.stream),
        tools=[_tool(tool, f"tools[{i}]") for i, tool in enumerate(fields.tools or ())],
        tool_choice=_tool_choice(fields.tool_choice),
        response_format=_response_format(fields),
        max_tokens=fields.max_tokens,
        temperature=fields.temperature,
        top_p=fields.top_p,
        top_k=fields.top_k,
        stop_sequences=fields.stop_sequences or [],
        reasoning=_reasoning(fields),
        user=fields.metadata.user_id if fields.metadata else None,
        lost=_lost(payload),
        format=NAME,
        origin=payload,
    )


def _messages(message: _Message, path: str, inputs: list[str] | None) -> list[Message]:
    role, content = message.role, message.content
    if role not in _ROLES:
        where = f"{path}.role"
        raise InvalidRequest(f'{where}: must be "user" or "assistant" (the system prompt is `system`)', param=where)
    if role == "system":
        return [Message(role=role, parts=_system(content, f"{path}.content"))]
    if isinstance(content, str):
        return [Message(role=role, parts=[Text(text=content)])]
    messages: list[Message] = []
    run: list[Part] = []
    for i, block in enumerate(content):
        where = f"{path}.content[{i}]"
        name = block.get("type")
        allowed = _ROLE_OF_BLOCK.get(name, role) if isinstance(name, str) else role
        if allowed != role:
            where += ".type"
            raise InvalidRequest(f"{where}: {name} blocks belong in {allowed} messages", param=where)
        part = read_block(block, where, arguments=inputs[i] if inputs and name == "tool_use" else None)
        if not isinstance(part, ToolResult):
            run.append(part)
            continue
        if run:
            messages.append(Message(role=role, parts=run))
            run = []
        messages.append(Message(role="tool", parts=[part]))
    if run or not messages:
        messages.append(Message(role=role, parts=run))
    return messages


def _system(content: str | list[dict[str, Any]], path: str) -> list[Part]:
    parts = read_content(content, path)
    for i, part in enumerate(parts):
        if not isinstance(part, Text):
            where = f"{path}[{i}].type"
            raise InvalidRequest(f"{where}: a system prompt consists of text blocks", param=where)
    return parts


def _tool(tool: dict[str, Any], path: str) -> Tool | VendorTool:
    """A tool without a type is the caller's own; typed ones are Anthropic's."""
    if tool.get("type") not in (None, "custom"):
        return VendorTool(vendor=VENDOR, payload=tool)
    fields = checked(tool, _Tool, path)
    return Tool(
        name=fields.name,
        description=fields.description or "",
        parameters=fields.input_schema,
        strict=fields.strict,
        extensions=extras(tool, ("type", *_Tool.__struct_fields__)),
    )


def _tool_choice(choice: _ToolChoice | None) -> ToolChoice | None:
    if choice is None:
        return None
    mode = _CHOICES.get(choice.type)
    if mode is None:
        raise InvalidRequest(
            f"tool_choice.type: must be one of {', '.join(_CHOICES)}, got {choice.type[:40]!r}",
            param="tool_choice.type",
        )
    if mode == "tool" and not choice.name:
        raise InvalidRequest("tool_choice.name: Field required", param="tool_choice.name")
    parallel = None if choice.disable_parallel_tool_use is None else not choice.disable_parallel_tool_use
    return ToolChoice(mode=mode, name=choice.name if mode == "tool" else None, parallel=parallel)


def _response_format(fields: _Body) -> ResponseFormat | None:
    config = fields.output_config
    name, output = ("output_config.format", config.format) if config else ("", None)
    if output is None:
        name, output = "output_format", fields.output_format
    if output is None:
        return None
    if output.type != "json_schema":
        raise InvalidRequest(f'{name}.type: must be "json_schema"', param=f"{name}.type")
    return ResponseFormat(type="json_schema", schema=output.schema)


def _reasoning(fields: _Body) -> ReasoningConfig | None:
    thinking = fields.thinking
    effort = fields.output_config.effort if fields.output_config else None
    if thinking is None:
        return ReasoningConfig(effort=effort) if effort else None
    enabled = _THINKING.get(thinking.type)
    if enabled is None:
        raise InvalidRequest(f"thinking.type: must be one of {', '.join(_THINKING)}", param="thinking.type")
    if thinking.type == "enabled" and thinking.budget_tokens is None:
        raise InvalidRequest("thinking.budget_tokens: Field required", param="thinking.budget_tokens")
    return ReasoningConfig(enabled=enabled, effort=effort, budget_tokens=thinking.budget_tokens if enabled else None)


def _lost(payload: dict[str, Any]) -> list[str]:
    known = frozenset(_Body.__struct_fields__)
    lost = [f"request.{key}" for key, value in payload.items() if key not in known and value is not None]
    for name, fields in _LOST_UNDER.items():
        found = payload.get(name)
        if isinstance(found, dict):
            lost += [f"request.{name}.{key}" for key, value in found.items() if key not in fields and value is not None]
    return lost
