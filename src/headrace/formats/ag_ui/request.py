"""An AG-UI client's RunAgentInput -> Request.

The protocol knows agents, not models: the model is `forwardedProps.model` (or a field `model` of the body), and so are
settings (`forwardedProps.temperature`, `maxTokens`, ...). `context` becomes a system message; `state` is the agent's, and
left out. Reasoning messages carry their signature as their encrypted value.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from headrace.formats.base import IN_THE_BODY, Located
from headrace.formats.json import Positive, convert, decode_object
from headrace.formats.openai_chat.fields import bad, base64_at, object_at, string_at
from headrace.formats.sealing import unseal
from headrace.model.content import Media, Part, Reasoning, RedactedReasoning, Text, ToolCall, ToolResult
from headrace.model.errors import InvalidRequest
from headrace.model.request import Message, ReasoningConfig, Request, Tool

from .writer import REDACTED

NAME = "ag_ui"


class _Props(msgspec.Struct, rename="camel"):
    """forwardedProps, as far as it is ours."""

    model: str | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    max_tokens: Positive | None = None
    stop_sequences: list[str] | None = None
    reasoning_effort: str | None = None


class _Tool(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    description: str | None = None
    parameters: dict[str, Any] | None = None


def read_request(body: bytes, located: Located = IN_THE_BODY) -> Request:
    """Raises InvalidRequest with the path of the bad field."""
    origin = decode_object(body)
    forwarded = origin.get("forwardedProps")
    props = convert(forwarded if isinstance(forwarded, dict) else {}, _Props)
    model = props.model or origin.get("model")
    if not isinstance(model, str) or not model:
        raise InvalidRequest("No model is named: set `forwardedProps.model`", param="forwardedProps.model")
    raw = origin.get("messages")
    if not isinstance(raw, list) or not raw:
        raise InvalidRequest("The field `messages` is missing, or no array of messages", param="messages")
    messages = _context(origin.get("context"))
    for position, one in enumerate(raw):
        path = f"messages[{position}]"
        _add(messages, object_at(one, path), path)
    effort = props.reasoning_effort
    ids = {"thread_id": origin.get("threadId"), "run_id": origin.get("runId")}
    return Request(
        model=model,
        messages=messages,
        stream=origin.get("stream") is not False,
        tools=_tools(origin.get("tools")),
        max_tokens=props.max_tokens,
        temperature=props.temperature,
        top_p=props.top_p,
        stop_sequences=props.stop_sequences or [],
        reasoning=ReasoningConfig(enabled=effort != "none", effort=effort) if effort is not None else None,
        metadata={name: value for name, value in ids.items() if isinstance(value, str) and value},
        lost=["state"] if origin.get("state") else [],
        format=NAME,
        origin=origin,
    )


def _context(raw: Any) -> list[Message]:
    if not raw:
        return []
    if not isinstance(raw, list):
        raise bad("context", "Expected `array`")
    lines = []
    for position, one in enumerate(raw):
        said = object_at(one, f"context[{position}]")
        value = said.get("value")
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        lines.append(f"{string_at(said.get('description'), f'context[{position}].description', empty=True)}: {text}")
    return [Message(role="system", parts=[Text(text="\n".join(lines))])]


def _add(messages: list[Message], raw: dict[str, Any], path: str) -> None:
    role = string_at(raw.get("role"), f"{path}.role")
    if role == "activity":
        return  # for people
    if role == "tool":
        id = string_at(raw.get("toolCallId"), f"{path}.toolCallId")
        error = raw.get("error")
        parts = _content(raw.get("content"), f"{path}.content")
        if isinstance(error, str) and error and not parts:
            parts = [Text(text=error)]
        result = ToolResult(tool_call_id=id, parts=parts, is_error=bool(error))
        messages.append(Message(role="tool", parts=[result]))
        return
    if role in ("assistant", "reasoning"):
        made = _assistant(raw, path) if role == "assistant" else [_reasoning(raw, path)]
        if messages and messages[-1].role == "assistant":
            messages[-1].parts += made
        elif made:
            messages.append(Message(role="assistant", parts=made))
        return
    known = {"user": "user", "system": "system", "developer": "system"}.get(role)
    if known is None:
        raise bad(f"{path}.role", "Expected user, assistant, system, developer, tool, reasoning or activity")
    messages.append(Message(role=known, parts=_content(raw.get("content"), f"{path}.content")))


def _assistant(raw: dict[str, Any], path: str) -> list[Part]:
    parts = _content(raw["content"], f"{path}.content") if raw.get("content") else []
    calls = raw.get("toolCalls") or []
    if not isinstance(calls, list):
        raise bad(f"{path}.toolCalls", "Expected `array`")
    for position, one in enumerate(calls):
        where = f"{path}.toolCalls[{position}]"
        call = object_at(one, where)
        function = object_at(call.get("function"), f"{where}.function")
        arguments = string_at(function.get("arguments"), f"{where}.function.arguments", empty=True)
        name = string_at(function.get("name"), f"{where}.function.name")
        parts.append(ToolCall(id=string_at(call.get("id"), f"{where}.id"), name=name, arguments=arguments or "{}"))
    return parts


def _reasoning(raw: dict[str, Any], path: str) -> Part:
    text = string_at(raw.get("content"), f"{path}.content", empty=True)
    sealed = raw.get("encryptedValue")
    found = unseal(sealed) if isinstance(sealed, str) else None
    if found is None:
        return Reasoning(text=text)
    if found.id == REDACTED:
        return RedactedReasoning(data=found.value, vendor=found.vendor)
    return Reasoning(text=text, signature=found.value, vendor=found.vendor or None, id=found.id or None)


def _content(raw: Any, path: str) -> list[Part]:
    if isinstance(raw, str):
        return [Text(text=raw)] if raw else []
    if not isinstance(raw, list):
        raise bad(path, "Expected `str` or `array`")
    return [_part(object_at(part, f"{path}[{n}]"), f"{path}[{n}]") for n, part in enumerate(raw)]


def _part(raw: dict[str, Any], path: str) -> Part:
    kind = string_at(raw.get("type"), f"{path}.type")
    if kind == "text":
        return Text(text=string_at(raw.get("text"), f"{path}.text", empty=True))
    if kind == "binary":  # the older name of all media
        mime = string_at(raw.get("mimeType"), f"{path}.mimeType")
        source = {"type": "url", "value": raw["url"]} if raw.get("url") else {"type": "data", "value": raw.get("data")}
        return _media(_family(mime), {**source, "mimeType": mime}, path)
    if kind in ("image", "audio", "video", "document"):
        return _media(kind, object_at(raw.get("source"), f"{path}.source"), f"{path}.source")
    raise bad(f"{path}.type", "Expected text, image, audio, video or document")


def _family(mime: str) -> str:
    family = mime.partition("/")[0]
    return family if family in ("image", "audio") else "document"


def _media(kind: str, source: dict[str, Any], path: str) -> Part:
    type = kind if kind in ("image", "audio") else "document"
    mime = source.get("mimeType")
    mime = "" if mime is None else string_at(mime, f"{path}.mimeType")
    value = string_at(source.get("value"), f"{path}.value")
    if source.get("type") == "url":
        return Media(type=type, media_type=mime, url=value)
    if source.get("type") == "file":
        return Media(type=type, media_type=mime, file_id=value)
    return Media(type=type, media_type=mime, data=base64_at(value, f"{path}.value"))


def _tools(raw: Any) -> list[Any]:
    if not raw:
        return []
    if not isinstance(raw, list):
        raise bad("tools", "Expected `array`")
    tools = []
    for position, one in enumerate(raw):
        path = f"tools[{position}]"
        string_at(object_at(one, path).get("name"), f"{path}.name")
        said = convert(one, _Tool)
        tools.append(Tool(name=said.name, description=said.description or "", parameters=said.parameters))
    return tools
