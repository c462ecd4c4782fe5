"""A `Request` as the body of POST /api/generate.

The endpoint takes a system prompt and one prompt. The rule: a single message of a user is that prompt; a conversation
becomes one prompt that tells it turn by turn and ends where the assistant is to speak, which is named in `lost`, since a
model that is asked through /api/chat knows its turns better. There are no tools.
"""

from __future__ import annotations

from typing import Any

from headrace.formats.base import Target, WireRequest
from headrace.formats.ollama.request_writer import shared_fields, split_parts, what_is, wire_request
from headrace.model.content import Part, ToolCall, ToolResult
from headrace.model.request import Message, Request

from .request_reader import NAME

PATH = "/api/generate"


def write_request(request: Request, target: Target) -> WireRequest:
    """Raises nothing: every request of the model has a body in this format."""
    return wire_request(PATH, NAME, _compose, request, target)


def _compose(request: Request, target: Target, lost: list[str]) -> dict[str, Any]:
    if request.tools:
        lost.append("request.tools")
    told = _Told(lost)
    for position, message in enumerate(request.messages):
        told.add(message, f"messages[{position}]")
    body: dict[str, Any] = {"model": "", "prompt": told.prompt()}
    if told.system:
        body["system"] = "\n\n".join(told.system)
    if told.images:
        body["images"] = told.images
    return {**body, **shared_fields(request, target, lost)}


class _Told:
    """A conversation, as it is told."""

    def __init__(self, lost: list[str]) -> None:
        self.system: list[str] = []
        self.images: list[str] = []
        self._lost = lost
        self._turns: list[tuple[str, str]] = []
        self._names: dict[str, str] = {}

    def prompt(self) -> str:
        if [who for who, _ in self._turns] == ["User"] and (self._turns[0][1] or self.images):
            return self._turns[0][1]  # without any content it would only load the model
        self._lost.append("messages: told as one prompt")
        return "".join(f"{who}: {said}\n\n" for who, said in self._turns) + "Assistant:"

    def add(self, message: Message, path: str) -> None:
        if message.name is not None:
            self._lost.append(f"{path}.name")
        if message.role == "tool":
            for part in message.parts:
                if isinstance(part, ToolResult):
                    self._result(part, path)
            return
        text, rest = self._content(message.parts, path)
        if message.role == "system":
            self.system.append(text)
        elif text or message.role == "user":
            self._turns.append((message.role.capitalize(), text))
        for where, part in rest:
            if isinstance(part, ToolCall):
                self._names[part.id] = part.name
                self._turns.append(("Assistant", f"(calls {part.name} with {part.arguments})"))
            else:
                self._lost.append(f"{where}: {what_is(part)}")

    def _content(self, parts: list[Part], path: str) -> tuple[str, list[tuple[str, Part]]]:
        texts, images, rest = split_parts(parts, path, self._lost)
        self.images += images
        return "\n".join(texts), rest

    def _result(self, result: ToolResult, path: str) -> None:
        if result.is_error:
            self._lost.append(f"{path}.is_error")
        text, rest = self._content(result.parts, path)
        self._lost += [f"{where}: {what_is(part)}" for where, part in rest]
        name = self._names.get(result.tool_call_id) or result.name or result.tool_call_id
        self._turns.append((f"Result of {name}", text))
