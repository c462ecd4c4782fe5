"""A caller's Responses body -> Request.

The rule: input items that an assistant makes one after the other (reasoning, messages, calls, work of the provider's tools)
are one assistant message, in their order. What refers to state that only the provider has (an earlier response, a
conversation, a stored prompt) can be carried out by a provider of this format alone, and is said to be so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from headrace.formats.base import IN_THE_BODY, Located
from headrace.formats.json import Positive, convert, decode_object
from headrace.formats.openai_chat.fields import bad, base64_at, data_url_at, object_at, string_at
from headrace.formats.openai_chat.parts import PartReaders, read_audio, read_content, read_refusal, read_text
from headrace.formats.openai_chat.request_reader import convert_at
from headrace.formats.sealing import unseal
from headrace.model.content import (
    Media,
    Opaque,
    Part,
    Reasoning,
    RedactedReasoning,
    Text,
    ToolCall,
    ToolResult,
)
from headrace.model.errors import InvalidRequest
from headrace.model.request import (
    Message,
    ReasoningConfig,
    Request,
    ResponseFormat,
    Tool,
    ToolChoice,
    VendorTool,
)

from .custom import MARK, wrapped
from .words import NAME, OWN, REDACTED, VENDOR

ECHOED = (
    "instructions",
    "max_output_tokens",
    "metadata",
    "parallel_tool_calls",
    "previous_response_id",
    "reasoning",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_p",
    "truncation",
    "user",
)
"""Fields of the request that a response tells back."""

_STATEFUL = ("previous_response_id", "conversation", "prompt", "background")
_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}


class _Tool(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _Format(msgspec.Struct):
    type: str
    name: str | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class _Text(msgspec.Struct):
    format: _Format | None = None


class _Reasoning(msgspec.Struct):
    effort: str | None = None


class _Body(msgspec.Struct):
    """The fields with simple types; the others are read by hand."""

    model: Annotated[str, msgspec.Meta(min_length=1)]
    input: str | list[Any] = ""
    instructions: str | None = None
    stream: bool | None = None
    max_output_tokens: Positive | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None
    include: list[str] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: _Text | None = None
    reasoning: _Reasoning | None = None
    user: str | None = None
    safety_identifier: str | None = None
    metadata: dict[str, Any] | None = None


def read_request(body: bytes, located: Located = IN_THE_BODY) -> Request:
    """Raises InvalidRequest with the path of the bad field."""
    origin = decode_object(body)
    if origin.get("model") is None:
        raise InvalidRequest("The field `model` is missing", param="model")
    said = convert(origin, _Body)
    bound = [name for name in _STATEFUL if origin.get(name)]
    messages = _Messages().read(said.input)
    if not messages and not bound and said.instructions is None:
        raise InvalidRequest("The field `input` is missing or empty", param="input")
    if said.instructions is not None:
        messages.insert(0, Message(role="system", parts=[Text(text=said.instructions)]))
    lost: list[str] = []
    tools, choice = _tools(said, lost)
    return Request(
        model=said.model,
        messages=messages,
        stream=bool(said.stream),
        tools=tools,
        tool_choice=choice,
        response_format=_response_format(said.text, lost),
        max_tokens=said.max_output_tokens,
        temperature=said.temperature,
        top_p=said.top_p,
        logprobs=True if "message.output_text.logprobs" in (said.include or ()) else None,
        top_logprobs=said.top_logprobs,
        reasoning=_reasoning(said.reasoning),
        user=said.user or said.safety_identifier,
        metadata=said.metadata or {},
        bound=bound,
        lost=lost,
        format=NAME,
        origin=origin,
    )


class _Messages:
    """Input items folded into messages."""

    def __init__(self) -> None:
        self._messages: list[Message] = []

    def read(self, given: str | list[Any]) -> list[Message]:
        if isinstance(given, str):
            return [Message(role="user", parts=[Text(text=given)])] if given else []
        for position, raw in enumerate(given):
            path = f"input[{position}]"
            self._item(object_at(raw, path), path)
        return self._messages

    def _item(self, raw: dict[str, Any], path: str) -> None:
        kind = raw.get("type")
        if kind is None and "role" in raw:
            kind = "message"
        kind = string_at(kind, f"{path}.type")
        if kind == "message":
            self._message(raw, path)
        elif kind in ("function_call_output", "custom_tool_call_output"):
            id = string_at(raw.get("call_id"), f"{path}.call_id")
            result = ToolResult(tool_call_id=id, parts=read_content(raw.get("output"), f"{path}.output", _PARTS, OWN))
            self._messages.append(Message(role="tool", parts=[result]))
        else:
            read = _ITEMS.get(kind)
            self._assistant([Opaque(vendor=OWN, payload=raw)] if read is None else read(raw, path))

    def _message(self, raw: dict[str, Any], path: str) -> None:
        role = _ROLES.get(string_at(raw.get("role"), f"{path}.role"))
        if role is None:
            raise bad(f"{path}.role", f"Expected one of {', '.join(_ROLES)}")
        parts = read_content(raw.get("content"), f"{path}.content", _PARTS, OWN)
        if role == "assistant":
            self._assistant(parts)
        else:
            self._messages.append(Message(role=role, parts=parts))

    def _assistant(self, parts: list[Part]) -> None:
        last = self._messages[-1] if self._messages else None
        if last is not None and last.role == "assistant":
            last.parts += parts
        else:
            self._messages.append(Message(role="assistant", parts=list(parts)))


def _function_call(raw: dict[str, Any], path: str) -> list[Part]:
    arguments = string_at(raw.get("arguments"), f"{path}.arguments", empty=True)
    id, name = string_at(raw.get("call_id"), f"{path}.call_id"), string_at(raw.get("name"), f"{path}.name")
    return [ToolCall(id=id, name=name, arguments=arguments or "{}")]


def _custom_call(raw: dict[str, Any], path: str) -> list[Part]:
    text = string_at(raw.get("input"), f"{path}.input", empty=True)
    id, name = string_at(raw.get("call_id"), f"{path}.call_id"), string_at(raw.get("name"), f"{path}.name")
    return [ToolCall(id=id, name=name, arguments=wrapped(text), extensions=dict(MARK))]


def _reasoning_item(raw: dict[str, Any], path: str) -> list[Part]:
    texts: list[str] = []
    for field in ("summary", "content"):
        sections = raw.get(field)
        if sections is None:
            continue
        if not isinstance(sections, list):
            raise bad(f"{path}.{field}", "Expected `array`")
        if not texts:  # a summary is of the content
            texts = [
                string_at(object_at(one, f"{path}.{field}[{n}]").get("text"), f"{path}.{field}[{n}].text", empty=True)
                for n, one in enumerate(sections)
            ]
    text = "\n\n".join(texts)
    id, sealed = raw.get("id"), raw.get("encrypted_content")
    id = None if id is None else string_at(id, f"{path}.id", empty=True)
    if sealed is None:
        return [Reasoning(text=text, id=id)] if text else []
    signature = string_at(sealed, f"{path}.encrypted_content", empty=True)
    foreign = unseal(signature)
    if foreign is None:
        return [Reasoning(text=text, signature=signature or None, vendor=VENDOR, id=id)]
    if foreign.id == REDACTED:
        return [RedactedReasoning(data=foreign.value, vendor=foreign.vendor)]
    return [Reasoning(text=text, signature=foreign.value or None, vendor=foreign.vendor or None, id=foreign.id or None)]


def _image_call(raw: dict[str, Any], path: str) -> list[Part]:
    """A generated image, sent back."""
    result = raw.get("result")
    if not isinstance(result, str) or not result:
        return [Opaque(vendor=OWN, payload=raw)]
    kind = raw.get("output_format")
    media_type = f"image/{kind}" if isinstance(kind, str) and kind else "image/png"
    own = {name: value for name, value in raw.items() if name not in ("result", "type", "status")}
    data = base64_at(result, f"{path}.result")
    return [Media(type="image", media_type=media_type, data=data, extensions={OWN: own} if own else None)]


_ITEMS: dict[str, Callable[[dict[str, Any], str], list[Part]]] = {
    "function_call": _function_call,
    "custom_tool_call": _custom_call,
    "reasoning": _reasoning_item,
    "image_generation_call": _image_call,
}
"""Items that an assistant makes. Those that are not here are kept whole."""


def _image(raw: dict[str, Any], path: str) -> Part:
    detail = raw.get("detail")
    detail = None if detail is None else string_at(detail, f"{path}.detail")
    if raw.get("file_id") is not None:
        return Media(type="image", file_id=string_at(raw["file_id"], f"{path}.file_id"), detail=detail)
    url = string_at(raw.get("image_url"), f"{path}.image_url")
    if url.startswith("data:"):
        media_type, data = data_url_at(url, f"{path}.image_url")
        return Media(type="image", media_type=media_type, data=data, detail=detail)
    if not url.startswith(("http://", "https://")):
        raise bad(f"{path}.image_url", "Expected an http(s) URL or a base64 data URL")
    return Media(type="image", url=url, detail=detail)


def _file(raw: dict[str, Any], path: str) -> Part:
    title = raw.get("filename")
    title = None if title is None else string_at(title, f"{path}.filename")
    if raw.get("file_id") is not None:
        return Media(type="document", file_id=string_at(raw["file_id"], f"{path}.file_id"), title=title)
    if raw.get("file_url") is not None:
        return Media(type="document", url=string_at(raw["file_url"], f"{path}.file_url"), title=title)
    data = string_at(raw.get("file_data"), f"{path}.file_data")
    media_type = "application/pdf"
    if data.startswith("data:"):
        media_type, data = data_url_at(data, f"{path}.file_data")
    else:
        data = base64_at(data, f"{path}.file_data")
    return Media(type="document", media_type=media_type, data=data, title=title)


_PARTS: PartReaders = {
    "input_text": read_text,
    "output_text": read_text,
    "text": read_text,
    "refusal": read_refusal,
    "input_image": _image,
    "input_file": _file,
    "input_audio": read_audio,
}


def _tools(said: _Body, lost: list[str]) -> tuple[list[Tool | VendorTool], ToolChoice | None]:
    tools: list[Tool | VendorTool] = []
    for position, raw in enumerate(said.tools or []):
        path = f"tools[{position}]"
        if string_at(raw.get("type"), f"{path}.type") != "function":
            tools.append(VendorTool(vendor=OWN, payload=raw))
            continue
        string_at(raw.get("name"), f"{path}.name")
        tool = convert_at(raw, _Tool, path)
        tools.append(
            Tool(name=tool.name, description=tool.description or "", parameters=tool.parameters, strict=tool.strict)
        )
    if said.tool_choice is not None:
        choice = _tool_choice(said.tool_choice, lost)
    elif said.parallel_tool_calls is None:
        return tools, None
    else:
        choice = ToolChoice()
    choice.parallel = said.parallel_tool_calls
    return tools, choice


def _tool_choice(raw: str | dict[str, Any], lost: list[str]) -> ToolChoice:
    if isinstance(raw, str):
        if raw not in ("auto", "none", "required"):
            raise InvalidRequest(
                f"tool_choice: {raw[:80]!r} is not one of auto, none, required, nor an object", param="tool_choice"
            )
        return ToolChoice(mode=raw)
    kind = string_at(raw.get("type"), "tool_choice.type")
    if kind in ("function", "custom"):
        return ToolChoice(mode="tool", name=string_at(raw.get("name"), "tool_choice.name"))
    lost.append(f"tool_choice.{kind}")
    return ToolChoice(mode="required" if raw.get("mode") == "required" else "auto")


def _response_format(text: _Text | None, lost: list[str]) -> ResponseFormat | None:
    said = text.format if text is not None else None
    if said is None:
        return None
    if said.type == "text":
        return ResponseFormat(type="text")
    if said.type == "json_object":
        return ResponseFormat(type="json")
    if said.type == "json_schema":
        return ResponseFormat(
            type="json_schema",
            schema=said.schema if said.schema is not None else {},
            name=said.name,
            description=said.description,
            strict=said.strict,
        )
    lost.append("text.format")
    return None


def _reasoning(said: _Reasoning | None) -> ReasoningConfig | None:
    if said is None or said.effort is None:
        return None
    return ReasoningConfig(enabled=said.effort != "none", effort=said.effort)
