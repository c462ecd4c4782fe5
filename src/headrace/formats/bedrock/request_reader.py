"""A caller's body (`POST /model/{model}/converse-stream` or `/converse`) as a `Request`.

The rule: what the model of a request has a word for is checked down to the field and read, what a model's own parameters
(`additionalModelRequestFields`) say of reasoning and top_k included; everything else stays in `origin` and is named in
`lost`, for providers of other formats. The path says the model and whether a stream is asked for; elsewhere the body may,
in `modelId` and `stream`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from headrace.formats.anthropic.blocks import checked
from headrace.formats.base import IN_THE_BODY, Located
from headrace.formats.json import Count, Positive, decode_object
from headrace.model.content import Part, Text, ToolResult
from headrace.model.errors import InvalidRequest
from headrace.model.request import Message, ReasoningConfig, Request, ResponseFormat, Tool, ToolChoice, VendorTool

from .blocks import CACHE_POINT, cached, raw_inputs, read_parts
from .words import NAME, VENDOR

_Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Name = Annotated[str, msgspec.Meta(min_length=1)]
Object = dict[str, Any]


class _Message(msgspec.Struct):
    role: str
    content: list[Object]


class _Inference(msgspec.Struct, rename="camel"):
    max_tokens: Positive | None = None
    temperature: _Fraction | None = None
    top_p: _Fraction | None = None
    stop_sequences: list[str] | None = None


class _Tools(msgspec.Struct, rename="camel"):
    tools: list[Object]
    tool_choice: Object | None = None


class _JSONSchema(msgspec.Struct):
    schema: str
    name: str | None = None
    description: str | None = None


class _Structure(msgspec.Struct, rename="camel"):
    json_schema: _JSONSchema


class _TextFormat(msgspec.Struct):
    type: str
    structure: _Structure


class _Output(msgspec.Struct, rename="camel"):
    text_format: _TextFormat | None = None
    effort: str | None = None


class _Body(msgspec.Struct, rename="camel"):
    messages: Annotated[list[_Message], msgspec.Meta(min_length=1)]
    system: list[Object] | None = None
    inference_config: _Inference | None = None
    tool_config: _Tools | None = None
    output_config: _Output | None = None
    additional_model_request_fields: Object | None = None
    model_id: _Name | None = None
    stream: bool | None = None


class _InputSchema(msgspec.Struct):
    json: Object


class _ToolSpec(msgspec.Struct, rename="camel"):
    name: _Name
    input_schema: _InputSchema
    description: str | None = None
    strict: bool | None = None


class _Thinking(msgspec.Struct):
    type: str
    budget_tokens: Positive | None = None


class _NovaReasoning(msgspec.Struct, rename="camel"):
    type: str
    max_reasoning_effort: str | None = None


class _NovaInference(msgspec.Struct, rename="camel"):
    top_k: Count | None = None


class _OutputConfig(msgspec.Struct):
    effort: str | None = None


class _ModelFields(msgspec.Struct):
    """What models' own parameters say that the model of a request has a word for: Claude's, then Nova's, then others'."""

    thinking: _Thinking | None = None
    reasoning_config: _Thinking | None = None
    output_config: _OutputConfig | None = None
    top_k: Count | None = None
    nova_reasoning: _NovaReasoning | None = msgspec.field(default=None, name="reasoningConfig")
    nova_inference: _NovaInference | None = msgspec.field(default=None, name="inferenceConfig")
    reasoning_effort: str | None = None


_ROLES = ("user", "assistant", "system")
_ROLE_OF_BLOCK = {"toolUse": "assistant", "reasoningContent": "assistant", "toolResult": "user"}
_CHOICES = {"auto": "auto", "any": "required", "tool": "tool"}
_PARTS: dict[str, Mapping[str, Any]] = {
    # objects of which a part is read: the rest of their fields is lost elsewhere
    "inferenceConfig": dict.fromkeys(_Inference.__struct_encode_fields__),
    "toolConfig": dict.fromkeys(_Tools.__struct_encode_fields__),
    "outputConfig": dict.fromkeys(_Output.__struct_encode_fields__),
    "additionalModelRequestFields": {
        **dict.fromkeys(_ModelFields.__struct_encode_fields__),
        "thinking": dict.fromkeys(_Thinking.__struct_encode_fields__),
        "reasoning_config": dict.fromkeys(_Thinking.__struct_encode_fields__),
        "output_config": dict.fromkeys(_OutputConfig.__struct_encode_fields__),
        "reasoningConfig": dict.fromkeys(_NovaReasoning.__struct_encode_fields__),
        "inferenceConfig": dict.fromkeys(_NovaInference.__struct_encode_fields__),
    },
}


def read_request(body: bytes, located: Located = IN_THE_BODY) -> Request:
    """Raises InvalidRequest with the path of the bad field, in Converse's names."""
    payload = decode_object(body)
    fields = checked(payload, _Body, "")
    model = located.model or fields.model_id
    if not model:
        raise InvalidRequest("modelId: Field required", param="modelId")
    inputs = _inputs(body)
    messages: list[Message] = []
    if fields.system:
        messages.append(Message(role="system", parts=_system(fields.system, "system")))
    for i, message in enumerate(fields.messages):
        messages += _messages(message, f"messages[{i}]", inputs[i] if inputs else None)
    inference = fields.inference_config or _Inference()
    extra = checked(fields.additional_model_request_fields or {}, _ModelFields, "additionalModelRequestFields")
    config = fields.tool_config
    return Request(
        model=model,
        messages=messages,
        stream=bool(fields.stream) if located.stream is None else located.stream,
        tools=_tools(config.tools) if config else [],
        tool_choice=_tool_choice(config.tool_choice) if config and config.tool_choice is not None else None,
        response_format=_response_format(fields.output_config),
        max_tokens=inference.max_tokens,
        temperature=inference.temperature,
        top_p=inference.top_p,
        top_k=extra.top_k if extra.nova_inference is None else extra.nova_inference.top_k,
        stop_sequences=inference.stop_sequences or [],
        reasoning=_reasoning(extra, fields.output_config),
        lost=_lost(payload),
        format=NAME,
        origin=payload,
    )


