"""What only limits in Redis do: sharing, atomicity, leases, and getting by without Redis."""

from __future__ import annotations

import asyncio
import math
import random
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import pytest
import redis

from headrace.access.limits import Grant, Limit, MemoryLimiter, Refusal, periods
from headrace.access.redis_client import RedisClient, RedisDown
from headrace.access.redis_limiter import RedisLimiter
from headrace.access.redis_scripts import SCRIPTS
from headrace.model.errors import ErrorCode
from tests.access.limiters import PATIENCE, Clock, Subject, make_key, new_prefix
from tests.services import RedisServer, redis_server

Make = Callable[..., Subject]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def make(clock: Clock, redis_url: str) -> AsyncIterator[Make]:
    """Instances of a gateway that share a Redis and a prefix."""
    prefix = new_prefix()
    made: list[RedisLimiter] = []

    def make(**options: Any) -> Subject:
        # Leases outlast what the tests let pass, unless they are about leases.
        defaults = {"prefix": prefix, "timeout": PATIENCE, "clock": clock, "lease": 10_000_000.0}
        limiter = RedisLimiter(redis_url, **{**defaults, **options})
        made.append(limiter)
        return Subject(limiter, clock)

    yield make
    for limiter in made:
        await limiter.close()


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A Redis of this test's own, to be taken away."""
    with redis_server() as server:
        yield server


@pytest.mark.parametrize("seed", range(6))
async def test_redis_and_memory_give_the_same_answers(make: Make, clock: Clock, seed: int) -> None:
    """The rules are written twice, in Python and in Lua."""
    chance = random.Random(seed)
    shared, alone = make(), Subject(MemoryLimiter(), clock)
    keys = [
        make_key("a", requests_per_minute=5, tokens_per_minute=300, concurrent_streams=3),
        make_key("b", cost_per_day=3.0, cost_per_month=9.0, tokens_per_minute=500),
        make_key("c", requests_per_minute=40, concurrent_streams=2, cost_per_month=6.5),
    ]
    running: list[tuple[Grant, Grant]] = []
    seen: set[str] = set()
    for _ in range(250):
        clock.now += chance.choice([0.0, 0.1, 1.7, 9.0, 45.0, 11_000.0])
        if running and chance.random() < 0.4:
            pair = running.pop(chance.randrange(len(running)))
            tokens, cost = chance.randrange(200), chance.choice([None, 0.0, 0.3, 1.1])
            await shared.settle(pair[0], tokens, cost)
            await alone.settle(pair[1], tokens, cost)
            continue
        key, tokens = chance.choice(keys), chance.randrange(320)
        price = chance.choice([None, 0.0, 0.2, 0.7])
        one, other = await shared.admit(key, tokens, price), await alone.admit(key, tokens, price)
        assert one.headers("openai_chat") == other.headers("openai_chat")
        assert one.levels == other.levels
        if isinstance(one, Grant) and isinstance(other, Grant):
            assert (one.day, one.month, one.cost_left) == (other.day, other.month, other.cost_left)
            running.append((one, other))
            seen.add("granted")
        else:
            assert isinstance(one, Refusal)
            assert isinstance(other, Refusal)
            assert (one.limit, one.message, one.retry_after) == (other.limit, other.message, other.retry_after)
            seen.add(one.limit)
    assert len(seen) >= 5


class TestSharing:
    async def test_instances_share_every_limit(self, make: Make) -> None:
        one, other = make(), make()
        key = make_key(requests_per_minute=4, tokens_per_minute=100, concurrent_streams=3, cost_per_day=1.0)
        first = await one.granted(key, tokens=30, cost=0.25)
        await other.granted(key, tokens=30, cost=0.25)
        assert (await one.refused(key, tokens=50)).limit is Limit.TOKENS_PER_MINUTE
        assert (await other.refused(key, cost=0.6)).limit is Limit.COST_PER_DAY
        await one.granted(key)
        assert (await other.refused(key)).limit is Limit.CONCURRENT_STREAMS
        await one.settle(first, 0, 0.0)
        await other.granted(key, tokens=70, cost=0.75)

    async def test_state_outlives_the_instance(self, make: Make, clock: Clock) -> None:
        key = make_key(cost_per_month=1.0)
        before = make()
        await before.settle(await before.granted(key, cost=0.9), cost=0.8)
        assert (await make().refused(key, cost=0.3)).limit is Limit.COST_PER_MONTH

    async def test_prefixes_keep_gateways_apart(self, make: Make) -> None:
        key = make_key(requests_per_minute=1)
        await make().granted(key)
        await make(prefix=new_prefix()).granted(key)

    async def test_the_time_is_that_of_redis(self, make: Make, redis_url: str) -> None:
        """The instance's own clock is at NOON in 2025 and does not matter."""
        subject = make(clock=None)
        grant = await subject.granted(make_key(requests_per_minute=1, cost_per_day=1.0))
        client = redis.Redis.from_url(redis_url)
        seconds, _ = client.time()
        client.close()
        assert grant.now == pytest.approx(seconds, abs=60)
        assert (grant.day, grant.month) in (periods(grant.now), periods(grant.now - 60))


