"""What a key may use: requests and tokens a minute, streams at a time, cost a day and a month. Pure: `now` is passed in.

A request is admitted with the most it can use (prompt and max_tokens, and their price), which is reserved at once, so
that requests running side by side cannot overrun a limit together. When it has ended it is settled: what it really used
takes the reservation's place, and its slot comes back. All limits are asked before any is charged.

The rates are token buckets: a key may use a whole minute's limit at once, then as it refills. A caller therefore can use
up to twice the limit in the first minute; in exchange two numbers are kept for each limit, and no list of requests. A
request that used more tokens than it had reserved leaves its bucket below zero, and the next ones wait for that.

Cost counts on the UTC day and month in which the request was admitted. It is lost when the process ends; `load` brings it
back from the ledger. `redis_limiter` keeps the same rules for many processes, and builds its answers here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Literal

from headrace.access.keys import Key
from headrace.model.errors import ErrorCode, ErrorInfo, GatewayError

CALLS_EPSILON = 1e-6
COST_EPSILON = 1e-9
"""Sums of floats miss round figures by a little, which is nobody's fault."""

_SLOT_SECONDS = 1.0
"""When to ask again for a stream's slot: nobody knows when one comes free."""

Unpriced = Literal["refuse", "admit"]


class Limit(StrEnum):
    """What refused a request."""

    COST_PER_MONTH = "cost_per_month"
    COST_PER_DAY = "cost_per_day"
    TOKENS_PER_MINUTE = "tokens_per_minute"
    REQUESTS_PER_MINUTE = "requests_per_minute"
    CONCURRENT_STREAMS = "concurrent_streams"
    PRICE = "price"
    """The model's price is not known, so no budget can be kept."""
    BUDGET_STORE = "budget_store"
    """What a budget has been used for is not known, as its store cannot be reached."""


@dataclass(slots=True)
class Levels:
    """How far a key has come. Unlimited buckets are at infinity."""

    requests: float
    """Requests that may begin now."""
    tokens: float
    active: int
    """Streams running."""
    day_cost: float
    """USD used and reserved."""
    month_cost: float


@dataclass(slots=True)
class Grant:
    """A request that was admitted. Settle it exactly once, whatever its end; a second time does nothing."""

    id: str
    key: Key
    tokens: int
    """Reserved."""
    cost: float
    """Reserved, in USD; 0 where no price is known."""
    day: int
    """Since 1970; `month` is year * 12 + month. The budgets this request counts on."""
    month: int
    levels: Levels
    """After this request was charged."""
    now: float
    local: bool = True
    """Whether it was admitted by this process alone."""
    settled: bool = False

    @property
    def cost_left(self) -> float | None:
        """USD this request may come to before its key's budget is used up; None without a budget."""
        left = [
            limit - used + self.cost
            for limit, used in (
                (self.key.cost_per_day, self.levels.day_cost),
                (self.key.cost_per_month, self.levels.month_cost),
            )
            if limit is not None
        ]
        return max(0.0, min(left)) if left else None

    def headers(self, format: str) -> list[tuple[bytes, bytes]]:
        """Rate-limit headers as the SDKs of the caller's format (`Format.name`) know them."""
        return _rate_headers(format, self.key, self.levels, self.now)


@dataclass(slots=True)
class Refusal:
    """A request that was not admitted; nothing was charged."""

    limit: Limit
    message: str
    retry_after: float
    """Seconds until the limit gives way; 0 where waiting does not help."""
    code: ErrorCode
    """quota_exceeded (429) or budget_exceeded (402)."""
    key: Key
    levels: Levels | None
    """None where they are not known."""
    now: float

    @property
    def info(self) -> ErrorInfo:
        return ErrorInfo(
            code=self.code,
            type=self.limit.value,
            message=self.message,
            retry_after=self.retry_after or None,
            retryable=self.code is ErrorCode.QUOTA_EXCEEDED and self.retry_after > 0,
        )

    @property
    def error(self) -> GatewayError:
        return GatewayError(self.info)

    def headers(self, format: str) -> list[tuple[bytes, bytes]]:
        """As `Grant.headers`, with Retry-After; or, where waiting does not help, word to SDKs not to try again."""
        headers = [] if self.levels is None else _rate_headers(format, self.key, self.levels, self.now)
        if self.retry_after > 0:
            headers.append((b"retry-after", b"%d" % max(1, math.ceil(self.retry_after))))
        if not self.info.is_retryable:
            headers.append((b"x-should-retry", b"false"))
        return headers


