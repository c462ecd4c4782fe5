"""A coroutine that is stepped is told of all that it would be told of in a task."""

from __future__ import annotations

import asyncio

import pytest

from headrace.serve.stepping import Done, step


async def test_what_does_not_wait_is_done() -> None:
    async def work() -> int:
        return 5

    stepped = step(work())
    assert isinstance(stepped, Done)
    assert stepped.value == 5


async def test_the_rest_waits_for_the_same() -> None:
    first: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work() -> int:
        return await first + await asyncio.sleep(0, 1)

    rest = step(work())
    assert not isinstance(rest, Done)
    first.set_result(4)
    assert await rest == 5


@pytest.mark.parametrize("waits_again", [False, True])
async def test_a_failure_of_what_is_waited_for_reaches_who_waits(waits_again: bool) -> None:
    first: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    second: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        try:
            await first
        except ValueError as error:
            if waits_again:
                try:
                    await second
                except KeyError:
                    await asyncio.sleep(0)
            return f"caught {error}"
        return "missed"

    rest = step(work())
    assert not isinstance(rest, Done)
    first.set_exception(ValueError("it"))
    second.set_exception(KeyError())
    assert await rest == "caught it"
    assert second.exception()


async def test_a_cancellation_reaches_who_waits() -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            seen.append("cleaned up")
            await asyncio.sleep(0)
            seen.append("in peace")

    rest = step(work())
    assert not isinstance(rest, Done)

    async def whole() -> None:
        await rest

    task = asyncio.get_running_loop().create_task(whole())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cleaned up", "in peace"]
