"""Requests: a caller's /v2/chat body -> Request, and a Request -> a body for Cohere.

The rule: a caller's own body goes on as it is. Elsewhere, what an assistant said before its tool calls becomes their
`tool_plan`, where Cohere has it; a tool that must be called is only `REQUIRED`, and what Cohere has no place for is lost, and
named.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from headrace.formats.base import IN_THE_BODY, Located, Target, WireRequest
from headrace.formats.json import Count, Positive, convert, decode_object, encode, merged
from headrace.formats.lost import name_of
from headrace.formats.openai_chat.fields import bad, data_url_at, object_at, string_at
from headrace.formats.openai_chat.media import data_url
from headrace.formats.openai_chat.request_reader import convert_at
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
from headrace.model.errors import InvalidRequest
from headrace.model.request import Message, ReasoningConfig, Request, ResponseFormat, Tool, ToolChoice

from .words import NAME, PLAN, VENDOR, is_plan

PATH = "/v2/chat"
Body = dict[str, Any]

BUDGETS = {"minimal": 512, "low": 2048, "medium": 8192}
"""Effort -> tokens of thinking. Any other word has no limit."""


_Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]


class _Function(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Thinking(msgspec.Struct):
    type: str
    token_budget: Count | None = None


class _Format(msgspec.Struct):
    type: str
    json_schema: dict[str, Any] | None = None
    schema: dict[str, Any] | None = None


class _Body(msgspec.Struct):
    model: Annotated[str, msgspec.Meta(min_length=1)]
    messages: Annotated[list[Any], msgspec.Meta(min_length=1)]
    stream: bool | None = None
    tools: list[dict[str, Any]] | None = None
    strict_tools: bool | None = None
    tool_choice: str | None = None
    response_format: _Format | None = None
    max_tokens: Positive | None = None
    stop_sequences: list[str] | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    seed: _Integer | None = None
    frequency_penalty: _Penalty | None = None
    presence_penalty: _Penalty | None = None
    k: Count | None = None
    p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    logprobs: bool | None = None
    thinking: _Thinking | None = None


_KNOWN = frozenset(_Body.__struct_fields__)
"""All else (documents, safety_mode ...) is Cohere's alone."""


def read_request(body: bytes, located: Located = IN_THE_BODY) -> Request:
    """Raises InvalidRequest with the path of the bad field."""
    origin = decode_object(body)
    for field in ("model", "messages"):
        if origin.get(field) is None:
            raise InvalidRequest(f"The field `{field}` is missing", param=field)
    said = convert(origin, _Body)
    messages = [_message(object_at(raw, f"messages[{n}]"), f"messages[{n}]") for n, raw in enumerate(said.messages)]
    return Request(
        model=said.model,
        messages=messages,
        stream=bool(said.stream),
        tools=[_tool(raw, f"tools[{n}]", said.strict_tools) for n, raw in enumerate(said.tools or [])],
        tool_choice=_tool_choice(said.tool_choice),
        response_format=_response_format(said.response_format),
        max_tokens=said.max_tokens,
        stop_sequences=said.stop_sequences or [],
        temperature=said.temperature,
        top_p=said.p,
        top_k=said.k or None,  # 0 switches it off
        seed=said.seed,
        frequency_penalty=said.frequency_penalty,
        presence_penalty=said.presence_penalty,
        logprobs=said.logprobs,
        reasoning=_reasoning(said.thinking),
        lost=[f"request.{name}" for name, value in origin.items() if name not in _KNOWN and value is not None],
        format=NAME,
        origin=origin,
    )


def _message(raw: Body, path: str) -> Message:
    role = string_at(raw.get("role"), f"{path}.role")
    if role == "tool":
        id = string_at(raw.get("tool_call_id"), f"{path}.tool_call_id")
        parts = _content(raw.get("content"), f"{path}.content")
        return Message(role="tool", parts=[ToolResult(tool_call_id=id, parts=parts)])
    if role not in ("system", "developer", "user", "assistant"):
        raise bad(f"{path}.role", "Expected system, user, assistant or tool")
    parts = _content(raw["content"], f"{path}.content") if raw.get("content") is not None else []
    if role == "assistant":
        plan = raw.get("tool_plan")
        if plan is not None and string_at(plan, f"{path}.tool_plan", empty=True):
            parts.append(Text(text=plan, extensions=dict(PLAN)))
        calls = raw.get("tool_calls") or []
        if not isinstance(calls, list):
            raise bad(f"{path}.tool_calls", "Expected `array`")
        parts += [_call(call, f"{path}.tool_calls[{n}]") for n, call in enumerate(calls)]
    elif not parts:
        raise bad(f"{path}.content", "Expected `str` or `array`")
    return Message(role="system" if role == "developer" else role, parts=parts)


def _call(raw: Any, path: str) -> ToolCall:
    call = object_at(raw, path)
    function = object_at(call.get("function"), f"{path}.function")
    said = function.get("arguments")
    arguments = "" if said is None else string_at(said, f"{path}.function.arguments", empty=True)
    name = string_at(function.get("name"), f"{path}.function.name")
    return ToolCall(id=string_at(call.get("id"), f"{path}.id"), name=name, arguments=arguments or "{}")


