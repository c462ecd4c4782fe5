"""Every interleaving: a state machine drives one stream with bytes cut anywhere, ends, failures, pauses, ticks of a fake
clock, retries, hedges, disconnects and cancels, and checks after each step what must hold of all streams.

The providers' side plays a script for each attempt (a legal stream of events, a body, an HTTP error) from its first byte
to its end; the caller's side reads or does not. What came out is decoded and compared with the scripts.
"""

from __future__ import annotations

import json
import math
import random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.engine import (
    Abort,
    Command,
    Connect,
    Cut,
    Finish,
    Limits,
    Pause,
    Plan,
    Resume,
    SendHead,
    Settle,
    Timeouts,
)
from headrace.model.errors import ErrorCode
from headrace.routing.retry import RetryPolicy
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


class Gate:
    """A circuit that opens and closes as the test likes, and counts how attempts through it ended."""

    def __init__(self) -> None:
        self.open = False
        self.running = 0

    def allow(self, now: float) -> bool:
        self.running += not self.open
        return not self.open

    def succeeded(self, now: float) -> None:
        self.running -= 1

    failed = released = succeeded

    def retry_at(self, now: float) -> float:
        return now + 5


class Leg:
    """One attempt, as its provider sees it."""

    def __init__(self, script: list[bytes]) -> None:
        self.script = script
        self.rest = sse(*script)
        self.phase = "asked"  # asked, refusing, telling, over
        self.paused = False
        self.over = False

    @property
    def live(self) -> bool:
        return not self.over


class Watched(Driver):
    """A driver that knows the rules and breaks off where one is broken."""

    gone_ = False
    seen_text = False

    def __init__(self, scripts: list[list[bytes]], hedged: bool, **more: Any) -> None:
        super().__init__(**more)
        self.scripts = scripts
        self.hedged = hedged
        self.legs: list[Leg] = []

    def see(self, command: Command) -> None:
        super().see(command)
        kind = type(command)
        if kind in (SendHead, Finish, Settle, Cut):
            assert self.count(kind) == 1, f"{kind.__name__} twice"
        if isinstance(command, Connect):
            assert command.attempt == len(self.legs), "attempts are numbered in order"
            assert not self.seen_text, "another attempt after the caller has seen something"
            running = sum(leg.live and leg.rest != b"" for leg in self.legs)  # the others may be ending their message
            assert running <= self.hedged, "more attempts in parallel than hedging allows"
            self.legs.append(Leg(self.scripts[command.attempt % len(self.scripts)]))
        if isinstance(command, Pause | Resume):
            leg = self.legs[command.attempt]
            assert leg.paused is (kind is Resume), f"{kind.__name__} out of turn"
            assert not leg.over, f"{kind.__name__} for a provider that is over"
            leg.paused = kind is Pause
        if isinstance(command, Abort):
            leg = self.legs[command.attempt]
            assert not leg.over, "Abort for a provider that is over"
            leg.over, leg.phase = True, "over"
        if kind is Finish:
            assert not self.blocked, "finished while a write is on its way"
            assert self.count(SendHead) == 1
            assert self.count(Settle) == 1, "finished before it was settled"
        if kind is Cut:
            assert self.count(Settle) == 1, "cut before it was settled"
            assert self.blocked or self.outcome.exception, "cut for no reason"
        if self.count(Settle):
            assert kind in (Settle, Abort, Finish, Cut), f"{kind.__name__} after the outcome"

    def write(self, data: bytes) -> None:
        assert not self.blocked, "bytes while the caller is blocked"
        assert not self.gone_, "bytes for a caller who has gone"
        assert self.count(SendHead) == 1, "bytes before the head"
        assert self.count(Finish) == self.count(Cut) == 0, "bytes after the end"
        if b'"t": "end"' in data or b'"t": "error"' in data:
            assert self.count(Settle) == 1, "the terminal event before it was settled"
        self.seen_text = self.seen_text or b'"t": "text"' in data
        super().write(data)


def tagged(script: list[bytes], tag: int) -> list[bytes]:
    """The script with texts that no other attempt's can be mistaken for."""
    out = []
    for frame in script:
        said = json.loads(frame) if frame.startswith(b"{") else {}
        value = said.get("v")
        plain = said.get("t") == "text" and value and value not in (READ_BUG, WRITE_BUG, FATAL_BUG)
        out.append(line("text", f"{tag}:{value}") if plain else frame)
    return out


