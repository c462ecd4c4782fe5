from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import redis

from headrace.access.idempotency import (
    Busy,
    First,
    IdempotencyStore,
    MemoryIdempotency,
    RedisIdempotency,
    Replay,
    Token,
    fingerprint,
)
from headrace.access.redis_client import RedisDown
from headrace.model.errors import InvalidRequest
from tests.access.limiters import PATIENCE, Clock, new_prefix

Make = Callable[..., IdempotencyStore]
ONE, OTHER = fingerprint("/v1/chat", b"{}"), fingerprint("/v1/chat", b"{ }")
HEADERS = ((b"content-type", b"application/json"), (b"x-request-id", b"\xff"))


@pytest.fixture(params=["memory", "redis"])
async def make(request: pytest.FixtureRequest) -> AsyncIterator[Make]:
    """Stores; those in Redis share what they hold."""
    made: list[IdempotencyStore] = []
    prefix = new_prefix()

    def make(**options: Any) -> IdempotencyStore:
        store: IdempotencyStore
        if request.param == "memory":
            store = MemoryIdempotency(**options)
        else:
            url = request.getfixturevalue("redis_url")
            store = RedisIdempotency(url, prefix=prefix, timeout=PATIENCE, **options)
        made.append(store)
        return store

    yield make
    for store in made:
        await store.close()


async def first(store: IdempotencyStore, key: str = "k", body: str = ONE, scope: str = "s") -> Token:
    answer = await store.begin(scope, key, body)
    assert isinstance(answer, First), answer
    return answer.token


def soon(store: IdempotencyStore, body: str = ONE) -> asyncio.Task[First | Replay | Busy]:
    return asyncio.get_running_loop().create_task(store.begin("s", "k", body))


async def test_a_repeat_gets_the_first_answer_byte_for_byte(make: Make) -> None:
    store = make()
    await store.finish(await first(store), 200, HEADERS, b"\x00\xff answer")
    for _ in range(2):
        assert await store.begin("s", "k", ONE) == Replay(200, HEADERS, b"\x00\xff answer")


async def test_another_request_under_the_same_key_is_refused(make: Make) -> None:
    store = make()
    token = await first(store)
    for _ in range(2):  # while the first runs, and after it
        with pytest.raises(InvalidRequest, match="another request") as caught:
            await store.begin("s", "k", OTHER)
        assert caught.value.info.http_status == 422
        await store.finish(token, 200, (), b"")


async def test_keys_and_scopes_are_apart(make: Make) -> None:
    store = make()
    await store.finish(await first(store, "k", scope="ab"), 200, (), b"secret")
    await first(store, "k", scope="a")
    await first(store, "bk", scope="a")
    await first(store, "K", scope="ab")


