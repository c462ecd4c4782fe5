"""A `Request` as the body of `POST /v1/messages`.

The rule: a caller's own Anthropic body goes on as it is, but for model, stream and extensions, and for what must not
reach Anthropic: thinking that is unsigned or sealed for somebody else. Everything else is composed, and what Anthropic
has no place for is named in `lost`. Where Anthropic is stricter than others, this is what happens:

- System and developer messages are gathered at the front, in order, as Anthropic's own OpenAI-compatible endpoint does.
- Neighbours of one role become one message; tool results stand first in it. Empty text is dropped.
- max_tokens is required: DEFAULT_MAX_TOKENS, on top of the thinking budget, where the caller sets none.
- A thinking budget must be less than max_tokens: the caller's max_tokens stands, the budget is lowered, below
  MIN_BUDGET thinking is left out. It excludes forced tool choice, and temperature, top_k and a low top_p beside it.
- An effort becomes output_config.effort with adaptive thinking; with the quirk `effort_as_budget` (models before that) a
  budget by EFFORT_BUDGETS.
- temperature is clamped to 1. JSON output without a schema becomes a sentence in the system prompt.
"""

from __future__ import annotations

from typing import Any

from headrace.formats.base import Target, WireRequest
from headrace.formats.json import encode, merged
from headrace.formats.sealing import encode_id, unseal
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
from headrace.model.request import Message, Request, Tool, ToolChoice

from .blocks import json_value, opaque_block, text_block
from .media import write_media
from .words import NAME, VENDOR, VERSION, own

PATH = "/v1/messages"
DEFAULT_MAX_TOKENS = 4096
MIN_BUDGET = 1024
EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
EFFORT_BUDGETS = {"low": 1024, "medium": 4096, "high": 16384, "xhigh": 24576, "max": 32000}
JSON_INSTRUCTION = "Answer with one valid JSON object and nothing else: no explanation, no code fence."

_TOOL_MODES = {"auto": "auto", "required": "any", "tool": "tool", "none": "none"}
_UNSUPPORTED = ("seed", "presence_penalty", "frequency_penalty", "logprobs", "top_logprobs")

Block = dict[str, Any]


def write_request(request: Request, target: Target) -> WireRequest:
    """Raises InvalidRequest where nothing is left to send."""
    lost: list[str] = []
    if request.format == NAME and request.origin is not None:
        body = _own_body(request.origin, target, lost)
    else:
        lost += request.lost
        body = _Composer(request, target, lost).body()
    extension = request.extensions.get(target.vendor)
    if isinstance(extension, dict):
        body = merged(body, extension)
    body["model"] = target.model  # these two are the gateway's to say, whatever an extension says
    body.pop("stream", None)
    if target.stream:
        body["stream"] = True
    headers = (
        ("content-type", "application/json"),
        ("accept", "text/event-stream" if target.stream else "application/json"),
        ("anthropic-version", VERSION),
    )
    return WireRequest(path=target.path or PATH, body=encode(body), headers=headers, lost=tuple(lost))


def _own_body(origin: dict[str, Any], target: Target, lost: list[str]) -> dict[str, Any]:
    """A shallow copy of the caller's body, with messages rewritten only where they hold thinking not for this provider."""
    body = dict(origin)
    messages = []
    for i, message in enumerate(origin["messages"]):
        content = message["content"]
        if isinstance(content, list):
            kept = [_own_block(block, f"messages[{i}].content[{j}]", target, lost) for j, block in enumerate(content)]
            if any(after is not before for after, before in zip(kept, content, strict=True)):
                message = {**message, "content": [block for block in kept if block is not None]}
                if not message["content"]:
                    continue
        messages.append(message)
    body["messages"] = messages
    return body


def _own_block(block: Block, path: str, target: Target, lost: list[str]) -> Block | None:
    field = {"thinking": "signature", "redacted_thinking": "data"}.get(block["type"])
    if field is None:
        return block
    value = block.get(field)
    if not value:
        if target.vendor != VENDOR:  # compatible servers do not all sign
            return block
        lost.append(f"{path}: reasoning without a signature")
        return None
    sealed = unseal(value)
    if sealed is None:
        return block
    if sealed.vendor != target.vendor:
        lost.append(f"{path}: reasoning of {sealed.vendor or 'another provider'}")
        return None
    return {**block, field: sealed.value}


