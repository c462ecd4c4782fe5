"""Parts: what a message or an answer consists of.

One union serves both directions, so that the answer of one turn can be sent back in the next one: a `Response`'s parts
are an assistant message's parts. A part keeps what it cannot express in `extensions`, under the vendor's name.
"""

from __future__ import annotations

from typing import Any

import msgspec

Extensions = dict[str, Any]
"""vendor name -> whatever that vendor has no word for in our model."""


class _Part(msgspec.Struct, kw_only=True, tag_field="kind"):
    extensions: Extensions | None = None


class Citation(msgspec.Struct):
    """A source of a piece of text, in its vendor's own words (the models of citation differ too much to be one)."""

    vendor: str
    payload: dict[str, Any]


class Text(_Part, tag="text"):
    text: str
    citations: list[Citation] | None = None
    logprobs: list[Any] | None = None
    """OpenAI's token objects {token, logprob, bytes, top_logprobs}, in order."""


class Refusal(_Part, tag="refusal"):
    text: str
    logprobs: list[Any] | None = None


class Reasoning(_Part, tag="reasoning"):
    """A reasoning trace. `signature` is opaque and bound to `vendor`: send it back to that vendor only, never forge it."""

    text: str
    signature: str | None = None
    vendor: str | None = None
    id: str | None = None


class RedactedReasoning(_Part, tag="redacted_reasoning"):
    """Reasoning only its vendor can read. Sent back unchanged to that vendor, dropped (and reported) elsewhere."""

    data: str
    vendor: str


class ToolCall(_Part, tag="tool_call"):
    """A call of a tool the caller declared. `arguments` is JSON text as generated: never parsed and re-serialised."""

    id: str
    name: str
    arguments: str
    complete: bool = True
    """False: the answer ended inside the arguments."""


class ToolResult(_Part, tag="tool_result"):
    tool_call_id: str
    parts: list[Part]
    is_error: bool = False
    name: str | None = None


class Media(_Part, tag="media"):
    """Image, document or audio; exactly one of `data` (base64), `url`, `file_id` is set, or plain `text` for documents."""

    type: str
    """"image", "document" or "audio"."""
    media_type: str = ""
    """MIME type; "" where only a URL is known."""
    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    text: str | None = None
    title: str | None = None
    detail: str | None = None
    transcript: str | None = None
    """Audio output: what was said."""


class Opaque(_Part, tag="opaque"):
    """A block only its vendor understands (server-side tool calls and results, compaction, ...), kept whole.

    `role` tells writers what it is: "server_tool_call", "server_tool_result" or "other".
    """

    vendor: str
    payload: dict[str, Any]
    role: str = "other"


Part = Text | Refusal | Reasoning | RedactedReasoning | ToolCall | ToolResult | Media | Opaque