class _Account:
    """A key's state."""

    __slots__ = ("active", "at", "day", "day_cost", "month", "month_cost", "requests", "tokens")

    def __init__(self, now: float) -> None:
        self.at = now
        self.requests = self.tokens = math.inf  # a new bucket is full; `advance` brings it down to its size
        self.active = 0
        self.day = self.month = 0
        self.day_cost = self.month_cost = 0.0

    def advance(self, key: Key, now: float) -> None:
        """Let time pass. A clock that was set back makes nothing refill, and nothing wait for the old time."""
        elapsed = max(0.0, now - self.at)
        self.at = now
        self.requests = _refilled(self.requests, key.requests_per_minute, elapsed)
        self.tokens = _refilled(self.tokens, key.tokens_per_minute, elapsed)
        self.enter(*periods(now))

    def enter(self, day: int, month: int) -> None:
        if day > self.day:
            self.day, self.day_cost = day, 0.0
        if month > self.month:
            self.month, self.month_cost = month, 0.0

    def levels(self) -> Levels:
        return Levels(self.requests, self.tokens, self.active, self.day_cost, self.month_cost)


class MemoryLimiter:
    """The limits of one process. As many accounts as keys have been used; `now` is Unix time everywhere.

    `unpriced` says what becomes of a request whose cost nobody can tell, under a key that has a budget: refused, as a
    budget that one can leave by picking a model without a price is none; or admitted and not counted.
    """

    def __init__(self, *, unpriced: Unpriced = "refuse") -> None:
        self._unpriced = unpriced
        self._accounts: dict[str, _Account] = {}
        self._ids = itertools.count(1)

    def admit(self, key: Key, *, tokens: int, cost: float | None, now: float) -> Grant | Refusal:
        """Reserve `tokens` and `cost` (USD; None: no price is known) of the key's limits, or say which one forbids it."""
        account = self._accounts.get(key.id)
        if account is None:
            account = self._accounts[key.id] = _Account(now)
        account.advance(key, now)
        levels = account.levels()
        limit = violated(key, levels, tokens, cost, self._unpriced)
        if limit is not None:
            return refusal(limit, key, levels, tokens, cost, now)
        reserved = cost or 0.0
        account.requests -= 1
        account.tokens -= tokens
        account.active += 1
        account.day_cost += reserved
        account.month_cost += reserved
        return Grant(str(next(self._ids)), key, tokens, reserved, account.day, account.month, account.levels(), now)

    def settle(self, grant: Grant, *, tokens: int, cost: float | None, now: float) -> None:
        """Put what was really used in the reservation's place, and free the slot. A cost of None (not known) lets the
        reservation stand: 0.0 is for a request that cost nothing."""
        account = self._accounts.get(grant.key.id)
        if grant.settled or account is None:
            return
        grant.settled = True
        account.advance(grant.key, now)
        account.active -= 1
        account.tokens = _refilled(account.tokens - (tokens - grant.tokens), grant.key.tokens_per_minute, 0.0)
        difference = 0.0 if cost is None else cost - grant.cost
        if account.day == grant.day:
            account.day_cost = max(0.0, account.day_cost + difference)
        if account.month == grant.month:
            account.month_cost = max(0.0, account.month_cost + difference)

    def load(self, day_costs: Mapping[str, float], month_costs: Mapping[str, float], *, now: float) -> None:
        """What keys (by id) have cost in the day and the month of `now`, as the ledger knows it. To be called before the
        first request: it replaces what was counted."""
        day, month = periods(now)
        for key_id in {*day_costs, *month_costs}:
            account = self._accounts.setdefault(key_id, _Account(now))
            account.enter(day, month)
            account.day_cost = day_costs.get(key_id, 0.0)
            account.month_cost = month_costs.get(key_id, 0.0)


