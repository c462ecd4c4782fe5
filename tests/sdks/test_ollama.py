"""Ollama's official Python client, plain and asynchronous, against a live gateway: every script, a tool's round trip,
reasoning, an image, errors, a stream that is left, and the pages with the models."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import ollama
import pytest

from headrace.access.keys import KeyFile
from headrace.tape import ReplayServer
from tests.live import LoopThread, gateway_config, live_gateway

from .expected import MILL, REASONING, SCRIPTS, TEXT
from .shared import Mill, eventually

USER = [{"role": "user", "content": "What is a headrace?"}]
PROVIDERS = ("as-openai", "as-anthropic", "as-ollama", "as-azure")
WAYS = ("chat", "chat-stream", "chat-async", "generate", "generate-stream", "generate-async")
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(200))).decode()


@pytest.fixture(scope="module")
def gateway_url(servers: LoopThread, replay: ReplayServer) -> Iterator[str]:
    providers = {
        "as-ollama": f"{{format: ollama, base_url: '{replay.base_url}'}}",
        "as-generate": f"{{format: ollama_generate, base_url: '{replay.base_url}'}}",
        "as-azure": f"{{format: azure_openai, base_url: '{replay.base_url}'}}",
        "named": f"{{preset: ollama, base_url: '{replay.base_url}', models: [llama]}}",
    }
    with live_gateway(servers, gateway_config(replay.base_url, providers=providers)) as live:
        yield live.url


class Seen:
    """What a client showed of an answer."""

    def __init__(self) -> None:
        self.text = ""
        self.thinking = ""
        self.calls: list[tuple[str, Any]] = []
        self.last: Any = None
        self.parts = 0

    def add(self, part: Any) -> None:
        if isinstance(part, ollama.ChatResponse):
            self.text += part.message.content or ""
            self.thinking += part.message.thinking or ""
            for call in part.message.tool_calls or ():
                self.calls.append((call.function.name, dict(call.function.arguments)))
        else:
            self.text += part.response or ""
            self.thinking += part.thinking or ""
        assert part.created_at
        assert self.last is None or not self.last.done, "something followed the end"
        self.last = part
        self.parts += 1


def ask(url: str, way: str, model: str, **request: Any) -> Seen:
    """An answer, by one of WAYS."""
    seen = Seen()
    kind, _, how = way.partition("-")
    request = {"model": model, **({"messages": USER} if kind == "chat" else {"prompt": "Hi?"}), **request}
    if how == "async":

        async def main() -> None:
            async with ollama.AsyncClient(host=url, timeout=60) as client:
                async for part in await getattr(client, kind)(stream=True, **request):
                    seen.add(part)

        asyncio.run(main())
        return seen
    with ollama.Client(host=url, timeout=60) as client:
        if how:
            for part in getattr(client, kind)(stream=True, **request):
                seen.add(part)
        else:
            seen.add(getattr(client, kind)(**request))
    return seen


STOPS = {"end": "stop", "tools": "stop", "length": "length", "refusal": "refusal"}


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", WAYS)
def test_every_script(gateway_url: str, way: str, provider: str, script: str) -> None:
    row = SCRIPTS[script]
    seen = ask(gateway_url, way, f"{provider}/{script}")
    assert seen.text == row.text + row.refusal
    assert seen.thinking == row.reasoning
    if way.startswith("chat"):
        assert seen.calls == [(name, arguments) for _, name, arguments in row.calls]
    if "-" in way:
        assert seen.parts >= len(f"{row.text} {row.reasoning}".split()), "not word by word"
    last = seen.last
    assert last.done is True
    assert last.model == script
    assert last.done_reason == STOPS[row.stop]
    assert isinstance(last.total_duration, int)
    if row.usage is not None:
        assert (last.prompt_eval_count, last.eval_count) == row.usage[:2]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", ["chat", "chat-stream", "chat-async"])
def test_a_tool_and_its_result(gateway_url: str, replay: ReplayServer, way: str, provider: str) -> None:
    def get_weather(city: str) -> str:
        """The weather of a city.

        Args:
          city: Its name
        """
        return f"rain in {city}"

    model = f"{provider}/tool-round-trip"
    first = ask(gateway_url, way, model, tools=[get_weather])
    ((name, arguments),) = first.calls
    assert (name, arguments) == ("get_weather", {"city": "Vienna"})
    calls = [{"function": {"name": name, "arguments": arguments}}]  # as the client has them: without an id
    messages = [
        *USER,
        {"role": "assistant", "content": first.text, "tool_calls": calls},
        {"role": "tool", "tool_name": name, "content": get_weather(**arguments)},
    ]
    second = ask(gateway_url, way, model, messages=messages, tools=[get_weather])
    assert second.text == "The tool says: rain in Vienna"
    body = json.dumps(replay.requests[-1].body)
    if provider in ("as-openai", "as-azure"):
        sent = replay.requests[-1].body["messages"]
        assert sent[2]["tool_call_id"] == sent[1]["tool_calls"][0]["id"]
    assert "rain in Vienna" in body


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", WAYS)
def test_thinking_is_asked_for_and_comes(gateway_url: str, replay: ReplayServer, way: str, provider: str) -> None:
    seen = ask(gateway_url, way, f"{provider}/reasoning", think="low" if provider != "as-ollama" else True)
    assert seen.thinking == REASONING
    body = replay.requests[-1].body
    asked = {
        "as-openai": body.get("reasoning_effort"),
        "as-azure": body.get("reasoning_effort"),
        "as-anthropic": body.get("output_config") or body.get("thinking"),
        "as-ollama": body.get("think"),
    }[provider]
    assert asked


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", WAYS)
def test_an_image_reaches_the_provider(gateway_url: str, replay: ReplayServer, way: str, provider: str) -> None:
    images = [base64.b64decode(PIXEL)]
    if way.startswith("chat"):
        request: dict[str, Any] = {"messages": [{"role": "user", "content": "What is it?", "images": images}]}
    else:
        request = {"prompt": "What is it?", "images": images}
    seen = ask(gateway_url, way, f"{provider}/echo", **request)
    assert "images: 1;" in seen.text
    (message,) = replay.requests[-1].body.get("messages") or [replay.requests[-1].body]
    assert PIXEL in json.dumps(message)
    if provider != "as-ollama":
        assert "image/png" in json.dumps(message)


def test_options_and_formats(gateway_url: str, replay: ReplayServer) -> None:
    options = {"num_predict": 77, "temperature": 0.25, "stop": ["END"], "num_ctx": 4096}
    with ollama.Client(host=gateway_url, timeout=60) as client:
        answer = client.chat("as-openai/json", USER, options=options, format=Mill.model_json_schema(), keep_alive="5m")
    assert json.loads(answer.message.content or "") == MILL
    body = replay.requests[-1].body
    assert (body["temperature"], body["stop"]) == (0.25, ["END"])
    assert 77 in (body.get("max_tokens"), body.get("max_completion_tokens"))
    assert set(body["response_format"]["json_schema"]["schema"]["properties"]) == set(MILL)
    assert "num_ctx" not in body


@pytest.mark.parametrize("way", WAYS)
def test_an_ollama_server_gets_what_its_client_says(gateway_url: str, replay: ReplayServer, way: str) -> None:
    provider = "as-ollama" if way.startswith("chat") else "as-generate"
    seen = ask(gateway_url, way, f"{provider}/echo", options={"num_ctx": 4096}, keep_alive="5m")
    assert seen.last.done
    body = replay.requests[-1].body
    assert (body["model"], body["options"], body["keep_alive"]) == ("echo", {"num_ctx": 4096}, "5m")
    assert body["stream"] is ("-" in way)
    assert replay.requests[-1].path == ("/api/chat" if way.startswith("chat") else "/api/generate")


@pytest.mark.parametrize(
    ("model", "status"),
    [("text?status=401", 401), ("text?status=429", 429), ("nonsense", 404), ("text?status=500", 503)],
)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", WAYS)
def test_a_provider_that_refuses(gateway_url: str, way: str, provider: str, model: str, status: int) -> None:
    with pytest.raises(ollama.ResponseError) as raised:
        ask(gateway_url, way, f"{provider}/{model}")
    assert raised.value.status_code == status
    assert raised.value.error
    assert "{" not in raised.value.error, "the client did not find the message"


@pytest.mark.parametrize("fault", ["error=6:overloaded_error", "cut=6", "cut=6&cut_clean=1", "reset=6", "malformed=6"])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", ["chat-stream", "generate-stream"])
def test_a_stream_that_breaks_is_never_complete(gateway_url: str, way: str, provider: str, fault: str) -> None:
    seen = Seen()
    kind = way.partition("-")[0]
    request: dict[str, Any] = {"messages": USER} if kind == "chat" else {"prompt": "Hi?"}

    def read(client: ollama.Client) -> None:
        for part in getattr(client, kind)(model=f"{provider}/text?{fault}", stream=True, **request):
            seen.add(part)

    with ollama.Client(host=gateway_url, timeout=60) as client, pytest.raises(ollama.ResponseError):
        read(client)
    assert seen.text
    assert TEXT.startswith(seen.text)
    assert not seen.last.done


def test_a_bad_request_is_told_where(gateway_url: str) -> None:
    with pytest.raises(ollama.ResponseError, match=r"messages\[0\].role") as raised:
        ask(gateway_url, "chat", "as-openai/text", messages=[{"role": "wizard", "content": "x"}])
    assert raised.value.status_code == 400


def test_no_sign_of_life_disturbs_the_client(servers: LoopThread, replay: ReplayServer) -> None:
    """It would take a blank line for broken JSON."""
    config = gateway_config(replay.base_url, "server: {keepalive_interval: 20ms}\n")
    with live_gateway(servers, config) as live:
        seen = ask(live.url, "chat-stream", "as-openai/text?first_delay=0.3")
    assert seen.text == TEXT


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("kind", ["chat", "generate"])
def test_leaving_a_stream_lets_the_provider_go(
    gateway_url: str, replay: ReplayServer, kind: str, provider: str
) -> None:
    assert eventually(lambda: replay.active == 0)
    aborted = replay.aborted
    request: dict[str, Any] = {"messages": USER} if kind == "chat" else {"prompt": "Hi?"}
    with ollama.Client(host=gateway_url, timeout=60) as client:
        parts = getattr(client, kind)(model=f"{provider}/long?speed=1", stream=True, **request)
        seen = Seen()
        for part in parts:
            seen.add(part)
            if seen.text:
                break
        parts.close()
    assert eventually(lambda: replay.active == 0), "the provider still sends"
    assert replay.aborted == aborted + 1
    assert SCRIPTS["long"].text.startswith(seen.text)


def test_the_list_of_models(gateway_url: str) -> None:
    with ollama.Client(host=gateway_url) as client:
        models = client.list().models
        names = [model.model for model in models]
        assert {"named/llama", "replay/text"} <= set(names)
        assert len({model.digest for model in models}) == len(models)
        assert client.ps().models == []


def test_one_model(gateway_url: str) -> None:
    with ollama.Client(host=gateway_url) as client:
        shown = client.show("named/llama")
        assert "tools" in (shown.capabilities or [])
        assert shown.details is not None
        client.show("as-openai/any-of-theirs")
        with pytest.raises(ollama.ResponseError, match="there is no model") as raised:
            client.show("nothing-of-this-name")
        assert raised.value.status_code == 404


def test_a_bad_show_is_told(gateway_url: str) -> None:
    with ollama.Client(host=gateway_url) as client, pytest.raises(ollama.ResponseError) as raised:
        client._request_raw("POST", "/api/show", json={})
    assert (raised.value.status_code, raised.value.error) == (400, "The field `model` is missing")


def test_the_version(gateway_url: str) -> None:
    with ollama.Client(host=gateway_url) as client:
        assert client._request_raw("GET", "/api/version").json()["version"].count(".") == 2


def test_pages_need_the_key_that_answers_need(servers: LoopThread, replay: ReplayServer, tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys.json")
    _, secret = file.create("narrow", now=datetime.now(UTC), models=("as-openai/text",))
    config = gateway_config(replay.base_url, f"keys_file: {tmp_path / 'keys.json'}\n")
    with live_gateway(servers, config) as live:
        headers = {"authorization": f"Bearer {secret}"}
        with ollama.Client(host=live.url, headers=headers) as client:
            assert client.chat("as-openai/text", USER).message.content == TEXT
            assert client.show("as-openai/text").capabilities
            assert client.list().models == []
            with pytest.raises(ollama.ResponseError, match="may not use") as raised:
                client.show("as-openai/hello")
            assert raised.value.status_code == 403
        with ollama.Client(host=live.url) as client:
            asked: list[Callable[[], object]] = [
                client.list,
                client.ps,
                lambda: client.show("as-openai/text"),
                lambda: client.chat("as-openai/text", USER),
            ]
            for ask_one in asked:
                with pytest.raises(ollama.ResponseError) as refused:
                    ask_one()
                assert refused.value.status_code == 401
