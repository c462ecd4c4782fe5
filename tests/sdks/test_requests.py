"""What the SDKs can put into a request beside text, as it reaches the provider."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from headrace.tape import ReplayServer

from .conftest import Clients
from .expected import CLIENTS, MILL, PROVIDERS, WAYS, sdk_of
from .shared import Mill

PIXEL = base64.b64encode(bytes(range(256))).decode()
"""No picture, which nobody on the way is to mind; but every letter of base64."""
URL = "https://example.org/mill.png?size=large&x=%20"
QUESTION = "What is on this picture?"


def image_part(sdk: str, source: str) -> dict[str, Any]:
    """An image in a user's message, by `source`: "base64" or "url"."""
    if sdk == "openai":
        url = f"data:image/png;base64,{PIXEL}" if source == "base64" else URL
        return {"type": "image_url", "image_url": {"url": url}}
    if source == "url":
        return {"type": "image", "source": {"type": "url", "url": URL}}
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}


@pytest.mark.parametrize("source", ["base64", "url"])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(("client", "way"), WAYS)
def test_an_image_reaches_the_provider(
    clients: Clients, replay: ReplayServer, client: str, provider: str, way: str, source: str
) -> None:
    content = [{"type": "text", "text": QUESTION}, image_part(sdk_of(client), source)]
    seen = clients[client](way, f"{provider}/echo", messages=[{"role": "user", "content": content}]).seen
    assert seen.text.startswith(QUESTION)
    assert "images: 1;" in seen.text
    wanted = image_part(provider.removeprefix("as-"), source)
    assert replay.requests[-1].body["messages"] == [{"role": "user", "content": [content[0], wanted]}]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", ["python-anthropic", "js-anthropic"])  # OpenAI's format has only text there
def test_an_image_in_a_tool_result(clients: Clients, replay: ReplayServer, client: str, provider: str) -> None:
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [image_part("anthropic", "base64")]}
    messages = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}]},
        {"role": "user", "content": [result]},
    ]
    seen = clients[client]("create", f"{provider}/echo", messages=messages).seen
    assert "images: 1;" in seen.text
    last = replay.requests[-1].body["messages"][-1]["content"]
    assert (last[-1] if provider == "as-openai" else last[0]["content"][0]) == image_part(
        provider.removeprefix("as-"), "base64"
    )


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_system_prompt_and_limits(clients: Clients, replay: ReplayServer, client: str, provider: str) -> None:
    system = "You are a miller."
    request: dict[str, Any] = {"max_tokens": 77, "temperature": 0.25, "top_p": 0.5}
    if sdk_of(client) == "openai":
        user = {"role": "user", "content": "Hello?"}
        request |= {"messages": [{"role": "system", "content": system}, user], "stop": ["END"]}
    else:
        user = {"role": "user", "content": "Hello?"}
        request |= {"system": system, "messages": [user], "stop_sequences": ["END"]}
        del request["top_p"]  # Anthropic takes one of the two
    seen = clients[client]("stream", f"{provider}/echo", **request).seen
    assert f"system: {system};" in seen.text
    body = replay.requests[-1].body
    assert body["temperature"] == 0.25
    if provider == "as-openai":
        assert body["messages"] == [{"role": "system", "content": system}, user]
        assert body["stop"] == ["END"]
        assert 77 in (body.get("max_tokens"), body.get("max_completion_tokens"))
    else:
        assert (body["system"], body["messages"]) == (system, [user])
        assert (body["stop_sequences"], body["max_tokens"]) == (["END"], 77)


@pytest.mark.parametrize("way", ["parse", "parse-stream"])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_structured_output(clients: Clients, replay: ReplayServer, client: str, provider: str, way: str) -> None:
    outcome = clients[client](way, f"{provider}/json", schema=Mill.model_json_schema())
    assert outcome.failure is None
    assert outcome.value == MILL
    body = replay.requests[-1].body
    if provider == "as-openai":
        assert body["response_format"]["type"] == "json_schema"
        schema = body["response_format"]["json_schema"]["schema"]
    else:
        assert body["output_config"]["format"]["type"] == "json_schema"
        schema = body["output_config"]["format"]["schema"]
    assert set(schema["properties"]) == set(MILL)
