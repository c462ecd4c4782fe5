"""A request in the one vocabulary. Formats read it from a caller's body and write it for a provider.

`origin` keeps the caller's own body: where the provider speaks the caller's format, the writer starts from it and
changes only what the gateway must change, so everything we have no word for survives.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .content import Extensions, Part


class Message(msgspec.Struct, kw_only=True):
    """`role`: system, user, assistant or tool. A tool message holds exactly one ToolResult part."""

    role: str
    parts: list[Part]
    name: str | None = None
    extensions: Extensions | None = None


class Tool(msgspec.Struct, kw_only=True):
    """A function the caller can execute. `parameters` is a JSON Schema object."""

    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    extensions: Extensions | None = None


class VendorTool(msgspec.Struct, kw_only=True):
    """A tool the provider itself executes (web search ...): meaningful to its vendor only."""

    vendor: str
    payload: dict[str, Any]


class ToolChoice(msgspec.Struct, kw_only=True):
    """`mode`: auto, none, required, or tool (then `name` says which). `parallel` None: the provider's default."""

    mode: str = "auto"
    name: str | None = None
    parallel: bool | None = None


class ResponseFormat(msgspec.Struct, kw_only=True):
    """`type`: text, json (any JSON object) or json_schema (then `schema`)."""

    type: str
    schema: dict[str, Any] | None = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class ReasoningConfig(msgspec.Struct, kw_only=True):
    """How much the model may reason: `effort` (a word) or `budget_tokens`, whichever the caller's format has."""

    enabled: bool = True
    effort: str | None = None
    budget_tokens: int | None = None


class Budget(msgspec.Struct, kw_only=True):
    max_cost_usd: float | None = None
    max_tokens: int | None = None


class Request(msgspec.Struct, kw_only=True):
    model: str
    """As the caller wrote it; "" only in the gateway format, where a default route may stand in."""
    messages: list[Message]
    stream: bool = False
    tools: list[Tool | VendorTool] = []
    tool_choice: ToolChoice | None = None
    response_format: ResponseFormat | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: list[str] = []
    n: int = 1
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    reasoning: ReasoningConfig | None = None
    user: str | None = None
    include_usage: bool = True
    """Whether the caller's stream shall carry usage (OpenAI chat: only when stream_options.include_usage says so)."""
    metadata: dict[str, Any] = {}
    """request_id, trace_id, idempotency_key and free keys. Never sent to the model."""
    budget: Budget | None = None
    extensions: Extensions = {}
    """vendor name -> fields for that vendor's request body (llm-stream 4.7); merged in when the provider is that vendor."""
    bound: list[str] = []
    """Paths of what refers to state that a provider keeps: only one of the caller's own format can carry it out."""
    lost: list[str] = []
    """Paths of what the caller asked for and the model of a request has no word for."""
    format: str = ""
    """Name of the format it was read from."""
    origin: dict[str, Any] | None = None
    """The caller's body, parsed, unchanged."""

    @property
    def request_id(self) -> str | None:
        """The caller's own id of this request, where it gave one (llm-stream 4.6: echoed in stream.start and stream.end)."""
        value = self.metadata.get("request_id")
        return value if isinstance(value, str) else None
