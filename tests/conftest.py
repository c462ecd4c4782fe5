"""Servers shared by all tests that need a live gateway. Imported only by those, so that a codec's tests start fast."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from headrace.tape import ReplayServer
    from tests.live import LiveGateway, LoopThread


# The suite tries the same examples each time, so that it says the same of the same code; HYPOTHESIS_PROFILE=search looks
# for new ones.
settings.register_profile("suite", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


@pytest.fixture(scope="session")
def servers() -> Iterator[LoopThread]:
    from tests.live import LoopThread

    thread = LoopThread()
    yield thread
    thread.close()


@pytest.fixture(scope="session")
def replay(servers: LoopThread) -> Iterator[ReplayServer]:
    """The scripted streams, as a provider that speaks all formats."""
    from headrace.tape import Library
    from tests.live import live_replay

    with live_replay(servers, Library.builtin()) as server:
        yield server


@pytest.fixture(scope="session")
def gateway(servers: LoopThread, replay: ReplayServer) -> Iterator[LiveGateway]:
    """A gateway with the providers of `tests.live.PROVIDERS`, all of them `replay`."""
    from tests.live import gateway_config, live_gateway

    with live_gateway(servers, gateway_config(replay.base_url)) as live:
        yield live


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A real Redis, shared by the session: tests use keys of their own."""
    from tests.services import redis_server

    with redis_server() as server:
        yield server.url


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A real PostgreSQL, shared by the session."""
    from tests.services import postgres_server

    with postgres_server() as url:
        yield url


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What `headrace serve` keeps goes to a folder of the tests, not to that of whoever runs them."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield
