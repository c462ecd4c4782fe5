"""What the engine is told about a request: the two sides, how long to wait, how much to hold. Plain data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec

from headrace.formats.base import Format, ReaderOptions, WriterOptions
from headrace.framing import Encoder

if TYPE_CHECKING:
    from headrace.engine.plan import Circuit


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds, all greater than zero (spec/gateway.md, "Timeouts")."""

    connect: float = 2.0
    """To open a connection. Kept by the HTTP client, which reports it as a failure; the engine has no clock for it."""
    first_token: float = 20.0
    """From the beginning to the first event that holds output, of a provider that was asked for a stream."""
    request: float = 120.0
    """A whole request that is not streamed, on either side."""
    idle_stream: float = 30.0
    """The largest gap between two events of a stream after the first output. Stands still while reading is paused."""
    slow_consumer: float = 30.0
    """How long a caller may leave what was sent to it unread."""
    keepalive: float = 15.0
    """Silence after which a stream's caller gets a sign of life."""
    pings_count: bool = False
    """Whether the provider's comments and pings count as events for `idle_stream`."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes."""

    stream_buffer_bytes: int = 256 * 1024
    """What may wait for one blocked caller, beside what a single read makes."""
    frame_bytes: int = 8 * 1024 * 1024
    body_bytes: int = 32 * 1024 * 1024
    """A provider's whole (non-streaming) body, and what a caller's writer may hold of a stream until it can be said."""
    error_body_bytes: int = 64 * 1024
    """How much of the body of a provider's HTTP error is read."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """One candidate: a provider as the engine sees it."""

    provider: str
    model: str
    format: Format
    framing: str
    """Of its stream; what its content type says goes before (see codecs.py)."""
    reader_options: ReaderOptions
    timeouts: Timeouts | None = None
    """None: the stream's own."""
    malformed: Literal["fail", "skip"] = "fail"
    """A frame of a stream that the format does not allow: end with an error, or leave it out and count it."""
    stream: bool | None = None
    """Whether it was asked for a stream. None: it was, where the caller asked for one."""
    circuit: Circuit | None = None
    """Its circuit breaker."""


class Caller(msgspec.Struct, frozen=True):
    """Who asked."""

    format: Format
    framing: str
    """Of the stream, where `stream` is set."""
    stream: bool
    writer_options: WriterOptions
    """Of an answer that nobody has given yet; who answers fills in its own (see `Answer.speaks_for`)."""
    usage_interval: float | None = None
    """Seconds between interim usage events of a stream; None: none."""
    encoder: Callable[[], Encoder] | None = None
    """Of a stream whose transport frames it in a way of its own. None: the framing's."""
    tells_status: bool = False
    """Whether a transport with an `encoder` of its own has a status to tell of a failure before the first event; else
    everything that a caller learns is an event."""