class StreamMachine(RuleBasedStateMachine):
    driver: Watched

    @initialize(
        drawn=st.lists(scripts(), min_size=1, max_size=4),
        stream=st.booleans(),
        framing=st.sampled_from(["sse", "sse", "ndjson", "json_array"]),
        malformed=st.sampled_from(["fail", "skip"]),
        candidates=st.integers(1, 3),
        attempts=st.integers(1, 2),
        hedge_after=st.sampled_from([None, None, 2.0]),
        deadline=st.sampled_from([math.inf, 45.0]),
    )
    def start(
        self,
        drawn: list[list[bytes]],
        stream: bool,
        framing: str,
        malformed: str,
        candidates: int,
        attempts: int,
        hedge_after: float | None,
        deadline: float,
    ) -> None:
        self.scripts = [tagged(script, number) for number, script in enumerate(drawn)]
        self.stream, self.framing, self.malformed = stream, framing, malformed
        self.gates = [Gate() for _ in range(candidates)]
        plan = Plan(
            [
                acme(malformed=malformed, stream=True, provider=f"acme-{number}", circuit=gate)
                for number, gate in enumerate(self.gates)
            ],
            retry=RetryPolicy(attempts=attempts),
            hedge_after=hedge_after,
            deadline=deadline,
            rng=random.Random(7),
        )
        self.begun = False
        self.driver = Watched(
            self.scripts,
            hedged=hedge_after is not None and stream,
            stream=stream,
            framing=framing,
            plan=plan,
            timeouts=TIMEOUTS,
            limits=LIMITS,
        )

    # the providers

    @precondition(lambda self: not self.begun)
    @rule()
    def begin(self) -> None:
        self.begun = True
        self.driver.begin()

    def leg(self, pick: int, *phases: str) -> int | None:
        """One of the attempts that are in one of these phases."""
        numbers = [number for number, leg in enumerate(self.driver.legs) if leg.phase in phases]
        return numbers[pick % len(numbers)] if numbers else None

    @rule(pick=st.integers(0, 3), status=st.sampled_from([200, 200, 200, 200, 200, 200, 201, 429, 500, 400]))
    def headers(self, pick: int, status: int) -> None:
        number = self.leg(pick, "asked")
        if number is not None:
            self.driver.legs[number].phase = "telling" if status < 300 else "refusing"
            self.driver.headers(status, of=number)

    @rule(pick=st.integers(0, 3), size=st.integers(1, 200))
    def data(self, pick: int, size: int) -> None:
        self.tell(pick, size)

    @rule(pick=st.integers(0, 3), frames=st.integers(1, 4))
    def whole_frames(self, pick: int, frames: int) -> None:
        number = self.leg(pick, "telling")
        if number is None:
            return
        rest, size = self.driver.legs[number].rest, 0
        for _ in range(frames):
            if size < len(rest):
                size = rest.find(b"\n\n", size) + 2
        self.tell(pick, size)

    @rule(pick=st.integers(0, 3))
    def all_the_rest(self, pick: int) -> None:
        self.tell(pick, 1 << 20)

    def tell(self, pick: int, size: int) -> None:
        number = self.leg(pick, "telling")
        if number is None or not self.driver.legs[number].rest:
            return
        leg = self.driver.legs[number]
        piece, leg.rest = leg.rest[:size], leg.rest[size:]
        before = self.driver.stream.buffered
        self.driver.data(piece, of=number)
        room = before < LIMITS.stream_buffer_bytes
        assert room or self.driver.stream.buffered <= before + ERROR_BYTES, "a full buffer took more"

    @rule(pick=st.integers(0, 3), junk=st.sampled_from([b": comment\n\n", b"", b"\n"]))
    def comment(self, pick: int, junk: bytes) -> None:
        number = self.leg(pick, "telling")
        if number is not None and self.driver.legs[number].rest == sse(*self.driver.legs[number].script):
            self.driver.data(junk, of=number)  # in the middle of a frame it would be part of it

    @rule(pick=st.integers(0, 3), size=st.integers(1, 40))
    def body_of_an_error(self, pick: int, size: int) -> None:
        number = self.leg(pick, "refusing")
        if number is not None:
            self.driver.data(b"x" * size, of=number)

    @rule(pick=st.integers(0, 3), early=st.integers(0, 3))
    def ended(self, pick: int, early: int) -> None:
        number = self.leg(pick, "telling", "refusing")
        if number is None or (self.driver.legs[number].phase == "telling" and self.driver.legs[number].rest and early):
            return
        self.over(number)
        self.driver.end(of=number)

    @rule(pick=st.integers(0, 3), chance=st.integers(0, 3))
    def failed(self, pick: int, chance: int) -> None:
        number = self.leg(pick, "asked", "telling", "refusing")
        if chance or number is None:
            return
        self.over(number)
        self.driver.fail(of=number)

    def over(self, number: int) -> None:
        self.driver.legs[number].phase = "over"
        self.driver.legs[number].over = True

    @rule(pick=st.integers(0, 2), chance=st.integers(0, 3))
    def a_circuit_changes(self, pick: int, chance: int) -> None:
        gate = self.gates[pick % len(self.gates)]
        gate.open = chance == 0

    # the caller

    @precondition(lambda self: self.begun and not self.driver.blocked)
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

    @precondition(lambda self: self.begun)
    @rule(chance=st.integers(0, 5))
    def leave(self, chance: int) -> None:
        if chance == 0 and not self.driver.gone_:
            finished = self.driver.count(Finish)
            self.driver.gone_ = True
            self.driver.gone()
            assert finished or self.driver.count(Settle) == 1
            running = [leg for leg in self.driver.legs if leg.live and leg.rest]
            assert not running, "only a provider that has said all is let go on"

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
            assert not any(leg.live for leg in driver.legs), "a provider's connection is left open"
            assert driver.stream.buffered == 0
            assert not any(gate.running for gate in self.gates), "a circuit waits for an attempt that is over"
        elif any(leg.live for leg in driver.legs):
            assert driver.stream.next_deadline < math.inf, "nothing would ever end this stream"

    @invariant()
    def pausing_follows_blocking(self) -> None:
        for leg in self.driver.legs:
            assert not leg.paused or leg.over or self.driver.blocked

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
                texts = ["".join(value for kind, value in self.expected(leg) if kind == "text") for leg in driver.legs]
                assert driver.json["text"] in texts
            return
        told = driver.told if self.framing != "json_array" else self.array()
        terminals = [said for said in told if said == "end" or isinstance(said, tuple)]
        assert len(terminals) <= 1
        assert terminals == told[len(told) - len(terminals) :], "something after the terminal event"
        if finished:
            assert len(terminals) == 1, "finished without a terminal event"
        said = told[: len(told) - len(terminals)]
        all_expected = [
            ["start" if kind == "start" else value for kind, value in self.expected(leg)] for leg in driver.legs
        ]
        assert not said or any(said == expected[: len(said)] for expected in all_expected), "not what one provider said"
        if terminals == ["end"]:
            assert said in all_expected, "ended before everything was said"

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

    def expected(self, leg: Leg) -> list[tuple[str, Any]]:
        """Starts and texts of the script, up to the first frame that ends or breaks it."""
        expected = []
        for frame in leg.script:
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
        if not hasattr(self, "driver") or not self.begun:
            return
        driver = self.driver
        for _ in range(20):  # attempts may follow one another, each with waits of its own
            driver.wait(1_000)
        assert driver.stream.done, "a stream that never ends"
        outcome = driver.outcome
        if outcome.kind == "completed":
            assert outcome.error is None
            assert [tried.code for tried in outcome.attempts].count(None) == 1
            assert outcome.attempts[-1].code is None, "the one that answered is the last"
        elif outcome.kind == "failed":
            assert outcome.error is not None
        tried = [tried for tried in outcome.attempts if tried.code != "circuit_open"]
        assert len(tried) == len(driver.legs), "every attempt is booked once"
        if driver.count(Finish):
            assert outcome.bytes_out == len(driver.body)
        self.deadlines_lie_ahead()
        self.what_was_said_is_what_came()


TestStreamMachine = StreamMachine.TestCase
TestStreamMachine.settings = settings(
    max_examples=250, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
