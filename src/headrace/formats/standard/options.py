"""What both formats can ask for beyond the draft's four parameters.

In llm_stream these are words of `extensions["vendor:headrace"]`, in the gateway format plain fields of the body:

    tool_choice          "auto", "none", "required" or {"type":"tool","name":NAME}
    parallel_tool_calls  boolean
    response_format      {"type": "text", "json" or "json_schema", "schema", "name", "description", "strict"}
    reasoning            {"enabled", "effort", "budget_tokens"}
    budget               {"max_cost_usd", "max_tokens"}
    n, seed, top_k, presence_penalty, frequency_penalty, logprobs, top_logprobs, user
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from headrace.formats.json import Count, Positive
from headrace.model.request import Budget, ReasoningConfig, Request, ResponseFormat, ToolChoice

from .fields import bad

Penalty = Annotated[float, Meta(ge=-2, le=2)]


class Sampling(Struct, kw_only=True):
    """The draft's parameters; the gateway format has them at the top."""

    max_tokens: Positive | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    stop_sequences: list[str] | None = None


class WireToolChoice(Struct, kw_only=True):
    type: Literal["auto", "none", "required", "tool"] = "tool"
    name: str | None = None


class WireResponseFormat(Struct, kw_only=True):
    type: Literal["text", "json", "json_schema"]
    schema: dict[str, Any] | None = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class WireReasoning(Struct, kw_only=True):
    enabled: bool = True
    effort: str | None = None
    budget_tokens: Count | None = None


class WireBudget(Struct, kw_only=True):
    max_cost_usd: Annotated[float, Meta(ge=0)] | None = None
    max_tokens: Positive | None = None


class Options(Struct, kw_only=True):
    tool_choice: Literal["auto", "none", "required"] | WireToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: WireResponseFormat | None = None
    reasoning: WireReasoning | None = None
    budget: WireBudget | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    top_k: Positive | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    user: str | None = None


OPTION_NAMES = frozenset(Options.__struct_fields__)
_AS_THEY_ARE = (
    "n",
    "seed",
    "top_k",
    "presence_penalty",
    "frequency_penalty",
    "logprobs",
    "top_logprobs",
    "user",
)


def apply_sampling(request: Request, sampling: Sampling) -> None:
    request.max_tokens = sampling.max_tokens
    request.temperature = sampling.temperature
    request.top_p = sampling.top_p
    request.stop_sequences = sampling.stop_sequences or []


def write_sampling(request: Request) -> dict[str, Any]:
    fields = {
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "stop_sequences": request.stop_sequences or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def apply_options(request: Request, options: Options, path: str = "") -> None:
    """Set on the request what the options say. `path`: where they stand ("" at the top), for messages."""
    prefix = f"{path}." if path else ""
    for name in _AS_THEY_ARE:
        value = getattr(options, name)
        if value is not None:
            setattr(request, name, value)
    choice, parallel = options.tool_choice, options.parallel_tool_calls
    if choice is not None or parallel is not None:
        request.tool_choice = _tool_choice(choice, parallel, f"{prefix}tool_choice")
    if options.response_format is not None:
        if options.response_format.type == "json_schema" and options.response_format.schema is None:
            bad(f"{prefix}response_format.schema", "is required where type is json_schema")
        request.response_format = ResponseFormat(**msgspec.structs.asdict(options.response_format))
    if options.reasoning is not None:
        request.reasoning = ReasoningConfig(**msgspec.structs.asdict(options.reasoning))
    if options.budget is not None:
        request.budget = Budget(**msgspec.structs.asdict(options.budget))


def _tool_choice(choice: str | WireToolChoice | None, parallel: bool | None, path: str) -> ToolChoice:
    if choice is None or isinstance(choice, str):
        return ToolChoice(mode=choice or "auto", parallel=parallel)
    if choice.type == "tool" and not choice.name:
        bad(f"{path}.name", "is required: which tool shall be called")
    return ToolChoice(mode=choice.type, name=choice.name if choice.type == "tool" else None, parallel=parallel)


def write_options(request: Request) -> dict[str, Any]:
    """The request's options that differ from saying nothing."""
    fields: dict[str, Any] = {}
    choice = request.tool_choice
    if choice is not None:
        if choice.mode == "tool":
            fields["tool_choice"] = {"type": "tool", "name": choice.name}
        elif choice.mode != "auto" or choice.parallel is None:
            fields["tool_choice"] = choice.mode
        if choice.parallel is not None:
            fields["parallel_tool_calls"] = choice.parallel
    for name in ("response_format", "reasoning", "budget"):
        value = getattr(request, name)
        if value is not None:
            given = msgspec.structs.asdict(value).items()
            fields[name] = {key: inner for key, inner in given if inner is not None}
    for name in _AS_THEY_ARE:
        value = getattr(request, name)
        if value is not None and not (name == "n" and value == 1):
            fields[name] = value
    return fields
