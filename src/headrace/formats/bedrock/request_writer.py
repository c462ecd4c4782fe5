"""A `Request` as the body of `POST /model/{model}/converse-stream` or `/converse`.

The rule: a caller's own Converse body goes on as it is, but for extensions and for reasoning that is sealed for somebody
else. Everything else is composed, and what Converse has no place for is named in `lost`. This is what happens where it is
stricter than others:

- System messages are gathered at the front. Neighbours of one role become one message; tool results stand first in it.
  Blank text is dropped.
- There is no tool choice "none": the tools are left out; where the conversation holds calls, which Converse refuses
  without tools, they stay and the choice is named. A conversation with calls and no tools gets the called ones, by name.
- Reasoning and top_k are models' own parameters. Claude takes an effort as outputConfig.effort with adaptive thinking
  (with the quirk `effort_as_budget` a budget), or a budget, which must be less than maxTokens; thinking excludes forced
  tool choice, and temperature, top_k and a low topP beside it. Nova takes three efforts, others an effort.
- temperature is clamped to 1. JSON output without a schema becomes a sentence in the system prompt.
- A document's name may have few characters. Bedrock fetches nothing by URL.
"""

from __future__ import annotations

from typing import Any

from headrace.formats.anthropic.blocks import json_value
from headrace.formats.anthropic.request_writer import EFFORT_BUDGETS, EFFORTS, JSON_INSTRUCTION, MIN_BUDGET
from headrace.formats.base import Target, WireRequest
from headrace.formats.json import encode, merged
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
from headrace.model.request import Message, Request, Tool

from .blocks import CACHE_POINT, cache_point
from .media import write_media
from .opaque import whole_block
from .sealing import own_redacted, read_redacted, tool_id, unseal
from .words import EVENTSTREAM, NAME, STREAM_PATH, VENDOR, WHOLE_PATH, family, own, path_of

_UNSUPPORTED = (
    *("seed", "presence_penalty", "frequency_penalty", "logprobs", "top_logprobs"),
    "user",
)
_NOVA_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
_FIELDS = "additionalModelRequestFields"

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
    for name in ("modelId", "stream"):  # these stand in the path
        body.pop(name, None)
    template = target.path or (STREAM_PATH if target.stream else WHOLE_PATH)
    headers = (
        ("content-type", "application/json"),
        ("accept", EVENTSTREAM if target.stream else "application/json"),
    )
    return WireRequest(path=path_of(template, target.model), body=encode(body), headers=headers, lost=tuple(lost))


def _own_body(origin: dict[str, Any], target: Target, lost: list[str]) -> dict[str, Any]:
    """A shallow copy of the caller's body, with messages rewritten only where they hold reasoning not for this provider."""
    body = dict(origin)
    messages = []
    for i, message in enumerate(origin["messages"]):
        content = message["content"]
        kept = [_own_block(block, f"messages[{i}].content[{j}]", target, lost) for j, block in enumerate(content)]
        if any(after is not before for after, before in zip(kept, content, strict=True)):
            message = {**message, "content": [block for block in kept if block is not None]}
            if not message["content"]:
                continue
        messages.append(message)
    body["messages"] = messages
    return body


def _own_block(block: Block, path: str, target: Target, lost: list[str]) -> Block | None:
    said = block.get("reasoningContent")
    if not isinstance(said, dict):
        return block
    text = said.get("reasoningText")
    signature = text.get("signature") if isinstance(text, dict) else None
    sealed = unseal(signature) if signature else None
    blob = said.get("redactedContent")
    if sealed is None and blob:
        redacted = read_redacted(blob, VENDOR)
        sealed = redacted if redacted.value != blob else None
    if sealed is None:
        return block
    if sealed.vendor != target.vendor:
        lost.append(f"{path}: reasoning of {sealed.vendor or 'another provider'}")
        return None
    if blob:
        return {"reasoningContent": {"redactedContent": own_redacted(sealed.value, sealed.vendor)}}
    return {"reasoningContent": {"reasoningText": {**(text or {}), "signature": sealed.value}}}


