"""What a request's attempts came to: each is entered once, when it ends, with what it consumed and what that says of its
provider. From the entries come the routing block, the list of those that were tried, and the outcome.
"""

from __future__ import annotations

from typing import Any

from headrace.engine.attempt import Attempt
from headrace.engine.commands import CIRCUIT_OPEN, Tried, routing_block, tried_list
from headrace.engine.settings import Upstream
from headrace.model import events as ev
from headrace.model.errors import ErrorInfo
from headrace.model.events import Event
from headrace.model.usage import Usage
from headrace.routing.retry import counts_as_failure


class Books:
    """`strategy`: of the plan, for the routing block. `metered`: whether usage is counted and priced here."""

    __slots__ = ("_metered", "_strategy", "entries", "failovers", "fault")

    def __init__(self, strategy: str, *, metered: bool) -> None:
        self._strategy = strategy
        self._metered = metered
        self.entries: list[Tried] = []
        """In the order in which they ended."""
        self.failovers = 0
        """How often the candidate was changed."""
        self.fault: Exception | None = None
        """A bug in the counting of what was consumed."""

    def pass_over(self, upstream: Upstream) -> None:
        """A candidate whose circuit is open was not asked."""
        self.entries.append(Tried(upstream.provider, upstream.model, CIRCUIT_OPEN, 0.0))

    def enter(self, attempt: Attempt, code: str | None, now: float, error: ErrorInfo | None = None) -> None:
        """An attempt counts for nothing more. `code` None: it answered. A second time nothing happens."""
        if attempt.booked:
            return
        attempt.booked = True
        attempt.held.clear()
        try:
            usage, quality = attempt.consumed(complete=code is None)
        except Exception as fault:  # no answer shall fail because it cannot be counted
            self.fault = self.fault or fault
            usage, quality = attempt.usage, None
        upstream = attempt.upstream
        ms = (now - attempt.started) * 1000
        self.entries.append(Tried(upstream.provider, upstream.model, code, ms, usage, quality))
        circuit = upstream.circuit
        if circuit is None:
            return
        if code is None:
            circuit.succeeded(now)
        elif error is not None and counts_as_failure(error):
            circuit.failed(now)
        else:
            circuit.released(now)

    def complete(self, end: ev.End) -> None:
        """Fill in what only the gateway knows of the whole answer, whose attempt was entered last."""
        answered = self.entries[-1]
        if answered.usage is not None and self._metered:
            end.usage = answered.usage
        if end.routing is None:
            end.routing = routing_block(self._strategy, answered.provider, answered.model, self.entries, self.failovers)

    def last_words(self) -> list[Event]:
        """What was consumed, for callers whose stream is about to end with an error."""
        usage: Usage | None = self.entries[-1].usage if self.entries and self._metered else None
        return [] if usage is None else [ev.UsageReport(usage)]

    def tried(self) -> list[dict[str, Any]]:
        """Those that gave no answer."""
        return tried_list(self.entries)
