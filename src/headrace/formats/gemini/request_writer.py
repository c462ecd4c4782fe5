"""Request -> generateContent body, and the URL that names the model and asks for a stream.

Decided here: an effort becomes a level for models that have levels (Gemini 3 on), a budget for the others (EFFORTS); schemas
go as JSON Schema (`parametersJsonSchema`, `responseJsonSchema`), which Google takes beside its own dialect; results of calls
that one answer made go back together, in one content, as they must.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from headrace.formats.base import Target, WireRequest
from headrace.formats.json import encode, merged
from headrace.formats.lost import name_of
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
from headrace.model.request import Message, ReasoningConfig, Request, Tool, ToolChoice

from .parts import call_part, media_part, own_part, text_part
from .words import NAME, VENDOR, is_foreign

Body = dict[str, Any]

EFFORTS = {"none": 0, "minimal": 512, "low": 2048, "medium": 8192, "high": 24576}
"""Effort -> budget in tokens. Any other word is the highest."""

_LEVELS = re.compile(r"gemini-(?:[3-9]|\d\d)").match
_GATEWAY_FIELDS = ("model", "stream")
_CONFIG = {
    # field of a request -> member of generationConfig
    "max_tokens": "maxOutputTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "logprobs": "responseLogprobs",
    "top_logprobs": "logprobs",
}


def path_of(model: str, *, stream: bool) -> str:
    """What is appended to the base URL, which ends with the version."""
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return f"/models/{quote(model, safe='')}:{method}"


def write_request(request: Request, target: Target) -> WireRequest:
    """Raises nothing: every request of the model has a body in this format."""
    lost: list[str] = []
    if request.format == NAME and request.origin is not None:
        body = _own_body(request.origin, target, lost)
    else:
        lost += request.lost
        body = _Composer(request, target, lost).body()
    extension = request.extensions.get(target.vendor)
    if isinstance(extension, dict):
        body = merged(body, extension)
    headers = (
        ("content-type", "application/json"),
        ("accept", "text/event-stream" if target.stream else "application/json"),
    )
    path = target.path or path_of(target.model, stream=target.stream)
    return WireRequest(path=path, body=encode(body), headers=headers, lost=tuple(lost))


def _own_body(origin: Body, target: Target, lost: list[str]) -> Body:
    """A shallow copy of the caller's body, without what was sealed for others."""
    body = {name: value for name, value in origin.items() if name not in _GATEWAY_FIELDS}
    contents = body.get("contents")
    if not isinstance(contents, list):
        return body
    kept = []
    for number, content in enumerate(contents):
        parts = content.get("parts") if isinstance(content, dict) else None
        if not isinstance(parts, list):
            kept.append(content)
            continue
        ours = _without_sealed(parts, target.vendor)
        if len(ours) < len(parts):
            lost.append(f"contents[{number}]: reasoning of another vendor")
            content = {**content, "parts": ours}
        kept.append(content)
    body["contents"] = kept
    return body


def _without_sealed(parts: list[Any], vendor: str) -> list[Any]:
    """Without thoughts that are another vendor's: the part with their signature, and the pieces before it."""
    kept: list[Any] = []
    for part in parts:
        if not _is_sealed(part, vendor):
            kept.append(part)
            continue
        while kept and isinstance(kept[-1], dict) and kept[-1].get("thought") is True and kept[-1].keys() <= _THOUGHT:
            kept.pop()
    return kept


_THOUGHT = {"text", "thought"}


def _is_sealed(part: Any, vendor: str) -> bool:
    if not isinstance(part, dict):
        return False
    signature = part.get("thoughtSignature", part.get("thought_signature"))
    return isinstance(signature, str) and is_foreign(signature, vendor)


