"""What the AI SDK's chat transport posts -> Request.

`{id, messages: [UIMessage], trigger, ...}`; everything the model needs beside the messages is a field of the body, which the
transport's option `body` adds: `model` (required), `system`, `tools`, and settings under the AI SDK's names.

A UI message of the assistant holds all steps of its turn: each step's text and calls become an assistant message, the
outputs of its calls the tool messages after it. Calls without an output are left out: no provider takes them.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec

from headrace.formats.base import IN_THE_BODY, Located
from headrace.formats.json import Count, Positive, convert, decode_object
from headrace.formats.openai_chat.fields import bad, data_url_at, object_at, string_at
from headrace.model.content import Media, Part, Reasoning, RedactedReasoning, Text, ToolCall, ToolResult
from headrace.model.errors import InvalidRequest
from headrace.model.request import Message, ReasoningConfig, Request, Tool, ToolChoice

NAME = "vercel_ui"


class _Body(msgspec.Struct, rename="camel"):
    model: Annotated[str, msgspec.Meta(min_length=1)]
    messages: Annotated[list[Any], msgspec.Meta(min_length=1)]
    system: str | None = None
    tools: list[dict[str, Any]] | dict[str, dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    max_output_tokens: Positive | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    top_k: int | None = None
    stop_sequences: list[str] | None = None
    seed: int | None = None
    presence_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] | None = None
    reasoning_effort: str | None = None
    reasoning_budget: Count | None = None
    stream: bool = True


def read_request(body: bytes, located: Located = IN_THE_BODY) -> Request:
    """Raises InvalidRequest with the path of the bad field."""
    origin = decode_object(body)
    for field in ("model", "messages"):
        if origin.get(field) is None:
            hint = " (the transport's option `body` adds it)" if field == "model" else ""
            raise InvalidRequest(f"The field `{field}` is missing{hint}", param=field)
    said = convert(origin, _Body)
    messages = [Message(role="system", parts=[Text(text=said.system)])] if said.system else []
    lost: list[str] = []
    for position, raw in enumerate(said.messages):
        path = f"messages[{position}]"
        messages += _message(object_at(raw, path), path, lost)
    reasoning = None
    if said.reasoning_effort is not None or said.reasoning_budget is not None:
        effort = said.reasoning_effort
        reasoning = ReasoningConfig(enabled=effort != "none", effort=effort, budget_tokens=said.reasoning_budget)
    return Request(
        model=said.model,
        messages=messages,
        stream=said.stream,
        tools=_tools(said.tools),
        tool_choice=_tool_choice(said.tool_choice),
        max_tokens=said.max_output_tokens,
        temperature=said.temperature,
        top_p=said.top_p,
        top_k=said.top_k,
        stop_sequences=said.stop_sequences or [],
        seed=said.seed,
        presence_penalty=said.presence_penalty,
        frequency_penalty=said.frequency_penalty,
        reasoning=reasoning,
        lost=lost,
        format=NAME,
        origin=origin,
    )


def _message(raw: dict[str, Any], path: str, lost: list[str]) -> list[Message]:
    role = string_at(raw.get("role"), f"{path}.role")
    if role not in ("system", "user", "assistant"):
        raise bad(f"{path}.role", "Expected system, user or assistant")
    parts = raw.get("parts")
    if not isinstance(parts, list):
        raise bad(f"{path}.parts", "Expected `array`")
    turn = _Turn(role, lost)
    for number, part in enumerate(parts):
        where = f"{path}.parts[{number}]"
        turn.add(object_at(part, where), where)
    return turn.messages()


class _Turn:
    """One UI message: the messages of its steps."""

    def __init__(self, role: str, lost: list[str]) -> None:
        self._role = role
        self._lost = lost
        self._done: list[Message] = []
        self._parts: list[Part] = []
        self._results: list[Message] = []

    def messages(self) -> list[Message]:
        self._step()
        return self._done

    def _step(self) -> None:
        if self._parts:
            self._done.append(Message(role=self._role, parts=self._parts))
        self._done += self._results
        self._parts, self._results = [], []

    def add(self, part: dict[str, Any], path: str) -> None:
        kind = string_at(part.get("type"), f"{path}.type")
        if kind == "step-start":
            self._step()
        elif kind == "text":
            text = string_at(part.get("text"), f"{path}.text", empty=True)
            self._parts.append(Text(text=text, extensions=_metadata(part) or None))
        elif kind == "reasoning":
            self._parts.append(_reasoning(part, path))
        elif kind == "file":
            self._parts.append(_file(part, path))
        elif kind == "dynamic-tool" or kind.startswith("tool-"):
            self._tool(part, kind, path)
        elif not kind.startswith(("data-", "source-")):  # those are for people
            self._lost.append(f"{path}: {kind}")

    def _tool(self, part: dict[str, Any], kind: str, path: str) -> None:
        name = part.get("toolName") if kind == "dynamic-tool" else kind.removeprefix("tool-")
        name, id = string_at(name, f"{path}.toolName"), string_at(part.get("toolCallId"), f"{path}.toolCallId")
        state = string_at(part.get("state"), f"{path}.state")
        failed = state == "output-error"
        if not failed and state != "output-available":
            self._lost.append(f"{path}: a call without its output")
            return
        said = part.get("errorText") if failed else part.get("output")
        text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
        metadata = part.get("callProviderMetadata")
        self._parts.append(
            ToolCall(
                id=id,
                name=name,
                arguments=json.dumps(part.get("input", {}), ensure_ascii=False),
                extensions=metadata if isinstance(metadata, dict) and metadata else None,
            )
        )
        result = ToolResult(tool_call_id=id, parts=[Text(text=text)] if text else [], is_error=failed)
        self._results.append(Message(role="tool", parts=[result]))


def _metadata(part: dict[str, Any]) -> dict[str, Any]:
    said = part.get("providerMetadata")
    return {vendor: own for vendor, own in said.items() if isinstance(own, dict)} if isinstance(said, dict) else {}


def _reasoning(part: dict[str, Any], path: str) -> Part:
    text = string_at(part.get("text"), f"{path}.text", empty=True)
    for vendor, own in _metadata(part).items():
        if isinstance(own.get("redactedData"), str):
            return RedactedReasoning(data=own["redactedData"], vendor=vendor)
        if isinstance(own.get("signature"), str):
            return Reasoning(text=text, signature=own["signature"], vendor=vendor)
    return Reasoning(text=text)


def _file(part: dict[str, Any], path: str) -> Part:
    url = string_at(part.get("url"), f"{path}.url")
    mime = string_at(part.get("mediaType"), f"{path}.mediaType")
    family = mime.partition("/")[0]
    type = family if family in ("image", "audio") else "document"
    title = part.get("filename") if isinstance(part.get("filename"), str) else None
    if url.startswith("data:"):
        _, data = data_url_at(url, f"{path}.url")
        return Media(type=type, media_type=mime, data=data, title=title)
    if not url.startswith(("http://", "https://")):
        raise bad(f"{path}.url", "Expected an http(s) URL or a base64 data URL")
    return Media(type=type, media_type=mime, url=url, title=title)


class _Tool(msgspec.Struct, rename="camel"):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    parameters: dict[str, Any] | None = None


def _tools(raw: list[dict[str, Any]] | dict[str, dict[str, Any]] | None) -> list[Any]:
    if raw is None:
        return []
    listed = [{"name": name, **tool} for name, tool in raw.items()] if isinstance(raw, dict) else raw
    tools = []
    for position, one in enumerate(listed):
        string_at(one.get("name"), f"tools[{position}].name")
        said = convert(one, _Tool)
        schema = said.input_schema if said.input_schema is not None else said.parameters
        tools.append(Tool(name=said.name, description=said.description or "", parameters=schema))
    return tools


def _tool_choice(raw: str | dict[str, Any] | None) -> ToolChoice | None:
    if raw is None:
        return None
    if isinstance(raw, dict):
        return ToolChoice(mode="tool", name=string_at(raw.get("toolName"), "toolChoice.toolName"))
    if raw not in ("auto", "none", "required"):
        raise bad("toolChoice", "Expected auto, none, required or {type: 'tool', toolName}")
    return ToolChoice(mode=raw)