class _Composer:
    """One body from a request of another format."""

    def __init__(self, request: Request, target: Target, lost: list[str]) -> None:
        self._request = request
        self._target = target
        self._lost = lost
        self._family = family(target.model, target.quirks)
        self._documents = 0

    def body(self) -> dict[str, Any]:
        request = self._request
        system, messages = self._conversation()
        if not messages:
            raise InvalidRequest("messages: nothing is left that Bedrock could be sent", param="messages")
        output_format = request.response_format
        if output_format is not None and output_format.type == "json":
            system.append({"text": JSON_INSTRUCTION})
        body: dict[str, Any] = {"messages": messages}
        if system:
            body["system"] = system
        self._tools(body, messages)
        inference = self._sampling()
        fields: dict[str, Any] = {}
        if request.top_k is not None:
            fields |= (
                {"inferenceConfig": {"topK": request.top_k}} if self._family == "nova" else {"top_k": request.top_k}
            )
        output = self._output()
        self._reasoning(body, inference, fields, output)
        more = {"inferenceConfig": inference, _FIELDS: fields, "outputConfig": output}
        body |= {name: value for name, value in more.items() if value}
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
            (results if "toolResult" in blocks[0] else rest).extend(blocks)
        return system, [{"role": role, "content": results + rest} for role, results, rest in turns]

    def _blocks(self, message: Message, path: str, allowed: tuple[type, ...]) -> list[Block]:
        blocks: list[Block] = []
        for i, part in enumerate(message.parts):
            where = f"{path}.parts[{i}]"
            block = self._block(part, where) if isinstance(part, allowed) else self._cannot(part, where)
            if block is None:
                continue
            blocks.append(block)
            point = cache_point(part.extensions)
            if point is not None:
                blocks.append(point)
        return blocks

    def _block(self, part: Part, path: str) -> Block | None:
        vendor = self._target.vendor
        if isinstance(part, Text):
            guarded = own(part.extensions, vendor).get("guardContent")
            if guarded is not None:
                return {"guardContent": guarded}
            return self._text(part, path)
        if isinstance(part, Refusal):
            return {"text": part.text} if part.text.strip() else None
        if isinstance(part, Media):
            return self._media(part, path)
        if isinstance(part, ToolCall):
            input = self._input(part.arguments, f"{path}.arguments")
            return {"toolUse": {"toolUseId": tool_id(part.id), "name": part.name, "input": input}}
        if isinstance(part, ToolResult):
            return self._tool_result(part, path)
        if part.vendor == vendor:
            if isinstance(part, Reasoning) and part.signature:
                return {"reasoningContent": {"reasoningText": {"text": part.text, "signature": part.signature}}}
            if isinstance(part, RedactedReasoning):
                return {"reasoningContent": {"redactedContent": own_redacted(part.data, vendor)}}
            if isinstance(part, Opaque):
                return whole_block(part.payload)
        return self._cannot(part, path)

    def _cannot(self, part: Part, path: str) -> Block | None:
        self._lost.append(f"{path}: {_name(part)}")
        return None

    def _text(self, part: Text, path: str) -> Block | None:
        if part.citations:
            mine = [item.payload for item in part.citations if item.vendor == self._target.vendor]
            if len(mine) < len(part.citations):
                self._lost.append(f"{path}.citations")
            if mine:
                return {"citationsContent": {"content": [{"text": part.text}], "citations": mine}}
        return {"text": part.text} if part.text.strip() else None  # blank text is refused

    def _media(self, part: Media, path: str) -> Block | None:
        if part.type == "document":
            self._documents += 1
        block = write_media(part, number=self._documents)
        if block is None:
            return self._cannot(part, path)
        if part.detail is not None:
            self._lost.append(f"{path}.detail")
        return {part.type: {**block[part.type], **_without(own(part.extensions, self._target.vendor), CACHE_POINT)}}

    def _tool_result(self, part: ToolResult, path: str) -> Block:
        content = self._blocks(Message(role="tool", parts=part.parts), path, (Text, Media, Opaque))
        content = [block for block in content if CACHE_POINT not in block] or [{"text": "(nothing)"}]
        result: Block = {"toolUseId": tool_id(part.tool_call_id), "content": content}
        if part.is_error:
            result["status"] = "error"
        return {"toolResult": result}

    def _input(self, arguments: str, path: str) -> Any:
        """Arguments as an object. What is none (an answer that was cut off) is told as what it is."""
        value = json_value(arguments)
        if value is not None and bytes(value).lstrip().startswith(b"{"):
            return value
        self._lost.append(f"{path}: not a JSON object")
        return {"invalid_arguments": arguments}

    # Everything else.

    def _tools(self, body: dict[str, Any], messages: list[dict[str, Any]]) -> None:
        tools: list[Block] = []
        for i, tool in enumerate(self._request.tools):
            if isinstance(tool, Tool):
                tools.append({"toolSpec": _tool_spec(tool)})
                point = cache_point(tool.extensions)
                tools += [] if point is None else [point]
            elif tool.vendor == self._target.vendor:
                tools.append(tool.payload)
            else:
                self._lost.append(f"tools[{i}]: a tool of {tool.vendor}")
        choice = self._request.tool_choice
        blocks = [block for message in messages for block in message["content"]]
        called = dict.fromkeys(block["toolUse"]["name"] for block in blocks if "toolUse" in block)
        if not tools:
            tools = [{"toolSpec": _tool_spec(Tool(name=name))} for name in called]
            if choice is not None and choice.mode not in ("auto", "none"):
                self._lost.append("request.tool_choice")
                choice = None
        if choice is not None and choice.parallel is not None and tools:
            self._lost.append("request.tool_choice.parallel")
        if choice is not None and choice.mode == "none":
            if not called:
                return
            self._lost.append("request.tool_choice: none")
            choice = None
        if tools:
            body["toolConfig"] = {"tools": tools}
            if choice is not None:
                body["toolConfig"]["toolChoice"] = _TOOL_CHOICES[choice.mode](choice.name)

    def _sampling(self) -> dict[str, Any]:
        request = self._request
        inference: dict[str, Any] = {}
        if request.max_tokens is not None:
            inference["maxTokens"] = request.max_tokens
        if request.temperature is not None:
            inference["temperature"] = min(request.temperature, 1.0)
            if request.temperature > 1:
                self._lost.append("request.temperature: clamped to 1")
        if request.top_p is not None:
            inference["topP"] = request.top_p
        stops = [stop for stop in request.stop_sequences if stop]
        if stops:
            inference["stopSequences"] = stops
        if len(stops) != len(request.stop_sequences):
            self._lost.append("request.stop_sequences: empty ones")
        return inference

    def _output(self) -> dict[str, Any]:
        asked = self._request.response_format
        if asked is None or asked.type != "json_schema":
            return {}
        schema = {"schema": encode(asked.schema or {"type": "object"}).decode()}
        said = {"name": asked.name, "description": asked.description}
        schema |= {name: value for name, value in said.items() if value}
        return {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}

    def _reasoning(
        self, body: dict[str, Any], inference: dict[str, Any], fields: dict[str, Any], output: dict[str, Any]
    ) -> None:
        config = self._request.reasoning
        if config is None:
            return
        enabled = config.enabled and config.effort != "none"
        effort = EFFORTS.get(config.effort or "")
        if config.effort and effort is None and enabled:
            self._lost.append(f"request.reasoning.effort: {config.effort[:40]}")
        if self._family == "claude":
            if enabled:
                self._think(body, inference, fields, output, effort)
            else:
                fields["thinking"] = {"type": "disabled"}
            return
        if config.budget_tokens is not None:
            self._lost.append("request.reasoning.budget_tokens")
        if self._family == "nova":
            nova: dict[str, Any] = {"type": "enabled" if enabled else "disabled"}
            if enabled:
                nova["maxReasoningEffort"] = _NOVA_EFFORTS[config.effort if effort and config.effort else "medium"]
            fields["reasoningConfig"] = nova
        elif not enabled:
            self._lost.append("request.reasoning: that it is switched off")
        elif effort is not None:
            fields["reasoning_effort"] = effort

    def _think(
        self,
        body: dict[str, Any],
        inference: dict[str, Any],
        fields: dict[str, Any],
        output: dict[str, Any],
        effort: str | None,
    ) -> None:
        """Claude's thinking, and what it excludes."""
        budget = self._request.reasoning.budget_tokens if self._request.reasoning else None
        if budget is None and self._target.quirks.get("effort_as_budget"):
            budget = EFFORT_BUDGETS[effort or "medium"]
        elif effort is not None:
            output["effort"] = effort
        choice = body.get("toolConfig", {}).get("toolChoice", {})
        if "any" in choice or "tool" in choice:
            self._lost.append("request.reasoning: not possible with a forced tool choice")
            return
        if budget is None:
            fields["thinking"] = {"type": "adaptive"}
        else:
            budget = self._fit_budget(max(budget, MIN_BUDGET), inference.get("maxTokens"))
            if budget is None:
                return
            fields["thinking"] = {"type": "enabled", "budget_tokens": budget}
        if inference.get("temperature", 1) != 1:
            del inference["temperature"]
            self._lost.append("request.temperature: not possible with thinking")
        if fields.pop("top_k", None) is not None:
            self._lost.append("request.top_k: not possible with thinking")
        if inference.get("topP", 1) < 0.95:
            del inference["topP"]
            self._lost.append("request.top_p: not possible with thinking")

    def _fit_budget(self, budget: int, limit: int | None) -> int | None:
        if limit is None or budget < limit:
            return budget
        if limit <= MIN_BUDGET:
            self._lost.append(f"request.reasoning: max_tokens leaves no room for {MIN_BUDGET} tokens of it")
            return None
        self._lost.append(f"request.reasoning.budget_tokens: lowered to {limit - 1}, below max_tokens")
        return limit - 1


_ALLOWED: dict[str, tuple[type, ...]] = {
    "user": (Text, Media, ToolResult, Opaque),
    "assistant": (Text, Refusal, Reasoning, RedactedReasoning, ToolCall, Opaque, Media),
}
_TOOL_CHOICES: dict[str, Any] = {
    "auto": lambda name: {"auto": {}},
    "required": lambda name: {"any": {}},
    "tool": lambda name: {"tool": {"name": name}},
}


def _tool_spec(tool: Tool) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "name": tool.name,
        "inputSchema": {"json": {"type": "object", **(tool.parameters or {"properties": {}})}},
    }
    if tool.description:
        spec["description"] = tool.description
    if tool.strict is not None:
        spec["strict"] = tool.strict
    return spec


def _without(fields: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name}


def _name(part: Part) -> str:
    """What a lost part is, for people."""
    if isinstance(part, Media):
        return part.type
    if isinstance(part, Reasoning | RedactedReasoning):
        return f"reasoning of {part.vendor or 'another provider'}"
    if isinstance(part, Opaque):
        return f"{part.role} of {part.vendor}"
    return type(part).__name__
