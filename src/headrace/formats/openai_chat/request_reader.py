"""A caller's Chat Completions body -> Request.

The rule: everything the gateway acts on is checked, and an error names the field in the caller's own terms; what it does
not know is neither rejected nor lost (`origin` keeps the body). Messages are in messages.py.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from headrace.formats.base import IN_THE_BODY, Located
from headrace.formats.json import Count, Positive, convert, decode_object
from headrace.model.errors import InvalidRequest
from headrace.model.request import (
    Budget,
    ReasoningConfig,
    Request,
    ResponseFormat,
    Tool,
    ToolChoice,
    VendorTool,
)

from .errors import VENDOR
from .messages import read_messages

NAME = "openai_chat"
_VENDOR_PREFIX = "vendor:"

_Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]


class _Function(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def tool(self) -> Tool:
        return Tool(name=self.name, description=self.description or "", parameters=self.parameters, strict=self.strict)


class _Schema(msgspec.Struct):
    name: str | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Reasoning(msgspec.Struct):
    """The `reasoning` object of several compatible providers."""

    effort: str | None = None
    max_tokens: Count | None = None
    enabled: bool | None = None


class _Budget(msgspec.Struct):
    max_cost_usd: Annotated[float, msgspec.Meta(ge=0)] | None = None
    max_tokens: Count | None = None


class _Body(msgspec.Struct):
    """The fields with simple types; the others are read by hand."""

    model: Annotated[str, msgspec.Meta(min_length=1)]
    messages: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1)]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    top_k: _Integer | None = None
    stop: str | list[str] | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=128)] | None = None
    seed: _Integer | None = None
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None
    tools: list[dict[str, Any]] | None = None
    functions: list[_Function] | None = None
    tool_choice: str | dict[str, Any] | None = None
    function_call: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    reasoning: _Reasoning | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None
    budget: _Budget | None = None
    extensions: dict[str, Any] | None = None


def read_request(body: bytes, located: Located = IN_THE_BODY) -> Request:
    """Raises InvalidRequest with the path of the bad field. A model in the path goes before one in the body."""
    origin = decode_object(body)
    if located.model:
        origin["model"] = located.model
    for field in ("model", "messages"):
        if origin.get(field) is None:
            raise InvalidRequest(f"The field `{field}` is missing", param=field)
    said = convert(origin, _Body)
    lost: list[str] = []
    tools, tool_choice = _tools(said, lost)
    budget = said.budget
    return Request(
        model=said.model,
        messages=read_messages(said.messages),
        stream=bool(said.stream),
        tools=tools,
        tool_choice=tool_choice,
        response_format=_response_format(said.response_format, lost),
        max_tokens=said.max_tokens if said.max_completion_tokens is None else said.max_completion_tokens,
        temperature=said.temperature,
        top_p=said.top_p,
        top_k=said.top_k,
        stop_sequences=[said.stop] if isinstance(said.stop, str) else said.stop or [],
        n=said.n or 1,
        seed=said.seed,
        presence_penalty=said.presence_penalty,
        frequency_penalty=said.frequency_penalty,
        logprobs=said.logprobs,
        top_logprobs=said.top_logprobs,
        reasoning=_reasoning(said),
        user=said.user,
        include_usage=said.stream_options is not None and said.stream_options.include_usage is True,
        metadata=said.metadata or {},
        budget=Budget(max_cost_usd=budget.max_cost_usd, max_tokens=budget.max_tokens) if budget else None,
        extensions=_extensions(said.extensions or {}),
        lost=lost,
        format=NAME,
        origin=origin,
    )


def _tools(said: _Body, lost: list[str]) -> tuple[list[Tool | VendorTool], ToolChoice | None]:
    tools: list[Tool | VendorTool] = []
    for position, raw in enumerate(said.tools or []):
        path = f"tools[{position}]"
        kind = raw.get("type")
        if not isinstance(kind, str):
            raise InvalidRequest(f"{path}.type: Expected `str`, such as 'function'", param=f"{path}.type")
        if kind == "function":
            tools.append(convert_at(raw.get("function"), _Function, f"{path}.function").tool())
        else:
            tools.append(VendorTool(vendor=VENDOR, payload=raw))
    tools += [function.tool() for function in said.functions or []]
    if said.tool_choice is not None:
        choice = _tool_choice(said.tool_choice, lost)
    elif said.function_call is not None:
        choice = _function_choice(said.function_call)
    elif said.parallel_tool_calls is None:
        return tools, None
    else:
        choice = ToolChoice()
    choice.parallel = said.parallel_tool_calls
    return tools, choice


_CHOICE_WORDS = {"auto": "auto", "none": "none", "required": "required", "any": "required"}


def _tool_choice(raw: str | dict[str, Any], lost: list[str]) -> ToolChoice:
    if isinstance(raw, str):
        if raw not in _CHOICE_WORDS:
            known = ", ".join(_CHOICE_WORDS)
            raise InvalidRequest(f"tool_choice: {raw[:80]!r} is not one of {known}, nor an object", param="tool_choice")
        return ToolChoice(mode=_CHOICE_WORDS[raw])
    kind = raw.get("type")
    if kind == "allowed_tools":
        lost.append("tool_choice.allowed_tools.tools")
        allowed = raw.get("allowed_tools")
        mode = allowed.get("mode") if isinstance(allowed, dict) else None
        return ToolChoice(mode="required" if mode == "required" else "auto")
    if kind in ("function", "custom"):
        return ToolChoice(mode="tool", name=_name(raw.get(kind), f"tool_choice.{kind}"))
    raise InvalidRequest("tool_choice.type: Expected 'function', 'custom' or 'allowed_tools'", param="tool_choice.type")


def _function_choice(raw: str | dict[str, Any]) -> ToolChoice:
    if isinstance(raw, dict):
        return ToolChoice(mode="tool", name=_name(raw, "function_call"))
    if raw not in ("auto", "none"):
        raise InvalidRequest("function_call: Expected 'auto', 'none' or {\"name\": ...}", param="function_call")
    return ToolChoice(mode=raw)


def _name(raw: Any, path: str) -> str:
    name = raw.get("name") if isinstance(raw, dict) else None
    if not isinstance(name, str) or not name:
        raise InvalidRequest(f"{path}.name: Expected the name of a tool", param=f"{path}.name")
    return name


def _response_format(raw: dict[str, Any] | None, lost: list[str]) -> ResponseFormat | None:
    if raw is None:
        return None
    kind = raw.get("type")
    if kind == "text":
        return ResponseFormat(type="text")
    if kind == "json_object":
        return ResponseFormat(type="json")
    if kind == "json_schema":
        said = convert_at(raw.get("json_schema"), _Schema, "response_format.json_schema")
        return ResponseFormat(
            type="json_schema",
            schema=said.schema if said.schema is not None else {},
            name=said.name,
            description=said.description,
            strict=said.strict,
        )
    if not isinstance(kind, str):
        raise InvalidRequest("response_format.type: Expected `str`", param="response_format.type")
    lost.append("response_format")  # a provider of this format may know it; it goes there in the origin
    return None


def _reasoning(said: _Body) -> ReasoningConfig | None:
    effort = said.reasoning_effort
    budget = enabled = None
    if said.reasoning is not None:
        effort = said.reasoning.effort or effort
        budget, enabled = said.reasoning.max_tokens, said.reasoning.enabled
    if effort is None and budget is None and enabled is None:
        return None
    if enabled is None:
        enabled = effort != "none"
    return ReasoningConfig(enabled=enabled, effort=effort, budget_tokens=budget)


def _extensions(raw: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in raw.items():
        if not key.startswith(_VENDOR_PREFIX):
            continue  # unknown namespaces are ignored
        if not isinstance(value, dict):
            path = f"extensions.{key}"
            raise InvalidRequest(f"{path}: Expected an object", param=path)
        found[key.removeprefix(_VENDOR_PREFIX)] = value
    return found


def convert_at(value: Any, type: type[Any], path: str) -> Any:
    """`convert`, for a value that is not the body itself: the error's path begins with `path`."""
    try:
        return convert(value, type)
    except InvalidRequest as error:
        inner = error.info.param
        full = f"{path}.{inner}" if inner else path
        message = error.info.message.removeprefix(f"{inner}: ")
        raise InvalidRequest(f"{full}: {message}", param=full) from None