async def test_repeats_wait_for_the_first(make: Make) -> None:
    store = make()
    token = await first(store)
    waiting = [soon(store) for _ in range(5)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    await store.finish(token, 201, (), b"one")
    async with asyncio.timeout(PATIENCE):
        assert await asyncio.gather(*waiting) == [Replay(201, (), b"one")] * 5


async def test_when_the_first_fails_one_of_those_waiting_goes_on(make: Make) -> None:
    store = make()
    token = await first(store)
    waiting = [soon(store) for _ in range(4)]
    await asyncio.sleep(0)
    await store.abandon(token)
    async with asyncio.timeout(PATIENCE):
        done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1
        second = done.pop().result()
        assert isinstance(second, First)
        assert second.token.id != token.id
        await store.finish(token, 200, (), b"too late")  # of one that has been given up: ignored
        await store.finish(second.token, 200, (), b"second")
        assert await asyncio.gather(*rest) == [Replay(200, (), b"second")] * 3


async def test_an_abandoned_key_may_carry_another_request(make: Make) -> None:
    store = make()
    await store.abandon(await first(store))
    await first(store, body=OTHER)


async def test_abandoning_after_finishing_is_harmless(make: Make) -> None:
    store = make()
    token = await first(store)
    await store.finish(token, 200, (), b"kept")
    await store.abandon(token)
    await store.finish(token, 200, (), b"again")
    assert await store.begin("s", "k", ONE) == Replay(200, (), b"kept")


@pytest.mark.parametrize(
    ("status", "kept"),
    [(200, True), (400, True), (404, True), (422, True), (401, False), (402, False), (408, False), (409, False),
     (429, False), (500, False), (503, False), (504, False)],
)  # fmt: skip
async def test_what_may_pass_is_not_kept(make: Make, status: int, kept: bool) -> None:
    store = make()
    await store.finish(await first(store), status, (), b"body")
    assert isinstance(await store.begin("s", "k", ONE), Replay if kept else First)


async def test_who_has_waited_long_enough_is_told(make: Make) -> None:
    store = make(wait=0.0)
    await first(store)
    assert await store.begin("s", "k", ONE) == Busy(1.0)


@pytest.mark.parametrize("key", ["", "x" * 256, "a\nb", "\x00"])
async def test_what_cannot_be_a_key_is_refused(make: Make, key: str) -> None:
    with pytest.raises(InvalidRequest, match="Idempotency-Key") as caught:
        await make().begin("s", key, ONE)
    assert caught.value.info.http_status == 400


def test_the_fingerprint_is_of_path_and_body() -> None:
    assert len({fingerprint(*pair) for pair in [("/a", b"b"), ("/ab", b""), ("/a", b"c"), ("", b"/ab")]}) == 4
    assert fingerprint("/a", b"b") == fingerprint("/a", b"b")


class TestMemory:
    async def test_answers_and_runs_end_with_their_time(self) -> None:
        clock = Clock(0.0)
        store = MemoryIdempotency(ttl=100, pending_ttl=50, clock=clock)
        await store.finish(await first(store, "done"), 200, (), b"x")
        stuck = await first(store, "stuck")
        clock.now = 49.9
        assert isinstance(await store.begin("s", "done", ONE), Replay)
        clock.now = 50
        again = await first(store, "stuck")
        await store.finish(stuck, 200, (), b"late")
        assert store.size == (1, 1)
        await store.finish(again, 200, (), b"right")
        clock.now = 100
        await first(store, "done")
        assert store.size == (1, 5)

    async def test_the_oldest_answers_go_first(self) -> None:
        store = MemoryIdempotency(max_entries=3)
        for name in "abcde":
            await store.finish(await first(store, name), 200, (), b"")
        assert store.size == (3, 0)
        assert isinstance(await store.begin("s", "c", ONE), Replay)
        assert isinstance(await store.begin("s", "b", ONE), First)

    async def test_bytes_are_bounded(self) -> None:
        store = MemoryIdempotency(max_bytes=100)
        for name in "abc":
            await store.finish(await first(store, name), 200, ((b"12345", b"67890"),), b"x" * 30)
        assert store.size == (2, 80)
        await store.finish(await first(store, "large"), 200, (), b"x" * 101)
        assert store.size == (2, 80)
        assert isinstance(await store.begin("s", "large", ONE), First)

    async def test_runs_are_not_dropped_for_answers(self) -> None:
        store = MemoryIdempotency(max_entries=1, wait=0.0)
        await first(store, "running")
        for name in "abc":
            await store.finish(await first(store, name), 200, (), b"")
        assert isinstance(await store.begin("s", "running", ONE), Busy)

    async def test_who_leaves_while_waiting_disturbs_nobody(self) -> None:
        store = MemoryIdempotency()
        token = await first(store)
        leaving, staying = soon(store), soon(store)
        await asyncio.sleep(0)
        leaving.cancel()
        await store.finish(token, 200, (), b"x")
        assert isinstance(await staying, Replay)
        assert leaving.cancelled()


class TestRedis:
    async def test_instances_share_what_they_hold(self, redis_url: str) -> None:
        prefix = new_prefix()
        one, other = (RedisIdempotency(redis_url, prefix=prefix, timeout=PATIENCE, wait=0.0) for _ in range(2))
        token = await first(one)
        assert isinstance(await other.begin("s", "k", ONE), Busy)
        await one.finish(token, 200, HEADERS, b"x")
        assert await other.begin("s", "k", ONE) == Replay(200, HEADERS, b"x")
        await one.close()
        await other.close()

    async def test_of_many_at_once_one_is_first(self, redis_url: str) -> None:
        prefix = new_prefix()
        stores = [RedisIdempotency(redis_url, prefix=prefix, timeout=PATIENCE, wait=0.0) for _ in range(3)]
        answers = await asyncio.gather(*(stores[n % 3].begin("s", "k", ONE) for n in range(60)))
        assert sum(isinstance(answer, First) for answer in answers) == 1
        assert sum(isinstance(answer, Busy) for answer in answers) == 59
        for store in stores:
            await store.close()

    async def test_waiting_is_bounded_and_polls_ever_slower(self, redis_url: str) -> None:
        pauses: list[float] = []

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)

        store = RedisIdempotency(redis_url, prefix=new_prefix(), timeout=PATIENCE, wait=10.0, sleep=sleep)
        await first(store)
        assert isinstance(await store.begin("s", "k", ONE), Busy)
        assert sum(pauses) == pytest.approx(10.0)
        assert max(pauses) == 0.5
        assert pauses[:-1] == sorted(pauses[:-1])
        assert len(pauses) < 40
        await store.close()

    async def test_everything_there_has_its_time(self, redis_url: str) -> None:
        prefix = new_prefix()
        store = RedisIdempotency(redis_url, prefix=prefix, timeout=PATIENCE, ttl=500, pending_ttl=50)
        token = await first(store)
        client = redis.Redis.from_url(redis_url)
        (name,) = client.keys(f"{prefix}*")
        assert 45_000 < client.pttl(name) <= 50_000
        await store.finish(token, 200, (), b"x")
        assert 495_000 < client.pttl(name) <= 500_000
        client.close()
        await store.close()

    async def test_what_is_too_large_is_not_kept(self, redis_url: str) -> None:
        store = RedisIdempotency(redis_url, prefix=new_prefix(), timeout=PATIENCE, max_body=10)
        await store.finish(await first(store), 200, (), b"x" * 11)
        await first(store)
        await store.close()

    async def test_without_redis_a_process_keeps_its_own(self) -> None:
        store = RedisIdempotency("redis://127.0.0.1:1", wait=0.0)
        token = await first(store)
        assert token.local
        assert isinstance(await store.begin("s", "k", ONE), Busy)
        await store.finish(token, 200, (), b"x")
        assert await store.begin("s", "k", ONE) == Replay(200, (), b"x")
        abandoned = await first(store, "other")
        await store.abandon(abandoned)
        await first(store, "other")
        await store.close()

    async def test_an_answer_redis_did_not_take_leaves_repeats_busy(
        self, redis_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def fail(*arguments: Any) -> Any:
            raise RedisDown("taken away by the test", maybe_done=True)

        store = RedisIdempotency(redis_url, prefix=new_prefix(), timeout=PATIENCE, wait=0.0)
        token = await first(store)
        with monkeypatch.context() as patch:
            patch.setattr(store._client, "call", fail)
            await store.finish(token, 200, (), b"x")
        assert isinstance(await store.begin("s", "k", ONE), Busy)
        await store.close()

    async def test_what_another_version_left_is_not_read(self, redis_url: str) -> None:
        prefix = new_prefix()
        store = RedisIdempotency(redis_url, prefix=prefix, timeout=PATIENCE)
        await first(store)
        client = redis.Redis.from_url(redis_url)
        (name,) = client.keys(f"{prefix}*")
        client.set(name, b"\x93\x01")
        assert (await first(store)).local
        client.close()
        await store.close()
