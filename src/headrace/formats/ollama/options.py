"""What the bodies of /api/chat and /api/generate share: `options`, `format`, `think`, both ways.

The rule: fields of `options` that the model of a request has a word for are checked and taken; the others (how a model is
loaded, other samplers) mean something to Ollama alone, where they go on in the origin, and are named as lost elsewhere.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from headrace.formats.base import Target
from headrace.formats.json import convert
from headrace.model.errors import InvalidRequest
from headrace.model.request import ReasoningConfig, Request, ResponseFormat

_Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Number = Annotated[float, msgspec.Meta(ge=-1e6, le=1e6)]
_Positive = Annotated[float, msgspec.Meta(ge=0, le=1e6)]

LEVELS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "max"}
"""An effort as a level of `think`."""


class Options(msgspec.Struct):
    num_predict: _Integer | None = None
    temperature: _Positive | None = None
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    top_k: _Integer | None = None
    seed: _Integer | None = None
    stop: str | list[str] | None = None
    presence_penalty: _Number | None = None
    frequency_penalty: _Number | None = None


_KNOWN = frozenset(Options.__struct_fields__)
_SAME = ("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty")


def read_options(raw: dict[str, Any] | None, lost: list[str]) -> dict[str, Any]:
    """Fields of a Request. Raises InvalidRequest."""
    if not raw:
        return {}
    try:
        options = convert(raw, Options)
    except InvalidRequest as error:
        inner = error.info.param or ""
        message = error.info.message.removeprefix(f"{inner}: ")
        raise InvalidRequest(f"options.{inner}: {message}", param=f"options.{inner}") from None
    lost += [f"options.{name}" for name in raw if name not in _KNOWN]
    fields: dict[str, Any] = {name: getattr(options, name) for name in _SAME}
    if options.num_predict is not None and options.num_predict > 0:  # -1: no limit, -2: what the context has room for
        fields["max_tokens"] = options.num_predict
    if options.stop:
        fields["stop_sequences"] = [options.stop] if isinstance(options.stop, str) else options.stop
    return fields


def write_options(request: Request) -> dict[str, Any]:
    """The `options` of a request; what is not asked for is left to the model's own settings."""
    options = {name: value for name in _SAME if (value := getattr(request, name)) is not None}
    if request.max_tokens is not None:
        options["num_predict"] = request.max_tokens
    if request.stop_sequences:
        options["stop"] = request.stop_sequences
    return options


def read_format(raw: Any) -> ResponseFormat | None:
    """`format`: "json", or a schema. Raises InvalidRequest."""
    if raw is None or raw == "":
        return None
    if raw == "json":
        return ResponseFormat(type="json")
    if isinstance(raw, dict):
        return ResponseFormat(type="json_schema", schema=raw)
    raise InvalidRequest("format: Expected 'json' or a JSON Schema object", param="format")


def write_format(format: ResponseFormat | None) -> str | dict[str, Any] | None:
    """None where there is nothing to send. A schema goes without its name and description."""
    if format is None or format.type == "text":
        return None
    return "json" if format.type == "json" else format.schema or {"type": "object"}


def read_think(raw: Any) -> ReasoningConfig | None:
    """`think`: a boolean or a level. Raises InvalidRequest."""
    if raw is None:
        return None
    if isinstance(raw, bool):
        return ReasoningConfig(enabled=raw)
    if isinstance(raw, str) and raw:
        return ReasoningConfig(enabled=raw != "none", effort=raw)
    raise InvalidRequest("think: Expected a boolean, or a level such as 'low'", param="think")


def write_think(reasoning: ReasoningConfig | None, target: Target, lost: list[str]) -> bool | str | None:
    """A level for models that have levels (quirk `think_levels`; by default those of the gpt-oss family), and whether to
    think at all for all others, which refuse a level."""
    if reasoning is None:
        return None
    if not reasoning.enabled or reasoning.effort == "none":
        return False
    if reasoning.budget_tokens is not None:
        lost.append("request.reasoning.budget_tokens")
    if reasoning.effort is None:
        return True
    has_levels = target.quirks.get("think_levels")
    if "gpt-oss" in target.model if has_levels is None else has_levels is not False:
        return LEVELS.get(reasoning.effort, reasoning.effort)
    lost.append("request.reasoning.effort: sent as `think`")
    return True
