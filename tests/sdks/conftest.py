"""The four clients: each official SDK of OpenAI and Anthropic, in Python and JavaScript."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.live import LiveGateway

from . import python_anthropic, python_openai
from .expected import Outcome
from .javascript import FOLDER, NodeProcess

Run = Callable[..., Outcome]
"""run(scenario, model, **request) -> Outcome"""


class Clients:
    """`clients["js-openai"]` runs scenarios in that SDK, against one gateway."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._runs: dict[str, Run] = {
            "python-openai": partial(python_openai.run, url),
            "python-anthropic": partial(python_anthropic.run, url),
        }
        self._nodes: list[NodeProcess] = []

    def __getitem__(self, name: str) -> Run:
        if name not in self._runs:
            if not (FOLDER / "node_modules").exists():
                pytest.skip("the JavaScript SDKs are not installed: run make test")
            node = NodeProcess(name.removeprefix("js-"), self._url)
            self._nodes.append(node)
            self._runs[name] = node.run
        return self._runs[name]

    def close(self) -> None:
        for node in self._nodes:
            node.close()


@pytest.fixture(scope="session")
def clients(gateway: LiveGateway) -> Iterator[Clients]:
    made = Clients(gateway.url)
    yield made
    made.close()