class _Composer:
    """One body from a request of another format."""

    def __init__(self, request: Request, target: Target, lost: list[str]) -> None:
        self._request = request
        self._target = target
        self._lost = lost

    def body(self) -> dict[str, Any]:
        request = self._request
        system, messages = self._conversation()
        if not messages:
            raise InvalidRequest("messages: nothing is left that Anthropic could be sent", param="messages")
        output_format = request.response_format
        if output_format is not None and output_format.type == "json":
            system.append({"type": "text", "text": JSON_INSTRUCTION})
        body: dict[str, Any] = {"model": "", "max_tokens": request.max_tokens or DEFAULT_MAX_TOKENS}
        if system:
            plain = len(system) == 1 and len(system[0]) == 2
            body["system"] = system[0]["text"] if plain else system
        body["messages"] = messages
        self._tools(body)
        self._sampling(body)
        self._reasoning(body)
        if output_format is not None and output_format.type == "json_schema":
            schema = output_format.schema or {"type": "object"}
            body.setdefault("output_config", {})["format"] = {"type": "json_schema", "schema": schema}
        if request.user:
            body["metadata"] = {"user_id": request.user}
        self._lost += [f"request.{name}" for name in _UNSUPPORTED if getattr(request, name)]
        if request.n > 1:
            self._lost.append("request.n")
        return body

    # Messages.

    def _conversation(self) -> tuple[list[Block], list[dict[str, Any]]]:
        """The system prompt's blocks, and the messages: neighbours of one role merged, tool results first."""
        system: list[Block] = []
        turns: list[tuple[str, list[Block], list[Block]]] = []  # role, tool results, the rest
        for i, message in enumerate(self._request.messages):
            path = f"messages[{i}]"
            if message.name and message.role != "tool":
                self._lost.append(f"{path}.name")
            if message.role in ("system", "developer"):
                system += self._blocks(message, path, (Text,))
                continue
            role = "assistant" if message.role == "assistant" else "user"
            blocks = self._blocks(message, path, _ALLOWED[role])
            if not blocks:
                continue
            if not turns or turns[-1][0] != role:
                turns.append((role, [], []))
            _, results, rest = turns[-1]
            for block in blocks:
                (results if block["type"] == "tool_result" else rest).append(block)
        return system, [{"role": role, "content": _content(results + rest)} for role, results, rest in turns]

    def _blocks(self, message: Message, path: str, allowed: tuple[type, ...]) -> list[Block]:
        numbered = list(enumerate(message.parts))
        if numbered and not isinstance(numbered[0][1], _REASONING):
            # Thinking comes first. Where it already does, what is interleaved keeps its place: it is signed there.
            numbered.sort(key=lambda each: not isinstance(each[1], _REASONING))
        blocks = []
        for i, part in numbered:
            where = f"{path}.parts[{i}]"
            if isinstance(part, allowed):
                block = self._block(part, where)
            else:
                block = None
                self._lost.append(f"{where}: {_name(part)}")
            if block is not None:
                blocks.append(block)
        return blocks

    def _block(self, part: Part, path: str) -> Block | None:
        block: Block | None = None
        if isinstance(part, Text):
            if not part.text.strip():  # refused by Anthropic
                return None
            block = text_block(part)
            if len(block.get("citations", ())) != len(part.citations or ()):
                self._lost.append(f"{path}.citations")
        elif isinstance(part, Refusal):
            block = {"type": "text", "text": part.text} if part.text.strip() else None
        elif isinstance(part, Media):
            block = write_media(part, files=self._request.format == NAME)
            if block is None:
                self._lost.append(f"{path}: {_name(part)}")
                return None
            if part.detail is not None:
                self._lost.append(f"{path}.detail")
            return {**block, **own(part.extensions, self._target.vendor)}  # a document's source may be there
        elif isinstance(part, ToolCall):
            block = {
                "type": "tool_use",
                "id": encode_id(part.id),
                "name": part.name,
                "input": self._input(part.arguments, f"{path}.arguments"),
            }
        elif isinstance(part, ToolResult):
            block = self._tool_result(part, path)
        elif isinstance(part, Reasoning):
            if part.vendor == self._target.vendor and part.signature:
                block = {"type": "thinking", "thinking": part.text, "signature": part.signature}
        elif isinstance(part, RedactedReasoning):
            if part.vendor == self._target.vendor:
                block = {"type": "redacted_thinking", "data": part.data}
        elif part.vendor == self._target.vendor and isinstance(part.payload.get("type"), str):
            block = opaque_block(part.payload)
        if block is None:
            if not isinstance(part, Refusal):
                self._lost.append(f"{path}: {_name(part)}")
            return None
        return {**own(part.extensions, self._target.vendor), **block}

    def _tool_result(self, part: ToolResult, path: str) -> Block:
        block: Block = {"type": "tool_result", "tool_use_id": encode_id(part.tool_call_id)}
        content = self._blocks(Message(role="tool", parts=part.parts), path, (Text, Media, Opaque))
        if content:
            block["content"] = _content(content)
        if part.is_error:
            block["is_error"] = True
        return block

    def _input(self, arguments: str, path: str) -> Any:
        """Arguments as an object. What is none (an answer that was cut off) is told as what it is."""
        value = json_value(arguments)
        if value is not None and bytes(value).lstrip().startswith(b"{"):
            return value
        self._lost.append(f"{path}: not a JSON object")
        return {"invalid_arguments": arguments}

    # Everything else.

    def _tools(self, body: dict[str, Any]) -> None:
        tools: list[dict[str, Any]] = []
        for i, tool in enumerate(self._request.tools):
            if isinstance(tool, Tool):
                tools.append(_tool(tool, self._target.vendor))
            elif tool.vendor == self._target.vendor:
                tools.append(tool.payload)
            else:
                self._lost.append(f"tools[{i}]: a tool of {tool.vendor}")
        choice = self._request.tool_choice
        if not tools:
            if choice is not None and choice.mode not in ("auto", "none"):
                self._lost.append("request.tool_choice")
            return
        body["tools"] = tools
        if choice is not None:
            body["tool_choice"] = _tool_choice(choice)

    def _sampling(self, body: dict[str, Any]) -> None:
        request = self._request
        if request.temperature is not None:
            body["temperature"] = min(request.temperature, 1.0)
            if request.temperature > 1:
                self._lost.append("request.temperature: clamped to 1")
        if request.top_p is not None:
            body["top_p"] = request.top_p
        if request.top_k is not None:
            body["top_k"] = request.top_k
        stops = [stop for stop in request.stop_sequences if stop.strip()]
        if stops:
            body["stop_sequences"] = stops
        if len(stops) != len(request.stop_sequences):
            self._lost.append("request.stop_sequences: blank ones")

    def _reasoning(self, body: dict[str, Any]) -> None:
        config = self._request.reasoning
        if config is None:
            return
        effort = EFFORTS.get(config.effort or "")
        if not config.enabled or config.effort == "none":
            body["thinking"] = {"type": "disabled"}
            return
        budget = config.budget_tokens
        if budget is None and self._target.quirks.get("effort_as_budget"):
            budget = EFFORT_BUDGETS[effort or "medium"]
        elif effort is not None:
            body["output_config"] = {"effort": effort}
        elif config.effort:
            self._lost.append(f"request.reasoning.effort: {config.effort[:40]}")
        if body.get("tool_choice", {}).get("type") in ("any", "tool"):
            self._lost.append("request.reasoning: not possible with a forced tool choice")
            return
        if budget is None:
            body["thinking"] = {"type": "adaptive"}
        else:
            budget = self._fit_budget(max(budget, MIN_BUDGET), body)
            if budget is None:
                return
            body["thinking"] = {"type": "enabled", "budget_tokens": budget}
        for name, allowed in (("temperature", body.get("temperature") == 1), ("top_k", False)):
            if body.get(name) is not None and not allowed:
                del body[name]
                self._lost.append(f"request.{name}: not possible with thinking")
        if body.get("top_p", 1) < 0.95:
            del body["top_p"]
            self._lost.append("request.top_p: not possible with thinking")

    def _fit_budget(self, budget: int, body: dict[str, Any]) -> int | None:
        limit = self._request.max_tokens
        if limit is None:
            body["max_tokens"] = budget + DEFAULT_MAX_TOKENS
            return budget
        if budget < limit:
            return budget
        if limit <= MIN_BUDGET:
            self._lost.append(f"request.reasoning: max_tokens leaves no room for {MIN_BUDGET} tokens of it")
            return None
        self._lost.append(f"request.reasoning.budget_tokens: lowered to {limit - 1}, below max_tokens")
        return limit - 1