class TestAtomicity:
    async def test_many_at_once_get_what_there_is_and_no_more(self, make: Make) -> None:
        subjects = [make(), make()]
        key = make_key(concurrent_streams=17, cost_per_day=100.0)
        answers = await asyncio.gather(*(subjects[n % 2].admit(key, cost=0.5) for n in range(200)))
        grants = [answer for answer in answers if isinstance(answer, Grant)]
        assert len(grants) == 17
        assert len({grant.id for grant in grants}) == 17
        assert {a.limit for a in answers if isinstance(a, Refusal)} == {Limit.CONCURRENT_STREAMS}
        await asyncio.gather(*(subjects[0].settle(grant, cost=0.25) for grant in grants for _ in range(2)))
        last = await subjects[1].granted(key)
        assert (last.levels.active, last.levels.day_cost) == (1, 17 * 0.25)

    async def test_each_call_is_one_round_trip(self, make: Make, redis_url: str) -> None:
        subject = make()
        key = make_key(requests_per_minute=1000, concurrent_streams=1000, cost_per_day=1.0)
        warm = await subject.granted(key)
        assert isinstance(subject.limiter, RedisLimiter)
        await subject.limiter.renew([warm])
        await subject.settle(warm)
        client = redis.Redis.from_url(redis_url)
        before = client.info("commandstats")["cmdstat_evalsha"]["calls"]
        grants = [await subject.granted(key) for _ in range(10)]
        await subject.limiter.renew(grants)
        for grant in grants:
            await subject.settle(grant)
        assert client.info("commandstats")["cmdstat_evalsha"]["calls"] - before == 10 + 1 + 10
        client.close()

    async def test_a_settlement_sent_twice_counts_once(self, make: Make, clock: Clock) -> None:
        """As when an answer of Redis was lost."""
        subject = make()
        key = make_key(cost_per_day=10.0, tokens_per_minute=1000)
        grant = await subject.granted(key, tokens=100, cost=1.0)
        for _ in range(3):
            grant.settled = False
            await subject.settle(grant, 200, 3.0)
        levels = (await subject.granted(key)).levels
        assert (levels.day_cost, levels.tokens) == (3.0, 800.0)


class TestLeases:
    KEY = make_key(concurrent_streams=1, cost_per_day=10.0)

    async def test_slots_of_a_crashed_instance_come_back_and_its_reservation_stays(
        self, make: Make, clock: Clock
    ) -> None:
        await make(lease=60).granted(self.KEY, cost=2.0)  # never settled
        other = make(lease=60)
        clock.now += 59
        await other.refused(self.KEY)
        clock.now += 1
        assert (await other.granted(self.KEY)).levels.day_cost == 2.0

    async def test_a_renewed_lease_holds(self, make: Make, clock: Clock) -> None:
        subject = make(lease=60)
        assert isinstance(subject.limiter, RedisLimiter)
        grant = await subject.granted(self.KEY)
        for _ in range(10):
            clock.now += 40
            await subject.limiter.renew([grant])
            await subject.refused(self.KEY)
        clock.now += 60
        await subject.granted(self.KEY)

    async def test_a_settled_request_is_not_renewed_to_life(self, make: Make, clock: Clock) -> None:
        subject = make()
        assert isinstance(subject.limiter, RedisLimiter)
        grant = await subject.granted(self.KEY)
        await subject.settle(grant)
        grant.settled = False  # as a renewal sees it that was sent before the settlement and arrives after it
        await subject.limiter.renew([grant])
        await subject.granted(self.KEY)

    async def test_after_its_lease_a_request_is_still_settled(self, make: Make, clock: Clock) -> None:
        subject = make(lease=60)
        grant = await subject.granted(self.KEY, cost=5.0)
        clock.now += 3600
        running = await subject.granted(self.KEY, cost=0.0)
        await subject.settle(running)
        await subject.settle(grant, cost=1.0)
        assert (await subject.granted(self.KEY)).levels.day_cost == 1.0

    async def test_more_than_one_batch_is_renewed(self, make: Make, clock: Clock) -> None:
        subject = make(lease=60)
        assert isinstance(subject.limiter, RedisLimiter)
        key = make_key(concurrent_streams=1100)
        grants = [await subject.granted(key) for _ in range(1100)]
        clock.now += 50
        await subject.limiter.renew(grants)
        clock.now += 50
        await subject.refused(key)


