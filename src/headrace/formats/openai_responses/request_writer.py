"""Request -> body for a provider of this format.

The rule: no state is left with the provider. `store` is false, and where reasoning is asked for or sent back its encrypted
content is asked for, too, so that the next turn can hold it. A caller's own body keeps whatever it says of that.
"""

from __future__ import annotations

from typing import Any

from headrace.formats.base import Target, WireRequest
from headrace.formats.json import encode, merged
from headrace.formats.lost import name_of
from headrace.formats.openai_chat.media import audio_format, data_url
from headrace.formats.openai_chat.request_writer import EFFORTS
from headrace.formats.sealing import unseal
from headrace.model.content import (
    Media,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from headrace.model.request import Message, ReasoningConfig, Request, ResponseFormat, Tool, ToolChoice

from .custom import custom_names, is_custom, unwrapped
from .words import NAME, OWN

PATH = "/responses"

Body = dict[str, Any]

_ENCRYPTED = "reasoning.encrypted_content"
_UNSAYABLE = ("top_k", "seed", "presence_penalty", "frequency_penalty")


def write_request(request: Request, target: Target) -> WireRequest:
    """Raises nothing: every request of the model has a body in this format."""
    lost: list[str] = []
    if request.format == NAME and request.origin is not None:
        body = _own_body(request.origin, target.vendor, lost)
    else:
        lost += request.lost
        body = _Composer(request, target, lost).body()
    body["model"] = target.model
    body.pop("stream", None)
    if target.stream:
        body["stream"] = True
    else:
        body.pop("stream_options", None)
    extension = request.extensions.get(target.vendor)
    if isinstance(extension, dict):
        body = merged(body, extension)
    headers = (
        ("content-type", "application/json"),
        ("accept", "text/event-stream" if target.stream else "application/json"),
    )
    return WireRequest(path=target.path or PATH, body=encode(body), headers=headers, lost=tuple(lost))


def _own_body(origin: Body, vendor: str, lost: list[str]) -> Body:
    """A shallow copy of the caller's body, without what was sealed for others."""
    body = dict(origin)
    items = body.get("input")
    if isinstance(items, list):
        foreign = [n for n, item in enumerate(items) if _is_foreign(item, vendor)]
        if foreign:
            body["input"] = [item for n, item in enumerate(items) if n not in foreign]
            lost += [f"input[{n}]: reasoning of another vendor" for n in foreign]
    return body


def _is_foreign(item: Any, vendor: str) -> bool:
    value = item.get("encrypted_content") if isinstance(item, dict) else None
    sealed = unseal(value) if isinstance(value, str) else None
    return sealed is not None and sealed.vendor != vendor


class _Composer:
    """One body from a request of another format."""

    def __init__(self, request: Request, target: Target, lost: list[str]) -> None:
        self._request = request
        self._target = target
        self._lost = lost
        self._custom = custom_names(request)
        self._reasons = request.reasoning is not None and request.reasoning.enabled

    def body(self) -> Body:
        request = self._request
        body: Body = {"model": "", "input": self._input(), "store": False}
        self._tools(body)
        if request.max_tokens is not None:
            body["max_output_tokens"] = request.max_tokens
        for name in ("temperature", "top_p", "top_logprobs"):
            value = getattr(request, name)
            if value is not None:
                body[name] = value
        include = [_ENCRYPTED] if self._reasons else []
        if request.logprobs:
            include.append("message.output_text.logprobs")
        if include:
            body["include"] = include
        self._lost += [f"request.{name}" for name in _UNSAYABLE if getattr(request, name) is not None]
        if request.stop_sequences:
            self._lost.append("request.stop_sequences")
        if request.n > 1:
            self._lost.append("request.n")
        if request.user:
            body["user"] = request.user
        if request.response_format is not None and request.response_format.type != "text":
            body["text"] = {"format": _format(request.response_format)}
        if request.reasoning is not None:
            self._reasoning(request.reasoning, body)
        return body

    def _reasoning(self, asked: ReasoningConfig, body: Body) -> None:
        effort = _effort(asked)
        if effort is not None:
            body["reasoning"] = {"effort": effort, "summary": "auto"} if effort != "none" else {"effort": effort}
        if asked.budget_tokens is not None:
            self._lost.append(f"request.reasoning.budget_tokens: sent as effort {effort}")
        if not asked.enabled and effort is None:
            self._lost.append("request.reasoning: that it is switched off")

    def _tools(self, body: Body) -> None:
        tools = []
        for position, tool in enumerate(self._request.tools):
            if isinstance(tool, Tool):
                tools.append(_tool(tool))
            elif tool.vendor == OWN:
                tools.append(tool.payload)
            else:
                self._lost.append(f"tools[{position}]: a tool of {tool.vendor}")
        if not tools:
            return
        body["tools"] = tools
        choice = self._request.tool_choice
        if choice is not None:
            body["tool_choice"] = self._choice(choice)
            if choice.parallel is not None:
                body["parallel_tool_calls"] = choice.parallel

    def _choice(self, choice: ToolChoice) -> str | Body:
        if choice.mode != "tool":
            return choice.mode
        return {"type": "custom" if choice.name in self._custom else "function", "name": choice.name}

    # Input items.

    def _input(self) -> list[Body]:
        items: list[Body] = []
        for position, message in enumerate(self._request.messages):
            path = f"messages[{position}]"
            if message.name is not None:
                self._lost.append(f"{path}.name")
            if message.role == "tool":
                items += self._results(message, path)
            elif message.role == "assistant":
                items += self._assistant(message, path)
            else:
                content = self._content(message.parts, path)
                items.append({"type": "message", "role": message.role, "content": content})
        return items

    def _results(self, message: Message, path: str) -> list[Body]:
        items = []
        for part in message.parts:
            if not isinstance(part, ToolResult):
                self._lost.append(f"{path}: {name_of(part)}")
                continue
            if part.is_error:
                self._lost.append(f"{path}.is_error")
            content = self._content(part.parts, path)
            plain = len(content) == 1 and content[0].keys() == {"type", "text"}
            output: Any = content[0]["text"] if plain else content or ""
            kind = "custom_tool_call_output" if self._is_custom_id(part.tool_call_id) else "function_call_output"
            items.append({"type": kind, "call_id": part.tool_call_id, "output": output})
        return items

    def _is_custom_id(self, id: str) -> bool:
        return any(
            isinstance(part, ToolCall) and part.id == id and is_custom(part, self._custom)
            for message in self._request.messages
            for part in message.parts
        )

    def _assistant(self, message: Message, path: str) -> list[Body]:
        items: list[Body] = []
        for position, part in enumerate(message.parts):
            where = f"{path}.parts[{position}]"
            if isinstance(part, Text | Refusal):
                self._say(part, items)
                continue
            item = self._item(part)
            if item is None:
                whose = f" of {part.vendor}" if isinstance(part, Reasoning) and part.vendor else ""
                self._lost.append(f"{where}: {name_of(part)}{whose}")
            else:
                items.append(item)
        return items

    def _say(self, part: Text | Refusal, items: list[Body]) -> None:
        """Texts in a row are one message."""
        if isinstance(part, Text):
            said: Body = {"type": "output_text", "text": part.text, "annotations": []}
        else:
            said = {"type": "refusal", "refusal": part.text}
        if items and items[-1]["type"] == "message":
            items[-1]["content"].append(said)
        else:
            items.append({"type": "message", "role": "assistant", "content": [said]})

    def _item(self, part: Part) -> Body | None:
        if isinstance(part, ToolCall):
            named = {"call_id": part.id, "name": part.name}
            if is_custom(part, self._custom):
                return {"type": "custom_tool_call", **named, "input": unwrapped(part.arguments)}
            return {"type": "function_call", **named, "arguments": part.arguments}
        if isinstance(part, Reasoning):
            if not part.signature or part.vendor != self._target.vendor:
                return None
            self._reasons = True
            summary = [{"type": "summary_text", "text": part.text}] if part.text else []
            item: Body = {"type": "reasoning", "summary": summary, "encrypted_content": part.signature}
            return {"id": part.id, **item} if part.id else item
        if isinstance(part, Opaque) and part.vendor == OWN:
            return part.payload
        if isinstance(part, Media) and part.type == "image" and part.data:
            own = (part.extensions or {}).get(OWN)
            if isinstance(own, dict) and own.get("id"):
                return {**own, "type": "image_generation_call", "status": "completed", "result": part.data}
        return None

    def _content(self, parts: list[Part], path: str) -> list[Body]:
        content = []
        for position, part in enumerate(parts):
            one = _input_part(part)
            if one is None:
                self._lost.append(f"{path}.parts[{position}]: {name_of(part)}")
            else:
                content.append(one)
        return content


def _input_part(part: Part) -> Body | None:
    if isinstance(part, Text | Refusal):
        return {"type": "input_text", "text": part.text}
    if isinstance(part, Opaque):
        return part.payload if part.vendor == OWN else None
    if not isinstance(part, Media):
        return None
    write = {"image": _image, "audio": _audio, "document": _document}.get(part.type)
    return None if write is None else write(part)


def _image(media: Media) -> Body | None:
    detail = {} if media.detail is None else {"detail": media.detail}
    if media.file_id:
        return {"type": "input_image", "file_id": media.file_id, **detail}
    url = data_url(media.media_type, media.data) if media.data else media.url
    return {"type": "input_image", "image_url": url, **detail} if url else None


def _audio(media: Media) -> Body | None:
    if not media.data:
        return None
    return {"type": "input_audio", "input_audio": {"data": media.data, "format": audio_format(media.media_type)}}


def _document(media: Media) -> Body | None:
    if media.text is not None:
        return {"type": "input_text", "text": f"{media.title}\n{media.text}" if media.title else media.text}
    title = {} if media.title is None else {"filename": media.title}
    if media.file_id:
        return {"type": "input_file", "file_id": media.file_id, **title}
    if media.url:
        return {"type": "input_file", "file_url": media.url, **title}
    if not media.data:
        return None
    name = media.title or f"document.{media.media_type.rpartition('/')[2] or 'bin'}"
    return {"type": "input_file", "filename": name, "file_data": data_url(media.media_type, media.data)}


def _tool(tool: Tool) -> Body:
    body: Body = {"type": "function", "name": tool.name}
    if tool.description:
        body["description"] = tool.description
    body["parameters"] = tool.parameters if tool.parameters is not None else {"type": "object", "properties": {}}
    body["strict"] = bool(tool.strict)  # left out it would be true here, which no other format means
    return body


def _format(format: ResponseFormat) -> Body:
    if format.type == "json":
        return {"type": "json_object"}
    body: Body = {"type": "json_schema", "name": format.name or "response"}
    if format.description:
        body["description"] = format.description
    body["schema"] = format.schema or {}
    if format.strict is not None:
        body["strict"] = format.strict
    return body


def _effort(reasoning: ReasoningConfig) -> str | None:
    if not reasoning.enabled:
        return reasoning.effort if reasoning.effort == "none" else None
    if reasoning.effort is not None or reasoning.budget_tokens is None:
        return reasoning.effort
    return next((effort for most, effort in EFFORTS if reasoning.budget_tokens <= most), "high")
