"""A user who stops in the middle: the SDK closes its connection, and the gateway closes the provider's."""

from __future__ import annotations

import pytest

from headrace.tape import ReplayServer

from .conftest import Clients
from .expected import CLIENTS, PROVIDERS, SCRIPTS
from .shared import eventually

MODELS = {
    # scenario: a model that would go on for half a minute, or falls silent where the scenario wants to wait
    "close": "long?speed=1",
    "leave": "long?speed=1",
    "cancel": "long?silence=8",
    "cancel-early": "silent-start?speed=1",
}


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("scenario", MODELS)
@pytest.mark.parametrize("client", CLIENTS)
def test_the_provider_is_let_go(
    clients: Clients, replay: ReplayServer, client: str, scenario: str, provider: str
) -> None:
    assert eventually(lambda: replay.active == 0), "an answer of an earlier test is still under way"
    aborted, asked = replay.aborted, len(replay.requests)
    outcome = clients[client](scenario, f"{provider}/{MODELS[scenario]}")
    assert eventually(lambda: replay.active == 0), "the provider still sends"
    assert replay.aborted == aborted + 1, "the answer came to its end"
    assert len(replay.requests) == asked + 1
    if scenario == "cancel-early":
        assert outcome.answers == []
    else:
        (seen,) = outcome.answers
        assert seen.text
        assert SCRIPTS["long"].text.startswith(seen.text)
    if outcome.failure is not None:
        assert outcome.failure.kind in ("CancelledError", "APIUserAbortError")
