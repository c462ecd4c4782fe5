"""The life of one request, without I/O: bytes, times and the caller's moods go in, commands and bytes come out.

The rules: the answer is held back until there is something that a caller could see, so that a failure before it stays
invisible and the next candidate takes over, and the last failure can be a plain HTTP error; after that exactly one
terminal event is written, whatever happens, unless the caller has gone; nothing is handed out while the caller is
blocked, and reading pauses; every stream settles exactly once, before the bytes of its terminal event are handed out.

A stream in full flow costs its codecs and a few attribute accesses a read: nothing is scheduled, no command is made.
The trade-off is lazy time-keeping: `next_deadline` may be earlier than anything is due, and `tick` then moves it on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import update_wrapper
from typing import Concatenate, Literal, ParamSpec

import msgspec

from headrace.engine.answer import Answer
from headrace.engine.attempt import GRACE, Attempt, Phase
from headrace.engine.books import Books
from headrace.engine.codecs import WHOLE, upstream_codec, upstream_shape
from headrace.engine.commands import (
    HEDGE_LOST,
    Abort,
    Command,
    Connect,
    Cut,
    Finish,
    Outcome,
    Pause,
    Resume,
    Settle,
)
from headrace.engine.meter import Meter
from headrace.engine.milestones import NOTED, SPOKEN, TERMINAL, is_visible
from headrace.engine.plan import Dispatch, Next, Plan, all_open
from headrace.engine.settings import Caller, Limits, Timeouts
from headrace.framing import Frame, FramingError
from headrace.model import events as ev
from headrace.model.errors import ErrorCode, ErrorInfo, ProtocolError
from headrace.model.events import Event

_P = ParamSpec("_P")

_Kind = Literal["completed", "failed", "cancelled"]

_MOST_IN_PARALLEL = 2  # attempts of one request, hedging (spec/gateway.md)

_BROKEN_FRAMING = {"truncated": "upstream_truncated"}  # FramingError.reason -> error type, where not malformed_upstream

_INTERNAL = ErrorInfo(
    code=ErrorCode.INTERNAL_ERROR,
    type="internal_error",
    message="The gateway failed while it translated this answer. The fault is not in the request",
)

_TOO_SLOW = ErrorInfo(
    code=ErrorCode.CONSUMER_TOO_SLOW, type="consumer_too_slow", message="The answer was left unread for too long"
)


def _guarded(method: Callable[Concatenate[Stream, _P], None]) -> Callable[Concatenate[Stream, _P], None]:
    """An input off the hot path: a codec's bug ends this stream and nothing else; then the next deadline is found."""

    def guarded(self: Stream, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self._crash(error)
        self._reschedule()

    update_wrapper(guarded, method)
    return guarded


class Stream:
    """One request: feed it inputs, then carry out `commands()` and write `data_to_send()` until both are empty.

    Every input takes `now`, in monotonic seconds. What a provider does is told with the number of its attempt, from
    `Connect`. Inputs that no longer matter (bytes after the end, a caller that leaves after its answer) are ignored, so a
    driver need not keep track.
    """

    __slots__ = (
        "_answer",
        "_attempts",
        "_begun",
        "_blocked_at",
        "_books",
        "_closed",
        "_commands",
        "_committed",
        "_dispatch",
        "_exception",
        "_failure",
        "_flowing",
        "_hedge_at",
        "_last",
        "_limits",
        "_meter",
        "_next",
        "_now",
        "_patience",
        "_plan",
        "_setback",
        "_settled",
        "_terminal",
        "_timeouts",
        "_until",
        "_usage_at",
        "_whole",
        "dispatch_at",
        "next_deadline",
    )

    def __init__(
        self,
        *,
        caller: Caller,
        plan: Plan,
        limits: Limits | None = None,
        timeouts: Timeouts,
        meter: Meter | None = None,
    ) -> None:
        """`timeouts` are for the caller's side, and for candidates that have none of their own."""
        if not plan.candidates:
            raise ValueError("a stream needs at least one candidate")
        self._plan = plan
        self._dispatch = Dispatch(plan)
        self._limits = limits or Limits()
        self._timeouts = timeouts
        self._meter = meter
        self.next_deadline = math.inf
        """When to call `tick`; infinity: not needed."""
        self.dispatch_at = math.inf
        """When the next attempt is due, a retry or a hedge: the part of `next_deadline` that should be kept exactly."""
        # The provider's side.
        self._attempts: list[Attempt] = []
        self._committed: Attempt | None = None  # whose answer the caller gets
        self._last: Attempt | None = None  # the latest that mattered
        self._books = Books(plan.strategy, metered=meter is not None)
        self._next: Next | None = None  # what waits for its time
        self._hedge_at = math.inf
        self._until = math.inf  # of all attempts together
        # The caller's side.
        self._answer = Answer(caller)
        self._whole = not caller.stream
        self._commands: list[Command] = []
        self._begun = 0.0
        self._now = 0.0  # of the last input that was more than passing on
        self._usage_at = math.inf
        self._flowing = False  # in the midst of a stream: past the hold-back, the terminal is not written
        self._terminal = False  # the terminal event, or a whole error, was written
        self._settled = False
        self._closed = False  # nothing more for the caller
        self._blocked_at: float | None = None
        self._patience = 0.0  # seconds that a blocked caller has
        self._setback: ErrorInfo | None = None  # why the last attempt failed
        self._failure: ErrorInfo | None = None  # why the request has failed
        self._exception: Exception | None = None

    # --- inputs -----------------------------------------------------------------------------------------------------

    @_guarded
    def begin(self, now: float) -> None:
        """Start; once. The first command is Connect."""
        if self._attempts or self._terminal:
            return
        self._begun = self._now = self._answer.last_sent = now
        self._until = now + self._plan.deadline
        if self._plan.hedge_after is not None and not self._whole and len(self._plan.candidates) > 1:
            self._hedge_at = now + self._plan.hedge_after
        self._ask(0)

    def request_said(self, attempt: int, lost: tuple[str, ...]) -> None:
        """The attempt's request was written, and this of it could not be said."""
        self._attempts[attempt].lost = lost

    @_guarded
    def upstream_headers(self, attempt: int, status: int, headers: Mapping[str, str], now: float) -> None:
        """The provider's final status and headers (lower-case names) have come."""
        asked = self._attempts[attempt]
        if asked.phase is not Phase.CONNECTING:
            return
        self._now = now
        if not 200 <= status < 300:
            asked.refuse(status, headers)
            return
        content_type = headers.get("content-type", "")
        shape = upstream_shape(asked.upstream, not asked.whole, content_type)
        if shape is None:
            what = f"answered with content type {content_type[:80]!r}, as no model does: check its base_url"
            self._attempt_failed(asked, asked.broken("unexpected_content_type", what))
            return
        asked.decoder, asked.reader = upstream_codec(asked.upstream, shape, self._answer.caller, self._limits)
        asked.whole = shape == WHOLE
        asked.answered = True
        asked.phase = Phase.STREAMING

    def upstream_data(self, attempt: int, data: bytes, now: float) -> bytes:
        """Bytes of the provider's body have come. In full flow the result is to be written to the caller at once, before
        anything else is asked; it is b"" where `commands` and `data_to_send` have the say."""
        asked = self._attempts[attempt]
        if asked.phase is not Phase.STREAMING:
            self._data_of_refusal(asked, data, now)
            return b""
        if self._blocked_at is not None and self._answer.buffered >= self._limits.stream_buffer_bytes:
            self._overflow(now)
            return b""
        frames: list[Frame] = []
        events: Sequence[Event]
        try:
            frames = asked.decoder.feed(data)
            events = asked.reader.read(frames) if frames else ()
            if not events:
                asked.heard(now)
                return b""
            if self._flowing:
                answer = self._answer
                answer.unsaid += len(data)
                if answer.unsaid > self._limits.body_bytes:
                    self._unsayable(asked, now)
                    return b""
                for event in events:
                    if type(event) in NOTED:
                        break
                else:
                    asked.since = now
                    texts = asked.texts
                    for event in events:
                        spoken = SPOKEN.get(type(event))
                        if spoken is not None:
                            texts.append(getattr(event, spoken))
                    if self._blocked_at is None and len(texts) < asked.fold_at and not answer.buffered:
                        return answer.pass_on(events, now)
                    answer.write(events, now)
                    if len(texts) >= asked.fold_at:
                        self._check_output(asked, now)
                    return b""
            else:
                asked.unsaid += len(data)
                if asked.unsaid > self._limits.body_bytes:
                    self._unsayable(asked, now)
                    return b""
            self._take_read(asked, events, now)
        except Exception as error:
            self._read_failed(asked, frames, error, now)
        return b""

    @_guarded
    def upstream_ended(self, attempt: int, now: float) -> None:
        """The provider's HTTP message is complete."""
        asked = self._attempts[attempt]
        self._now = now
        asked.ended = True
        if asked.phase is Phase.CONNECTING:
            self._attempt_failed(asked, asked.broken("upstream_closed", "closed the connection without an answer"))
        elif asked.phase is Phase.REFUSED:
            self._attempt_failed(asked, asked.refusal())
        elif asked.phase is Phase.STREAMING:
            try:
                self._take_all(asked, asked.read_end())
            except FramingError as error:
                self._read_failed(asked, [], error, now)
        asked.phase = Phase.OVER

    @_guarded
    def upstream_failed(self, attempt: int, error: ErrorInfo, now: float) -> None:
        """The provider could not be reached or asked, or its connection broke. That fails the attempt, if it was not over
        already."""
        asked = self._attempts[attempt]
        self._now = now
        asked.ended = True
        if asked.live:
            refused = asked.phase is Phase.REFUSED  # its status says more than the break
            self._attempt_failed(asked, asked.refusal() if refused else error)
        asked.phase = Phase.OVER

    @_guarded
    def caller_blocked(self, now: float) -> None:
        """The caller takes no more bytes for now; what was handed out is accepted, and still on its way."""
        if self._closed or self._blocked_at is not None:
            return
        self._blocked_at = now
        self._patience = (self._last.timeouts if self._last else self._timeouts).slow_consumer
        for attempt in self._attempts:
            if attempt.live:
                attempt.paused_at = now
                self._commands.append(Pause(attempt.number))

    @_guarded
    def caller_ready(self, now: float) -> None:
        """The caller takes bytes again; all that was handed out is on its way."""
        if self._blocked_at is None:
            return
        self._now = self._answer.last_sent = now
        self._blocked_at = None
        for attempt in self._attempts:
            self._resume(attempt)

    @_guarded
    def caller_gone(self, now: float) -> None:
        """The caller's connection is closed. Harmless after `Finish`."""
        if not self._closed:
            self._now = now
            self._abandon("cancelled")
            self._settle("cancelled")
            self._close()

    @_guarded
    def cancel(
        self,
        now: float,
        code: ErrorCode = ErrorCode.CANCELLED,
        message: str = "The request was cancelled",
        status: int = 0,
    ) -> None:
        """End the stream with an error, told to the caller. No effect after the terminal event. `status`: of the answer,
        where none has begun; 0: the code's own."""
        if not self._terminal:
            self._now = now
            self._fail(ErrorInfo(code=code, message=message, type=code.value, status=status))

    @_guarded
    def tick(self, now: float) -> None:
        """`next_deadline` may have come. Harmless at any other time."""
        if now < self.next_deadline:
            return
        self._now = now
        for attempt in list(self._attempts):
            if now >= attempt.deadline(whole_caller=self._whole):
                self._attempt_late(attempt)
        if self._committed is None and not self._terminal and now >= min(self.dispatch_at, self._until):
            self._dispatch_due()
        if now >= self._usage_at:
            self._report_usage()
        if now >= self._caller_deadline():
            if self._blocked_at is None:
                self._keep_alive()
            else:
                self._give_up_on_caller()

    # --- outputs ----------------------------------------------------------------------------------------------------

    def commands(self) -> Sequence[Command]:
        """What is to be done now, in order; each is given once."""
        if self._terminal and not self._closed and self._blocked_at is None:
            if not self._settled:
                failure = self._failure
                cancelled = failure is not None and failure.code is ErrorCode.CANCELLED
                self._settle("completed" if failure is None else "cancelled" if cancelled else "failed")
            elif not self._answer.buffered:
                self._commands.append(Finish())
                self._close()
            self._reschedule()
        if not self._commands:
            return ()
        commands, self._commands = self._commands, []
        return commands

    def data_to_send(self) -> bytes:
        """Bytes of the body to write now, after the commands of `commands()`; b"" where there are none."""
        return b"" if self._blocked_at is not None else self._answer.hand_out()

    @property
    def done(self) -> bool:
        """Whether the stream has settled and its providers' connections are done with: it needs no input any more."""
        return self._closed and all(attempt.phase is Phase.OVER for attempt in self._attempts)

    @property
    def buffered(self) -> int:
        """Bytes that wait for the caller."""
        return self._answer.buffered

    # --- whom to ask ------------------------------------------------------------------------------------------------

    def _ask(self, candidate: int) -> None:
        """Send the request to this candidate, or to the next one after it whose circuit is closed."""
        dispatch = self._dispatch
        wanted: int | None = candidate
        while wanted is not None and not dispatch.take(wanted, self._now):
            upstream = self._plan.candidates[wanted]
            self._books.pass_over(upstream)
            wanted = dispatch.fresh(wanted) if self._books.failovers < self._plan.max_failovers else None
        if wanted is None:
            self._fail(self._setback or all_open(dispatch, self._now))
            return
        if (self._last is not None and wanted != self._last.candidate) or (self._last is None and wanted != 0):
            self._books.failovers += 1
        self._start(wanted)

    def _start(self, candidate: int, *, hedge: bool = False) -> None:
        upstream = self._plan.candidates[candidate]
        asked = not self._whole if upstream.stream is None else upstream.stream
        number = len(self._attempts)
        timeouts = upstream.timeouts or self._timeouts
        attempt = Attempt(number, candidate, upstream, timeouts, self._meter, asked=asked, now=self._now)
        attempt.hedge = hedge
        self._attempts.append(attempt)
        self._last = attempt
        self._commands.append(Connect(number, candidate))
        if self._blocked_at is not None:
            attempt.paused_at = self._now
            self._commands.append(Pause(number))

    def _attempt_failed(self, attempt: Attempt, error: ErrorInfo, *, drain: bool = False) -> None:
        """An attempt gave no answer, or not all of it. `drain`: its provider said so itself, and may end its message."""
        if error.provider is None:
            error = msgspec.structs.replace(error, provider=attempt.upstream.provider)
        self._books.enter(attempt, error.code.value, self._now, error)
        if drain:
            self._drain(attempt)
        else:
            self._abort(attempt)
        if self._terminal:
            return
        if attempt is self._committed:
            self._fail(error)
            return
        if any(other.live for other in self._attempts):
            return  # the other one of a hedge goes on
        step = self._dispatch.after(attempt.candidate, error, self._now, self._until, self._books.failovers)
        if step is None:
            self._fail(error)
        elif step.at > self._now:
            self._setback, self._next = error, step
        else:
            self._setback = error
            self._ask(step.candidate)

    def _attempt_late(self, attempt: Attempt) -> None:
        if attempt.phase is Phase.DRAINING:
            self._abort(attempt)
        elif attempt.phase is Phase.REFUSED:
            self._attempt_failed(attempt, attempt.refusal())
        else:
            self._attempt_failed(attempt, attempt.timeout(whole_caller=self._whole))

    def _dispatch_due(self) -> None:
        """A retry's wait is over, a hedge is due, or all have taken too long."""
        if self._now >= self._until:
            what = f"No answer began within {self._plan.deadline:g} s, the most that this request may take"
            late = ErrorInfo(code=ErrorCode.TIMEOUT, type="deadline_exceeded", message=what)
            self._fail(self._setback or late)
            return
        if self._next is not None and self._now >= self._next.at:
            candidate, self._next = self._next.candidate, None
            self._ask(candidate)
        if self._now >= self._hedge_at:
            self._hedge_at = math.inf
            self._hedge()

    def _hedge(self) -> None:
        live = [attempt for attempt in self._attempts if attempt.live]
        if len(live) != _MOST_IN_PARALLEL - 1 or self._whole:
            return
        candidate = self._dispatch.fresh(live[0].candidate)
        while candidate is not None and not self._dispatch.take(candidate, self._now):
            candidate = self._dispatch.fresh(candidate)
        if candidate is not None:
            self._start(candidate, hedge=True)

    def _abandon(self, code: str) -> None:
        """Give up every attempt that still runs, for a reason that is not theirs."""
        self._next = None
        for attempt in self._attempts:
            if attempt.live:
                self._books.enter(attempt, code, self._now)
                self._abort(attempt)

    # --- reading a provider's answer ----------------------------------------------------------------------------------

    @_guarded
    def _data_of_refusal(self, attempt: Attempt, data: bytes, now: float) -> None:
        if attempt.phase is Phase.REFUSED:
            self._now = now
            if attempt.collect(data, self._limits.error_body_bytes):
                self._attempt_failed(attempt, attempt.refusal())

    @_guarded
    def _overflow(self, now: float) -> None:
        """The buffer is full, and bytes still come although reading was paused."""
        self._now = now
        self._give_up_on_caller()

    @_guarded
    def _unsayable(self, attempt: Attempt, now: float) -> None:
        """Too much came of what can only be handed on whole: a body, or a tool call, that never ends."""
        self._now = now
        limit = self._limits.body_bytes
        what = f"sent more than {limit} bytes of what can only be handed on whole (limits.body_bytes)"
        self._attempt_failed(attempt, attempt.broken("answer_too_large", what))

    @_guarded
    def _check_output(self, attempt: Attempt, now: float) -> None:
        """Count the output that has gathered, and hold it against the budget."""
        tokens = attempt.fold()
        if self._meter is not None and self._meter.limited:
            error = self._meter.exceeded(attempt.upstream, tokens)
            if error is not None:
                self._now = now
                self._fail(error)

    @_guarded
    def _take_read(self, attempt: Attempt, events: Sequence[Event], now: float) -> None:
        """Events of a read that need more than passing on."""
        self._now = now
        self._take(attempt, events)

    @_guarded
    def _read_failed(self, attempt: Attempt, frames: list[Frame], error: Exception, now: float) -> None:
        """These frames, or the bytes after them, could not be read."""
        self._now = now
        if isinstance(error, FramingError):
            type = _BROKEN_FRAMING.get(error.reason, "malformed_upstream")
            self._attempt_failed(attempt, attempt.broken(type, f"sent what cannot be read: {error}"))
        elif isinstance(error, ProtocolError):
            self._take_all(attempt, attempt.read_on(frames, error))
        else:
            raise error

    def _take_all(self, attempt: Attempt, read: tuple[list[Event], ErrorInfo | None]) -> None:
        """Events, and what ended the reading of them, if anything did."""
        events, failure = read
        self._take(attempt, events)
        if failure is not None and attempt.live:
            self._attempt_failed(attempt, failure)

    # --- what it means for the caller -------------------------------------------------------------------------------

    def _take(self, attempt: Attempt, events: Sequence[Event]) -> None:
        """Events of an attempt of which any may matter to the life of the stream."""
        if not events or self._terminal or not attempt.live:
            return
        attempt.note(events, self._now)
        last = events[-1]
        if self._committed is None:
            ends = isinstance(last, ev.End)
            if not ends and (self._whole or not any(map(is_visible, events))):
                if isinstance(last, ev.Error):
                    self._attempt_failed(attempt, last.error, drain=True)
                else:
                    attempt.hold(events)
                    if len(attempt.texts) >= attempt.fold_at:
                        self._check_output(attempt, self._now)
                return
            self._commit(attempt)
            events = [*attempt.release(), *events]
        self._write(attempt, events)

    def _commit(self, attempt: Attempt) -> None:
        """The caller gets this attempt's answer; nobody else's counts any more."""
        self._committed = self._last = attempt
        self._next = None
        self._books.failovers += attempt.hedge
        for other in self._attempts:
            if other is not attempt and other.live:
                self._books.enter(other, HEDGE_LOST, self._now)
                self._abort(other)
        self._answer.speaks_for(attempt.upstream, attempt.lost)
        interval = self._answer.caller.usage_interval
        if interval is not None and not self._whole:
            self._usage_at = self._now + interval

    def _write(self, attempt: Attempt, events: Sequence[Event]) -> None:
        """Events of the committed attempt, for the caller."""
        answer, last = self._answer, events[-1]
        ends = type(last) in TERMINAL
        if isinstance(last, ev.End):
            self._books.enter(attempt, None, self._now)
            self._books.complete(last)
        elif isinstance(last, ev.Error):
            if last.error.provider is None:
                last.error = msgspec.structs.replace(last.error, provider=attempt.upstream.provider)
            self._failure = last.error
            self._books.enter(attempt, last.error.code.value, self._now, last.error)
            events = [*events[:-1], *self._books.last_words(), last]
        answer.write(events, self._now)
        if answer.status is None:
            self._commands.append(answer.open())
        if ends:
            self._end()
            answer.close(self._now)
        else:
            self._flowing = True

    def _report_usage(self) -> None:
        """An interim usage event."""
        attempt, interval = self._committed, self._answer.caller.usage_interval
        self._usage_at = math.inf
        if attempt is None or interval is None or not self._flowing:
            return
        self._usage_at = self._now + interval
        if self._blocked_at is None:
            usage, _ = attempt.consumed(complete=False)
            if usage is not None:
                self._answer.write([ev.UsageReport(usage)], self._now)

    def _keep_alive(self) -> None:
        if self._answer.keepalive(self._now) and self._answer.status is None:
            self._commands.append(self._answer.open())

    def _fail(self, info: ErrorInfo) -> None:
        """End the request with an error of ours, or with the last one of its attempts."""
        if self._terminal:
            return
        self._abandon(info.code.value)
        if self._committed is None:
            tried = self._books.tried()
            if tried and info.details is None:
                info = msgspec.structs.replace(info, details={"tried": tried})
        self._failure = info
        answer = self._answer
        if answer.status is None:
            if answer.caller.encoder is None or answer.caller.tells_status:
                self._commands.append(answer.refuse(info, self._now))
                self._end()
                return
            self._commands.append(answer.open())
        words = self._books.last_words() if self._committed is not None else []
        answer.write([*words, ev.Error(info)], self._now)
        self._end()
        answer.close(self._now)

    def _give_up_on_caller(self) -> None:
        """The caller does not read: write down why, and wait a little for it to read that; then cut."""
        if self._terminal:
            self._failure = self._failure or _TOO_SLOW
            self._settle("failed")
            self._cut()
        else:
            self._fail(_TOO_SLOW)
            self._blocked_at = self._now
            self._patience = GRACE

    def _crash(self, error: Exception) -> None:
        """A bug in a codec, or here. The caller is told; where even that fails, the answer is cut."""
        self._exception = self._exception or error
        if not self._terminal:
            with suppress(Exception):  # the writer itself may be what is broken
                self._fail(_INTERNAL)
                return
        self._abandon(_INTERNAL.code.value)
        if self._closed:
            return
        self._failure = _INTERNAL
        if self._answer.status is None:
            self._commands.append(self._answer.break_down(self._now))
            self._end()
        else:
            self._settle("failed")
            self._cut()

    def _end(self) -> None:
        """The terminal event was written. The provider's HTTP message may come to its end by itself."""
        self._terminal = True
        self._flowing = False
        self._next = None
        self._hedge_at = self._usage_at = math.inf
        for attempt in self._attempts:
            self._drain(attempt)

    def _cut(self) -> None:
        self._commands.append(Cut())
        self._close()

    def _close(self) -> None:
        """Nothing more goes to the caller."""
        self._closed = self._terminal = True
        self._flowing = False
        self._blocked_at = None
        self._hedge_at = self._usage_at = math.inf
        self._answer.discard()
        self._exception = None  # its traceback refers to this stream

    def _settle(self, kind: _Kind) -> None:
        if not self._settled:
            self._settled = self._terminal = True
            self._flowing = False
            self._commands.append(Settle(self._outcome(kind)))

    def _outcome(self, kind: _Kind) -> Outcome:
        attempt, answer = self._committed or self._last, self._answer
        first_output = None if attempt is None else attempt.first_output
        books = self._books
        booked = books.entries[-1] if books.entries and attempt is not None else None
        return Outcome(
            kind=kind,
            provider="" if attempt is None else attempt.upstream.provider,
            model="" if attempt is None else attempt.upstream.model,
            error=self._failure,
            usage=None if booked is None else booked.usage,
            quality=None if booked is None else booked.quality,
            attempts=books.entries,
            failovers=books.failovers,
            response_id="" if attempt is None else attempt.response_id,
            status=answer.status,
            ttft=None if first_output is None else first_output - self._begun,
            duration=self._now - self._begun if self._attempts else 0.0,
            events=answer.events,
            bytes_out=answer.bytes_out + answer.buffered,
            skipped_frames=0 if attempt is None else attempt.skipped,
            lost=answer.lost,
            exception=self._exception or books.fault,
        )

    # --- the providers' connections, and time -------------------------------------------------------------------------

    def _abort(self, attempt: Attempt) -> None:
        if attempt.phase is not Phase.OVER:
            attempt.phase = Phase.OVER
            if not attempt.ended:
                self._commands.append(Abort(attempt.number))

    def _drain(self, attempt: Attempt) -> None:
        """Let the provider end its message, so that the connection can be used again."""
        if attempt.live:
            self._resume(attempt)
            attempt.phase = Phase.OVER if attempt.ended else Phase.DRAINING
            attempt.since = self._now

    def _resume(self, attempt: Attempt) -> None:
        if attempt.paused_at is not None:
            attempt.resume(self._now)
            if attempt.live and not attempt.ended:
                self._commands.append(Resume(attempt.number))

    def _caller_deadline(self) -> float:
        if self._closed:
            return math.inf
        if self._blocked_at is not None:
            return self._blocked_at + self._patience
        if self._terminal or self._whole:
            return math.inf
        return self._answer.last_sent + self._timeouts.keepalive

    def _reschedule(self) -> None:
        """Find the next deadline anew, after anything that may have moved it."""
        deadline = self._caller_deadline()
        for attempt in self._attempts:
            until = attempt.deadline(whole_caller=self._whole)
            if until < deadline:
                deadline = until
        self.dispatch_at = math.inf
        if self._committed is None and not self._terminal:
            self.dispatch_at = self._hedge_at
            if self._next is not None and self._next.at < self.dispatch_at:
                self.dispatch_at = self._next.at
            deadline = min(deadline, self.dispatch_at, self._until)
        if self._usage_at < deadline:
            deadline = self._usage_at
        self.next_deadline = deadline
