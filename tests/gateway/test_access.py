"""Keys, limits, budgets and repeats over real sockets, with the official places for a key."""

from __future__ import annotations

import concurrent.futures
import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.access.keys import KeyFile
from headrace.tape import Library, ReplayServer
from tests.gateway.client import Answer, Connection, get
from tests.gateway.test_life import eventually
from tests.gateway.test_serving import CALLERS, text_of
from tests.live import LiveGateway, LoopThread, gateway_config, live_gateway, live_replay

NOW = datetime.now(UTC)
PRICES = "prices: {text: {input: 1000, output: 1000}, long: {input: 1000, output: 1000}, echo: {input: 0, output: 0}}\n"
KEYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "narrow": {"models": ("as-openai/text", "route-*")},
    "slow": {"requests_per_minute": 2},
    "terse": {"tokens_per_minute": 60},
    "single": {"concurrent_streams": 1},
    "poor": {"cost_per_day": 0.05},
    "poor-month": {"cost_per_month": 0.05},
    "expired": {"expires_at": (NOW - timedelta(hours=1)).isoformat()},
}

ids = itertools.count()


@pytest.fixture(scope="module")
def provider(servers: LoopThread) -> Iterator[ReplayServer]:
    with live_replay(servers, Library.builtin()) as server:
        yield server


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The file, and the secrets by their keys' names."""
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    file = KeyFile(path)
    secrets = {name: file.create(name, now=NOW, **limits)[1] for name, limits in KEYS.items()}
    _, secrets["revoked"] = file.create("revoked", now=NOW)
    file.revoke("revoked")
    return path, secrets


@pytest.fixture(scope="module", params=["memory", "redis"])
def guarded(
    request: pytest.FixtureRequest,
    servers: LoopThread,
    provider: ReplayServer,
    keys: tuple[Path, dict[str, str]],
) -> Iterator[LiveGateway]:
    """A gateway with keys; its limits in memory, or in a real Redis."""
    extra = f"keys_file: {keys[0]}\n{PRICES}routes: {{route-a: {{candidates: [as-openai/text]}}}}\n"
    if request.param == "redis":
        url = request.getfixturevalue("redis_url")
        extra += f"redis: {{url: '{url}', prefix: 'test-access-{next(ids)}:'}}\n"
    with live_gateway(servers, gateway_config(provider.base_url, extra)) as gateway:
        yield gateway


def ask(
    gateway: LiveGateway,
    headers: dict[str, str],
    *,
    caller: str = "openai",
    model: str = "as-openai/text",
    stream: bool = True,
    **more: Any,
) -> Answer:
    path, content_type, body = CALLERS[caller]
    with Connection(gateway.port) as connection:
        sent = json.dumps({"model": model, "stream": stream, **body, **more}).encode()
        connection.send(path, sent, {"content-type": content_type, **headers})
        return connection.answer()


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


@pytest.mark.parametrize("header", ["authorization", "x-api-key", "x-goog-api-key", "api-key"])
@pytest.mark.parametrize("caller", CALLERS)
def test_a_key_is_taken_wherever_the_sdks_put_it(
    guarded: LiveGateway, keys: tuple[Path, dict[str, str]], provider: ReplayServer, header: str, caller: str
) -> None:
    secret = keys[1]["plain"]
    value = f"Bearer {secret}" if header == "authorization" else secret
    answer = ask(guarded, {header: value}, caller=caller)
    assert answer.status == 200
    assert text_of(caller, answer)
    sent = provider.requests[-1].headers.values()
    assert secret not in " ".join(sent), "a caller's key is not the provider's business"


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize(
    ("secret", "status"),
    [(None, 401), ("", 401), ("hr-0000-nonsense", 401), ("sk-else", 401), ("revoked", 403), ("expired", 403)],
)
def test_who_has_no_valid_key_gets_nowhere(
    guarded: LiveGateway,
    keys: tuple[Path, dict[str, str]],
    provider: ReplayServer,
    caller: str,
    secret: str | None,
    status: int,
) -> None:
    seen = len(provider.requests)
    headers = {} if secret is None else bearer(keys[1].get(secret, secret))
    answer = ask(guarded, headers, caller=caller)
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    assert "error" in answer.json()
    assert len(provider.requests) == seen