class _Composer:
    """One body from a request of another format."""

    def __init__(self, request: Request, target: Target, lost: list[str]) -> None:
        self._request = request
        self._target = target
        self._lost = lost
        self._names = {
            part.id: part.name for message in request.messages for part in message.parts if isinstance(part, ToolCall)
        }

    def body(self) -> Body:
        request = self._request
        body: Body = {}
        system = self._system()
        if system:
            body["systemInstruction"] = {"parts": system}
        body["contents"] = self._contents()
        self._tools(body)
        config: Body = {}
        for field, name in _CONFIG.items():
            value = getattr(request, field)
            if value is not None:
                config[name] = value
        if request.stop_sequences:
            config["stopSequences"] = request.stop_sequences
        if request.n > 1:
            config["candidateCount"] = request.n
        self._format(config)
        if request.reasoning is not None:
            config["thinkingConfig"] = self._thinking(request.reasoning)
        if config:
            body["generationConfig"] = config
        if request.user:
            self._lost.append("request.user")
        return body

    def _format(self, config: Body) -> None:
        format = self._request.response_format
        if format is None or format.type == "text":
            return
        config["responseMimeType"] = "application/json"
        if format.type == "json_schema":
            config["responseJsonSchema"] = format.schema or {}

    def _thinking(self, asked: ReasoningConfig) -> Body:
        if not asked.enabled:
            return {"thinkingBudget": 0}
        if asked.budget_tokens is not None:
            return {"thinkingBudget": asked.budget_tokens, "includeThoughts": True}
        if asked.effort is None:
            return {"includeThoughts": True}
        if _LEVELS(self._target.model):
            return {"thinkingLevel": asked.effort, "includeThoughts": True}
        return {"thinkingBudget": EFFORTS.get(asked.effort, EFFORTS["high"]), "includeThoughts": True}

    def _tools(self, body: Body) -> None:
        declared: list[Body] = []
        tools: list[Body] = []
        for position, tool in enumerate(self._request.tools):
            if isinstance(tool, Tool):
                declared.append(_function(tool))
            elif tool.vendor == VENDOR:
                tools.append(tool.payload)
            else:
                self._lost.append(f"tools[{position}]: a tool of {tool.vendor}")
        if declared:
            tools.insert(0, {"functionDeclarations": declared})
        if not tools:
            return
        body["tools"] = tools
        choice = self._request.tool_choice
        if choice is not None:
            body["toolConfig"] = {"functionCallingConfig": _calling(choice)}
            if choice.parallel is not None:
                self._lost.append("request.tool_choice.parallel")

    # Contents.

    def _system(self) -> list[Body]:
        parts: list[Body] = []
        for position, message in enumerate(self._request.messages):
            if message.role == "system":
                parts += self._parts(message.parts, f"messages[{position}]")
        return parts

    def _contents(self) -> list[Body]:
        contents: list[Body] = []
        for position, message in enumerate(self._request.messages):
            path = f"messages[{position}]"
            if message.name is not None:
                self._lost.append(f"{path}.name")
            if message.role == "system":
                continue
            if message.role == "tool":
                _append(contents, "user", self._results(message, path), results=True)
            elif message.role == "assistant":
                _append(contents, "model", self._parts(message.parts, path))
            else:
                _append(contents, "user", self._parts(message.parts, path))
        return contents

    def _results(self, message: Message, path: str) -> list[Body]:
        parts: list[Body] = []
        for result in message.parts:
            if not isinstance(result, ToolResult):
                self._lost.append(f"{path}: {name_of(result)}")
                continue
            texts = [part.text for part in result.parts if isinstance(part, Text)]
            others: list[Part] = [part for part in result.parts if not isinstance(part, Text)]
            name = self._names.get(result.tool_call_id) or result.name or result.tool_call_id
            said = {"error" if result.is_error else "output": "\n".join(texts)}
            parts.append({"functionResponse": {"id": result.tool_call_id, "name": name, "response": said}})
            if others:
                parts.append({"text": f"(from the result of tool call {result.tool_call_id})"})
                parts += self._parts(others, path)
        return parts

    def _parts(self, parts: list[Part], path: str) -> list[Body]:
        written = []
        for position, part in enumerate(parts):
            where = f"{path}.parts[{position}]"
            one = self._part(part, where)
            if one is None:
                whose = f" of {part.vendor}" if isinstance(part, Reasoning | RedactedReasoning) and part.vendor else ""
                self._lost.append(f"{where}: {name_of(part)}{whose}")
            else:
                written.append(one)
        return written

    def _part(self, part: Part, where: str) -> Body | None:
        vendor = self._target.vendor
        if isinstance(part, Text):
            return text_part(part, vendor)
        if isinstance(part, Refusal):
            return {"text": part.text}
        if isinstance(part, ToolCall):
            return call_part(part, vendor)
        if isinstance(part, Reasoning) and part.vendor == vendor:
            signature = {"thoughtSignature": part.signature} if part.signature else {}
            return {"text": part.text, "thought": True, **signature}
        if isinstance(part, Media):
            if part.detail is not None:
                self._lost.append(f"{where}.detail")
            if part.title is not None and part.text is None:
                self._lost.append(f"{where}.title")
            return media_part(part)
        return own_part(part) if isinstance(part, Opaque) else None


def _append(contents: list[Body], role: str, parts: list[Body], *, results: bool = False) -> None:
    """Contents in a row of the same role are one where both hold results of calls."""
    last = contents[-1] if contents else None
    if results and last is not None and last["role"] == role and "functionResponse" in last["parts"][0]:
        last["parts"] += parts
    elif parts:
        contents.append({"role": role, "parts": parts})


def _function(tool: Tool) -> Body:
    body: Body = {"name": tool.name}
    if tool.description:
        body["description"] = tool.description
    if tool.parameters is not None:
        body["parametersJsonSchema"] = tool.parameters
    return body


_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY", "tool": "ANY"}


def _calling(choice: ToolChoice) -> Body:
    body: Body = {"mode": _MODES[choice.mode]}
    if choice.mode == "tool" and choice.name:
        body["allowedFunctionNames"] = [choice.name]
    return body
