"""W3C Trace Context: reading and writing `traceparent` and `tracestate` (https://www.w3.org/TR/trace-context/).

A broken `traceparent` costs the trace and nothing else: `parse` answers None and the caller starts a new one, without
looking at `tracestate`. A broken `tracestate` costs only itself. What leaves here is always version 00.
"""

from __future__ import annotations

import os
import re

import msgspec

MAX_TRACESTATE_MEMBERS = 32
MAX_TRACESTATE_CHARS = 512
"""What we pass on at most, in characters; the standard asks for no less than this."""

_LONG_MEMBER_CHARS = 128
_KNOWN_FLAGS = 0x03  # bit 0: sampled; bit 1: the trace id is random (level 2)
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_MEMBER = re.compile(r"[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]")


class TraceContext(msgspec.Struct, frozen=True, gc=False):
    """One position in a trace: `trace_id` (32 lower-case hex digits), `parent_id` (16), `flags`, `tracestate`."""

    trace_id: str
    parent_id: str
    flags: int
    tracestate: str = ""

    @classmethod
    def parse(cls, traceparent: str, tracestate: str = "") -> TraceContext | None:
        """Read a request's headers; None where `traceparent` is not valid and the trace must be restarted.

        Several `tracestate` headers are to be joined with commas, in order.
        """
        match = _TRACEPARENT.fullmatch(traceparent.strip(" \t"))
        if match is None:
            return None
        version, trace_id, parent_id, flags, rest = match.groups()
        if version == "ff" or (version == "00" and rest is not None) or not int(trace_id, 16) or not int(parent_id, 16):
            return None
        return cls(trace_id, parent_id, int(flags, 16) & _KNOWN_FLAGS, _clean_tracestate(tracestate))

    @classmethod
    def new(cls, *, sampled: bool = True) -> TraceContext:
        """Start a trace. `sampled` tells those downstream that somebody may be recording it."""
        return cls(_random_hex(16), _random_hex(8), int(sampled))

    def child(self) -> TraceContext:
        """The same trace with a parent id of our own: one for each request we send, retries included."""
        return TraceContext(self.trace_id, _random_hex(8), self.flags, self.tracestate)

    @property
    def traceparent(self) -> str:
        """The header's value, version 00."""
        return f"00-{self.trace_id}-{self.parent_id}-{self.flags:02x}"


def _random_hex(size: int) -> str:
    """`size` random bytes in hex, never all zero (which the standard forbids)."""
    while True:
        if (value := os.urandom(size)).strip(b"\0"):
            return value.hex()


def _clean_tracestate(text: str) -> str:
    """The members in order without blanks around them, within the bounds; "" where any member is not valid."""
    members = [member for part in text.split(",") if (member := part.strip(" \t"))]
    if len(members) > MAX_TRACESTATE_MEMBERS or not all(map(_MEMBER.fullmatch, members)):
        return ""
    while len(cleaned := ",".join(members)) > MAX_TRACESTATE_CHARS:
        # Whole members only, and the long ones first: theirs is the loss that keeps most of the others.
        long = [index for index, member in enumerate(members) if len(member) > _LONG_MEMBER_CHARS]
        del members[long[-1] if long else -1]
    return cleaned
