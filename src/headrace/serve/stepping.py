"""Running a coroutine without a task for as long as it does not have to wait.

ASGI's `send` and `receive` are coroutines that mostly finish at once: the caller's buffer has room, the body is there.
`step` runs one up to its end or its first wait; a wait is carried on by awaiting what it returned. The trick: a generator
that yields the future the coroutine waits for once more, to whoever runs it from then on.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Done(Generic[T]):
    """It finished without waiting."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value


def step(awaitable: Awaitable[T]) -> Done[T] | Awaitable[T]:
    """Run to the end, or to the first wait: then the rest, to be awaited. Raises whatever the coroutine raises."""
    coroutine = awaitable.__await__()
    try:
        waiter = coroutine.send(None)
    except StopIteration as stop:
        return Done(stop.value)
    return _resumed(coroutine, waiter)


@types.coroutine
def _resumed(coroutine: Generator[Any, Any, T], waiter: Any) -> Generator[Any, Any, T]:
    try:
        yield waiter
    except BaseException as error:  # of what was waited for, or a cancellation: theirs who wait
        thrown = error
    else:
        return (yield from coroutine)
    try:
        waiter = coroutine.throw(thrown)
    except StopIteration as stop:
        value: T = stop.value
        return value
    return (yield from _resumed(coroutine, waiter))
