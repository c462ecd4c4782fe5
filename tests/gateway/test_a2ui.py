"""A2UI over a live gateway: asked by path and by Accept, in SSE, NDJSON and whole, from providers of every format.

The replayed model says what the caller said (the script `echo`), so a test's message is the model's answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.formats import PROVIDED
from headrace.serve import checks
from headrace.tape import ReplayServer
from tests.fixtures import fixture_bytes, requires_fixtures
from tests.gateway.client import Answer, Connection, post
from tests.live import LiveGateway, LoopThread, gateway_config, live_gateway

BASIC = "https://a2ui.org/specification/v0_9/catalogs/basic/catalog.json"
CREATE = {"version": "v0.9", "createSurface": {"surfaceId": "s1", "catalogId": BASIC}}
ROOT = {"id": "root", "component": "Text", "text": "A river, a wheel"}
UPDATE = {"version": "v0.9", "updateComponents": {"surfaceId": "s1", "components": [ROOT]}}
WRONG = {"version": "v0.9", "updateComponents": {"surfaceId": "s1", "components": [{**ROOT, "text": 5}]}}
DELETE = {"version": "v0.9", "deleteSurface": {"surfaceId": "s1"}}
SAID = "Here it is:\n" + "".join(json.dumps(one) + "\n" for one in (CREATE, UPDATE, WRONG)) + "That is all.\n"
PROFILE = 'profile="a2ui-0.9"'


@pytest.fixture(scope="module")
def live(servers: LoopThread, replay: ReplayServer) -> Iterator[LiveGateway]:
    providers = {name: f"{{format: {name}, base_url: '{replay.base_url}'}}" for name in PROVIDED}
    config = gateway_config(replay.base_url, providers=providers)
    with live_gateway(servers, config) as gateway:
        yield gateway


def ask(
    live: LiveGateway, said: str = SAID, model: str = "gateway/echo", accept: str | None = None, **more: Any
) -> Answer:
    body = {"model": model, "messages": [{"role": "user", "content": said}], **more}
    return post(live.port, "/v1/ui/a2ui", body, accept=accept)


def lines_of(answer: Answer) -> list[Any]:
    return [json.loads(line) for line in answer.body.decode().split("\n") if line]


def text_of(events: list[Any]) -> str:
    return "".join(event["data"]["content"] for event in events if event.get("type") == "delta")


@pytest.mark.parametrize("provider", list(PROVIDED))
def test_sse_from_every_provider(live: LiveGateway, provider: str) -> None:
    answer = ask(live, model=f"{provider}/echo")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    events = [(name, json.loads(data)) for name, data in answer.sse()]
    assert [data for name, data in events if name == "a2ui"] == [CREATE, UPDATE]
    beside = [data for name, data in events if name != "a2ui"]
    assert [event["seq"] for event in beside] == list(range(len(beside)))
    assert (beside[0]["type"], beside[-1]["type"]) == ("start", "done")
    assert text_of(beside).startswith("Here it is:\nThat is all.\n")
    (problem,) = (data["data"] for name, data in events if name == "a2ui-error")
    assert (problem["code"], problem["surfaceId"]) == ("VALIDATION_FAILED", "s1")
    assert "text" in problem["path"]
    order = [name for name, _ in events]
    assert order.index("a2ui-error") < len(order) - 1 - order[::-1].index("delta")


@pytest.mark.parametrize("provider", list(PROVIDED))
def test_ndjson_from_every_provider(live: LiveGateway, provider: str) -> None:
    answer = ask(live, model=f"{provider}/echo", accept="application/x-ndjson")
    assert answer.headers["content-type"] == "application/x-ndjson"
    events = lines_of(answer)
    assert [event for event in events if "type" not in event] == [CREATE, UPDATE]
    assert [event["type"] for event in events if event.get("type") not in (None, "delta", "usage")] == [
        "start",
        "a2ui-error",
        "done",
    ]
    assert text_of(events).startswith("Here it is:\nThat is all.\n")


@pytest.mark.parametrize("provider", list(PROVIDED))
def test_a_whole_body_from_every_provider(live: LiveGateway, provider: str) -> None:
    answer = ask(live, model=f"{provider}/echo", stream=False)
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert body["a2ui"] == [CREATE, UPDATE]
    assert [problem["code"] for problem in body["a2ui_errors"]] == ["VALIDATION_FAILED"]
    assert body["choices"][0]["message"]["content"].startswith("Here it is:\nThat is all.\n")


@requires_fixtures
def test_the_specifications_example(live: LiveGateway) -> None:
    recorded = fixture_bytes("a2ui/contact_form_example.jsonl").decode()
    answer = ask(live, f"<a2ui-json>\n{recorded}</a2ui-json>\n", "as-anthropic/echo")
    assert [data for name, data in answer.sse() if name == "a2ui"] == recorded.splitlines()
    assert not [data for name, data in answer.sse() if name == "a2ui-error"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat", {}),
        ("/v1/chat/completions", {}),
        ("/v1/messages", {"max_tokens": 100}),
    ],
)
@pytest.mark.parametrize("media_type", ["text/event-stream", "application/x-ndjson"])
def test_accept_asks_for_it_on_any_path(live: LiveGateway, path: str, body: dict[str, Any], media_type: str) -> None:
    sent = {"model": "as-openai/echo", "messages": [{"role": "user", "content": SAID}], "stream": True, **body}
    answer = post(live.port, path, sent, accept=f"{media_type}; {PROFILE}")
    assert answer.headers["content-type"] == media_type
    sse = media_type == "text/event-stream"
    events = [json.loads(data) for _, data in answer.sse()] if sse else lines_of(answer)
    assert [event for event in events if "type" not in event] == [CREATE, UPDATE]


def test_tool_calls_and_reasoning_are_the_gateway_formats(live: LiveGateway) -> None:
    for script in ("tool", "reasoning"):
        body = {"model": f"as-anthropic/{script}", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
        plain = post(live.port, "/v1/chat", body)
        with_a2ui = post(live.port, "/v1/ui/a2ui", body)
        names = [name for name, _ in plain.sse()]
        assert [name for name, _ in with_a2ui.sse()] == names
        assert "tool_call" in names or "reasoning" in names


def test_a_message_does_not_wait_for_the_rest(live: LiveGateway) -> None:
    """The provider falls silent in the middle of the next message; this one is with the caller already."""
    said = f"{json.dumps(CREATE)}\n{json.dumps(UPDATE)}\n" + "more " * 50
    words = len(json.dumps(CREATE).split())
    body = {"model": f"as-openai/echo?silence={words + 3}", "messages": [{"role": "user", "content": said}]}
    with Connection(live.port) as connection:
        connection.send("/v1/ui/a2ui", json.dumps(body).encode(), {"content-type": "application/json"})
        _, headers = connection.head()
        seen = b""
        for piece in connection.chunks(headers):
            seen += piece
            if b"event: a2ui\n" in seen:
                break
    assert f"data: {json.dumps(CREATE)}\n".encode() in seen
    assert b"updateComponents" not in seen


@pytest.mark.parametrize("accept", ["text/event-stream", "application/x-ndjson"])
def test_a_provider_that_breaks_off(live: LiveGateway, accept: str) -> None:
    """What had come is delivered, half a message is not, and the error comes last."""
    words = len(json.dumps(CREATE).split())
    said = f"{json.dumps(CREATE)}\n{json.dumps(UPDATE)}\n"
    answer = ask(live, said, f"as-openai/echo?cut={words + 3}", accept)
    assert answer.complete
    sse = accept == "text/event-stream"
    events = [json.loads(data) for _, data in answer.sse()] if sse else lines_of(answer)
    assert [event.get("type") for event in events if event.get("type") != "usage"] == ["start", None, "error"]
    assert events[1] == CREATE
    assert events[-1]["data"]["code"]


def test_a_message_that_the_model_did_not_finish(live: LiveGateway) -> None:
    """An answer that ends is no failure, but the message is told to be missing."""
    body = {
        "model": "as-openai/echo",
        "messages": [{"role": "user", "content": f"<a2ui-json>{json.dumps(CREATE)[:-9]}"}],
    }
    events = post(live.port, "/v1/ui/a2ui", body).sse()
    assert [name for name, _ in events if name != "usage"][-2:] == ["a2ui-error", "done"]
    assert not [name for name, _ in events if name == "a2ui"]


def test_errors_before_the_stream(live: LiveGateway) -> None:
    limited = ask(live, model="as-openai/echo?status=429")
    assert (limited.status, limited.json()["error"]["code"]) == (429, "provider_rate_limited")
    missing = post(live.port, "/v1/ui/a2ui", {"model": "as-openai/echo"})
    assert (missing.status, missing.json()["error"]["code"]) == (400, "invalid_request")
    assert "messages" in missing.json()["error"]["message"]


def test_a_gateway_without_the_package(live: LiveGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise ModuleNotFoundError("No module named 'a2ui'")

    monkeypatch.setattr(checks, "_ready", {})
    monkeypatch.setattr(checks, "_LOADERS", {"a2ui": missing})
    refused = ask(live)
    assert refused.status == 501
    assert "pip install 'headrace[a2ui]'" in refused.json()["error"]["message"]
    body = {"model": "as-openai/text", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    assert post(live.port, "/v1/chat", body).status == 200