def _inputs(body: bytes) -> list[list[str]] | None:
    if b"toolUse" not in body and b"\\u" not in body:
        return None
    try:
        return raw_inputs(body)
    except msgspec.DecodeError:  # something else is wrong with it, and is found where it is read
        return None


def _messages(message: _Message, path: str, inputs: list[str] | None) -> list[Message]:
    role, blocks = message.role, message.content
    if role not in _ROLES:
        raise InvalidRequest(f"{path}.role: must be one of {', '.join(_ROLES)}", param=f"{path}.role")
    if role == "system":
        return [Message(role=role, parts=_system(blocks, f"{path}.content"))]
    for i, block in enumerate(blocks):
        for name, allowed in _ROLE_OF_BLOCK.items():
            if name in block and role != allowed:
                where = f"{path}.content[{i}].{name}"
                raise InvalidRequest(f"{where}: belongs in {allowed} messages", param=where)
    messages: list[Message] = []
    run: list[Part] = []
    for part in read_parts(blocks, f"{path}.content", inputs=inputs):
        if not isinstance(part, ToolResult):
            run.append(part)
            continue
        if run:
            messages.append(Message(role=role, parts=run))
            run = []
        messages.append(Message(role="tool", parts=[part]))
    if run or not messages:
        messages.append(Message(role=role, parts=run))
    return messages


def _system(blocks: list[Object], path: str) -> list[Part]:
    parts = read_parts(blocks, path)
    for i, part in enumerate(parts):
        if not isinstance(part, Text) and "guardContent" not in blocks[i] and CACHE_POINT not in blocks[i]:
            raise InvalidRequest(f"{path}[{i}]: a system prompt consists of text", param=f"{path}[{i}]")
    return parts


def _tools(tools: list[Object]) -> list[Tool | VendorTool]:
    read: list[Tool | VendorTool] = []
    for i, tool in enumerate(tools):
        spec, path = tool.get("toolSpec"), f"toolConfig.tools[{i}]"
        if spec is None:
            last, point = (read[-1] if read else None), tool.get(CACHE_POINT)
            if isinstance(last, Tool) and isinstance(point, dict):
                last.extensions = cached(point)
            else:
                read.append(VendorTool(vendor=VENDOR, payload=tool))
            continue
        said = checked(spec, _ToolSpec, f"{path}.toolSpec")
        read.append(
            Tool(
                name=said.name,
                description=said.description or "",
                parameters=said.input_schema.json,
                strict=said.strict,
            )
        )
    return read


def _tool_choice(choice: Object) -> ToolChoice | None:
    for word, mode in _CHOICES.items():
        said = choice.get(word)
        if said is None:
            continue
        if mode != "tool":
            return ToolChoice(mode=mode)
        name = said.get("name") if isinstance(said, dict) else None
        if not isinstance(name, str) or not name:
            raise InvalidRequest("toolConfig.toolChoice.tool.name: Field required", param="toolConfig.toolChoice.tool")
        return ToolChoice(mode=mode, name=name)
    raise InvalidRequest(
        f"toolConfig.toolChoice: one of {', '.join(_CHOICES)} is required", param="toolConfig.toolChoice"
    )


def _response_format(output: _Output | None) -> ResponseFormat | None:
    if output is None or output.text_format is None:
        return None
    path = "outputConfig.textFormat"
    if output.text_format.type != "json_schema":
        raise InvalidRequest(f'{path}.type: must be "json_schema"', param=f"{path}.type")
    said = output.text_format.structure.json_schema
    try:
        schema = msgspec.json.decode(said.schema, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        where = f"{path}.structure.jsonSchema.schema"
        raise InvalidRequest(f"{where}: not the text of a JSON object", param=where) from None
    return ResponseFormat(type="json_schema", schema=schema, name=said.name, description=said.description)


def _reasoning(extra: _ModelFields, output: _Output | None) -> ReasoningConfig | None:
    effort = output.effort if output is not None else None
    if effort is None and extra.output_config is not None:
        effort = extra.output_config.effort
    effort = effort or extra.reasoning_effort
    thinking = extra.thinking or extra.reasoning_config
    if thinking is not None:
        enabled = thinking.type != "disabled"
        return ReasoningConfig(
            enabled=enabled, effort=effort, budget_tokens=thinking.budget_tokens if enabled else None
        )
    nova = extra.nova_reasoning
    if nova is not None:
        return ReasoningConfig(enabled=nova.type != "disabled", effort=nova.max_reasoning_effort or effort)
    return ReasoningConfig(effort=effort) if effort else None


def _lost(payload: Object) -> list[str]:
    known = dict.fromkeys(_Body.__struct_encode_fields__)
    return _beyond(payload, {**known, **_PARTS}, "request")


def _beyond(payload: Object, known: Mapping[str, Any], path: str) -> list[str]:
    """Paths of the fields that nobody reads. `known`: field -> what is known within it, None where all of it is."""
    lost: list[str] = []
    for name, value in payload.items():
        if value is None:
            continue
        if name not in known:
            lost.append(f"{path}.{name}")
        elif known[name] is not None and isinstance(value, dict):
            lost += _beyond(value, known[name], f"{path}.{name}")
    return lost
