"""A caller's body of POST /api/chat -> Request.

The rule: everything the gateway acts on is checked, and an error names the field in the caller's own terms; what it does
not know stays in `origin`, and is named in `lost` where it changes the answer. Two things differ from every other format:

- A body that does not say otherwise asks for a stream.
- Tool calls have no ids, or ids that clients leave out when they send a turn back. A call without one is called by its
  place in the conversation, which stays the same in every later turn. A result belongs to the call whose id it says; else
  to the first unanswered call of its `tool_name`; else to the first unanswered call.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from headrace.formats.base import IN_THE_BODY, Located
from headrace.formats.json import convert, decode_object, encode
from headrace.model.content import Media, Part, Reasoning, Text, ToolCall, ToolResult
from headrace.model.errors import InvalidRequest
from headrace.model.request import Message, Request, Tool, VendorTool

from .images import check_image, image_type
from .options import read_format, read_options, read_think
from .words import NAME, VENDOR

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
OLLAMAS_OWN = ("keep_alive", "truncate", "shift", "template")
"""Fields that say how to run the model."""


class Shared(msgspec.Struct, kw_only=True):
    """The fields that both endpoints have."""

    model: Annotated[str, msgspec.Meta(min_length=1)]
    stream: bool | None = None
    format: Any = None
    options: dict[str, Any] | None = None
    think: Any = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None

    def fields(self, lost: list[str]) -> dict[str, Any]:
        """What they say, as fields of a Request. Raises InvalidRequest."""
        return {
            "model": self.model,
            "stream": self.stream is not False,
            "response_format": read_format(self.format),
            "reasoning": read_think(self.think),
            "logprobs": self.logprobs,
            "top_logprobs": self.top_logprobs,
            **read_options(self.options, lost),
        }


class _Body(Shared, kw_only=True):
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None


class _Function(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    description: str | None = None
    parameters: dict[str, Any] | None = None


def read_request(body: bytes, located: Located = IN_THE_BODY) -> Request:
    """Raises InvalidRequest with the path of the bad field."""
    origin = decode_object(body)
    for field in ("model", "messages"):
        if origin.get(field) is None:
            raise InvalidRequest(f"The field `{field}` is missing", param=field)
    said = convert(origin, _Body)
    if not said.messages:
        raise InvalidRequest(
            "messages: Expected at least one: models are loaded by their providers, not through a gateway",
            param="messages",
        )
    lost = [name for name in OLLAMAS_OWN if origin.get(name) is not None]
    return Request(
        messages=_Conversation().read(said.messages),
        tools=[_tool(raw, f"tools[{position}]") for position, raw in enumerate(said.tools or [])],
        **said.fields(lost),
        lost=lost,
        format=NAME,
        origin=origin,
    )


def read_images(raw: Any, path: str) -> list[Part]:
    """A list of images. Raises InvalidRequest."""
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise _bad(path, "Expected `array`")
    images = [check_image(data, f"{path}[{position}]") for position, data in enumerate(raw)]
    return [Media(type="image", media_type=image_type(data), data=data) for data in images]


class _Conversation:
    """Messages in their order, with the calls that have no result yet."""

    def __init__(self) -> None:
        self._open: list[ToolCall] = []

    def read(self, raw: list[dict[str, Any]]) -> list[Message]:
        return [self._message(message, position) for position, message in enumerate(raw)]

    def _message(self, raw: dict[str, Any], position: int) -> Message:
        path = f"messages[{position}]"
        said = raw.get("role")
        role = _ROLES.get(said) if isinstance(said, str) else None
        if role is None:
            raise _bad(f"{path}.role", f"Expected one of {', '.join(_ROLES)}")
        text = _text(raw, "content", path)
        parts: list[Part] = [Text(text=text)] if text else []
        parts += read_images(raw.get("images"), f"{path}.images")
        if role == "tool":
            parts = [self._result(raw, parts, position)]
        elif role == "assistant":
            thinking = _text(raw, "thinking", path)
            if thinking:
                parts.insert(0, Reasoning(text=thinking))
            parts += self._calls(raw.get("tool_calls"), position)
        return Message(role=role, parts=parts or [Text(text="")])

    def _calls(self, raw: Any, position: int) -> list[Part]:
        path = f"messages[{position}].tool_calls"
        if raw is not None and not isinstance(raw, list):
            raise _bad(path, "Expected `array`")
        calls = [_call(call, f"{path}[{n}]", f"call_{position}_{n}") for n, call in enumerate(raw or [])]
        self._open = calls
        return [*calls]

    def _result(self, raw: dict[str, Any], parts: list[Part], position: int) -> ToolResult:
        path = f"messages[{position}]"
        id, name = _text(raw, "tool_call_id", path), _text(raw, "tool_name", path)
        call = next((call for call in self._open if call.id == id), None) if id else self._unanswered(name)
        if call is None:
            return ToolResult(tool_call_id=id or f"call_{position}", parts=parts, name=name or None)
        self._open = [other for other in self._open if other is not call]
        return ToolResult(tool_call_id=call.id, parts=parts, name=name if name and name != call.name else None)

    def _unanswered(self, name: str) -> ToolCall | None:
        named = next((call for call in self._open if call.name == name), None)
        return named or next(iter(self._open), None)


def _call(raw: Any, path: str, otherwise: str) -> ToolCall:
    function = raw.get("function") if isinstance(raw, dict) else None
    if not isinstance(function, dict):
        raise _bad(f"{path}.function", "Expected `object`")
    name = _text(function, "name", f"{path}.function")
    if not name:
        raise _bad(f"{path}.function.name", "Expected the name of a tool")
    arguments = function.get("arguments")
    if arguments is None or arguments == "":
        arguments = {}
    if isinstance(arguments, dict):
        arguments = encode(arguments).decode()
    if not isinstance(arguments, str):
        raise _bad(f"{path}.function.arguments", "Expected `object`")
    return ToolCall(id=_text(raw, "id", path) or otherwise, name=name, arguments=arguments)


def _tool(raw: dict[str, Any], path: str) -> Tool | VendorTool:
    kind = raw.get("type", "function")
    if kind != "function":
        return VendorTool(vendor=VENDOR, payload=raw)
    try:
        said = convert(raw.get("function"), _Function)
    except InvalidRequest as error:
        inner = error.info.param
        where = f"{path}.function.{inner}" if inner else f"{path}.function"
        message = error.info.message.removeprefix(f"{inner}: ")
        raise InvalidRequest(f"{where}: {message}", param=where) from None
    return Tool(name=said.name, description=said.description or "", parameters=said.parameters)


def _text(raw: dict[str, Any], field: str, path: str) -> str:
    value = raw.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _bad(f"{path}.{field}", "Expected `str`")
    return value


def _bad(path: str, message: str) -> InvalidRequest:
    return InvalidRequest(f"{path}: {message}", param=path)
