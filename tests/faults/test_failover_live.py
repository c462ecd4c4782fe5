"""Faults on real sockets, each before every caller format: what the caller sees, what was dispatched, what was recorded.

The first candidate of a route fails in every way there is; the second one answers. Before the first visible output the
caller must not notice; after it, the error comes in its own format and ends as that format's table says.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import pytest

from headrace.tape import Library, ReplayServer
from tests.gateway.client import Answer, Connection
from tests.gateway.test_serving import CALLERS, text_of
from tests.live import LiveGateway, LoopThread, gateway_config, live_gateway, live_replay
from tests.services import free_port

BEFORE: dict[str, str] = {
    # fault of the first candidate: code under which its attempt is told
    "refused": "provider_unavailable",
    "tls": "provider_unavailable",
    "status=500": "provider_unavailable",
    "status=503&retry_after=0": "provider_unavailable",
    "status=429": "provider_rate_limited",
    "status=401": "unauthenticated",
    "status=404": "model_not_found",
    "hang=1": "timeout",
    "silence=0": "timeout",
    "reset=0": "provider_unavailable",
    "cut=0": "provider_unavailable",
    "cut=1": "provider_unavailable",  # after the event that only says that it begins
    "cut=1&cut_clean=1": "provider_unavailable",
    "reset=1": "provider_unavailable",
    "silence=1": "timeout",
    "malformed=1": "provider_unavailable",
    "error=0:overloaded_error": "provider_unavailable",
    "error=1:overloaded_error": "provider_unavailable",
}

AFTER = ["cut=9", "cut=9&cut_clean=1", "reset=9", "silence=9", "malformed=9", "error=9:overloaded_error"]

PROVIDERS = {"as-openai": "openai_chat", "as-anthropic": "anthropic"}


def slug(fault: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in fault)


def routes() -> str:
    lines = ["routes:"]
    for fault, provider in itertools.product([*BEFORE, *AFTER], PROVIDERS):
        first = {"refused": f"refused-{provider}/text", "tls": f"tls-{provider}/text"}.get(
            fault, f"{provider}/text?{fault}"
        )
        second = next(other for other in PROVIDERS if other != provider)
        name = f"{slug(fault)}-{provider}"
        lines.append(f"  {name}: {{candidates: ['{first}', '{second}/text'], cross_model: true}}")
    own = "{temperature: 0.25, metadata: {team: search}, logit_bias: {}}"
    lines.append(f"  tuned: {{candidates: [{{provider: as-openai, model: echo, parameters: {own}}}]}}")
    weights = "{provider: as-openai, model: text, weight: 0}, {provider: as-anthropic, model: text, weight: 5}"
    lines.append(f"  drawn: {{strategy: weighted, candidates: [{weights}]}}")
    pinned = "'as-openai/text?status=500', {provider: as-anthropic, model: text}"
    lines.append(f"  pinned: {{candidates: [{pinned}]}}")
    same = "{provider: as-anthropic, model: text, same_as: 'text?status=500'}"
    lines.append(f"  deployed: {{candidates: ['as-openai/text?status=500', {same}]}}")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def provider(servers: LoopThread) -> Iterator[ReplayServer]:
    with live_replay(servers, Library.builtin()) as server:
        yield server


@pytest.fixture(scope="module")
def faulty(servers: LoopThread, provider: ReplayServer) -> Iterator[LiveGateway]:
    """A gateway with a route for each fault; its providers have little time."""
    closed = free_port()
    extra = f"timeouts: {{first_token: 400ms, idle_stream: 400ms, connect: 2s}}\n{routes()}"
    tls = provider.base_url.replace("http://", "https://")
    unreachable = {}
    for name, fmt in PROVIDERS.items():
        suffix = "/v1" if fmt == "openai_chat" else ""
        unreachable[f"refused-{name}"] = f"{{format: {fmt}, base_url: 'http://127.0.0.1:{closed}{suffix}'}}"
        unreachable[f"tls-{name}"] = f"{{format: {fmt}, base_url: '{tls}{suffix}'}}"
    with live_gateway(servers, gateway_config(provider.base_url, extra, providers=unreachable)) as gateway:
        yield gateway


def ask(gateway: LiveGateway, caller: str, model: str, *, stream: bool = True, request_id: str = "") -> Answer:
    path, content_type, body = CALLERS[caller]
    with Connection(gateway.port) as connection:
        headers = {"content-type": content_type, "x-request-id": request_id}
        connection.send(path, json.dumps({"model": model, "stream": stream, **body}).encode(), headers)
        return connection.answer()


ids = itertools.count()


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("first", PROVIDERS)
@pytest.mark.parametrize("fault", BEFORE)
def test_before_the_first_output_nothing_shows(
    faulty: LiveGateway, provider: ReplayServer, fault: str, first: str, caller: str
) -> None:
    name, request_id = f"{slug(fault)}-{first}", f"before-{next(ids)}"
    seen = len(provider.requests)
    answer = ask(faulty, caller, name, request_id=request_id)
    plain = ask(faulty, caller, "as-openai/text")
    assert answer.status == 200
    assert answer.complete
    assert text_of(caller, answer) == text_of(caller, plain) != ""

    second = next(other for other in PROVIDERS if other != first)
    (record,) = faulty.records.of(request_id)
    assert (record.outcome, record.provider, record.route, record.failovers) == ("completed", second, name, 1)
    assert [attempt.code for attempt in record.attempts] == [BEFORE[fault], None]
    assert record.attempts[0].provider.removeprefix("refused-").removeprefix("tls-") == first
    assert record.usage is not None
    assert record.usage.quality == "exact"
    reached = 1 if fault in ("refused", "tls") else 2
    assert len(provider.requests) == seen + reached + 1, "each candidate was asked once"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("caller", CALLERS)
def test_the_gateways_own_words_say_who_answered(faulty: LiveGateway, caller: str, stream: bool) -> None:
    name = f"{slug('status=500')}-as-openai"
    answer = ask(faulty, caller, name, stream=stream)
    assert answer.status == 200
    if caller == "gateway":
        last = answer.sse_json()[-1] if stream else answer.json()
        routing = last["routing"]
    elif caller == "llm-stream":
        last = answer.sse_json()[-1] if stream else answer.json()
        routing = last["extensions"]["vendor:headrace"]["routing"]
    else:
        return  # the vendors' formats have no place for it
    ms = routing["tried"][0].pop("ms")
    assert ms >= 0
    assert routing == {
        "strategy": "ordered",
        "selected_provider": "as-anthropic",
        "selected_model": "text",
        "attempts": 2,
        "failovers": 1,
        "tried": [{"provider": "as-openai", "model": "text?status=500", "code": "provider_unavailable"}],
        "cache": "miss",
    }


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("first", PROVIDERS)
@pytest.mark.parametrize("fault", AFTER)
def test_after_the_first_output_the_error_is_told(
    faulty: LiveGateway, provider: ReplayServer, fault: str, first: str, caller: str
) -> None:
    request_id = f"after-{next(ids)}"
    seen = len(provider.requests)
    answer = ask(faulty, caller, f"{slug(fault)}-{first}", request_id=request_id)
    assert len(provider.requests) == seen + 1, "nobody else was asked"
    assert answer.status == 200
    assert text_of(caller, answer) != ""
    events = answer.sse()
    if caller == "openai":
        assert events[-1][1] == "[DONE]"
        assert "error" in json.loads(events[-2][1])
        assert not any(
            choice.get("finish_reason") for event in answer.sse_json() for choice in event.get("choices", [])
        )
    elif caller == "anthropic":
        assert events[-1][0] == "error"
        assert not any(name in ("message_stop", "message_delta") for name, _ in events)
    elif caller == "llm-stream":
        assert [json.loads(data)["type"] for _, data in events[-2:]] == ["error", "stream.end"]
    else:
        assert json.loads(events[-1][1])["type"] == "error"
        assert [json.loads(data).get("seq") for _, data in events] == list(range(len(events)))
    (record,) = faulty.records.of(request_id)
    assert record.outcome == "failed"
    assert [attempt.code for attempt in record.attempts] == [record.error]
    assert record.usage is not None, "what came was paid for"
    assert record.usage.quality in ("partial", "estimated")
    assert record.usage.completion_tokens > 0


@pytest.mark.parametrize("caller", CALLERS)
def test_when_all_have_failed_the_last_error_is_a_plain_answer(faulty: LiveGateway, caller: str) -> None:
    request_id = f"all-{next(ids)}"
    answer = ask(faulty, caller, "as-openai/text?status=503&retry_after=7", request_id=request_id)
    assert answer.status == 503
    assert answer.headers["retry-after"] == "7"
    assert answer.json()["error"]
    (record,) = faulty.records.of(request_id)
    assert (record.outcome, record.error, record.usage) == ("failed", "provider_unavailable", None)


@pytest.mark.parametrize("caller", CALLERS)
def test_a_candidates_parameters_are_laid_over_the_request(
    faulty: LiveGateway, provider: ReplayServer, caller: str
) -> None:
    assert ask(faulty, caller, "tuned").status == 200
    sent = provider.requests[-1].body
    assert sent["model"] == "echo"
    assert (sent["temperature"], sent["metadata"], sent["logit_bias"]) == (0.25, {"team": "search"}, {})


def test_a_weight_of_nothing_is_the_last_resort(faulty: LiveGateway, provider: ReplayServer) -> None:
    for _ in range(5):
        assert ask(faulty, "openai", "drawn").status == 200
        assert provider.requests[-1].path.endswith("/messages")


@pytest.mark.parametrize(("route", "status"), [("pinned", 503), ("deployed", 200)])
def test_another_model_takes_over_only_where_the_route_allows_it(faulty: LiveGateway, route: str, status: int) -> None:
    assert ask(faulty, "openai", route).status == status
