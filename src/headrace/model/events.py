"""The event union: everything a provider's stream can say, in one vocabulary.

Readers make events, writers consume them, the grammar (grammar.py) says in which order they may come, the assembler
(assemble.py) folds them into a `Response`. Content travels in blocks: a block has a number that is unique in its stream
(dense from 0, in order of their starts), belongs to one choice, has one kind, and is started and stopped explicitly;
readers synthesise starts and stops where a provider has none. Blocks may be open side by side (parallel tool calls).

`origin` is the frame an event was read from, shared by all events of that frame. A writer of the very same format sends
the frame on unchanged in their place; so what we have no word for survives, byte for byte. A reader sets it only when
the frame is fit to be sent on as it is, and leaves it None where it had to repair something.

gc=False: events are created by the thousand and never refer to themselves, so the cycle collector need not track them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from .content import Citation, Extensions
from .errors import ErrorInfo
from .stop import StopReason
from .usage import Usage


class BlockKind(StrEnum):
    TEXT = "text"
    REASONING = "reasoning"
    REDACTED_REASONING = "redacted_reasoning"
    REFUSAL = "refusal"
    TOOL_CALL = "tool_call"
    MEDIA = "media"
    OPAQUE = "opaque"


HOLDS_TEXT = frozenset({BlockKind.TEXT, BlockKind.REFUSAL})
"""What the model says to the user."""


class Event(msgspec.Struct, tag_field="kind", gc=False):
    """Base of all events; never instantiated itself."""


class Start(Event, tag="start", gc=False, kw_only=True):
    """The provider has begun to answer. Exactly one, first."""

    id: str = ""
    """The provider's id of the answer."""
    model: str = ""
    created: int = 0
    usage: Usage | None = None
    extensions: Extensions | None = None
    origin: Any = None


class BlockStart(Event, tag="block_start", gc=False, kw_only=True):
    block: int
    type: BlockKind
    choice: int = 0
    id: str = ""
    """tool_call: the call's id. reasoning: the item's id where the vendor has one."""
    name: str = ""
    """tool_call: the tool's name."""
    media_type: str = ""
    """media: MIME type; the family (image, audio, ...) is its first half."""
    data: str = ""
    """redacted_reasoning: the opaque data, whole."""
    vendor: str = ""
    """Whose opaque content this is (reasoning with signature, redacted_reasoning, opaque)."""
    role: str = ""
    """opaque: "server_tool_call", "server_tool_result" or "other"."""
    payload: dict[str, Any] | None = None
    """opaque: the vendor's block object as it stands at its start (often whole)."""
    extensions: Extensions | None = None
    origin: Any = None


class TextDelta(Event, tag="text", gc=False):
    block: int
    text: str
    logprobs: list[Any] | None = None
    origin: Any = None


class RefusalDelta(Event, tag="refusal", gc=False):
    block: int
    text: str
    logprobs: list[Any] | None = None
    origin: Any = None


class ReasoningDelta(Event, tag="reasoning", gc=False):
    block: int
    text: str
    origin: Any = None


class SignatureDelta(Event, tag="signature", gc=False):
    """Part of a reasoning block's signature (appended; normally one, just before the block stops)."""

    block: int
    signature: str
    origin: Any = None


class ToolDelta(Event, tag="tool_delta", gc=False):
    """A fragment of a tool call's JSON arguments (appended). Whole calls have one."""

    block: int
    arguments: str
    origin: Any = None


class MediaDelta(Event, tag="media_delta", gc=False):
    """Output that is not text: base64 data and, for audio, its transcript (both appended), or a URL (replaces)."""

    block: int
    data: str = ""
    transcript: str = ""
    url: str = ""
    extensions: Extensions | None = None
    origin: Any = None


class OpaqueDelta(Event, tag="opaque_delta", gc=False):
    """A vendor's own delta to an opaque block (input of a server-side tool, compaction ...).

    `text` is appended under the block payload's key `field`; `payload` is the vendor's delta object.
    """

    block: int
    payload: dict[str, Any]
    field: str = ""
    text: str = ""
    origin: Any = None


class CitationDelta(Event, tag="citation", gc=False):
    block: int
    citation: Citation
    origin: Any = None


class BlockStop(Event, tag="block_stop", gc=False):
    """`complete` False: the block was abandoned half-way (a retry behind the provider, a refusal inside a tool call)."""

    block: int
    complete: bool = True
    origin: Any = None
    extensions: Extensions | None = None
    """What a vendor says of the part at its end (the signature of a text); laid over the start's."""


class UsageReport(Event, tag="usage", gc=False):
    """Cumulative counts so far. Merge with `Usage.merge`, never add."""

    usage: Usage
    origin: Any = None


class Progress(Event, tag="progress", gc=False, kw_only=True):
    """Work that has no text to show yet. `percent` 0 to 100, None where unknown."""

    message: str = ""
    percent: float | None = None
    extensions: Extensions | None = None
    origin: Any = None


class Finish(Event, tag="finish", gc=False, kw_only=True):
    """A choice has ended. One per choice, after the choice's blocks have stopped."""

    choice: int = 0
    reason: StopReason
    raw: str | None = None
    """The provider's own word."""
    stop_sequence: str | None = None
    extensions: Extensions | None = None
    origin: Any = None


class Error(Event, tag="error", gc=False):
    """The stream failed. Terminal: nothing follows. Blocks that are open stay open."""

    error: ErrorInfo
    origin: Any = None


class End(Event, tag="end", gc=False, kw_only=True):
    """The provider's own terminal marker was seen: the answer is whole. Terminal.

    `usage` is the merged, final count; `routing` and `lost` are filled in by the engine.
    """

    usage: Usage | None = None
    extensions: Extensions | None = None
    routing: dict[str, Any] | None = None
    origin: Any = None


class Opaque(Event, tag="opaque", gc=False, kw_only=True):
    """A frame that says nothing in our model (ping, an unknown event type, a chunk with empty choices).

    Only its own format can send it on. `content` False: pure life sign, not worth reporting as lost.
    """

    vendor: str
    name: str = ""
    content: bool = False
    origin: Any = None


AnyEvent = (
    Start
    | BlockStart
    | TextDelta
    | RefusalDelta
    | ReasoningDelta
    | SignatureDelta
    | ToolDelta
    | MediaDelta
    | OpaqueDelta
    | CitationDelta
    | BlockStop
    | UsageReport
    | Progress
    | Finish
    | Error
    | End
    | Opaque
)