def test_the_pages_need_a_key_and_health_does_not(guarded: LiveGateway, keys: tuple[Path, dict[str, str]]) -> None:
    for path in ("/v1/models", "/v1/models/route-a", "/v1/providers"):
        assert get(guarded.port, path).status == 401
        assert get(guarded.port, path, headers=bearer(keys[1]["plain"])).status == 200
    for path in ("/healthz", "/readyz"):
        assert get(guarded.port, path).status == 200
    narrow = get(guarded.port, "/v1/models", headers=bearer(keys[1]["narrow"])).json()
    assert [model["id"] for model in narrow["data"]] == ["route-a"], "only what the key may use is listed"


@pytest.mark.parametrize(
    ("model", "status"),
    [("as-openai/text", 200), ("route-a", 200), ("as-openai/echo", 403), ("as-anthropic/text", 403)],
)
def test_a_key_may_be_bound_to_models(
    guarded: LiveGateway, keys: tuple[Path, dict[str, str]], model: str, status: int
) -> None:
    assert ask(guarded, bearer(keys[1]["narrow"]), model=model).status == status


@pytest.mark.parametrize("caller", ["openai", "anthropic"])
def test_requests_a_minute(guarded: LiveGateway, keys: tuple[Path, dict[str, str]], caller: str) -> None:
    answers = [ask(guarded, bearer(keys[1]["slow"]), caller=caller, model="as-openai/echo") for _ in range(3)]
    refused = [answer for answer in answers if answer.status != 200]
    assert refused, "the bucket of two holds no three"
    limited = refused[-1]
    assert limited.status == 429
    assert 1 <= int(limited.headers["retry-after"]) <= 60
    name = "anthropic-ratelimit-requests-limit" if caller == "anthropic" else "x-ratelimit-limit-requests"
    assert limited.headers[name] == "2"
    for answer in answers:
        if answer.status == 200:
            assert answer.headers[name] == "2"


def test_tokens_a_minute_are_those_that_were_used(guarded: LiveGateway, keys: tuple[Path, dict[str, str]]) -> None:
    first = ask(guarded, bearer(keys[1]["terse"]), model="as-openai/long")
    assert first.status == 200
    assert int(first.headers["x-ratelimit-remaining-tokens"]) > 0
    assert eventually(lambda: ask(guarded, bearer(keys[1]["terse"]), model="as-openai/echo").status == 429)


def test_streams_at_once_and_the_slot_comes_back(guarded: LiveGateway, keys: tuple[Path, dict[str, str]]) -> None:
    secret = bearer(keys[1]["single"])
    path, content_type, body = CALLERS["openai"]
    sent = json.dumps({"model": "as-openai/text?silence=9", "stream": True, **body}).encode()
    for _ in range(3):  # whatever the end, the slot is free again
        with Connection(guarded.port) as running:
            running.send(path, sent, {"content-type": content_type, **secret})
            assert running.head()[0] == 200
            second = ask(guarded, secret, model="as-openai/echo")
            assert second.status == 429
            assert second.headers["retry-after"] == "1"
        assert eventually(lambda: ask(guarded, secret, model="as-openai/echo").status == 200)


@pytest.mark.parametrize("name", ["poor", "poor-month"])
def test_a_budget_is_checked_before_and_kept_after(
    guarded: LiveGateway, keys: tuple[Path, dict[str, str]], name: str
) -> None:
    secret = bearer(keys[1][name])
    beforehand = ask(guarded, secret, max_tokens=100_000)
    assert beforehand.status == 402, "its worst case alone is more than the budget"
    assert ask(guarded, secret, model="as-openai/hello").status == 402, (
        "and a model without a price cannot be held to one"
    )

    streamed = ask(guarded, secret, model="as-openai/long")
    assert streamed.status == 200
    last = streamed.sse_json()[-1]
    assert last["error"]["code"] == "budget_exceeded"
    assert streamed.sse()[-1][1] == "[DONE]"
    assert eventually(lambda: ask(guarded, secret).status == 402), "what was streamed has used it up"


@pytest.mark.parametrize("caller", ["openai", "gateway"])
def test_the_requests_own_budget(
    guarded: LiveGateway, keys: tuple[Path, dict[str, str]], provider: ReplayServer, caller: str
) -> None:
    secret = bearer(keys[1]["plain"])
    seen = len(provider.requests)
    answer = ask(guarded, secret, caller=caller, budget={"max_cost_usd": 0.001}, max_tokens=1000)
    assert answer.status == 402
    assert "1.013" in json.dumps(answer.json())
    assert len(provider.requests) == seen, "nobody was asked"
    answer = ask(guarded, secret, caller=caller, model="as-openai/long", budget={"max_tokens": 100})
    assert answer.status == 200
    text = text_of(caller, answer)
    assert 50 < len(text) < 3000
    assert "budget" in json.dumps(answer.sse_json()[-1])


