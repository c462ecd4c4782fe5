"""The conversation and the tools, as both request bodies have them (llm-stream 4.3 and 4.4).

`content` is a string or an array of parts, null only on an assistant message that carries `tool_calls`; a tool message
answers a call that an earlier assistant message made. Writing chooses the string wherever it says everything. Text, calls
and text again become parts and, beside them, `tool_calls`: between calls and text of one turn the order is not kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from headrace.model.content import Part, Text, ToolCall, ToolResult
from headrace.model.request import Message, Tool, VendorTool

from .extensions import OURS, WireExtensions, check_keys, from_wire, put, split_ours, to_wire
from .fields import bad, is_json
from .parts import ASSISTANT_ONLY, AnyPart, ToolCallPart, plain_text, read_part, write_part


class WireToolCall(Struct, kw_only=True):
    id: str
    name: str
    arguments: str
    extensions: WireExtensions | None = None


class WireMessage(Struct, kw_only=True):
    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[AnyPart] | UnsetType | None = UNSET
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[WireToolCall] | None = None
    extensions: WireExtensions | None = None


class WireTool(Struct, kw_only=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    extensions: WireExtensions | None = None


def read_messages(messages: Sequence[WireMessage], path: str = "messages") -> list[Message]:
    """Raises InvalidRequest with the path of the first field that is wrong."""
    if not messages:
        bad(path, "must hold at least one message")
    called: set[str] = set()
    read = []
    for number, message in enumerate(messages):
        place = f"{path}[{number}]"
        read.append(_read_message(message, place, called))
        called.update(part.id for part in read[-1].parts if isinstance(part, ToolCall))
    return read


def _read_message(message: WireMessage, path: str, called: set[str]) -> Message:
    if message.tool_calls and message.role != "assistant":
        bad(f"{path}.tool_calls", f"belongs to assistant messages, not to role {message.role}")
    check_keys(message.extensions, f"{path}.extensions")
    ours, others = split_ours(message.extensions)
    parts = _read_content(message, path)
    if message.role == "tool":
        if not message.tool_call_id:
            bad(f"{path}.tool_call_id", "is required when role is tool: the id of the tool call that this answers")
        if message.tool_call_id not in called:
            bad(f"{path}.tool_call_id", "must be the id of a tool call in an earlier assistant message")
        failed = ours.get("is_error") is True
        parts = [ToolResult(tool_call_id=message.tool_call_id, parts=parts, is_error=failed, name=message.name)]
    for number, call in enumerate(message.tool_calls or ()):
        parts.append(_read_call(call, f"{path}.tool_calls[{number}]"))
    return Message(role=message.role, parts=parts, name=message.name, extensions=from_wire(others))


def _read_content(message: WireMessage, path: str) -> list[Part]:
    content = message.content
    if content is None or content is UNSET:
        if message.role == "assistant" and message.tool_calls:
            return []
        problem = "is required" if content is UNSET else "must not be null"
        bad(f"{path}.content", f"{problem}: only an assistant message with tool_calls has none")
    if isinstance(content, str):
        return [Text(text=content)]
    parts: list[Part] = []
    for number, part in enumerate(content):
        place = f"{path}.content[{number}]"
        if message.role != "assistant" and isinstance(part, ASSISTANT_ONLY):
            kind = part.__struct_config__.tag
            bad(f"{place}.type", f"must not be {kind} in a message of role {message.role}, only of role assistant")
        if isinstance(part, ToolCallPart):
            _check_arguments(part.arguments, place)
        parts.append(read_part(part, place))
    return parts


def _read_call(call: WireToolCall, path: str) -> ToolCall:
    if not call.id:
        bad(f"{path}.id", "must not be empty")
    if not call.name:
        bad(f"{path}.name", "must not be empty")
    _check_arguments(call.arguments, path)
    check_keys(call.extensions, f"{path}.extensions")
    return ToolCall(id=call.id, name=call.name, arguments=call.arguments or "{}", extensions=from_wire(call.extensions))


def _check_arguments(arguments: str, path: str) -> None:
    if arguments and not is_json(arguments):
        bad(f"{path}.arguments", "must be complete JSON, written as a string")


def read_tools(tools: Sequence[WireTool] | None, *, strict: bool, path: str = "tools") -> list[Tool | VendorTool]:
    """`strict`: description and parameters are required, as the draft wants it."""
    read: list[Tool | VendorTool] = []
    for number, tool in enumerate(tools or ()):
        place = f"{path}[{number}]"
        if not tool.name:
            bad(f"{place}.name", "must not be empty")
        if strict and tool.description is None:
            bad(f"{place}.description", "is required")
        if strict and tool.parameters is None:
            bad(f"{place}.parameters", "is required: a JSON Schema object")
        check_keys(tool.extensions, f"{place}.extensions")
        read.append(
            Tool(
                name=tool.name,
                description=tool.description or "",
                parameters=tool.parameters,
                strict=tool.strict,
                extensions=from_wire(tool.extensions),
            )
        )
    return read


def write_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages on the wire; nothing in them is without a word."""
    written: list[dict[str, Any]] = []
    for message in messages:
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        written += [_write_result(result, message) for result in results]
        if len(results) < len(message.parts) or not message.parts:
            written.append(_write_message(message))
    return written


def write_content(parts: Sequence[Part]) -> dict[str, Any]:
    """`content`, and `tool_calls` where there are some: what an assistant message and a whole answer's message share."""
    calls = [part for part in parts if isinstance(part, ToolCall)]
    rest = [part for part in parts if not isinstance(part, ToolCall | ToolResult)]
    text = plain_text(rest)
    content: Any = text if text is not None else [write_part(part) for part in rest]
    if not rest:
        content = None if calls else ""
    if not calls:
        return {"content": content}
    return {"content": content, "tool_calls": [_write_call(call) for call in calls]}


def _write_message(message: Message) -> dict[str, Any]:
    written: dict[str, Any] = {"role": message.role, **write_content(message.parts)}
    if message.name is not None:
        written["name"] = message.name
    if message.extensions:
        written["extensions"] = to_wire(message.extensions)
    return written


def _write_result(result: ToolResult, message: Message) -> dict[str, Any]:
    written = {"role": "tool", "tool_call_id": result.tool_call_id, **write_content(result.parts)}
    name = result.name or message.name
    if name is not None:
        written["name"] = name
    extensions = {**to_wire(message.extensions), **to_wire(result.extensions)}
    if result.is_error:
        put(extensions, OURS, "is_error", True)
    if extensions:
        written["extensions"] = extensions
    return written


def _write_call(call: ToolCall) -> dict[str, Any]:
    written: dict[str, Any] = {"id": call.id, "name": call.name, "arguments": call.arguments or "{}"}
    if call.extensions:
        written["extensions"] = to_wire(call.extensions)
    return written


def write_tools(tools: Sequence[Tool | VendorTool], lost: list[str]) -> list[dict[str, Any]]:
    """The callers' own tools; tools that only their vendor can execute are named in `lost`."""
    written = []
    for number, tool in enumerate(tools):
        if isinstance(tool, VendorTool):
            lost.append(f"request.tools[{number}]: a tool of {tool.vendor}")
            continue
        fields: dict[str, Any] = {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters or {"type": "object", "properties": {}},
        }
        if tool.strict is not None:
            fields["strict"] = tool.strict
        if tool.extensions:
            fields["extensions"] = to_wire(tool.extensions)
        written.append(fields)
    return written