class TestWithoutRedis:
    RATES = make_key("rates", requests_per_minute=2, concurrent_streams=5, tokens_per_minute=1000)
    BUDGET = make_key("budget", requests_per_minute=100, cost_per_day=1.0)

    async def test_from_the_start(self, clock: Clock, server: RedisServer) -> None:
        server.stop()
        subject = Subject(RedisLimiter(server.url), clock)
        for _ in range(2):
            assert (await subject.granted(self.RATES)).local
        assert (await subject.refused(self.RATES)).limit is Limit.REQUESTS_PER_MINUTE
        assert isinstance(subject.limiter, RedisLimiter)
        await subject.limiter.close()

    @pytest.mark.parametrize("on_down", ["fail_closed", "fail_open"])
    async def test_taken_away_in_the_middle(self, clock: Clock, server: RedisServer, on_down: Any) -> None:
        limiter = RedisLimiter(server.url, clock=clock, on_down=on_down, timeout=PATIENCE)
        subject = Subject(limiter, clock)
        running = await subject.granted(self.RATES, tokens=10)
        paid = await subject.granted(self.BUDGET, cost=0.5)
        server.stop()

        alone = await subject.granted(self.RATES, tokens=10)
        assert (running.local, alone.local, limiter.up) == (False, True, False)
        await subject.settle(running, 10)
        await subject.settle(alone, 10)
        await subject.settle(paid, cost=0.25)
        if on_down == "fail_closed":
            refusal = await subject.refused(self.BUDGET, cost=0.1)
            assert (refusal.limit, refusal.code) == (Limit.BUDGET_STORE, ErrorCode.QUOTA_EXCEEDED)
            assert refusal.info.is_retryable
            assert dict(refusal.headers("openai_chat"))[b"retry-after"] == b"2"
            assert "Redis" in refusal.message
        else:
            grant = await subject.granted(self.BUDGET, cost=0.9)
            assert (await subject.refused(self.BUDGET, cost=0.2)).limit is Limit.COST_PER_DAY
            await subject.settle(grant, cost=0.125)
        await limiter.close()

    async def test_what_happened_meanwhile_reaches_redis_once_it_is_back(
        self, clock: Clock, redis_url: str, make: Make
    ) -> None:
        subject, other = make(on_down="fail_open"), make()
        assert isinstance(subject.limiter, RedisLimiter)
        key = make_key("k1", cost_per_day=10.0, concurrent_streams=1)
        ended = await subject.granted(key, cost=2.0)
        with _unreachable(subject.limiter):
            await subject.settle(ended, cost=0.5)
            alone = await subject.granted(key, cost=4.0)
            await subject.settle(alone, cost=1.0)
            still = await subject.granted(key, cost=4.0)
            assert (await other.refused(key)).limit is Limit.CONCURRENT_STREAMS
        await subject.limiter.renew([still])
        assert subject.limiter.pending == 0
        seen = await other.granted(key)
        assert seen.levels.day_cost == 0.5 + 1.0
        await other.settle(seen)
        await subject.settle(still, cost=2.0)
        await subject.limiter.renew([])
        assert (await other.granted(key)).levels.day_cost == 0.5 + 1.0 + 2.0

    async def test_what_several_instances_did_alone_is_counted_once_each(self, make: Make) -> None:
        key = make_key(cost_per_day=10.0)
        for cost in (1.0, 2.0):
            subject = make(on_down="fail_open")
            assert isinstance(subject.limiter, RedisLimiter)
            with _unreachable(subject.limiter):
                await subject.settle(await subject.granted(key, cost=3.0), cost=cost)
            with _unreachable(subject.limiter, done=True):  # Redis takes it, and its answer is lost
                await subject.limiter.renew([])
            assert subject.limiter.pending == 1
            await subject.limiter.renew([])
            assert subject.limiter.pending == 0
        assert (await make().granted(key)).levels.day_cost == 1.0 + 2.0

    async def test_an_admission_whose_answer_was_lost_is_undone(self, make: Make) -> None:
        subject, other = make(), make()
        assert isinstance(subject.limiter, RedisLimiter)
        key = make_key(concurrent_streams=1, cost_per_day=10.0, tokens_per_minute=100)
        with _unreachable(subject.limiter, done=True):
            assert (await subject.refused(key, tokens=40, cost=4.0)).limit is Limit.BUDGET_STORE
        assert (await other.refused(key)).limit is Limit.CONCURRENT_STREAMS
        await subject.limiter.renew([])
        levels = (await other.granted(key)).levels
        assert (levels.active, levels.day_cost, levels.tokens) == (1, 0.0, 100.0)

    async def test_a_caller_who_leaves_while_being_admitted_or_settled_costs_nothing(self, make: Make) -> None:
        subject = make()
        assert isinstance(subject.limiter, RedisLimiter)
        key = make_key(concurrent_streams=2, cost_per_day=10.0)
        grant = await subject.granted(key, cost=1.0)
        for call in (subject.admit(key, cost=3.0), subject.settle(grant, cost=0.5)):
            task = asyncio.get_running_loop().create_task(call)
            await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        assert subject.limiter.pending == 2
        await subject.limiter.renew([])
        levels = (await subject.granted(key)).levels
        assert (levels.active, levels.day_cost) == (1, 0.5)

    async def test_redis_is_left_alone_for_a_moment_and_then_tried_again(
        self, clock: Clock, server: RedisServer
    ) -> None:
        limiter = RedisLimiter(server.url, clock=clock, timeout=PATIENCE)
        subject, monotonic = Subject(limiter, clock), Clock(0.0)
        limiter._client._clock = monotonic
        key = make_key(requests_per_minute=1000, tokens_per_minute=1000)
        await subject.granted(key)
        server.stop()
        assert (await subject.granted(key)).local
        server.start()
        assert (await subject.granted(key)).local
        monotonic.now += 1.0
        assert not (await subject.granted(key)).local
        assert limiter.up
        await limiter.close()

    async def test_a_redis_that_hangs_is_given_up(self, clock: Clock) -> None:
        async with _hanging_server() as url, asyncio.timeout(PATIENCE):
            limiter = RedisLimiter(url, timeout=0.05)
            subject = Subject(limiter, clock)
            assert (await subject.granted(self.RATES)).local
            assert (await subject.refused(self.BUDGET)).limit is Limit.BUDGET_STORE
            await limiter.close()

    async def test_while_one_request_tries_redis_again_the_others_do_not_wait(self) -> None:
        monotonic = Clock(0.0)
        async with _hanging_server() as url:
            client = RedisClient(url, SCRIPTS, timeout=0.05, clock=monotonic)
            with pytest.raises(RedisDown) as lost:
                await client.call("admit", ["a", "b"], [])
            monotonic.now += 1.0
            trial = asyncio.get_running_loop().create_task(client.call("admit", ["a", "b"], []))
            await asyncio.sleep(0)
            with pytest.raises(RedisDown) as told:
                await client.call("admit", ["a", "b"], [])
            assert not trial.done()
            with pytest.raises(RedisDown):
                await trial
            assert (lost.value.maybe_done, told.value.maybe_done) == (True, False)
            await client.close()

    async def test_what_is_kept_for_redis_is_bounded(
        self, clock: Clock, server: RedisServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr("headrace.access.redis_limiter._MOST_PENDING", 3)
        server.stop()
        limiter = RedisLimiter(server.url)
        subject = Subject(limiter, clock)
        key = make_key(requests_per_minute=100)
        for _ in range(5):
            await subject.settle(await subject.granted(key))
        assert limiter.pending == 3
        await limiter.close()
        assert "did not reach Redis" in caplog.text

    async def test_a_key_without_limits_does_not_ask_redis(self, clock: Clock, server: RedisServer) -> None:
        server.stop()
        limiter = RedisLimiter(server.url)
        grant = await Subject(limiter, clock).granted(make_key())
        await Subject(limiter, clock).settle(grant)
        assert grant.settled
        assert limiter.up
        assert limiter.pending == 0
        assert grant.levels.requests == math.inf
        await limiter.close()

    async def test_no_password_is_logged(self, server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
        server.stop()
        limiter = RedisLimiter(f"redis://user:hunter2@127.0.0.1:{server.port}/0")
        await Subject(limiter, Clock()).admit(self.RATES)
        await limiter.close()
        assert "does not answer" in caplog.text
        assert "hunter2" not in caplog.text


def test_the_missing_client_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(ImportError, match=r"pip install headrace\[redis\]"):
        RedisLimiter("redis://127.0.0.1:1")


def test_a_url_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="scheme"):
        RedisLimiter("127.0.0.1:6379")


@asynccontextmanager
async def _hanging_server() -> AsyncIterator[str]:
    """The URL of a server that takes everything and answers nothing."""

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


@contextmanager
def _unreachable(limiter: RedisLimiter, *, done: bool = False) -> Iterator[None]:
    """Within it this limiter's calls fail; with `done` after having been carried out."""
    call = limiter._client.call

    async def fail(name: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        if done:
            await call(name, keys, arguments)
        raise RedisDown("taken away by the test", maybe_done=done)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limiter._client, "call", fail)
        yield
