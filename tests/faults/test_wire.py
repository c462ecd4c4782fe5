"""Faults on the wire, through a proxy that knows nothing of HTTP: at any byte of the provider's answer."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import pytest

from headrace.tape import Library, ReplayServer
from tests.faults.proxy import Fault, FaultProxy
from tests.gateway.client import Answer, Connection
from tests.gateway.test_serving import CALLERS, text_of
from tests.live import LiveGateway, LoopThread, gateway_config, live_gateway, live_replay

ids = itertools.count()

BEFORE: dict[str, Fault] = {
    "reset when connected": Fault(accept=False),
    "closed without an answer": Fault(then="close"),
    "reset without an answer": Fault(then="reset"),
    "silent": Fault(then="hang"),
    "no HTTP at all": Fault(then="garbage"),
    "cut in the status line": Fault(after=10, then="close"),
    "reset in the headers": Fault(after=60, then="reset"),
    "silent in the headers": Fault(after=60, then="hang"),
    "garbage in the headers": Fault(after=60, then="garbage"),
}
"""Before the first event of the answer; 60 bytes are amid its headers."""

LATER = {
    "cut": Fault(after=1200, then="close"),
    "reset": Fault(after=1200, then="reset"),
    "silent": Fault(after=1200, then="hang"),
    "garbage": Fault(after=1200, then="garbage"),
}
"""In the midst of the text, inside a chunk."""


@pytest.fixture(scope="module")
def provider(servers: LoopThread) -> Iterator[ReplayServer]:
    with live_replay(servers, Library.builtin()) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(servers: LoopThread, provider: ReplayServer) -> Iterator[FaultProxy]:
    proxy = FaultProxy(provider.port)
    servers.call(proxy.start())
    yield proxy
    servers.call(proxy.aclose())


@pytest.fixture(scope="module")
def gateway(servers: LoopThread, provider: ReplayServer, proxy: FaultProxy) -> Iterator[LiveGateway]:
    config = gateway_config(
        provider.base_url,
        "timeouts: {first_token: 400ms, idle_stream: 400ms}\n"
        "routes: {both: {candidates: [wire/text, as-anthropic/text], cross_model: true}}\n",
        providers={"wire": f"{{format: openai_chat, base_url: 'http://127.0.0.1:{proxy.port}/v1'}}"},
    )
    with live_gateway(servers, config) as live:
        yield live


def ask(gateway: LiveGateway, caller: str, model: str, request_id: str = "") -> Answer:
    path, content_type, body = CALLERS[caller]
    with Connection(gateway.port) as connection:
        sent = json.dumps({"model": model, "stream": True, **body}).encode()
        connection.send(path, sent, {"content-type": content_type, "x-request-id": request_id})
        return connection.answer()


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("fault", BEFORE)
def test_before_the_first_output_the_next_candidate_answers(
    gateway: LiveGateway, proxy: FaultProxy, caller: str, fault: str
) -> None:
    request_id = f"wire-{next(ids)}"
    # A connection that was kept from before may be found dead first, and is then replaced unasked.
    proxy.faults = [BEFORE[fault]] * 2
    answer = ask(gateway, caller, "both", request_id)
    proxy.faults = []
    assert answer.status == 200
    assert text_of(caller, answer) == text_of(caller, ask(gateway, caller, "as-anthropic/text"))
    (record,) = gateway.records.of(request_id)
    assert (record.outcome, record.provider, record.failovers) == ("completed", "as-anthropic", 1)
    assert record.attempts[0].code in ("provider_unavailable", "timeout")


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("fault", LATER)
def test_in_the_midst_the_error_is_told(gateway: LiveGateway, proxy: FaultProxy, caller: str, fault: str) -> None:
    request_id = f"wire-{next(ids)}"
    proxy.faults = [LATER[fault]] * 2
    answer = ask(gateway, caller, "both", request_id)
    proxy.faults = []
    assert answer.status == 200
    assert answer.complete, "the answer ends as HTTP says"
    whole = text_of(caller, ask(gateway, caller, "as-anthropic/text"))
    text = text_of(caller, answer)
    assert whole.startswith(text)
    assert 0 < len(text) < len(whole)
    assert b"error" in answer.body
    (record,) = gateway.records.of(request_id)
    assert record.outcome == "failed"


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("drip", [1, 7])
def test_a_slow_drip_changes_nothing(gateway: LiveGateway, proxy: FaultProxy, caller: str, drip: int) -> None:
    proxy.faults = [Fault(drip=drip)] * 2
    answer = ask(gateway, caller, "wire/text")
    proxy.faults = []
    assert text_of(caller, answer) == text_of(caller, ask(gateway, caller, "as-openai/text"))