def _content(raw: Any, path: str) -> list[Part]:
    if isinstance(raw, str):
        return [Text(text=raw)]
    if not isinstance(raw, list):
        raise bad(path, "Expected `str` or `array`")
    return [_part(object_at(part, f"{path}[{n}]"), f"{path}[{n}]") for n, part in enumerate(raw)]


def _part(raw: Body, path: str) -> Part:
    kind = string_at(raw.get("type"), f"{path}.type")
    if kind == "text":
        return Text(text=string_at(raw.get("text"), f"{path}.text", empty=True))
    if kind == "thinking":
        return Reasoning(text=string_at(raw.get("thinking"), f"{path}.thinking", empty=True))
    if kind == "image_url":
        image = object_at(raw.get("image_url"), f"{path}.image_url")
        url = string_at(image.get("url"), f"{path}.image_url.url")
        detail = image.get("detail") if isinstance(image.get("detail"), str) else None
        if url.startswith("data:"):
            media_type, data = data_url_at(url, f"{path}.image_url.url")
            return Media(type="image", media_type=media_type, data=data, detail=detail)
        if not url.startswith(("http://", "https://")):
            raise bad(f"{path}.image_url.url", "Expected an http(s) URL or a base64 data URL")
        return Media(type="image", url=url, detail=detail)
    if kind == "document":
        document = object_at(raw.get("document"), f"{path}.document")
        data = document.get("data", {})
        text = data if isinstance(data, str) else msgspec.json.encode(data).decode()
        return Text(text=text, extensions={VENDOR: {"document": document}})
    return Opaque(vendor=VENDOR, payload=raw)


def _tool(raw: Body, path: str, strict: bool | None) -> Tool:
    function = convert_at(raw.get("function"), _Function, f"{path}.function")
    description = function.description or ""
    return Tool(name=function.name, description=description, parameters=function.parameters, strict=strict)


def _tool_choice(raw: str | None) -> ToolChoice | None:
    if raw is None:
        return None
    mode = {"REQUIRED": "required", "NONE": "none"}.get(raw)
    if mode is None:
        raise bad("tool_choice", "Expected REQUIRED or NONE")
    return ToolChoice(mode=mode)


def _response_format(said: _Format | None) -> ResponseFormat | None:
    if said is None:
        return None
    if said.type == "text":
        return ResponseFormat(type="text")
    if said.type != "json_object":
        raise bad("response_format.type", "Expected text or json_object")
    schema = said.json_schema if said.json_schema is not None else said.schema
    return ResponseFormat(type="json") if schema is None else ResponseFormat(type="json_schema", schema=schema)


def _reasoning(said: _Thinking | None) -> ReasoningConfig | None:
    if said is None:
        return None
    if said.type not in ("enabled", "disabled"):
        raise bad("thinking.type", "Expected enabled or disabled")
    return ReasoningConfig(enabled=said.type == "enabled", budget_tokens=said.token_budget)


# For a provider.

_NAMES = {
    # field of a request -> field of the body
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "p",
    "top_k": "k",
    "seed": "seed",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "logprobs": "logprobs",
}


def write_request(request: Request, target: Target) -> WireRequest:
    """Raises nothing: every request of the model has a body in this format."""
    lost: list[str] = []
    if request.format == NAME and request.origin is not None:
        body = dict(request.origin)
    else:
        lost += request.lost
        body = _Composer(request, target, lost).body()
    body["model"] = target.model
    body["stream"] = target.stream
    extension = request.extensions.get(target.vendor)
    if isinstance(extension, dict):
        body = merged(body, extension)
    headers = (
        ("content-type", "application/json"),
        ("accept", "text/event-stream" if target.stream else "application/json"),
    )
    return WireRequest(path=target.path or PATH, body=encode(body), headers=headers, lost=tuple(lost))


