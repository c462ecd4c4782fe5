"""What the engine asks its driver to do, and what it says in the end. Plain data.

The driver carries commands out in their order. Of the commands and the bytes that are there at the same time, the
commands go first: a head precedes its body, `Settle` comes before the bytes of the terminal event are handed out (what
is recorded then survives whatever happens to this process once the caller has its answer), and `Finish` comes only after
the last byte.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from headrace.model.errors import ErrorInfo
from headrace.model.usage import Usage

Quality = Literal["exact", "partial", "estimated"]
"""Of token counts: all the provider's own; the provider's where it gave any, the rest estimated; all estimated."""


class Connect(msgspec.Struct, frozen=True, gc=False):
    """Send the request of this candidate, an index into the plan. `attempt` names the exchange from now on."""

    attempt: int
    candidate: int


class Abort(msgspec.Struct, frozen=True, gc=False):
    """Close the provider's connection, or give up opening it; nothing it still sends is of interest."""

    attempt: int


class Pause(msgspec.Struct, frozen=True, gc=False):
    """Stop reading from the provider."""

    attempt: int


class Resume(msgspec.Struct, frozen=True, gc=False):
    """Go on reading from the provider."""

    attempt: int


class SendHead(msgspec.Struct, frozen=True, gc=False):
    """Status and headers of the answer; once, before its first byte."""

    status: int
    content_type: str
    headers: tuple[tuple[str, str], ...] = ()
    """Beside the content type (Retry-After)."""
    stream: bool = False
    """Whether the body goes on from here; else all of it waits behind the head."""


class Finish(msgspec.Struct, frozen=True, gc=False):
    """The body is complete: end it properly."""


class Cut(msgspec.Struct, frozen=True, gc=False):
    """The body is not complete and must look so: close the caller's connection."""


@dataclass(slots=True)
class Tried:
    """One attempt, or a candidate that was passed over, as it ended."""

    provider: str
    model: str
    code: str | None
    """Why it gave no answer: an error code, "circuit_open", "hedge_lost"; None where it answered."""
    ms: float
    usage: Usage | None = None
    """What it consumed, where its provider had begun to answer."""
    quality: Quality | None = None


@dataclass(slots=True)
class Outcome:
    """How a request ended, for logs and metering."""

    kind: Literal["completed", "failed", "cancelled"]
    provider: str
    """Who answered, or was asked last; "" where nobody was."""
    model: str
    error: ErrorInfo | None = None
    usage: Usage | None = None
    """What the answer consumed; its cost where the price is known."""
    quality: Quality | None = None
    attempts: list[Tried] = field(default_factory=list)
    """All, in the order in which they ended. The one that answered is the last."""
    failovers: int = 0
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
    """Bytes of the body that were made for the caller."""
    skipped_frames: int = 0
    lost: frozenset[str] = field(default_factory=frozenset)
    """What could not be carried, of the request and of the answer."""
    exception: BaseException | None = None
    """A fault of ours, for the log."""


def routing_block(strategy: str, provider: str, model: str, attempts: list[Tried], failovers: int) -> dict[str, Any]:
    """{strategy, selected_provider, selected_model, attempts, failovers, tried: [{provider, code, ms}], cache}."""
    return {
        "strategy": strategy,
        "selected_provider": provider,
        "selected_model": model,
        "attempts": sum([tried.code != CIRCUIT_OPEN for tried in attempts]),
        "failovers": failovers,
        "tried": tried_list(attempts),
        "cache": "miss",
    }


CIRCUIT_OPEN = "circuit_open"
HEDGE_LOST = "hedge_lost"


def tried_list(attempts: list[Tried]) -> list[dict[str, Any]]:
    """Those that gave no answer: [{provider, model, code, ms}]."""
    return [
        {"provider": tried.provider, "model": tried.model, "code": tried.code, "ms": round(tried.ms, 1)}
        for tried in attempts
        if tried.code is not None
    ]


class Settle(msgspec.Struct, frozen=True):
    """The request is over as far as its provider and its bill are concerned; once. The caller may still be reading."""

    outcome: Outcome


Command = Connect | Abort | Pause | Resume | SendHead | Finish | Cut | Settle
