"""A caller's generateContent body -> Request.

The rule: members may be written in camelCase or in snake_case, as the API takes both. A function's response belongs to the
call with its id or, as most have none, to the first unanswered call of its name; calls without an id get one made of their
place. Thoughts carry their signature; one that was sealed for another vendor comes out again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from headrace.formats.base import IN_THE_BODY, Located
from headrace.formats.json import Positive, convert, decode_object, encode
from headrace.formats.openai_chat.fields import bad, base64_at, object_at, string_at
from headrace.model.content import Media, Opaque, Part, Reasoning, RedactedReasoning, Text, ToolCall, ToolResult
from headrace.model.errors import InvalidRequest
from headrace.model.request import Message, ReasoningConfig, Request, ResponseFormat, Tool, ToolChoice, VendorTool

from .parts import media_type_of
from .words import NAME, REDACTED, VENDOR, signed, unsealed

_SNAKE = re.compile(r"_([a-z])")
_Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Thinking(msgspec.Struct, rename="camel"):
    thinking_budget: int | None = None
    thinking_level: str | None = None
    include_thoughts: bool | None = None


class _Config(msgspec.Struct, rename="camel"):
    """generationConfig."""

    max_output_tokens: Positive | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    top_k: float | None = None
    stop_sequences: list[str] | None = None
    candidate_count: Annotated[int, msgspec.Meta(ge=1, le=64)] | None = None
    seed: _Integer | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    response_logprobs: bool | None = None
    logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None
    response_mime_type: str | None = None
    response_schema: dict[str, Any] | None = None
    response_json_schema: dict[str, Any] | None = None
    thinking_config: _Thinking | None = None


class _Function(msgspec.Struct, rename="camel"):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    parameters_json_schema: dict[str, Any] | None = None


class _Calling(msgspec.Struct, rename="camel"):
    mode: str | None = None
    allowed_function_names: list[str] | None = None


def camel(raw: dict[str, Any]) -> dict[str, Any]:
    """The members of an object by their camelCase names; what they hold stays as it is."""
    return {_SNAKE.sub(lambda found: found[1].upper(), name): value for name, value in raw.items()}


def read_request(body: bytes, located: Located = IN_THE_BODY) -> Request:
    """The model and whether to stream stand in the URL. Raises InvalidRequest with the path of the bad field."""
    origin = decode_object(body)
    said = camel(origin)
    model = located.model or said.get("model")
    if not isinstance(model, str) or not model:
        raise InvalidRequest("The URL names no model: it should be .../models/MODEL:generateContent", param="model")
    raw = said.get("contents")
    if not isinstance(raw, list) or not raw:
        raise InvalidRequest("The field `contents` is missing, or no array of contents", param="contents")
    config = _at(camel(object_at(said.get("generationConfig") or {}, "generationConfig")), _Config, "generationConfig")
    messages = _Conversation().read(raw)
    system = said.get("systemInstruction")
    if system is not None:
        messages.insert(0, Message(role="system", parts=_system(system)))
    lost: list[str] = []
    stream = located.stream if located.stream is not None else bool(said.get("stream"))
    return Request(
        model=model.removeprefix("models/"),
        messages=messages,
        stream=stream,
        tools=_tools(said.get("tools")),
        tool_choice=_tool_choice(said.get("toolConfig"), lost),
        response_format=_response_format(config),
        max_tokens=config.max_output_tokens,
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=None if config.top_k is None else int(config.top_k),
        stop_sequences=config.stop_sequences or [],
        n=config.candidate_count or 1,
        seed=config.seed,
        presence_penalty=config.presence_penalty,
        frequency_penalty=config.frequency_penalty,
        logprobs=config.response_logprobs,
        top_logprobs=config.logprobs,
        reasoning=_reasoning(config.thinking_config),
        lost=lost,
        format=NAME,
        origin=origin,
    )


def _at(raw: dict[str, Any], type: type[Any], path: str) -> Any:
    try:
        return convert(raw, type)
    except InvalidRequest as error:
        inner = error.info.param
        full = f"{path}.{inner}" if inner else path
        message = error.info.message.removeprefix(f"{inner}: ")
        raise InvalidRequest(f"{full}: {message}", param=full) from None


def _system(raw: Any) -> list[Part]:
    if isinstance(raw, str):
        return [Text(text=raw)]
    parts = camel(object_at(raw, "systemInstruction")).get("parts")
    return _parts(parts, "systemInstruction.parts", _Conversation())


class _Conversation:
    """Contents folded into messages; knows which calls wait for their response."""

    def __init__(self) -> None:
        self._waiting: list[tuple[str, str]] = []  # (id, name)
        self._calls = 0

    def read(self, contents: list[Any]) -> list[Message]:
        messages: list[Message] = []
        for position, raw in enumerate(contents):
            path = f"contents[{position}]"
            content = {"parts": [{"text": raw}]} if isinstance(raw, str) else camel(object_at(raw, path))
            role = content.get("role") or "user"
            if role not in ("user", "model", "function", "tool"):
                raise bad(f"{path}.role", "Expected user or model")
            parts = _parts(content.get("parts"), f"{path}.parts", self)
            if role == "model":
                messages.append(Message(role="assistant", parts=parts))
                continue
            results = [part for part in parts if isinstance(part, ToolResult)]
            others: list[Part] = [part for part in parts if not isinstance(part, ToolResult)]
            messages += [Message(role="tool", parts=[result]) for result in results]
            if others or not results:
                messages.append(Message(role="user", parts=others))
        return messages

    def call(self, raw: dict[str, Any], path: str) -> ToolCall:
        name = string_at(raw.get("name"), f"{path}.name")
        args = raw.get("args")
        args = {} if args is None else object_at(args, f"{path}.args")
        self._calls += 1
        id = raw.get("id")
        id = f"call_{self._calls}" if id is None else string_at(id, f"{path}.id")
        self._waiting.append((id, name))
        return ToolCall(id=id, name=name, arguments=encode(args).decode())

    def result(self, raw: dict[str, Any], path: str) -> ToolResult:
        name = string_at(raw.get("name"), f"{path}.name")
        said = object_at(raw.get("response") or {}, f"{path}.response")
        id = raw.get("id")
        if id is not None:
            id = string_at(id, f"{path}.id")
        else:
            id = next((waiting for waiting, called in self._waiting if called == name), f"call_{name}")
        known = any(waiting == id for waiting, _ in self._waiting)
        self._waiting = [entry for entry in self._waiting if entry[0] != id]
        failed = said.keys() == {"error"}
        only: Any = said
        if said.keys() in ({"error"}, {"output"}, {"result"}):
            only = next(iter(said.values()))
        elif said.keys() == {"name", "content"}:  # as Vercel's SDK writes it
            only = said["content"]
        text = only if isinstance(only, str) else json.dumps(only, ensure_ascii=False)
        parts: list[Part] = [Text(text=text)] if text else []
        more = raw.get("parts")
        if more is not None:
            parts += _parts(more, f"{path}.parts", self)
        return ToolResult(tool_call_id=id, parts=parts, is_error=failed, name=None if known else name)


def _parts(raw: Any, path: str, conversation: _Conversation) -> list[Part]:
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise bad(path, "Expected `array`")
    parts: list[Part] = []
    for position, one in enumerate(raw):
        where = f"{path}[{position}]"
        part = {"text": one} if isinstance(one, str) else camel(object_at(one, where))
        signature = part.get("thoughtSignature")
        signature = "" if signature is None else string_at(signature, f"{where}.thoughtSignature", empty=True)
        if "text" in part:
            text = string_at(part["text"], f"{where}.text", empty=True)
            if part.get("thought") is True:
                _add_thought(parts, text, signature)
            else:
                extensions = signed(signature) if signature else None
                parts.append(Text(text=text, extensions=extensions))
            continue
        name = next((name for name in _READERS if name in part), None)
        if name is None:
            if signature:
                parts.append(Text(text="", extensions=signed(signature)))
            else:
                parts.append(Opaque(vendor=VENDOR, payload=one))
            continue
        held = camel(object_at(part[name], f"{where}.{name}"))
        read = _READERS[name](conversation, held, f"{where}.{name}")
        if signature and isinstance(read, ToolCall):
            read.extensions = signed(signature)
        parts.append(read)
    return parts


def _add_thought(parts: list[Part], text: str, signature: str) -> None:
    """Thoughts come in pieces, the signature with the last."""
    foreign = unsealed(signature) if signature else None
    if foreign is not None and foreign.id == REDACTED:
        parts.append(RedactedReasoning(data=foreign.value, vendor=foreign.vendor))
        return
    value = signature if foreign is None else foreign.value
    last = parts[-1] if parts else None
    if not isinstance(last, Reasoning) or last.signature:
        last = Reasoning(text="")
        parts.append(last)
    last.text += text
    if value:
        last.signature = value
        last.vendor = VENDOR if foreign is None else foreign.vendor
        last.id = foreign.id or None if foreign is not None else None


def _inline(conversation: _Conversation, raw: dict[str, Any], path: str) -> Part:
    mime = string_at(raw.get("mimeType"), f"{path}.mimeType")
    data = string_at(raw.get("data"), f"{path}.data")
    data = data.replace("-", "+").replace("_", "/")  # Google's own clients may send the URL-safe alphabet
    data = base64_at(data + "=" * (-len(data) % 4), f"{path}.data")
    title = raw.get("displayName")
    return Media(type=media_type_of(mime), media_type=mime, data=data, title=title if isinstance(title, str) else None)


def _file(conversation: _Conversation, raw: dict[str, Any], path: str) -> Part:
    mime = raw.get("mimeType")
    mime = "" if mime is None else string_at(mime, f"{path}.mimeType")
    url = string_at(raw.get("fileUri"), f"{path}.fileUri")
    return Media(type=media_type_of(mime), media_type=mime, url=url)


_READERS: dict[str, Callable[[_Conversation, dict[str, Any], str], Part]] = {
    "functionCall": _Conversation.call,
    "functionResponse": _Conversation.result,
    "inlineData": _inline,
    "fileData": _file,
}


def _tools(raw: Any) -> list[Tool | VendorTool]:
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise bad("tools", "Expected `array`")
    tools: list[Tool | VendorTool] = []
    for position, one in enumerate(raw):
        path = f"tools[{position}]"
        held = camel(object_at(one, path))
        functions = held.pop("functionDeclarations", None) or []
        if not isinstance(functions, list):
            raise bad(f"{path}.functionDeclarations", "Expected `array`")
        for number, declared in enumerate(functions):
            where = f"{path}.functionDeclarations[{number}]"
            said = _at(camel(object_at(declared, where)), _Function, where)
            schema = said.parameters_json_schema
            if schema is None and said.parameters is not None:
                schema = json_schema(said.parameters)
            tools.append(Tool(name=said.name, description=said.description or "", parameters=schema))
        if held:
            tools.append(VendorTool(vendor=VENDOR, payload=held))
    return tools


def json_schema(raw: Any) -> Any:
    """Google's dialect of OpenAPI's schemas as JSON Schema: types in lower case, `nullable` as a type of its own."""
    if isinstance(raw, list):
        return [json_schema(one) for one in raw]
    if not isinstance(raw, dict):
        return raw
    schema: dict[str, Any] = {}
    for name, value in camel(raw).items():
        if name == "type" and isinstance(value, str):
            schema[name] = value.lower()
        elif name == "properties" and isinstance(value, dict):
            schema[name] = {key: json_schema(one) for key, one in value.items()}
        elif name in ("items", "anyOf", "prefixItems", "additionalProperties"):
            schema[name] = json_schema(value)
        elif name in ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"):
            schema[name] = int(value) if isinstance(value, str) and value.isdigit() else value  # int64 as text
        elif name not in ("nullable", "propertyOrdering"):
            schema[name] = value
    if raw.get("nullable") is True and isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
    return schema


_MODES = {"AUTO": "auto", "ANY": "required", "NONE": "none", "VALIDATED": "auto", "MODE_UNSPECIFIED": "auto"}


def _tool_choice(raw: Any, lost: list[str]) -> ToolChoice | None:
    if raw is None:
        return None
    config = camel(object_at(raw, "toolConfig")).get("functionCallingConfig")
    if config is None:
        return None
    path = "toolConfig.functionCallingConfig"
    said = _at(camel(object_at(config, path)), _Calling, path)
    mode = _MODES.get((said.mode or "AUTO").upper())
    if mode is None:
        raise bad(f"{path}.mode", f"Expected one of {', '.join(_MODES)}")
    names = said.allowed_function_names or []
    if len(names) == 1 and mode == "required":
        return ToolChoice(mode="tool", name=names[0])
    if names:
        lost.append("tool_choice.allowed_function_names")
    return ToolChoice(mode=mode)


def _response_format(config: _Config) -> ResponseFormat | None:
    if config.response_json_schema is not None:
        return ResponseFormat(type="json_schema", schema=config.response_json_schema)
    if config.response_schema is not None:
        return ResponseFormat(type="json_schema", schema=json_schema(config.response_schema))
    if config.response_mime_type == "application/json":
        return ResponseFormat(type="json")
    return ResponseFormat(type="text") if config.response_mime_type == "text/plain" else None


def _reasoning(said: _Thinking | None) -> ReasoningConfig | None:
    if said is None:
        return None
    if said.thinking_level is not None:
        return ReasoningConfig(effort=said.thinking_level.lower())
    if said.thinking_budget is None:
        return ReasoningConfig() if said.include_thoughts else None
    if said.thinking_budget == 0:
        return ReasoningConfig(enabled=False)
    return ReasoningConfig(budget_tokens=said.thinking_budget if said.thinking_budget > 0 else None)
