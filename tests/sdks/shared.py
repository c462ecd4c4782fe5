"""What both Python SDKs' scenarios need."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from pydantic import BaseModel

from .expected import Failure

USER = [{"role": "user", "content": "What is a headrace?"}]
WAIT = 1.0
"""Seconds that a scenario waits for a silent provider before it gives up."""
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


async def cancelled(waiting: Coroutine[Any, Any, Any]) -> None:
    """Raises CancelledError, as the task is cancelled while the provider is silent."""
    task = asyncio.get_running_loop().create_task(waiting)
    done, _ = await asyncio.wait([task], timeout=WAIT)
    assert not done, "the provider was to be silent"
    task.cancel()
    await task