_REASONING = (Reasoning, RedactedReasoning)
_ALLOWED: dict[str, tuple[type, ...]] = {
    "user": (Text, Media, ToolResult, Opaque),
    "assistant": (Text, Refusal, Reasoning, RedactedReasoning, ToolCall, Opaque),
}


def _name(part: Part) -> str:
    """What a lost part is, for people."""
    if isinstance(part, Media):
        return part.type
    if isinstance(part, _REASONING):
        return f"reasoning of {part.vendor or 'another provider'}"
    if isinstance(part, Opaque):
        return f"{part.role} of {part.vendor}"
    return type(part).__name__


def _content(blocks: list[Block]) -> str | list[Block]:
    """A single plain text is written as a string."""
    plain = len(blocks) == 1 and blocks[0]["type"] == "text" and len(blocks[0]) == 2
    return blocks[0]["text"] if plain else blocks


def _tool(tool: Tool, vendor: str) -> dict[str, Any]:
    schema = {"type": "object", **(tool.parameters or {"properties": {}})}
    written: dict[str, Any] = {**own(tool.extensions, vendor), "name": tool.name, "input_schema": schema}
    if tool.description:
        written["description"] = tool.description
    if tool.strict is not None:
        written["strict"] = tool.strict
    return written


def _tool_choice(choice: ToolChoice) -> dict[str, Any]:
    written: dict[str, Any] = {"type": _TOOL_MODES[choice.mode]}
    if choice.mode == "tool":
        written["name"] = choice.name
    if choice.parallel is not None and choice.mode != "none":
        written["disable_parallel_tool_use"] = not choice.parallel
    return written
