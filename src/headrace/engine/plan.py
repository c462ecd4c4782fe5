"""Who may be asked, in which order, how often, and what decides it: the engine's side of a route. Pure.

`Plan` is what a route says of one request, `Dispatch` the state of carrying it out: which candidate comes next and when,
after each failure. The rules are spec/gateway.md's: the same candidate again by the retry policy, then the next one, in
all at most `max_failovers` changes, and nothing beyond the deadline.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headrace.engine.settings import Upstream
from headrace.model.errors import ErrorCode, ErrorInfo
from headrace.routing.retry import RetryPolicy, fails_over, retryable


@dataclass(frozen=True, slots=True)
class Plan:
    """`candidates` in the order in which they are to be asked. Times in seconds."""

    candidates: Sequence[Upstream]
    strategy: str = "direct"
    """How the order was found, for the routing block: "direct" (no route), "ordered", "weighted"."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    max_failovers: int = 2
    hedge_after: float | None = None
    """Without a first output for so long, a stream's request also goes to the next candidate."""
    deadline: float = math.inf
    """From the beginning to the first output of a stream, or to the whole of a body: attempts, waits and all."""
    rng: random.Random = field(default_factory=random.Random)


class Circuit(Protocol):
    """A candidate's circuit breaker, as an attempt uses it: `allow`, then exactly one of the other three."""

    def allow(self, now: float) -> bool:
        """Whether a request may go there now."""

    def succeeded(self, now: float) -> None: ...

    def failed(self, now: float) -> None: ...

    def released(self, now: float) -> None:
        """It ended in a way that says nothing of the provider."""

    def retry_at(self, now: float) -> float:
        """When a request may be allowed again, where none is now."""


@dataclass(frozen=True, slots=True)
class Next:
    """Ask this candidate, at this time."""

    candidate: int
    at: float


class Dispatch:
    """Carries out a plan for one request."""

    __slots__ = ("_tries", "plan")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._tries = [0] * len(plan.candidates)

    def take(self, candidate: int, now: float) -> bool:
        """Whether the candidate may be asked now; if so, that counts as a try, and as one for its circuit."""
        circuit = self.plan.candidates[candidate].circuit
        if circuit is not None and not circuit.allow(now):
            return False
        self._tries[candidate] += 1
        return True

    def fresh(self, after: int) -> int | None:
        """The next candidate that was not asked yet."""
        return next((k for k in range(after + 1, len(self._tries)) if not self._tries[k]), None)

    def after(self, candidate: int, error: ErrorInfo, now: float, until: float, failovers: int) -> Next | None:
        """What to do about a failure of this candidate; None: nothing, the request has failed. `until`: the deadline;
        `failovers`: how often the candidate was changed already.

        A wait that the provider itself asks for and that is longer than any backoff is spent on another candidate, if
        there is one.
        """
        policy = self.plan.retry
        again = retryable(error) and self._tries[candidate] < policy.attempts
        delay = policy.delay(self._tries[candidate], error.retry_after, self.plan.rng) if again else math.inf
        if now + delay >= until:
            again = False
        other = self.fresh(candidate) if fails_over(error) and failovers < self.plan.max_failovers else None
        if other is not None and not (again and delay <= policy.cap):
            return Next(other, now)
        return Next(candidate, now + delay) if again else None

    def wait(self, now: float) -> float | None:
        """Seconds until the first of the circuits may close again; None where none of the candidates has one."""
        circuits = [upstream.circuit for upstream in self.plan.candidates if upstream.circuit is not None]
        return min((max(0.0, circuit.retry_at(now) - now) for circuit in circuits), default=None)


def all_open(dispatch: Dispatch, now: float) -> ErrorInfo:
    """The error of a request for which nobody could even be asked."""
    names = ", ".join(dict.fromkeys(upstream.provider for upstream in dispatch.plan.candidates))
    return ErrorInfo(
        code=ErrorCode.PROVIDER_UNAVAILABLE,
        type="circuit_open",
        message=f"{names} failed too often lately: requests are held off for a moment. Try again later",
        retry_after=dispatch.wait(now),
    )
