"""Usage and cost, as callers and the record see them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.tape import ReplayServer
from tests.gateway.client import Answer, Connection
from tests.gateway.test_serving import CALLERS
from tests.live import LiveGateway, LoopThread, gateway_config, live_gateway

ids = itertools.count()
PRICES = "prices: {text: {input: 1000, output: 2000}, 'long?speed=30': {input: 1000, output: 2000}}\n"


@pytest.fixture(scope="module")
def priced(servers: LoopThread, replay: ReplayServer) -> Iterator[LiveGateway]:
    with live_gateway(servers, gateway_config(replay.base_url, PRICES)) as gateway:
        yield gateway


def ask(gateway: LiveGateway, caller: str, model: str, *, request_id: str = "", **more: Any) -> Answer:
    path, content_type, body = CALLERS[caller]
    with Connection(gateway.port) as connection:
        sent = json.dumps({"model": model, "stream": True, **body, **more}).encode()
        connection.send(path, sent, {"content-type": content_type, "x-request-id": request_id})
        return connection.answer()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("provider", ["as-openai", "as-anthropic"])
def test_the_terminal_event_has_the_final_counts_and_their_cost(
    priced: LiveGateway, provider: str, stream: bool
) -> None:
    request_id = f"usage-{next(ids)}"
    answer = ask(priced, "gateway", f"{provider}/text", request_id=request_id, stream=stream)
    told = (answer.sse_json()[-1] if stream else answer.json())["usage"]
    (record,) = priced.records.of(request_id)
    assert record.usage is not None
    assert told["prompt_tokens"] == record.usage.prompt_tokens > 0
    assert told["completion_tokens"] == record.usage.completion_tokens > 0
    expected = (told["prompt_tokens"] + 2 * told["completion_tokens"]) / 1000
    assert told["cost_usd"] == pytest.approx(expected) == record.usage.cost_usd
    assert (record.usage.quality, record.price_source) == ("exact", "configuration")


def test_formats_with_a_place_for_the_cost_have_it(priced: LiveGateway) -> None:
    events = ask(priced, "llm-stream", "as-anthropic/text").sse_json()
    told = [event for event in events if event["type"] == "usage"][-1]
    assert told["extensions"]["vendor:headrace"]["cost_usd"] > 0
    chunks = ask(priced, "openai", "as-anthropic/text", stream_options={"include_usage": True}).sse_json()
    assert [chunk["usage"]["cost"] > 0 for chunk in chunks if chunk.get("usage")] == [True]


def test_an_unknown_price_leaves_no_trace_of_a_cost(priced: LiveGateway) -> None:
    request_id = f"usage-{next(ids)}"
    answer = ask(priced, "gateway", "as-openai/reasoning", request_id=request_id)
    assert "cost_usd" not in answer.sse_json()[-1]["usage"]
    (record,) = priced.records.of(request_id)
    assert record.usage is not None
    assert record.usage.cost_usd is None
    assert record.price_source is None


@pytest.mark.parametrize("provider", ["as-openai", "as-anthropic"])
def test_a_caller_who_leaves_is_billed_for_what_came(priced: LiveGateway, provider: str) -> None:
    request_id = f"usage-{next(ids)}"
    path, content_type, body = CALLERS["openai"]
    with Connection(priced.port) as connection:
        sent = json.dumps({"model": f"{provider}/text?silence=9", "stream": True, **body}).encode()
        connection.send(path, sent, {"content-type": content_type, "x-request-id": request_id})
        _, headers = connection.head()
        next(connection.chunks(headers))
    (record,) = priced.records.of(request_id)
    assert (record.outcome, record.error) == ("cancelled", None)
    assert record.usage is not None
    assert record.usage.completion_tokens > 0
    assert record.usage.prompt_tokens > 0
    assert record.usage.quality == ("partial" if provider == "as-anthropic" else "estimated")
    assert [attempt.code for attempt in record.attempts] == ["cancelled"]


def test_interim_usage_comes_where_the_request_asks_for_it(priced: LiveGateway) -> None:
    own = {"vendor:headrace": {"usage_interval": 0.25}}
    events = ask(priced, "gateway", "as-openai/long?speed=30", extensions=own).sse_json()
    usages = [event["data"] for event in events if event["type"] == "usage"]
    assert len(usages) >= 2
    counts = [usage["completion_tokens"] for usage in usages[:-1]]  # the last one is the provider's own
    assert counts == sorted(counts), "they grow"
    assert all(usage["cost_usd"] > 0 for usage in usages[:-1])
    assert [event["seq"] for event in events] == list(range(len(events)))
    quiet = ask(priced, "gateway", "as-openai/text").sse_json()
    assert not [event for event in quiet if event["type"] == "usage" and event["data"].get("estimated")]


@pytest.mark.parametrize("interval", [0, -1, "often", True, 1e9])
def test_an_interval_that_is_none_is_refused(priced: LiveGateway, interval: Any) -> None:
    own = {"vendor:headrace": {"usage_interval": interval}}
    answer = ask(priced, "gateway", "as-openai/text", extensions=own)
    assert answer.status == 400
    assert "extensions.vendor:headrace.usage_interval" in answer.json()["error"]["message"]
