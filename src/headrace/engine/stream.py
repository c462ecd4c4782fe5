"""The life of one request, without I/O: bytes, times and the caller's moods go in, commands and bytes come out.

The rules: the answer is held back until the provider says something, so that an early failure is a plain HTTP error;
after that exactly one terminal event is written, whatever happens, unless the caller has gone; nothing is handed out
while the caller is blocked, and reading pauses; every stream settles exactly once.

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
from headrace.engine.codecs import WHOLE, remains, upstream_codec, upstream_shape
from headrace.engine.commands import Abort, Command, Connect, Finish, Outcome, Pause, Resume, Settle
from headrace.engine.milestones import NOTED, TERMINAL, commits
from headrace.engine.settings import Caller, Limits, Timeouts, Upstream
from headrace.framing import Frame, FramingError
from headrace.model import events as ev
from headrace.model.errors import ErrorCode, ErrorInfo, ProtocolError
from headrace.model.events import Event

_P = ParamSpec("_P")

_Kind = Literal["completed", "failed", "cancelled"]

_MAX_HELD = 16  # pings before the first event that are kept; who sends more of them says nothing new

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

    Every input takes `now`, in monotonic seconds. Inputs that no longer matter (bytes after the end, a caller that
    leaves after its answer) are ignored, so a driver need not keep track.
    """

    __slots__ = (
        "_answer",
        "_attempt",
        "_begun",
        "_blocked_at",
        "_candidates",
        "_closed",
        "_commands",
        "_exception",
        "_failure",
        "_flowing",
        "_held",
        "_limits",
        "_now",
        "_patience",
        "_terminal",
        "_timeouts",
        "_whole",
        "next_deadline",
    )

    def __init__(
        self, *, caller: Caller, candidates: Sequence[Upstream], limits: Limits | None = None, timeouts: Timeouts
    ) -> None:
        """`timeouts` are for the caller's side, and for candidates that have none of their own."""
        if not candidates:
            raise ValueError("a stream needs at least one candidate")
        self._candidates = candidates
        self._limits = limits or Limits()
        self._timeouts = timeouts
        self.next_deadline = math.inf
        """When to call `tick`; infinity: not needed."""
        self._attempt: Attempt | None = None
        self._answer = Answer(caller)
        self._whole = not caller.stream
        self._commands: list[Command] = []
        self._begun = 0.0
        self._now = 0.0  # of the last input that was more than passing on
        # Where the answer stands.
        self._held: list[Event] | None = None if self._whole else []  # pings before the hold-back ended, then None
        self._flowing = False  # the hold-back and the wait for the first token are over, the terminal is not written
        self._terminal = False  # the terminal event, or a whole error, was written
        self._closed = False  # nothing more for the caller; settled
        self._blocked_at: float | None = None
        self._patience = 0.0  # seconds that a blocked caller has
        self._failure: ErrorInfo | None = None
        self._exception: Exception | None = None

    # --- inputs -----------------------------------------------------------------------------------------------------

    @_guarded
    def begin(self, now: float) -> None:
        """Start; once. The first command is Connect."""
        if self._attempt is not None or self._terminal:
            return
        self._begun = self._now = self._answer.last_sent = now
        upstream = self._candidates[0]
        asked = not self._whole if upstream.stream is None else upstream.stream
        self._attempt = Attempt(0, upstream, upstream.timeouts or self._timeouts, asked=asked, now=now)
        self._commands.append(Connect(0))

    @_guarded
    def upstream_headers(self, status: int, headers: Mapping[str, str], now: float) -> None:
        """The provider's final status and headers (lower-case names) have come."""
        attempt = self._attempt
        if attempt is None or attempt.phase is not Phase.CONNECTING:
            return
        self._now = now
        if not 200 <= status < 300:
            attempt.refuse(status, headers)
            return
        content_type = headers.get("content-type", "")
        shape = upstream_shape(attempt.upstream, not attempt.whole, content_type)
        if shape is None:
            what = f"answered with content type {content_type[:80]!r}, as no model does: check its base_url"
            self._fail(attempt.broken("unexpected_content_type", what))
            return
        attempt.decoder, attempt.reader = upstream_codec(attempt.upstream, shape, self._answer.caller, self._limits)
        attempt.whole = shape == WHOLE
        attempt.phase = Phase.STREAMING

    def upstream_data(self, data: bytes, now: float) -> None:
        """Bytes of the provider's body have come."""
        attempt = self._attempt
        if attempt is None or attempt.phase is not Phase.STREAMING:
            self._data_of_refusal(data, now)
            return
        if self._blocked_at is not None and self._answer.buffered >= self._limits.stream_buffer_bytes:
            self._overflow(now)
            return
        frames: list[Frame] = []
        events: Sequence[Event]
        try:
            frames = attempt.decoder.feed(data)
            events = attempt.reader.read(frames) if frames else ()
            if not events:
                attempt.heard(now)
                return
            self._answer.unsaid += len(data)
            if self._answer.unsaid > self._limits.body_bytes:
                self._unsayable(now)
                return
            if self._flowing:
                for event in events:
                    if type(event) in NOTED:
                        break
                else:
                    attempt.since = now
                    self._answer.write(events, now)
                    return
            self._take_read(events, now)
        except Exception as error:
            self._read_failed(frames, error, now)

    @_guarded
    def _unsayable(self, now: float) -> None:
        """The writer holds too much: a whole body or a tool call that never ends."""
        self._now = now
        if self._attempt is not None:
            limit = self._limits.body_bytes
            what = f"sent more than {limit} bytes of what can only be handed on whole (limits.body_bytes)"
            self._fail(self._attempt.broken("answer_too_large", what))

    @_guarded
    def upstream_ended(self, now: float) -> None:
        """The provider's HTTP message is complete."""
        attempt = self._attempt
        if attempt is None:
            return
        self._now = now
        phase, attempt.phase = attempt.phase, Phase.OVER
        if phase is Phase.CONNECTING:
            self._fail(attempt.broken("upstream_closed", "closed the connection without an answer"))
        elif phase is Phase.REFUSED:
            self._take([attempt.refusal()])
        elif phase is Phase.STREAMING:
            try:
                self._read_end(attempt)
            except FramingError as error:
                self._read_failed([], error, now)

    @_guarded
    def upstream_failed(self, error: ErrorInfo, now: float) -> None:
        """The provider could not be reached, or its connection broke. Its error ends the stream, if nothing did yet."""
        attempt = self._attempt
        if attempt is None:
            return
        self._now = now
        phase, attempt.phase = attempt.phase, Phase.OVER
        if phase is Phase.REFUSED:
            self._take([attempt.refusal()])  # its status says more than the break
        elif phase is not Phase.OVER:
            self._fail(error)

    @_guarded
    def caller_blocked(self, now: float) -> None:
        """The caller takes no more bytes for now; what was handed out is accepted, and still on its way."""
        if self._closed or self._blocked_at is not None:
            return
        attempt = self._attempt
        self._blocked_at = now
        self._patience = (attempt.timeouts if attempt else self._timeouts).slow_consumer
        if attempt is not None and attempt.live:
            attempt.paused_at = now
            self._commands.append(Pause())

    @_guarded
    def caller_ready(self, now: float) -> None:
        """The caller takes bytes again; all that was handed out is on its way."""
        if self._blocked_at is None:
            return
        self._now = self._answer.last_sent = now
        self._blocked_at = None
        self._resume()

    @_guarded
    def caller_gone(self, now: float) -> None:
        """The caller's connection is closed. Harmless after `Finish`."""
        if not self._closed:
            self._now = now
            self._abort()
            self._close("cancelled")

    @_guarded
    def cancel(
        self, now: float, code: ErrorCode = ErrorCode.CANCELLED, message: str = "The request was cancelled"
    ) -> None:
        """End the stream with an error, told to the caller. No effect after the terminal event."""
        if not self._terminal:
            self._now = now
            self._fail(ErrorInfo(code=code, message=message, type=code.value))

    @_guarded
    def tick(self, now: float) -> None:
        """`next_deadline` may have come. Harmless at any other time."""
        if now < self.next_deadline:
            return
        self._now = now
        attempt = self._attempt
        if attempt is not None and now >= attempt.deadline(whole_caller=self._whole):
            if attempt.phase is Phase.DRAINING:
                self._abort()
            elif attempt.phase is Phase.REFUSED:
                self._abort()
                self._take([attempt.refusal()])
            else:
                self._fail(attempt.timeout(whole_caller=self._whole))
        if now >= self._caller_deadline():
            if self._blocked_at is None:
                self._keep_alive()
            else:
                self._give_up_on_caller()

    # --- outputs ----------------------------------------------------------------------------------------------------

    def commands(self) -> Sequence[Command]:
        """What is to be done now, in order; each is given once."""
        if self._terminal and not self._closed and not self._answer.buffered and self._blocked_at is None:
            self._commands.append(Finish())
            failure = self._failure
            cancelled = failure is not None and failure.code is ErrorCode.CANCELLED
            self._close("completed" if failure is None else "cancelled" if cancelled else "failed")
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
        """Whether the stream has settled and its provider's connection is done with: it needs no input any more."""
        return self._closed and (self._attempt is None or self._attempt.phase is Phase.OVER)

    @property
    def flowing(self) -> bool:
        """Whether it is in full flow: past its first output, before its terminal event."""
        return self._flowing

    @property
    def buffered(self) -> int:
        """Bytes that wait for the caller."""
        return self._answer.buffered

    # --- reading the provider's answer ------------------------------------------------------------------------------

    @_guarded
    def _data_of_refusal(self, data: bytes, now: float) -> None:
        attempt = self._attempt
        if attempt is not None and attempt.phase is Phase.REFUSED:
            self._now = now
            if attempt.collect(data, self._limits.error_body_bytes):
                self._abort()
                self._take([attempt.refusal()])

    @_guarded
    def _overflow(self, now: float) -> None:
        """The buffer is full, and bytes still come although reading was paused."""
        self._now = now
        self._give_up_on_caller()

    @_guarded
    def _take_read(self, events: Sequence[Event], now: float) -> None:
        """Events of a read that need more than passing on."""
        self._now = now
        self._take(events)

    @_guarded
    def _read_failed(self, frames: list[Frame], error: Exception, now: float) -> None:
        """These frames, or the bytes after them, could not be read."""
        self._now = now
        attempt = self._attempt
        if attempt is not None and isinstance(error, FramingError):
            type = _BROKEN_FRAMING.get(error.reason, "malformed_upstream")
            self._fail(attempt.broken(type, f"sent what cannot be read: {error}"))
        elif attempt is not None and isinstance(error, ProtocolError):
            self._read_malformed(attempt, frames, error)
        else:
            raise error

    def _read(self, attempt: Attempt, frames: list[Frame]) -> None:
        try:
            events = attempt.reader.read(frames)
        except ProtocolError as error:
            self._read_malformed(attempt, frames, error)
        else:
            self._take(events)

    def _read_malformed(self, attempt: Attempt, frames: list[Frame], error: ProtocolError) -> None:
        """The reader refused one of these frames: keep what was before it; end there, or leave it out and go on."""
        rest = frames[max(error.consumed, 1) :]
        self._take(error.events)
        if attempt.whole or attempt.upstream.malformed == "fail":
            self._fail(attempt.broken("malformed_upstream", f"sent what its format does not allow: {error}"))
            return
        attempt.skipped += 1
        if rest:
            self._read(attempt, rest)

    def _read_end(self, attempt: Attempt) -> None:
        """Read what the end of the body completes. An end without the format's terminal marker is an error."""
        self._read(attempt, attempt.decoder.eof())
        unfinished, leftover = remains(attempt.decoder)
        for frame in unfinished:
            # Some providers leave out the last blank line. A frame that was really cut is no JSON: it reads as
            # malformed, and counts as not there.
            with suppress(ProtocolError):
                self._take(attempt.reader.read([frame]))
        if not self._terminal:
            self._take(attempt.reader.eof(leftover))
        if not self._terminal:
            self._fail(attempt.broken("upstream_truncated", "ended its answer without saying that it is complete"))

    # --- what it means for the caller -------------------------------------------------------------------------------

    def _take(self, events: Sequence[Event]) -> None:
        """Events of which any may matter to the life of the stream."""
        if not events or self._terminal:
            return
        attempt, answer, last = self._attempt, self._answer, events[-1]
        if attempt is not None:
            attempt.note(events, self._now)
            if isinstance(last, ev.End) and last.routing is None:
                last.routing = {"selected_provider": attempt.upstream.provider, "failovers": 0, "cache": "miss"}
        if isinstance(last, ev.Error):
            if last.error.provider is None and attempt is not None:
                last.error = msgspec.structs.replace(last.error, provider=attempt.upstream.provider)
            self._failure = last.error

        first: Event | None = last
        if self._held is not None:
            first = next(filter(commits, events), None)
            if first is None:
                self._held = [*self._held, *events][:_MAX_HELD]
                return
            events, self._held = [*self._held, *events], None

        if isinstance(first, ev.Error) and answer.status is None:
            self._commands.append(answer.refuse(first.error, self._now))
            self._end()
            return
        ends = type(last) in TERMINAL
        answer.write(events, self._now)
        if answer.status is None and (ends or not self._whole):
            self._commands.append(answer.open())
        if ends:
            self._end()
            answer.close(self._now)
        elif not self._whole and attempt is not None:
            self._flowing = attempt.first_output is not None

    def _keep_alive(self) -> None:
        if self._answer.keepalive(self._now) and self._answer.status is None:
            self._commands.append(self._answer.open())

    def _fail(self, info: ErrorInfo) -> None:
        """End the stream with an error of ours."""
        if not self._terminal:
            self._abort()
            self._take([ev.Error(info)])

    def _give_up_on_caller(self) -> None:
        """The caller does not read: write down why, and wait a little for it to read that; then cut."""
        if self._terminal:
            self._failure = self._failure or _TOO_SLOW
            self._close("failed")
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
        self._abort()
        if self._closed:
            return
        self._failure = _INTERNAL
        if self._answer.status is None:
            self._commands.append(self._answer.break_down(self._now))
            self._end()
        else:
            self._close("failed")

    def _end(self) -> None:
        """The terminal event was written. The provider's HTTP message may come to its end by itself."""
        self._terminal = True
        self._flowing = False
        attempt = self._attempt
        if attempt is not None and attempt.live:
            self._resume()
            attempt.phase = Phase.DRAINING
            attempt.since = self._now

    def _close(self, kind: _Kind) -> None:
        """Nothing more goes to the caller. Settle."""
        self._closed = self._terminal = True
        self._flowing = False
        self._blocked_at = None
        self._answer.discard()
        self._commands.append(Settle(self._outcome(kind)))
        self._exception = None  # its traceback refers to this stream

    def _outcome(self, kind: _Kind) -> Outcome:
        attempt, answer = self._attempt, self._answer
        upstream = self._candidates[0] if attempt is None else attempt.upstream
        first_output = None if attempt is None else attempt.first_output
        return Outcome(
            kind=kind,
            provider=upstream.provider,
            model=upstream.model,
            error=self._failure,
            usage=None if attempt is None else attempt.usage,
            response_id="" if attempt is None else attempt.response_id,
            status=answer.status,
            ttft=None if first_output is None else first_output - self._begun,
            duration=0.0 if attempt is None else self._now - self._begun,
            events=answer.events,
            bytes_out=answer.bytes_out,
            skipped_frames=0 if attempt is None else attempt.skipped,
            lost=answer.lost,
            exception=self._exception,
        )

    # --- the provider's connection, and time ------------------------------------------------------------------------

    def _abort(self) -> None:
        attempt = self._attempt
        if attempt is not None and attempt.phase is not Phase.OVER:
            attempt.phase = Phase.OVER
            self._commands.append(Abort())

    def _resume(self) -> None:
        attempt = self._attempt
        if attempt is not None and attempt.paused_at is not None:
            attempt.resume(self._now)
            if attempt.live:
                self._commands.append(Resume())

    def _caller_deadline(self) -> float:
        if self._closed:
            return math.inf
        if self._blocked_at is not None:
            return self._blocked_at + self._patience
        if self._terminal or self._whole:
            return math.inf
        return self._answer.last_sent + self._timeouts.keepalive

    def _reschedule(self) -> None:
        attempt = self._attempt
        upstream = math.inf if attempt is None else attempt.deadline(whole_caller=self._whole)
        self.next_deadline = min(upstream, self._caller_deadline())
