"""What the engine asks its driver to do, and what it says in the end. Plain data.

The driver carries commands out in their order. Of the commands and the bytes that are there at the same time, the
commands go first: a head precedes its body, and `Finish` comes only after the last byte was handed out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from headrace.model.errors import ErrorInfo
from headrace.model.usage import Usage


@dataclass(frozen=True, slots=True)
class Connect:
    """Send the request of this candidate, an index into the candidates."""

    candidate: int


@dataclass(frozen=True, slots=True)
class Abort:
    """Close the provider's connection, or give up opening it; nothing it still sends is of interest."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop reading from the provider."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on reading from the provider."""


@dataclass(frozen=True, slots=True)
class SendHead:
    """Status and headers of the answer; once, before its first byte."""

    status: int
    content_type: str
    headers: tuple[tuple[str, str], ...] = ()
    """Beside the content type (Retry-After)."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The body is complete: end it properly. Where `Settle` comes without it, the answer was cut and must look cut:
    close the caller's connection."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request ended, for logs and metering."""

    kind: Literal["completed", "failed", "cancelled"]
    provider: str
    model: str
    error: ErrorInfo | None = None
    usage: Usage | None = None
    """The last that the provider said."""
    response_id: str = ""
    """The provider's id of the answer."""
    status: int | None = None
    """HTTP status that the caller got; None where it left before."""
    ttft: float | None = None
    """Seconds from the beginning to the first output."""
    duration: float = 0.0
    """Seconds from the beginning to the end."""
    events: int = 0
    """Events written for the caller."""
    bytes_out: int = 0
    """Bytes of the body that were handed out."""
    skipped_frames: int = 0
    lost: frozenset[str] = field(default_factory=frozenset)
    """What could not be carried, of the request and of the answer."""
    exception: BaseException | None = None
    """A fault of ours, for the log."""


@dataclass(frozen=True, slots=True)
class Settle:
    """Nothing more happens towards the caller; once. At most an `Abort` follows."""

    outcome: Outcome


Command = Connect | Abort | Pause | Resume | SendHead | Finish | Settle
