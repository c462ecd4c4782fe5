"""A whole answer: what the assembler makes of a stream, and what the non-streaming bodies are read into and written from."""

from __future__ import annotations

from typing import Any

import msgspec

from .content import Extensions, Part
from .stop import StopReason
from .usage import Usage


class Choice(msgspec.Struct, kw_only=True):
    """One answer; several when the caller asked for n > 1."""

    index: int = 0
    parts: list[Part] = []
    stop: StopReason | None = None
    raw_stop: str | None = None
    stop_sequence: str | None = None
    extensions: Extensions | None = None


class Response(msgspec.Struct, kw_only=True):
    id: str = ""
    model: str = ""
    created: int = 0
    """Unix seconds; 0 where the provider does not say."""
    provider: str = ""
    choices: list[Choice] = []
    usage: Usage | None = None
    extensions: Extensions | None = None
    routing: dict[str, Any] | None = None
    origin: Any = None
    """The provider's body (bytes), whole, when it can stand for this response unchanged in its own format; else None."""
