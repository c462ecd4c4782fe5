"""Second turns: what an SDK was given, sent back as its users do, reaches the provider in the provider's own shape."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.tape import ReplayServer

from .conftest import Clients
from .expected import CLIENTS, PROVIDERS, REASONING, REDACTED, SCRIPTS, SIGNATURE, Call, expected, sdk_of

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: dict[str, list[dict[str, Any]]] = {
    "openai": [
        {
            "type": "function",
            "function": {"name": "get_weather", "description": "The weather of a city.", "parameters": SCHEMA},
        }
    ],
    "anthropic": [{"name": "get_weather", "description": "The weather of a city.", "input_schema": SCHEMA}],
}
RESULT = 'Grüß Gott, "12 °C"\n\\u2028:\u2028 end'
STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
RUNNERS = [client for client in CLIENTS if client != "python-openai"]  # which has none


def results_seen(provider: str, body: Any) -> list[tuple[str, str]]:
    """(id of the call, text) of the tool results in a request, as the provider's format has them."""
    messages = body["messages"]
    if provider == "as-openai":
        return [(message["tool_call_id"], message["content"]) for message in messages if message["role"] == "tool"]
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    return [(block["tool_use_id"], block["content"]) for block in blocks if block["type"] == "tool_result"]


def calls_seen(provider: str, body: Any) -> list[Call]:
    """The tool calls that a request sends back."""
    message = body["messages"][1]
    assert message["role"] == "assistant"
    if provider == "as-openai":
        functions = [(call["id"], call["function"]) for call in message["tool_calls"]]
        return [Call(id, function["name"], json.loads(function["arguments"])) for id, function in functions]
    return [Call(b["id"], b["name"], b["input"]) for b in message["content"] if b["type"] == "tool_use"]


def declared(provider: str, body: Any) -> list[tuple[str, Any]]:
    tools = body["tools"]
    if provider == "as-openai":
        return [(tool["function"]["name"], tool["function"]["parameters"]) for tool in tools]
    return [(tool["name"], tool["input_schema"]) for tool in tools]


@pytest.mark.parametrize("provider", PROVIDERS)
@STREAMED
@pytest.mark.parametrize("client", CLIENTS)
def test_a_tool_and_its_result(
    clients: Clients, replay: ReplayServer, client: str, streamed: bool, provider: str
) -> None:
    model, tools = f"{provider}/tool-round-trip", TOOLS[sdk_of(client)]
    outcome = clients[client]("converse", model, tools=tools, result=RESULT, streamed=streamed)
    assert outcome.failure is None
    first, second = outcome.answers
    assert first.text == "I need a tool for that."
    assert [(call.name, call.arguments) for call in first.calls] == [("get_weather", {"city": "Vienna"})]
    assert first.stop in ("tool_calls", "tool_use")
    assert second.text == f"The tool says: {RESULT}"
    assert second.calls == []
    body = replay.requests[-1].body
    assert declared(provider, body) == [("get_weather", SCHEMA)]
    assert calls_seen(provider, body) == first.calls
    assert results_seen(provider, body) == [(first.calls[0].id, RESULT)]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", RUNNERS)
def test_the_loop_of_the_sdk_itself(clients: Clients, client: str, provider: str) -> None:
    model, tools = f"{provider}/tool-round-trip", TOOLS[sdk_of(client)]
    outcome = clients[client]("tool-runner", model, tools=tools, result="it rains")
    assert outcome.failure is None
    assert [answer.text for answer in outcome.answers] == ["I need a tool for that.", "The tool says: it rains"]


@pytest.mark.parametrize("script", ["parallel-tools", "interleaved-tools", "zero-argument-tool"])
@pytest.mark.parametrize("provider", PROVIDERS)
@STREAMED
@pytest.mark.parametrize("client", CLIENTS)
def test_calls_and_their_results_stay_apart_and_in_order(
    clients: Clients, replay: ReplayServer, client: str, streamed: bool, provider: str, script: str
) -> None:
    tools = TOOLS[sdk_of(client)]
    outcome = clients[client]("converse", f"{provider}/{script}", tools=tools, streamed=streamed)
    assert outcome.failure is None
    body = replay.requests[-1].body
    wanted = [Call(*call) for call in SCRIPTS[script].calls]
    assert calls_seen(provider, body) == wanted
    assert results_seen(provider, body) == [(call.id, "12 degrees") for call in wanted]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("client", "streamed"),
    # The helper of OpenAI's JavaScript SDK keeps only the last piece of a field that it does not know.
    [
        (client, streamed)
        for client in CLIENTS
        for streamed in (False, True)
        if (client, streamed) != ("js-openai", True)
    ],
)
def test_reasoning_goes_back_to_its_provider(
    clients: Clients, replay: ReplayServer, client: str, streamed: bool, provider: str
) -> None:
    outcome = clients[client]("converse", f"{provider}/reasoning", streamed=streamed)
    assert outcome.failure is None
    text = SCRIPTS["reasoning"].text
    message = replay.requests[-1].body["messages"][1]
    assert message["role"] == "assistant"
    if provider == "as-anthropic":
        thinking = {"type": "thinking", "thinking": REASONING, "signature": SIGNATURE}
        assert message["content"] == [thinking, {"type": "text", "text": text}]
    elif sdk_of(client) == "anthropic":
        (item,) = message["reasoning_details"]
        assert (item["text"], item["signature"]) == (REASONING, SIGNATURE)
        assert message["content"] == text
    else:
        assert not {"reasoning_content", "reasoning_details"} & set(message), "OpenAI itself rejects these"
        assert message["content"] == text


@pytest.mark.parametrize("provider", PROVIDERS)
@STREAMED
@pytest.mark.parametrize("client", CLIENTS)
def test_redacted_reasoning_goes_back_to_its_provider(
    clients: Clients, replay: ReplayServer, client: str, streamed: bool, provider: str
) -> None:
    outcome = clients[client]("converse", f"{provider}/redacted-reasoning", streamed=streamed)
    assert outcome.failure is None
    message = replay.requests[-1].body["messages"][1]
    if provider == "as-anthropic":
        assert message["content"][0] == {"type": "redacted_thinking", "data": REDACTED}
    elif sdk_of(client) == "anthropic":
        (item,) = message["reasoning_details"]
        assert item["data"] == REDACTED
    else:
        assert "reasoning_details" not in message


@pytest.mark.parametrize("script", ["reasoning", "redacted-reasoning"])
@pytest.mark.parametrize(("first", "then"), [PROVIDERS, PROVIDERS[::-1]])
@pytest.mark.parametrize("client", CLIENTS)
def test_signed_reasoning_never_goes_to_another_vendor(
    clients: Clients, replay: ReplayServer, client: str, first: str, then: str, script: str
) -> None:
    outcome = clients[client]("converse", f"{first}/{script}", then=f"{then}/{script}")
    assert outcome.failure is None
    body = json.dumps(replay.requests[-1].body)
    assert SCRIPTS[script].text in body
    assert SIGNATURE not in body
    assert REDACTED not in body


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_refusal_goes_back(clients: Clients, replay: ReplayServer, client: str, provider: str) -> None:
    outcome = clients[client]("converse", f"{provider}/refusal")
    assert outcome.failure is None
    assert outcome.answers[0].stop == expected("refusal", sdk_of(client), provider).stop
    message = replay.requests[-1].body["messages"][1]
    assert SCRIPTS["refusal"].refusal in json.dumps(message)
