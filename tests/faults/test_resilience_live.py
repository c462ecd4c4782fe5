"""Circuits, hedges, a Redis that goes away, a gateway that is killed: over real sockets and with real processes."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.access.keys import KeyFile
from headrace.metering import open_ledger
from headrace.tape import Library, ReplayServer
from tests.gateway.client import Answer, Connection, get
from tests.gateway.test_life import eventually
from tests.gateway.test_serving import CALLERS, text_of
from tests.live import LoopThread, gateway_config, live_gateway, live_replay
from tests.services import free_port, redis_server

ids = itertools.count()


@pytest.fixture(scope="module")
def provider(servers: LoopThread) -> Iterator[ReplayServer]:
    with live_replay(servers, Library.builtin()) as server:
        yield server


def ask(port: int, model: str, *, caller: str = "openai", headers: dict[str, str] | None = None, **more: Any) -> Answer:
    path, content_type, body = CALLERS[caller]
    with Connection(port) as connection:
        sent = json.dumps({"model": model, "stream": True, **body, **more}).encode()
        connection.send(path, sent, {"content-type": content_type, **(headers or {})})
        return connection.answer()


# --- circuits ---------------------------------------------------------------------------------------------------------


def test_a_circuit_opens_is_passed_over_and_closes_again(servers: LoopThread, provider: ReplayServer) -> None:
    sick = "as-openai/text?status=500"
    routes = f"routes: {{both: {{candidates: ['{sick}', as-anthropic/text], cross_model: true}}}}\n"
    config = gateway_config(provider.base_url, routes, breaker="{min_requests: 4, open_for: 200ms, trials: 1}")
    with live_gateway(servers, config) as gateway:

        def state() -> str:
            data = get(gateway.port, "/v1/providers").json()["data"]
            (entry,) = [entry for entry in data if entry["id"] == "as-openai"]
            return str(entry["models"].get("text?status=500", {}).get("state"))

        for _ in range(4):
            assert ask(gateway.port, sick).status == 503
        assert state() == "open"
        metrics = get(gateway.port, "/metrics")
        assert metrics.headers["content-type"].startswith("text/plain; version=")
        shown = b'headrace_circuit_state{model="text?status=500",provider="as-openai"} 2.0'
        assert shown in metrics.body
        assert b"headrace_streams 0.0" in metrics.body
        seen = len(provider.requests)
        refused = ask(gateway.port, sick)
        assert refused.status == 503
        assert refused.headers["retry-after"] == "1"
        assert len(provider.requests) == seen, "nothing was sent there"
        assert ask(gateway.port, "both").status == 200, "the route's other candidate took it"
        assert len(provider.requests) == seen + 1
        assert eventually(lambda: state() == "half_open")
        assert ask(gateway.port, sick).status == 503, "the trial was sent"
        assert len(provider.requests) == seen + 2
        assert state() == "open"


def test_gateways_with_one_redis_share_their_circuits(
    servers: LoopThread, provider: ReplayServer, redis_url: str
) -> None:
    sick = "as-openai/text?status=500"
    config = gateway_config(
        provider.base_url,
        f"redis: {{url: '{redis_url}', prefix: 'test-shared-{next(ids)}:'}}\n",
        breaker="{min_requests: 4, open_for: 60s}",
    )
    with live_gateway(servers, config) as one, live_gateway(servers, config) as other:
        assert ask(other.port, sick).status == 503
        for _ in range(4):
            assert ask(one.port, sick).status == 503
        seen = len(provider.requests)

        def refused_at_once() -> bool:
            assert ask(other.port, sick).status == 503
            return len(provider.requests) == seen

        assert not refused_at_once(), "it has seen one or two failures itself"
        seen = len(provider.requests)
        assert eventually(lambda: get(other.port, "/v1/providers").body.count(b'"open"') == 1)
        assert refused_at_once()


# --- hedging ----------------------------------------------------------------------------------------------------------


def test_the_loser_of_a_hedge_is_cut_off_and_recorded(servers: LoopThread, provider: ReplayServer) -> None:
    route = "{candidates: ['as-openai/text?silence=0', as-anthropic/text], cross_model: true, hedge_after: 50ms}"
    with live_gateway(servers, gateway_config(provider.base_url, f"routes: {{hedged: {route}}}")) as gateway:
        request_id = f"hedge-{next(ids)}"
        aborted = provider.aborted
        answer = ask(gateway.port, "hedged", caller="gateway", headers={"x-request-id": request_id})
        assert text_of("gateway", answer)
        routing = answer.sse_json()[-1]["routing"]
        assert (routing["selected_provider"], routing["attempts"], routing["failovers"]) == ("as-anthropic", 2, 1)
        assert [entry["code"] for entry in routing["tried"]] == ["hedge_lost"]
        assert eventually(lambda: provider.aborted == aborted + 1), "the loser's provider is let go"
        assert provider.active == 0
        (record,) = gateway.records.of(request_id)
        assert [attempt.code for attempt in record.attempts] == ["hedge_lost", None]
        lost = record.attempts[0].usage
        assert lost is not None, "its provider had begun to answer"
        assert lost.prompt_tokens > 0
        assert lost.quality == "estimated"


# --- Redis ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("when_down", "status"), [("refuse", 429), ("allow", 200)])
def test_without_redis_budgets_are_refused_unless_told_otherwise(
    servers: LoopThread, provider: ReplayServer, tmp_path: Path, when_down: str, status: int
) -> None:
    file = KeyFile(tmp_path / "keys.json")
    _, poor = file.create("poor", now=datetime.now(UTC), cost_per_day=1.0)
    _, plain = file.create("plain", now=datetime.now(UTC), requests_per_minute=100)
    with redis_server() as redis:
        extra = (
            f"keys_file: {file.path}\nprices: {{text: {{input: 1, output: 1}}}}\n"
            f"redis: {{url: '{redis.url}', budgets_when_down: {when_down}}}\n"
        )
        with live_gateway(servers, gateway_config(provider.base_url, extra)) as gateway:

            def status_of(secret: str) -> int:
                return ask(gateway.port, "as-openai/text", headers={"x-api-key": secret}).status

            assert (status_of(poor), status_of(plain)) == (200, 200)
            redis.stop()
            assert (status_of(poor), status_of(plain)) == (status, 200)
            redis.start()
            assert eventually(lambda: status_of(poor) == 200), "it finds its way back"


# --- killed -----------------------------------------------------------------------------------------------------------


def test_what_was_answered_is_in_the_ledger_although_the_gateway_was_killed(tmp_path: Path) -> None:
    """kill -9 in the middle of a run, then another process on the same folder."""
    port = free_port()
    config = tmp_path / "headrace.yaml"
    config.write_text(
        f"server: {{port: {port}}}\nusage: {{folder: {tmp_path / 'usage'}}}\nenvironment_providers: false\n"
    )
    ledger = f"sqlite:///{tmp_path / 'usage' / 'usage.db'}"
    acknowledged: set[str] = set()
    process = serve(config, port)

    def run(number: int) -> None:
        for position in itertools.count():
            request_id = f"{number}-{position}"
            try:
                answer = ask(port, "replay/hello", headers={"x-request-id": request_id})
            except (OSError, ConnectionError):
                return
            if b"[DONE]" in answer.body:
                acknowledged.add(request_id)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: len(acknowledged) > 300)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    for thread in threads:
        thread.join(20)
    assert len(acknowledged) > 300

    process = serve(config, port)
    try:
        assert eventually(lambda: acknowledged <= recorded(ledger).keys()), "an answered request has no record"
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert set(recorded(ledger).values()) == {1}, "a request was recorded twice"


def serve(config: Path, port: int) -> subprocess.Popen[bytes]:
    command = [str(Path(sys.executable).with_name("headrace")), "serve", "--config", str(config)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ready() -> bool:
        try:
            return get(port, "/readyz").status == 200
        except OSError:
            return False

    end = time.monotonic() + 30
    while not ready():
        assert process.poll() is None, "headrace serve has ended"
        assert time.monotonic() < end
        time.sleep(0.05)
    return process


def recorded(ledger: str) -> dict[str, int]:
    """How often each request is in the ledger."""
    import sqlite3

    open_ledger(ledger).close()  # it exists
    with sqlite3.connect(ledger.removeprefix("sqlite:///")) as connection:
        rows = connection.execute("SELECT request_id, COUNT(*) FROM headrace_usage GROUP BY request_id").fetchall()
    return dict(rows)


def test_a_budget_is_remembered_across_a_restart_without_redis(tmp_path: Path) -> None:
    port = free_port()
    _, secret = KeyFile(tmp_path / "keys.json").create("poor", now=datetime.now(UTC), cost_per_day=0.05)
    config = tmp_path / "headrace.yaml"
    config.write_text(
        f"server: {{port: {port}}}\nusage: {{folder: {tmp_path / 'usage'}}}\nenvironment_providers: false\n"
        "keys_file: keys.json\nprices: {'long?speed=0': {input: 1000, output: 1000}}\n"
    )
    key = {"x-api-key": secret}
    for expected in (200, 402):
        process = serve(config, port)
        try:
            assert ask(port, "replay/long?speed=0", headers=key).status == expected
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
