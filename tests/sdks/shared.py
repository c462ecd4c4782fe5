"""What both Python SDKs' scenarios need."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from pydantic import BaseModel

from .expected import Failure

USER = [{"role": "user", "content": "What is a headrace?"}]
WAIT = 1.0
"""Seconds that a scenario waits for a provider that says nothing at all, before it gives up."""
PATIENCE = 20.0
"""Seconds for what must happen, and soon."""
RESULT = "12 degrees"
"""What a tool says, where the scenario is told nothing else."""


class Wheel(BaseModel):
    type: str
    diameter_m: float
    buckets: int


class Mill(BaseModel):
    """The object of the script `json`."""

    mill: str
    wheel: Wheel
    stones: list[str]
    running: bool
    note: str


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether it holds within PATIENCE."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def failure(error: BaseException) -> Failure:
    """What an SDK raised; both have the same fields."""
    response = getattr(error, "response", None)
    return Failure(
        kind=type(error).__name__,
        message=str(error),
        status=getattr(error, "status_code", None),
        request_id=getattr(error, "request_id", None),
        retry_after=None if response is None else response.headers.get("retry-after"),
    )


async def cancelled(waiting: Coroutine[Any, Any, Any], ready: Callable[[], object] | None = None) -> None:
    """Cancel what waits for a silent provider, once `ready()`; without it after WAIT. Raises CancelledError."""
    task = asyncio.get_running_loop().create_task(waiting)
    if ready is None:
        await asyncio.sleep(WAIT)
    else:
        async with asyncio.timeout(PATIENCE):
            while not (ready() or task.done()):  # noqa: ASYNC110  # it looks at an answer that an SDK fills, which has no event
                await asyncio.sleep(0.01)
    if task.done():
        await task  # raises what went wrong
        raise AssertionError("the provider was to be silent")
    task.cancel()
    await task
