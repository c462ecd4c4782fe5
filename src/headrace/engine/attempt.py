"""One try at one candidate: where its answer stands, the machines that read it, and what became known of it.

Only data and the questions that need nothing else; the stream (stream.py) decides. Another attempt is another object,
so that nothing of a failed one can leak into the next.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto

from headrace.engine.codecs import remains
from headrace.engine.commands import Quality
from headrace.engine.meter import Meter, settle
from headrace.engine.milestones import NOTED, SPOKEN, TERMINAL, is_life_sign, is_output
from headrace.engine.settings import Timeouts, Upstream
from headrace.formats.base import StreamReader
from headrace.framing import Decoder, Frame
from headrace.model import events as ev
from headrace.model.errors import ErrorCode, ErrorInfo, ProtocolError
from headrace.model.events import Event
from headrace.model.usage import Usage

GRACE = 1.0
"""Seconds: how long a provider may take to end its HTTP message after its terminal event, so that the connection can
be used again; and a caller that was given up as too slow, to read why."""


class Phase(Enum):
    CONNECTING = auto()
    """Asked; no headers yet."""
    REFUSED = auto()
    """An HTTP error; its body is being collected."""
    STREAMING = auto()
    DRAINING = auto()
    """The answer is over, its HTTP message is not."""
    OVER = auto()


FOLD = 1024
"""Pieces of output that are kept before they are counted and let go."""

CHECKED_FOLD = 16
"""The same where a budget has to be watched: so many deltas more may come than it allows."""

_MAX_LIFE_SIGNS = 16
"""Pings before the first output that are kept; who sends more of them says nothing new."""


class Attempt:
    """`number` names it towards the driver. `asked`: a stream was asked for. `now`: monotonic seconds."""

    __slots__ = (
        "_body",
        "_headers",
        "_life_signs",
        "_meter",
        "_status",
        "answered",
        "booked",
        "candidate",
        "decoder",
        "ended",
        "first_output",
        "fold_at",
        "hedge",
        "held",
        "lost",
        "number",
        "output_tokens",
        "paused_at",
        "phase",
        "reader",
        "response_id",
        "since",
        "skipped",
        "started",
        "texts",
        "timeouts",
        "unsaid",
        "upstream",
        "usage",
        "whole",
    )

    def __init__(
        self,
        number: int,
        candidate: int,
        upstream: Upstream,
        timeouts: Timeouts,
        meter: Meter | None,
        *,
        asked: bool,
        now: float,
    ) -> None:
        self.number = number
        self.candidate = candidate
        self.upstream = upstream
        self.timeouts = timeouts
        self.hedge = False
        """It runs beside an earlier one."""
        self.answered = False
        """Its provider began to answer, so it consumed something."""
        self.ended = False
        """Its HTTP exchange is over."""
        self.booked = False
        self.phase = Phase.CONNECTING
        self.whole = not asked
        """The answer is (or, before the headers, should be) a body and no stream."""
        self.started = now
        self.since = now
        """When the clock of the present wait was set: the beginning, then each event after the first output."""
        self.paused_at: float | None = None
        self.first_output: float | None = None
        self.decoder: Decoder
        self.reader: StreamReader
        self._status = 0  # of an HTTP error
        self._headers: Mapping[str, str] = {}
        self._body = bytearray()
        self._meter = meter
        self.usage: Usage | None = None
        """The provider's own, so far."""
        self.texts: list[str] = []
        """Pieces of output that were not counted yet."""
        self.fold_at = CHECKED_FOLD if meter is not None and meter.limited else FOLD
        self.output_tokens = 0
        """Estimate of the output that was counted."""
        self.held: list[Event] = []
        """Events that wait for the first one a caller could see."""
        self._life_signs = 0
        self.unsaid = 0
        """Bytes of the provider's that are in `held`."""
        self.lost: tuple[str, ...] = ()
        """What its request could not say."""
        self.response_id = ""
        self.skipped = 0

    @property
    def live(self) -> bool:
        """Whether an answer is still expected."""
        return self.phase is not Phase.DRAINING and self.phase is not Phase.OVER

    def refuse(self, status: int, headers: Mapping[str, str]) -> None:
        """The answer is an HTTP error; its body is to be collected."""
        self.phase = Phase.REFUSED
        self._status = status
        self._headers = headers

    def collect(self, data: bytes, limit: int) -> bool:
        """Keep so many bytes of the error's body; whether there is no room for more."""
        self._body += data[: limit - len(self._body)]
        return len(self._body) == limit

    def refusal(self) -> ErrorInfo:
        """The HTTP error, as far as it is known."""
        return self.upstream.format.read_error(self._status, self._headers, bytes(self._body))

    def read_on(self, frames: list[Frame], error: ProtocolError) -> tuple[list[Event], ErrorInfo | None]:
        """The reader refused one of these frames: the events of those that could be read, and the error that ends the
        reading. Where such frames are to be left out, there is none, and they are counted."""
        events: list[Event] = []
        while True:
            events += error.events
            if self.whole or self.upstream.malformed == "fail":
                what = f"sent what its format does not allow: {error}"
                return _until_terminal(events), self.broken("malformed_upstream", what)
            self.skipped += 1
            frames = frames[max(error.consumed, 1) :]
            try:
                return _until_terminal([*events, *(self.reader.read(frames) if frames else ())]), None
            except ProtocolError as another:
                error = another

    def read_end(self) -> tuple[list[Event], ErrorInfo | None]:
        """What the end of the body completes. An end without the format's terminal marker is an error. Raises
        FramingError."""
        frames = self.decoder.eof()
        failure: ErrorInfo | None = None
        try:
            events = self.reader.read(frames)
        except ProtocolError as error:
            events, failure = self.read_on(frames, error)
        if failure is not None:
            return events, failure
        unfinished, leftover = remains(self.decoder)
        for frame in unfinished:
            # Some providers leave out the last blank line. A frame that was really cut is no JSON: it reads as
            # malformed, and counts as not there.
            with suppress(ProtocolError):
                events += self.reader.read([frame])
        if not _ended(events):
            events += self.reader.eof(leftover)
        if not _ended(events):
            failure = self.broken("upstream_truncated", "ended its answer without saying that it is complete")
        return _until_terminal(events), failure

    def note(self, events: Sequence[Event], now: float) -> None:
        """Remember what these events say of the attempt as a whole, and set its clock."""
        moved = self.timeouts.pings_count
        for event in events:
            kind = type(event)
            moved = moved or not is_life_sign(event)
            if self.first_output is None and is_output(event):
                self.first_output = now
            spoken = SPOKEN.get(kind)
            if spoken is not None:
                self.texts.append(getattr(event, spoken))
            if kind not in NOTED:
                continue
            if isinstance(event, ev.Start):
                self.response_id = event.id
            if isinstance(event, ev.Start | ev.UsageReport | ev.End):
                usage = event.usage
                if usage is not None and usage is not self.usage:
                    self.usage = usage if self.usage is None else self.usage.merge(usage)
        if moved and self.first_output is not None:
            self.since = now

    def hold(self, events: Sequence[Event]) -> None:
        """Keep events back. Of pings only the first few are worth it."""
        for event in events:
            if is_life_sign(event):
                self._life_signs += 1
                if self._life_signs > _MAX_LIFE_SIGNS:
                    continue
            self.held.append(event)

    def release(self) -> list[Event]:
        """The events that were kept back."""
        held, self.held = self.held, []
        return held

    def fold(self) -> int:
        """Count the output that came since the last time; the estimate of all of it."""
        if self.texts and self._meter is not None:
            self.output_tokens += self._meter.output_tokens(self.upstream, self.texts)
        self.texts.clear()
        return self.output_tokens

    def consumed(self, *, complete: bool) -> tuple[Usage | None, Quality | None]:
        """The counts so far, priced where there is a meter; None where the provider never began to answer."""
        if self._meter is None or not self.answered:
            return self.usage, None
        estimate = 0
        if not complete or self.usage is None or self.usage.output_tokens is None:
            estimate = self.fold()
        return settle(self._meter, self.upstream, self.usage, estimate, complete=complete)

    def heard(self, now: float) -> None:
        """Bytes came that made no event (comments, half a frame)."""
        if self.timeouts.pings_count and self.first_output is not None:
            self.since = now

    def resume(self, now: float) -> None:
        """Reading goes on: the time of the pause is nobody's idleness."""
        if self.paused_at is not None:
            self.since += now - max(self.paused_at, self.since)
            self.paused_at = None

    def deadline(self, *, whole_caller: bool) -> float:
        """When `timeout` tells what took too long, or draining has; infinity where there is nothing to wait for."""
        if self.phase is Phase.OVER:
            return math.inf
        if self.phase is Phase.DRAINING:
            return self.since + GRACE
        wait = self.started + self.timeouts.request if whole_caller or self.whole else math.inf
        if self.whole or self.paused_at is not None:
            return wait
        return min(wait, self.since + self._gap)

    def timeout(self, *, whole_caller: bool) -> ErrorInfo:
        """The error of a deadline that has passed."""
        timeouts = self.timeouts
        whole = whole_caller or self.whole
        gap = math.inf if self.whole or self.paused_at is not None else self.since + self._gap
        if whole and self.started + timeouts.request <= gap:
            type, what = "request_timeout", f"did not finish its answer within {timeouts.request:g} s"
        elif self.first_output is None:
            type, what = "first_token_timeout", f"sent no token within {timeouts.first_token:g} s"
        else:
            what = f"sent nothing for {timeouts.idle_stream:g} s in the middle of its answer"
            type = "idle_stream_timeout"
        return self._error(ErrorCode.TIMEOUT, type, what)

    @property
    def _gap(self) -> float:
        """Seconds that a stream may take for its next sign of progress."""
        return self.timeouts.first_token if self.first_output is None else self.timeouts.idle_stream

    def broken(self, type: str, what: str) -> ErrorInfo:
        """The error of a provider that does not keep to its protocol. `what` follows its name."""
        return self._error(ErrorCode.PROVIDER_UNAVAILABLE, type, what)

    def _error(self, code: ErrorCode, type: str, what: str) -> ErrorInfo:
        provider = self.upstream.provider
        return ErrorInfo(code=code, type=type, message=f"{provider} {what}", provider=provider)


def _ended(events: Sequence[Event]) -> bool:
    return any(type(event) in TERMINAL for event in events)


def _until_terminal(events: list[Event]) -> list[Event]:
    """Without what a reader may have said after its terminal event."""
    end = next((number for number, event in enumerate(events) if type(event) in TERMINAL), len(events))
    return events[: end + 1]
