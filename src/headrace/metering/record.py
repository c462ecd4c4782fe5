"""The record of one request, whatever its end: the event `llm.usage.recorded` (spec/gateway.md, "Usage and cost").

Consumers may see a record twice and tell by its `record_id`. It holds no prompt and no answer, only counts and names.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

EVENT = "llm.usage.recorded"

Quality = Literal["exact", "partial", "estimated"]


class RecordedUsage(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Tokens in the normal form (cached and cache writes are parts of the prompt, reasoning of the completion)."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None
    """Absent where the price is not known."""
    quality: Quality = "exact"


class AttemptRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One attempt at a provider. `code`: why it gave no answer."""

    provider: str
    model: str
    code: str | None = None
    ms: float = 0.0
    usage: RecordedUsage | None = None


class UsageRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`usage` is that of the last of the `attempts`: the one that answered, or that failed before the caller's eyes. What
    the others consumed (a hedge's loser) stands with them."""

    event: str = EVENT
    record_id: str
    request_id: str
    timestamp: str
    """RFC 3339, UTC: when it was settled."""
    attribution: dict[str, str] = {}
    """"key" and "key_name", where callers authenticate; beside them the free keys of the request's metadata."""
    model: str
    """As the caller wrote it."""
    route: str | None = None
    provider: str = ""
    """Who answered, or was asked last."""
    provider_model: str = ""
    format: str = ""
    """The caller's."""
    stream: bool = False
    outcome: Literal["completed", "failed", "cancelled"] = "completed"
    error: str | None = None
    """The error's code."""
    status: int | None = None
    """HTTP status that the caller got; absent where it left before."""
    usage: RecordedUsage | None = None
    price_source: str | None = None
    """Whose prices, with their version."""
    attempts: list[AttemptRecord] = []
    failovers: int = 0
    ttft_ms: float | None = None
    duration_ms: float = 0.0
    trace_id: str = ""

    @property
    def other_cost(self) -> float | None:
        """USD of the attempts before the last, where any of them has a price."""
        known = [a.usage.cost_usd for a in self.attempts[:-1] if a.usage is not None and a.usage.cost_usd is not None]
        return sum(known) if known else None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(UsageRecord)
_HEAD = b'{"event":"%b",' % EVENT.encode()  # which omit_defaults leaves out, and consumers look for


def encode(record: UsageRecord) -> bytes:
    """One line of JSON, without a line break."""
    try:
        return _HEAD + _encoder.encode(record)[1:]
    except UnicodeEncodeError:  # an unpaired surrogate in a name, which no encoding has a form for
        return _HEAD + _encoder.encode(_mended(msgspec.to_builtins(record)))[1:]


def decode(line: bytes) -> UsageRecord:
    """Raises msgspec.DecodeError (and its subclass ValidationError), UnicodeDecodeError."""
    return _decoder.decode(line)


_SURROGATE = re.compile("[\ud800-\udfff]")


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_mended(name): _mended(item) for name, item in value.items()}
    return [_mended(item) for item in value] if isinstance(value, list) else value