class _Composer:
    """One body from a request of another format."""

    def __init__(self, request: Request, target: Target, lost: list[str]) -> None:
        self._request = request
        self._target = target
        self._lost = lost

    def body(self) -> Body:
        request = self._request
        body: Body = {"model": "", "messages": self._messages()}
        for field, name in _NAMES.items():
            value = getattr(request, field)
            if value is not None:
                body[name] = value
        if request.stop_sequences:
            body["stop_sequences"] = request.stop_sequences
        self._lost += [f"request.{name}" for name in ("top_logprobs", "user") if getattr(request, name)]
        if request.n > 1:
            self._lost.append("request.n")
        self._tools(body)
        format = request.response_format
        if format is not None and format.type != "text":
            schema = {"json_schema": format.schema or {}} if format.type == "json_schema" else {}
            body["response_format"] = {"type": "json_object", **schema}
        if request.reasoning is not None:
            body["thinking"] = _thinking(request.reasoning)
        return body

    def _tools(self, body: Body) -> None:
        tools = []
        for position, tool in enumerate(self._request.tools):
            if isinstance(tool, Tool):
                parameters = tool.parameters if tool.parameters is not None else {"type": "object", "properties": {}}
                function: Body = {"name": tool.name, "parameters": parameters}
                if tool.description:
                    function["description"] = tool.description
                tools.append({"type": "function", "function": function})
            else:
                self._lost.append(f"tools[{position}]: a tool of {tool.vendor}")
        if not tools:
            return
        body["tools"] = tools
        strict = [isinstance(tool, Tool) and tool.strict is True for tool in self._request.tools]
        if all(strict):
            body["strict_tools"] = True  # of all, or of none
        else:
            self._lost += [f"tools[{position}].strict" for position, one in enumerate(strict) if one]
        choice = self._request.tool_choice
        if choice is None:
            return
        if choice.mode != "auto":
            body["tool_choice"] = "NONE" if choice.mode == "none" else "REQUIRED"
        if choice.mode == "tool":
            self._lost.append("request.tool_choice.name")
        if choice.parallel is not None:
            self._lost.append("request.tool_choice.parallel")

    def _messages(self) -> list[Body]:
        messages: list[Body] = []
        for position, message in enumerate(self._request.messages):
            path = f"messages[{position}]"
            if message.name is not None:
                self._lost.append(f"{path}.name")
            if message.role == "tool":
                messages += self._results(message, path)
            elif message.role == "assistant":
                messages.append(self._assistant(message, path))
            else:
                content = self._content(message.parts, path)
                messages.append({"role": message.role, "content": _short(content)})
        return messages

    def _results(self, message: Message, path: str) -> list[Body]:
        written = []
        for part in message.parts:
            if not isinstance(part, ToolResult):
                self._lost.append(f"{path}: {name_of(part)}")
                continue
            if part.is_error:
                self._lost.append(f"{path}.is_error")
            texts = [one for one in self._content(part.parts, path) if one["type"] in ("text", "document")]
            if any(isinstance(one, Media) and one.text is None for one in part.parts):
                self._lost.append(f"{path}: media in a tool's result")
            written.append({"role": "tool", "tool_call_id": part.tool_call_id, "content": _short(texts)})
        return written

    def _assistant(self, message: Message, path: str) -> Body:
        written: Body = {"role": "assistant"}
        content: list[Body] = []
        calls: list[Body] = []
        planned = any(isinstance(part, ToolCall) for part in message.parts)  # what is said before calls is the plan
        for position, part in enumerate(message.parts):
            where = f"{path}.parts[{position}]"
            if isinstance(part, Text) and (planned or is_plan(part.extensions)):
                written["tool_plan"] = written.get("tool_plan", "") + part.text
            elif isinstance(part, Text | Refusal):
                content.append({"type": "text", "text": part.text})
            elif isinstance(part, Reasoning) and part.vendor in (None, self._target.vendor) and not part.signature:
                content.append({"type": "thinking", "thinking": part.text})
            elif isinstance(part, ToolCall):
                function = {"name": part.name, "arguments": part.arguments}
                calls.append({"id": part.id, "type": "function", "function": function})
            else:
                whose = f" of {part.vendor}" if isinstance(part, Reasoning | RedactedReasoning) and part.vendor else ""
                self._lost.append(f"{where}: {name_of(part)}{whose}")
        if content:
            written["content"] = content
        if calls:
            written["tool_calls"] = calls
        return written if len(written) > 1 else {**written, "content": ""}

    def _content(self, parts: list[Part], path: str) -> list[Body]:
        content = []
        for position, part in enumerate(parts):
            one = _written(part)
            if one is None:
                self._lost.append(f"{path}.parts[{position}]: {name_of(part)}")
            else:
                content.append(one)
        return content


def _written(part: Part) -> Body | None:
    if isinstance(part, Text):
        own = (part.extensions or {}).get(VENDOR)
        document = own.get("document") if isinstance(own, dict) else None
        return (
            {"type": "document", "document": document} if document is not None else {"type": "text", "text": part.text}
        )
    if isinstance(part, Refusal):
        return {"type": "text", "text": part.text}
    if isinstance(part, Media) and part.type == "image":
        url = data_url(part.media_type, part.data) if part.data else part.url
        detail = {} if part.detail is None else {"detail": part.detail}
        return {"type": "image_url", "image_url": {"url": url, **detail}} if url else None
    if isinstance(part, Media) and part.text is not None:
        return {"type": "text", "text": f"{part.title}\n{part.text}" if part.title else part.text}
    return part.payload if isinstance(part, Opaque) and part.vendor == VENDOR else None


def _short(content: list[Body]) -> str | list[Body]:
    if not content:
        return ""
    return str(content[0]["text"]) if len(content) == 1 and content[0]["type"] == "text" else content


def _thinking(asked: ReasoningConfig) -> Body:
    if not asked.enabled:
        return {"type": "disabled"}
    budget = asked.budget_tokens if asked.budget_tokens is not None else BUDGETS.get(asked.effort or "")
    return {"type": "enabled"} if budget is None else {"type": "enabled", "token_budget": budget}
