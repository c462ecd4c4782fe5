"""What reader and writers of this format share: its names, its usage object, its words for an end."""

from __future__ import annotations

from typing import Any

from headrace.formats.json import count_of
from headrace.formats.openai_chat.errors import VENDOR as VENDOR
from headrace.model.stop import StopReason
from headrace.model.usage import Usage

NAME = "openai_responses"

OWN = NAME
"""Whose the opaque parts and tools of this format are: Chat Completions' have other shapes, though the vendor is one."""

REDACTED = "-redacted"
"""In a seal, in place of an item's id: what is sealed is redacted reasoning, not a signature."""

_S = StopReason

INCOMPLETE: dict[str, StopReason] = {"max_output_tokens": _S.MAX_TOKENS, "content_filter": _S.CONTENT_FILTER}
"""`incomplete_details.reason` -> reason."""

_WRITE: dict[StopReason, str] = {
    _S.MAX_TOKENS: "max_output_tokens",
    _S.CONTEXT_WINDOW: "max_output_tokens",
    _S.CONTENT_FILTER: "content_filter",
    _S.REFUSAL: "content_filter",  # none, where the answer holds the refusal's text
}


def read_stop(incomplete: str | None, *, calls: bool, refused: bool) -> StopReason:
    """`incomplete`: why the response is not complete, None where it is. A complete one says by its content what it is."""
    if incomplete is not None:
        return INCOMPLETE.get(incomplete, _S.OTHER)
    return _S.TOOL_USE if calls else _S.REFUSAL if refused else _S.END_TURN


def write_stop(reason: StopReason, *, refused: bool) -> str | None:
    """Why the response is incomplete; None where it is complete."""
    return None if reason is _S.REFUSAL and refused else _WRITE.get(reason)


_DETAILS = ("input_tokens_details", "output_tokens_details")
_NORMAL = {
    "": {"input_tokens", "output_tokens", "total_tokens", "cost", *_DETAILS},
    "input_tokens_details": {"cached_tokens", "cache_write_tokens"},
    "output_tokens_details": {"reasoning_tokens"},
}


def read_usage(raw: Any, vendor: str) -> Usage | None:
    """A response's usage. None where it says nothing. Input includes cached tokens, output includes reasoning."""
    if not isinstance(raw, dict):
        return None
    given, made = (_object(raw.get(name)) for name in _DETAILS)
    cost = raw.get("cost")
    usage = Usage(
        input_tokens=count_of(raw.get("input_tokens")),
        output_tokens=count_of(raw.get("output_tokens")),
        cached_tokens=count_of(given.get("cached_tokens")),
        cache_write_tokens=count_of(given.get("cache_write_tokens")),
        reasoning_tokens=count_of(made.get("reasoning_tokens")),
        cost_usd=float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None,
    )
    if usage == Usage():
        return None
    extra = _beyond(raw, "")
    for name, details in zip(_DETAILS, (given, made), strict=True):
        rest = _beyond(details, name)
        if rest:
            extra[name] = rest
    if extra:
        usage.vendor = {vendor: extra}
    return usage


def write_usage(usage: Usage) -> dict[str, Any]:
    extra = dict((usage.vendor or {}).get(VENDOR) or {})
    given: dict[str, Any] = {"cached_tokens": usage.cached_tokens or 0}
    if usage.cache_write_tokens:
        given["cache_write_tokens"] = usage.cache_write_tokens
    made = {"reasoning_tokens": usage.reasoning_tokens or 0}
    body: dict[str, Any] = {
        "input_tokens": usage.input_tokens or 0,
        "input_tokens_details": {**_object(extra.pop("input_tokens_details", None)), **given},
        "output_tokens": usage.output_tokens or 0,
        "output_tokens_details": {**_object(extra.pop("output_tokens_details", None)), **made},
        "total_tokens": usage.total_tokens or 0,
    }
    if usage.cost_usd is not None:
        body["cost"] = usage.cost_usd
    return {**extra, **body}


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _beyond(raw: dict[str, Any], place: str) -> dict[str, Any]:
    return {name: value for name, value in raw.items() if name not in _NORMAL[place] and value is not None}