def test_records_say_whose_request_it_was(guarded: LiveGateway, keys: tuple[Path, dict[str, str]]) -> None:
    request_id = f"whose-{next(ids)}"
    ask(guarded, {**bearer(keys[1]["plain"]), "x-request-id": request_id}, metadata={"team": "search", "n": 7})
    (record,) = guarded.records.of(request_id)
    assert record.attribution["key_name"] == "plain"
    assert record.attribution["team"] == "search"
    assert record.usage is not None
    assert record.usage.cost_usd == pytest.approx(record.usage.total_tokens / 1000)
    assert record.price_source == "configuration"
    refused = f"refused-{next(ids)}"
    ask(guarded, {**bearer(keys[1]["narrow"]), "x-request-id": refused}, model="as-openai/echo")
    (record,) = guarded.records.of(refused)
    assert (record.outcome, record.error, record.usage) == ("failed", "forbidden", None)


def test_a_repeat_gets_the_first_answer_and_is_billed_once(
    guarded: LiveGateway, keys: tuple[Path, dict[str, str]], provider: ReplayServer
) -> None:
    secret = {**bearer(keys[1]["plain"]), "idempotency-key": f"once-{next(ids)}"}
    seen = len(provider.requests)
    first = ask(guarded, secret, stream=False)
    again = ask(guarded, secret, stream=False)
    assert (first.status, again.status) == (200, 200)
    assert again.body == first.body
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["x-request-id"] == first.headers["x-request-id"]
    assert len(provider.requests) == seen + 1
    other = ask(guarded, secret, stream=False, model="as-openai/echo")
    assert other.status == 422
    assert (
        ask(guarded, {**bearer(keys[1]["narrow"]), "idempotency-key": secret["idempotency-key"]}, stream=False).status
        == 200
    )
    assert len(provider.requests) == seen + 2, "another key's repeat is another request"


def test_repeats_that_come_together_wait_for_the_first(
    guarded: LiveGateway, keys: tuple[Path, dict[str, str]], provider: ReplayServer
) -> None:
    secret = {**bearer(keys[1]["plain"]), "idempotency-key": f"together-{next(ids)}"}
    seen = len(provider.requests)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        asking = [pool.submit(ask, guarded, secret, stream=False, model="as-openai/text?delay=0.2") for _ in range(8)]
        answers = [future.result() for future in asking]
    assert {answer.status for answer in answers} == {200}
    assert len({answer.body for answer in answers}) == 1
    assert len(provider.requests) == seen + 1


def test_a_failure_is_not_kept(guarded: LiveGateway, keys: tuple[Path, dict[str, str]], provider: ReplayServer) -> None:
    secret = {**bearer(keys[1]["plain"]), "idempotency-key": f"failed-{next(ids)}"}
    seen = len(provider.requests)
    for _ in range(2):
        assert ask(guarded, secret, stream=False, model="as-openai/text?status=503").status == 503
    assert len(provider.requests) == seen + 2


def test_the_first_goes_on_when_its_caller_leaves(
    guarded: LiveGateway, keys: tuple[Path, dict[str, str]], provider: ReplayServer
) -> None:
    secret = {**bearer(keys[1]["plain"]), "idempotency-key": f"left-{next(ids)}"}
    path, content_type, body = CALLERS["openai"]
    sent = json.dumps({"model": "as-openai/text?delay=0.2", "stream": False, **body}).encode()
    seen = len(provider.requests)
    with Connection(guarded.port) as impatient:
        impatient.send(path, sent, {"content-type": content_type, **secret})
        assert eventually(lambda: len(provider.requests) == seen + 1)
    again = ask(guarded, secret, stream=False, model="as-openai/text?delay=0.2")
    assert again.status == 200
    assert len(provider.requests) == seen + 1


def test_keys_that_change_are_noticed(guarded: LiveGateway, keys: tuple[Path, dict[str, str]]) -> None:
    file = KeyFile(keys[0])
    key, secret = file.create(f"new-{next(ids)}", now=NOW)
    assert eventually(lambda: ask(guarded, bearer(secret)).status == 200)
    file.revoke(key.id)
    assert eventually(lambda: ask(guarded, bearer(secret)).status == 403)
