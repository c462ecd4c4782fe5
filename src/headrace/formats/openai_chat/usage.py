"""Token counts between the normal form and OpenAI's convention.

The rule: `prompt_tokens` includes what came from the cache, `completion_tokens` includes reasoning, as the normal form
has it. One family of providers counts reasoning beside the completion; its total gives it away. What a provider says
beyond the normal form is kept in `Usage.vendor` and written back into its place.
"""

from __future__ import annotations

from typing import Any

from headrace.model.usage import Usage

_DETAILS = ("prompt_tokens_details", "completion_tokens_details")
_NORMAL = {
    # what the normal form holds, by the object it stands in ("" is the usage object itself)
    "": {"prompt_tokens", "completion_tokens", "total_tokens", "cost", *_DETAILS},
    "prompt_tokens_details": {"cached_tokens", "cache_write_tokens"},
    "completion_tokens_details": {"reasoning_tokens"},
}


def read_usage(raw: Any, vendor: str) -> Usage | None:
    """A provider's usage object, in any dialect. None where it says nothing."""
    if not isinstance(raw, dict):
        return None
    prompt_details, completion_details = (_object(raw.get(name)) for name in _DETAILS)
    prompt = _count(raw, "prompt_tokens", "input_tokens")
    completion = _count(raw, "completion_tokens", "output_tokens")
    reasoning = _count(completion_details, "reasoning_tokens")
    if reasoning is None:
        reasoning = _count(raw, "reasoning_tokens")
    total = _count(raw, "total_tokens")
    if reasoning and prompt is not None and completion is not None and total == prompt + completion + reasoning:
        completion += reasoning
    cached = _count(prompt_details, "cached_tokens")
    if cached is None:
        cached = _count(raw, "prompt_cache_hit_tokens", "cached_tokens")
    cost = raw.get("cost")
    usage = Usage(
        input_tokens=prompt,
        output_tokens=completion,
        cached_tokens=cached,
        cache_write_tokens=_count(prompt_details, "cache_write_tokens"),
        reasoning_tokens=reasoning,
        cost_usd=float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None,
    )
    if usage == Usage():
        return None
    extra = _beyond(raw, "")
    for name, details in zip(_DETAILS, (prompt_details, completion_details), strict=True):
        rest = _beyond(details, name)
        if rest:
            extra[name] = rest
    if extra:
        usage.vendor = {vendor: extra}
    return usage


def write_usage(usage: Usage, vendor: str) -> dict[str, Any]:
    """OpenAI's usage object. `vendor`: whose additional counts may be shown."""
    extra = dict((usage.vendor or {}).get(vendor) or {})
    body: dict[str, Any] = {
        "prompt_tokens": usage.input_tokens or 0,
        "completion_tokens": usage.output_tokens or 0,
        "total_tokens": usage.total_tokens or 0,
    }
    prompt: dict[str, Any] = {"cached_tokens": usage.cached_tokens or 0}
    if usage.cache_write_tokens:
        prompt["cache_write_tokens"] = usage.cache_write_tokens
    completion: dict[str, Any] = {"reasoning_tokens": usage.reasoning_tokens or 0}
    for name, details in zip(_DETAILS, (prompt, completion), strict=True):
        body[name] = {**details, **_object(extra.pop(name, None))}
    if usage.cost_usd is not None:
        body["cost"] = usage.cost_usd
    return {**body, **extra}


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _beyond(raw: dict[str, Any], place: str) -> dict[str, Any]:
    normal = _NORMAL[place]
    return {name: value for name, value in raw.items() if name not in normal and value is not None}


def _count(raw: dict[str, Any], *names: str) -> int | None:
    for name in names:
        value = raw.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            return int(value)
    return None
