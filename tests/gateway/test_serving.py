"""The gateway over real sockets: paths, negotiation, headers, trace context, pages."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from headrace.tape import ReplayServer
from tests.gateway.client import Answer, Connection, get, post
from tests.live import PROVIDERS, LiveGateway

USER = [{"role": "user", "content": "What is a headrace?"}]
LLM_REQUEST = "application/llm-request+json"
CALLERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    # caller's format: (path, content type, body without model and stream)
    "openai": ("/v1/chat/completions", "application/json", {"messages": USER}),
    "anthropic": ("/v1/messages", "application/json", {"messages": USER, "max_tokens": 100}),
    "llm-stream": ("/v1/chat", LLM_REQUEST, {"version": "1.0", "messages": USER}),
    "gateway": ("/v1/chat", "application/json", {"messages": USER}),
}
PROFILES = {
    "llm-stream-1.0": "stream.end",
    "headrace-gateway-1.0": "done",
    "openai-chat": "[DONE]",
    "anthropic-messages": "message_stop",
}


def ask(port: int, caller: str, model: str, *, stream: bool = True, accept: str | None = None, **extra: Any) -> Answer:
    path, content_type, body = CALLERS[caller]
    sent = {"model": model, "stream": stream, **body, **extra}
    return post(port, path, sent, content_type=content_type, accept=accept)


def text_of(caller: str, answer: Answer) -> str:
    """The text of a stream, read as each format's documentation says, independent of the code under test."""
    if caller == "openai":
        chunks = [choice["delta"].get("content") or "" for e in answer.sse_json() for choice in e.get("choices", ())]
        return "".join(chunks)
    if caller == "anthropic":
        return "".join(e["delta"].get("text", "") for e in answer.sse_json() if e["type"] == "content_block_delta")
    if caller == "llm-stream":
        return "".join(e["delta"]["text"] for e in answer.sse_json() if e["type"] == "content.delta")
    return "".join(e["data"].get("content", "") for e in answer.sse_json() if e["type"] == "delta")


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("caller", CALLERS)
def test_every_caller_gets_every_provider(gateway: LiveGateway, caller: str, provider: str) -> None:
    answer = ask(gateway.port, caller, f"{provider}/text")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.complete
    assert len(answer.sse()) > 5
    assert text_of(caller, answer) == text_of(caller, ask(gateway.port, caller, "as-gateway/text"))
    assert len(text_of(caller, answer)) > 40


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("caller", CALLERS)
def test_whole_bodies(gateway: LiveGateway, caller: str, provider: str) -> None:
    answer = ask(gateway.port, caller, f"{provider}/text", stream=False)
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"].startswith("application/json")
    body = answer.json()
    streamed = text_of(caller, ask(gateway.port, caller, f"{provider}/text"))
    if caller in ("openai", "gateway"):
        whole = body["choices"][0]["message"]["content"]
    else:
        whole = "".join(block.get("text", "") for block in body["content"])
    assert whole == streamed


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("profile", PROFILES)
def test_accept_profile_chooses_the_answers_format(gateway: LiveGateway, caller: str, profile: str) -> None:
    answer = ask(gateway.port, caller, "as-anthropic/text", accept=f'text/event-stream; profile="{profile}"')
    assert answer.status == 200
    name, data = answer.sse()[-1]
    assert PROFILES[profile] in (name, data)


@pytest.mark.parametrize("caller", CALLERS)
def test_ndjson(gateway: LiveGateway, caller: str) -> None:
    answer = ask(gateway.port, caller, "as-openai/text", accept="application/x-ndjson")
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    lines = [json.loads(line) for line in answer.body.split(b"\n") if line]
    assert len(lines) > 5
    assert answer.complete


def test_stream_headers(gateway: LiveGateway) -> None:
    answer = post(
        gateway.port,
        "/v1/chat/completions",
        {"model": "as-openai/text", "stream": True, "messages": USER},
        headers={"accept-encoding": "gzip, br"},
    )
    assert answer.headers["cache-control"] == "no-cache, no-transform"
    assert answer.headers["x-accel-buffering"] == "no"
    assert "content-encoding" not in answer.headers
    assert "content-length" not in answer.headers
    assert answer.headers["x-request-id"]


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_trace_context_is_echoed_and_passed_on(gateway: LiveGateway, replay: ReplayServer) -> None:
    answer = post(
        gateway.port,
        "/v1/messages",
        {"model": "as-anthropic/text", "stream": True, "messages": USER, "max_tokens": 9},
        headers={"traceparent": TRACE, "tracestate": "vendor=1"},
    )
    assert answer.headers["traceparent"] == TRACE
    assert replay.requests[-1].headers["traceparent"] == TRACE
    assert replay.requests[-1].headers["tracestate"] == "vendor=1"


