"""Every interleaving: a state machine drives one stream with bytes cut anywhere, ends, failures, pauses, ticks of a fake
clock, disconnects and cancels, and checks after each step what must hold of all streams.

The provider's side plays a script (a legal stream of events, a body, an HTTP error) from its first byte to its end; the
caller's side reads or does not. What came out is decoded and compared with the script.
"""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.engine import (
    Abort,
    Command,
    Connect,
    Finish,
    Limits,
    Pause,
    Resume,
    SendHead,
    Settle,
    Timeouts,
)
from headrace.model.errors import ErrorCode
from tests.engine.fakes import FATAL_BUG, READ_BUG, WRITE_BUG, Driver, acme, line, sse

LIMITS = Limits(stream_buffer_bytes=150, error_body_bytes=50)
ERROR_BYTES = 200  # more than the line of an error takes
TIMEOUTS = Timeouts(first_token=20, request=60, idle_stream=30, slow_consumer=25, keepalive=10)

texts = st.text(max_size=40).filter(lambda text: text not in (READ_BUG, WRITE_BUG, FATAL_BUG))

spoken = st.one_of(
    texts.map(lambda text: line("text", text)),
    st.just(line("ping")),
    st.integers(0, 99).map(lambda count: line("usage", count)),
)
oddities = st.sampled_from(
    [b"nonsense", b"{}", line("text", READ_BUG), line("text", WRITE_BUG), line("text", FATAL_BUG)]
)


@st.composite
def scripts(draw: st.DrawFn) -> list[bytes]:
    """Frames of a provider's stream: mostly a good one, sometimes with something wrong in it, sometimes without end."""
    pings = draw(st.lists(st.just(line("ping")), max_size=3))
    if draw(st.integers(0, 5)) == 0:
        return [*pings, line("error", "overloaded")]
    frames = [*pings, line("start"), *draw(st.lists(spoken, max_size=8))]
    if draw(st.integers(0, 3)) == 0:
        frames.insert(draw(st.integers(0, len(frames))), draw(oddities))
    endings: list[list[bytes]] = [[line("end")]] * 4 + [[line("error", "overloaded")], []]
    return frames + draw(st.sampled_from(endings))


class Watched(Driver):
    """A driver that knows the rules and breaks off where one is broken."""

    asked = 0
    paused = False
    gone_ = False
    provider_over = False

    def see(self, command: Command) -> None:
        super().see(command)
        kind = type(command)
        if kind in (SendHead, Finish, Settle, Abort, Connect):
            assert self.count(kind) == 1, f"{kind.__name__} twice"
        if kind in (Pause, Resume):
            assert self.paused is (kind is Resume), f"{kind.__name__} out of turn"
            self.paused = kind is Pause
        if kind in (Abort, Pause, Resume):
            assert self.count(Connect) == 1
            assert not self.provider_over, f"{kind.__name__} for a provider that is over"
            self.provider_over = kind is Abort
        if kind is Finish:
            assert not self.blocked, "finished while a write is on its way"
            assert self.count(SendHead) == 1
        if isinstance(command, Settle) and not self.count(Finish):
            assert self.gone_ or self.blocked or command.outcome.exception, "cut for no reason"
        if self.count(Settle):
            assert kind in (Settle, Abort), f"{kind.__name__} after the outcome"

    def write(self, data: bytes) -> None:
        assert not self.blocked, "bytes while the caller is blocked"
        assert not self.gone_, "bytes for a caller who has gone"
        assert self.count(SendHead) == 1, "bytes before the head"
        assert self.count(Finish) == self.count(Settle) == 0, "bytes after the end"
        super().write(data)


