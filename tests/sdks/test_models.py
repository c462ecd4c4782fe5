"""The list of models, by the SDKs' own pagers."""

from __future__ import annotations

import pytest

from .conftest import Clients
from .expected import CLIENTS


@pytest.mark.parametrize("client", CLIENTS)
def test_models(clients: Clients, client: str) -> None:
    outcome = clients[client]("models", "replay/parallel-tools")
    assert outcome.failure is None
    assert outcome.value["one"] == "replay/parallel-tools"
    ids = outcome.value["ids"]
    assert {"replay/text", "replay/parallel-tools"} <= set(ids)
    assert len(ids) == len(set(ids)), "a page came twice"


@pytest.mark.parametrize("client", CLIENTS)
def test_a_model_that_is_not_listed(clients: Clients, client: str) -> None:
    outcome = clients[client]("models", "replay/nothing")
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.failure.status) == ("NotFoundError", 404)
    assert "replay/nothing" in outcome.failure.message