@pytest.mark.parametrize("sent", [None, "", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", "junk"])
def test_a_trace_is_begun_where_there_is_none(gateway: LiveGateway, replay: ReplayServer, sent: str | None) -> None:
    headers = {} if sent is None else {"traceparent": sent, "tracestate": "vendor=1"}
    body = {"model": "as-openai/text", "stream": True, "messages": USER}
    answer = post(gateway.port, "/v1/chat/completions", body, headers=headers)
    made = answer.headers["traceparent"]
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]", made)
    assert replay.requests[-1].headers["traceparent"] == made
    assert "tracestate" not in replay.requests[-1].headers


def test_models(gateway: LiveGateway) -> None:
    listed = get(gateway.port, "/v1/models").json()
    assert listed["object"] == "list"
    names = {entry["id"] for entry in listed["data"]}
    assert {"replay/text", "replay/parallel-tools", "replay/long"} <= names
    one = get(gateway.port, "/v1/models/replay/text").json()
    assert one["id"] == "replay/text"
    anthropic = get(gateway.port, "/v1/models", {"anthropic-version": "2023-06-01"}).json()
    assert anthropic["data"][0]["type"] == "model"
    assert get(gateway.port, "/v1/models/none").status == 404


def test_health(gateway: LiveGateway) -> None:
    assert get(gateway.port, "/healthz").json() == {"status": "ok"}
    assert get(gateway.port, "/readyz").json() == {"status": "ready"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/chat", 405), ("PUT", "/v1/messages", 405), ("POST", "/v1/models", 405), ("POST", "/v1/nothing", 404)],
)
def test_what_is_not_served(gateway: LiveGateway, method: str, path: str, status: int) -> None:
    answer = get(gateway.port, path, method=method)
    assert answer.status == status
    assert answer.json()["error"]["message"]
    if status == 405:
        assert answer.headers["allow"]


def test_one_connection_serves_many_requests(gateway: LiveGateway) -> None:
    with Connection(gateway.port) as connection:
        for stream in (True, False, True):
            body = json.dumps({"model": "as-openai/text", "stream": stream, "messages": USER}).encode()
            connection.send("/v1/chat/completions", body, {"content-type": "application/json"})
            answer = connection.answer()
            assert answer.status == 200
            assert answer.complete


def test_lost_is_named_in_the_terminal_event(gateway: LiveGateway) -> None:
    """top_k has no place in OpenAI's request: stream.end and done say so."""
    body = {"model": "as-openai/text", "stream": True, "messages": USER, "max_tokens": 9, "top_k": 5}
    standard = post(gateway.port, "/v1/messages", body, accept='text/event-stream; profile="llm-stream-1.0"')
    unified = post(gateway.port, "/v1/messages", body, accept='text/event-stream; profile="headrace-gateway-1.0"')
    for lost in (standard.sse_json()[-1]["extensions"]["vendor:headrace"]["lost"], unified.sse_json()[-1]["lost"]):
        assert any("top_k" in name for name in lost)


def test_the_embedded_replay_needs_no_configuration(gateway: LiveGateway) -> None:
    answer = ask(gateway.port, "llm-stream", "replay/parallel-tools")
    calls = [event for event in answer.sse_json() if event["type"] == "tool.call"]
    assert [json.loads(call["arguments"])["city"] for call in calls] == ["Vienna", "Graz"]


def test_provider_credentials_are_sent_and_never_shown(
    servers: Any, replay: ReplayServer, caplog: pytest.LogCaptureFixture
) -> None:
    from headrace.config import loads
    from tests.live import live_gateway

    secret = "sk-very-secret-value"
    text = f"""
providers:
  p: {{format: openai_chat, base_url: '{replay.base_url}/v1', api_key: '${{KEY}}', headers: {{x-team: blue}}}}
"""
    env = {"KEY": secret}
    with live_gateway(servers, loads(text, filename="t.yaml", env=env), env) as gateway, caplog.at_level("DEBUG"):
        answer = ask(gateway.port, "openai", "p/text")
        failed = ask(gateway.port, "openai", "p/text?status=401")
    seen = replay.requests[-2]
    assert seen.headers["authorization"] == f"Bearer {secret}"
    assert seen.headers["x-team"] == "blue"
    assert failed.status == 401
    assert secret.encode() not in answer.body + failed.body + json.dumps([answer.headers, failed.headers]).encode()
    assert secret not in caplog.text
    assert "headrace?" not in caplog.text, "the prompt is in the log"