def periods(now: float) -> tuple[int, int]:
    """The number of the UTC day (since 1970), and of the month (year * 12 + month)."""
    moment = datetime.fromtimestamp(now, UTC)
    return int(now // 86400), moment.year * 12 + moment.month


def violated(key: Key, levels: Levels, tokens: int, cost: float | None, unpriced: Unpriced) -> Limit | None:
    """The limit that forbids a request. Those that make one wait longest come first, so that Retry-After is not asked of
    a limit that gives way while another still stands. `redis_limiter` has the same in Lua."""
    if cost is None and key.has_budget and unpriced == "refuse":
        return Limit.PRICE
    for limit, most, used in (
        (Limit.COST_PER_MONTH, key.cost_per_month, levels.month_cost),
        (Limit.COST_PER_DAY, key.cost_per_day, levels.day_cost),
    ):
        if most is not None and (used >= most or used + (cost or 0.0) > most + COST_EPSILON):
            return limit
    if tokens > levels.tokens + CALLS_EPSILON:
        return Limit.TOKENS_PER_MINUTE
    if levels.requests < 1 - CALLS_EPSILON:
        return Limit.REQUESTS_PER_MINUTE
    if key.concurrent_streams is not None and levels.active >= key.concurrent_streams:
        return Limit.CONCURRENT_STREAMS
    return None


def refusal(limit: Limit, key: Key, levels: Levels, tokens: int, cost: float | None, now: float) -> Refusal:
    """The answer to a request that `limit` forbids."""
    code = ErrorCode.QUOTA_EXCEEDED
    retry_after = 0.0
    whose = f"the key {key.name!r}"
    if limit in (Limit.COST_PER_DAY, Limit.COST_PER_MONTH):
        code = ErrorCode.BUDGET_EXCEEDED
        daily = limit is Limit.COST_PER_DAY
        most = (key.cost_per_day if daily else key.cost_per_month) or 0.0
        used = levels.day_cost if daily else levels.month_cost
        period = "day" if daily else "month"
        if (cost or 0.0) > most + COST_EPSILON:
            message = (
                f"this request may cost {_usd(cost or 0.0)}, and {whose} has a budget of {_usd(most)} a {period}: "
                "ask for fewer max_tokens, or a cheaper model"
            )
        else:
            ends = _next_day(now) if daily else _next_month(now)
            retry_after = ends.timestamp() - now
            message = (
                f"{whose} has used or reserved {_usd(used)} of its budget of {_usd(most)} for this {period}, and this "
                f"request may cost {_usd(cost or 0.0)}; the next {period} begins at {_rfc3339(ends)}"
            )
    elif limit is Limit.TOKENS_PER_MINUTE:
        rate = key.tokens_per_minute or 0
        if tokens > rate:
            message = (
                f"this request may take {tokens} tokens, and {whose} has {rate} a minute: shorten the prompt, or ask for "
                "fewer max_tokens"
            )
        else:
            retry_after = max(_wait(tokens - levels.tokens, rate), _wait(1 - levels.requests, key.requests_per_minute))
            left = max(0, math.floor(levels.tokens))
            message = f"{whose} may use {rate} tokens a minute; {left} are left, and this request may take {tokens}"
    elif limit is Limit.REQUESTS_PER_MINUTE:
        rate = key.requests_per_minute or 0
        retry_after = _wait(1 - levels.requests, rate)
        message = f"{whose} may make {_count(rate, 'request')} a minute"
    elif limit is Limit.CONCURRENT_STREAMS:
        retry_after = _SLOT_SECONDS
        message = f"{whose} may run {_count(key.concurrent_streams or 0, 'request')} at a time; wait for one to end"
    else:
        code = ErrorCode.BUDGET_EXCEEDED
        message = (
            f"{whose} has a budget, and the price of this model is not known: set its price in the configuration "
            "(0 where it is free)"
        )
    return Refusal(limit, message, retry_after, code, key, levels, now)


def _wait(missing: float, per_minute: int | None) -> float:
    """Seconds until a bucket has refilled by so much: in milliseconds, rounded up by more than Unix time, as a float, is
    coarse; whoever waits as long as told shall not find the bucket a hair too low."""
    if per_minute is None or missing <= 0:
        return 0.0
    return math.ceil(missing * 60_000 / per_minute + 0.001) / 1000


def _refilled(level: float, per_minute: int | None, elapsed: float) -> float:
    return math.inf if per_minute is None else min(float(per_minute), level + elapsed * per_minute / 60)


def _rate_headers(format: str, key: Key, levels: Levels, now: float) -> list[tuple[bytes, bytes]]:
    headers: list[tuple[bytes, bytes]] = []
    for unit, most, level in (
        (b"requests", key.requests_per_minute, levels.requests),
        (b"tokens", key.tokens_per_minute, levels.tokens),
    ):
        if most is None:
            continue
        reset = (most - level) * 60 / most  # seconds until the bucket is full
        names, when = (
            (_ANTHROPIC_NAMES, _rfc3339(datetime.fromtimestamp(math.ceil(now + reset), UTC)))
            if format == "anthropic"
            else (_OPENAI_NAMES, _duration(reset))
        )
        values = (b"%d" % most, b"%d" % max(0, math.floor(level + CALLS_EPSILON)), when.encode())
        headers += [(name % unit, value) for name, value in zip(names, values, strict=True)]
    return headers


_ANTHROPIC_NAMES = (
    b"anthropic-ratelimit-%b-limit",
    b"anthropic-ratelimit-%b-remaining",
    b"anthropic-ratelimit-%b-reset",
)
_OPENAI_NAMES = (b"x-ratelimit-limit-%b", b"x-ratelimit-remaining-%b", b"x-ratelimit-reset-%b")
"""Also for formats whose vendors have no such headers: these are the ones most clients look for."""


def _duration(seconds: float) -> str:
    """As OpenAI writes it: 120ms, 6s, 1m30s."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _next_day(now: float) -> datetime:
    return datetime.fromtimestamp(now // 86400 * 86400, UTC) + timedelta(days=1)


def _next_month(now: float) -> datetime:
    moment = datetime.fromtimestamp(now, UTC)
    return datetime(moment.year + moment.month // 12, moment.month % 12 + 1, 1, tzinfo=UTC)


def _rfc3339(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _usd(amount: float) -> str:
    return f"${amount:.2f}" if amount >= 1 else f"${amount:.4g}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
