from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from headrace.tape import Library, ReplayServer


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Every test runs on both event loops: what goes over the wire, and when, depends on their transports."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def server() -> AsyncIterator[ReplayServer]:
    """The built-in scripts, as fast as possible; requests are kept."""
    async with ReplayServer(Library.builtin(), speed=0, record=True) as replay:
        yield replay