class StreamMachine(RuleBasedStateMachine):
    driver: Watched

    @initialize(
        script=scripts(),
        stream=st.booleans(),
        framing=st.sampled_from(["sse", "sse", "ndjson", "json_array"]),
        malformed=st.sampled_from(["fail", "skip"]),
    )
    def start(self, script: list[bytes], stream: bool, framing: str, malformed: str) -> None:
        self.script = script
        self.rest = sse(*script)
        self.stream, self.framing, self.malformed = stream, framing, malformed
        self.phase = "idle"  # of the provider: idle, asked, refusing, telling, over
        self.driver = Watched(
            stream=stream,
            framing=framing,
            upstream=acme(malformed=malformed, stream=True),
            timeouts=TIMEOUTS,
            limits=LIMITS,
        )

    # the provider

    @precondition(lambda self: self.phase == "idle")
    @rule()
    def begin(self) -> None:
        self.driver.begin()
        self.phase = "asked" if self.driver.count(Connect) else "over"

    @precondition(lambda self: self.phase == "asked")
    @rule(status=st.sampled_from([200, 200, 200, 200, 200, 200, 201, 429, 500]))
    def headers(self, status: int) -> None:
        self.phase = "telling" if status < 300 else "refusing"
        self.driver.headers(status)

    @precondition(lambda self: self.phase == "telling" and self.rest)
    @rule(size=st.integers(1, 200))
    def data(self, size: int) -> None:
        self.tell(size)

    @precondition(lambda self: self.phase == "telling" and self.rest)
    @rule(frames=st.integers(1, 4))
    def whole_frames(self, frames: int) -> None:
        size = 0
        for _ in range(frames):
            size = self.rest.find(b"\n\n", size) + 2
            if size == len(self.rest):
                break
        self.tell(size)

    @precondition(lambda self: self.phase == "telling" and self.rest)
    @rule()
    def all_the_rest(self) -> None:
        self.tell(len(self.rest))

    def tell(self, size: int) -> None:
        piece, self.rest = self.rest[:size], self.rest[size:]
        before = self.driver.stream.buffered
        self.driver.data(piece)
        room = before < LIMITS.stream_buffer_bytes
        assert room or self.driver.stream.buffered <= before + ERROR_BYTES, "a full buffer took more"

    @precondition(lambda self: self.phase == "telling")
    @rule(junk=st.sampled_from([b": comment\n\n", b"", b"\n"]))
    def comment(self, junk: bytes) -> None:
        if self.rest == sse(*self.script):  # in the middle of a frame it would be part of it
            self.driver.data(junk)

    @precondition(lambda self: self.phase == "refusing")
    @rule(size=st.integers(1, 40))
    def body_of_an_error(self, size: int) -> None:
        self.driver.data(b"x" * size)

    @precondition(lambda self: self.phase in ("telling", "refusing"))
    @rule(early=st.integers(0, 3))
    def ended(self, early: int) -> None:
        if self.phase == "telling" and self.rest and early:
            return
        self.phase = "over"
        self.driver.provider_over = True
        self.driver.end()

    @precondition(lambda self: self.phase in ("asked", "telling", "refusing"))
    @rule(chance=st.integers(0, 3))
    def failed(self, chance: int) -> None:
        if chance:
            return
        self.phase = "over"
        self.driver.provider_over = True
        self.driver.fail()

    # the caller

    @precondition(lambda self: self.phase != "idle" and not self.driver.blocked)
    @rule()
    def block(self) -> None:
        if not self.driver.count(Settle):
            self.driver.block()

    @precondition(lambda self: not self.driver.blocked)
    @rule(after=st.integers(1, 3))
    def block_soon(self, after: int) -> None:
        self.driver.block_after = len(self.driver.writes) + after

    @precondition(lambda self: self.driver.blocked)
    @rule()
    def unblock(self) -> None:
        self.driver.block_after = math.inf
        self.driver.unblock()

    @precondition(lambda self: self.phase != "idle")
    @rule(chance=st.integers(0, 5))
    def leave(self, chance: int) -> None:
        if chance == 0 and not self.driver.gone_:
            finished = self.driver.count(Finish)
            self.driver.gone_ = True
            self.driver.gone()
            assert finished or self.driver.stream.done

    @rule(chance=st.integers(0, 5), code=st.sampled_from([ErrorCode.CANCELLED, ErrorCode.BUDGET_EXCEEDED]))
    def cancel(self, chance: int, code: ErrorCode) -> None:
        if chance == 0:
            self.driver.cancel(code=code)

    # time

    @rule(seconds=st.sampled_from([0.01, 0.1, 0.5, 3.0, 11.0, 26.0]))
    def wait(self, seconds: float) -> None:
        self.driver.wait(seconds)

    @rule()
    def tick_early(self) -> None:
        seen, body = list(self.driver.seen), self.driver.body
        self.driver.stream.tick(self.driver.now)
        self.driver.pump()
        assert (self.driver.seen, self.driver.body) == (seen, body), "acted before the deadline"

    # what must hold

    @invariant()
    def deadlines_lie_ahead(self) -> None:
        driver = self.driver
        assert driver.stream.next_deadline > driver.now
        if driver.stream.done:
            assert driver.stream.next_deadline == math.inf
            assert driver.count(Settle) == 1
            assert driver.provider_over or not driver.count(Connect)
            assert driver.stream.buffered == 0
        elif driver.count(Connect) and not driver.provider_over:
            assert driver.stream.next_deadline < math.inf, "nothing would ever end this stream"

    @invariant()
    def pausing_follows_blocking(self) -> None:
        driver = self.driver
        if driver.paused and not driver.provider_over:
            assert driver.blocked

    @invariant()
    def what_was_said_is_what_came(self) -> None:
        driver = self.driver
        if driver.count(SendHead) == 0:
            assert driver.body == b""
            return
        finished = driver.count(Finish) == 1
        if driver.head.status != 200:
            if finished:
                assert set(driver.json) >= {"error"}
            return
        if not self.stream:
            if finished:
                assert driver.json["text"] == "".join(value for kind, value in self.expected() if kind == "text")
            return
        told = driver.told if self.framing != "json_array" else self.array()
        terminals = [said for said in told if said == "end" or isinstance(said, tuple)]
        assert len(terminals) <= 1
        assert terminals == told[len(told) - len(terminals) :], "something after the terminal event"
        if finished:
            assert len(terminals) == 1, "finished without a terminal event"
        said = told[: len(told) - len(terminals)]
        expected = ["start" if kind == "start" else value for kind, value in self.expected()]
        assert said == expected[: len(said)], "not what the provider said"
        if terminals == ["end"]:
            assert said == expected, "ended before everything was said"

    def array(self) -> list[Any]:
        """What was told so far of an array that is still open."""
        if self.driver.count(Finish):
            return self.driver.told
        if not self.driver.body:
            return []
        kept = self.driver.body
        self.driver.body = kept.rstrip().rstrip(b"]") + b"]"
        try:
            return self.driver.told
        finally:
            self.driver.body = kept

    def expected(self) -> list[tuple[str, Any]]:
        """Starts and texts of the script, up to the first frame that ends or breaks it."""
        expected = []
        for frame in self.script:
            try:
                said = json.loads(frame)
                kind, value = said["t"], said.get("v")
            except (ValueError, KeyError):
                if self.malformed == "skip":
                    continue
                break
            if kind in ("end", "error") or value in (READ_BUG, WRITE_BUG, FATAL_BUG):
                break
            if kind in ("start", "text"):
                expected.append((kind, value))
        return expected

    def teardown(self) -> None:
        """However it went so far: left alone, every stream comes to its end."""
        if not hasattr(self, "driver") or self.phase == "idle":
            return
        driver = self.driver
        driver.wait(10_000)
        assert driver.stream.done, "a stream that never ends"
        outcome = driver.outcome
        if outcome.kind == "completed":
            assert outcome.error is None
            assert driver.count(Finish) == 1
        elif outcome.kind == "failed":
            assert outcome.error is not None
        assert outcome.bytes_out == len(driver.body)
        self.deadlines_lie_ahead()
        self.what_was_said_is_what_came()


TestStreamMachine = StreamMachine.TestCase
TestStreamMachine.settings = settings(
    max_examples=200, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
