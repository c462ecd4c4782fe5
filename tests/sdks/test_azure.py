"""OpenAI's classes for Azure, in Python and JavaScript, on the paths of deployments of a live gateway."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import openai
import pytest

from headrace.tape import ReplayServer
from tests.live import LoopThread, gateway_config, live_gateway

from . import python_openai
from .expected import REASONING, SCRIPTS, TEXT, Outcome, Seen, UsageSeen, expected
from .javascript import FOLDER, NodeProcess
from .shared import USER, eventually, failure

PROVIDERS = ("as-azure", "as-openai", "as-anthropic")
VERSION = "2024-10-21"
WAYS = [("python", "create"), ("python", "stream"), ("python", "helper"), ("python", "async")]
WAYS += [("js", way) for way in ("create", "stream", "helper")]
EACH_WAY = pytest.mark.parametrize(("client", "way"), WAYS)
CLIENTS = pytest.mark.parametrize("client", ["python", "js"])
EACH_PROVIDER = pytest.mark.parametrize("provider", PROVIDERS)
FAULTS = {
    # name of a route, as a path may hold it: model
    "unauthorized": "text?status=401",
    "limited": "text?status=429&retry_after=7",
    "broken": "text?error=6:overloaded_error",
    "cut": "text?cut=6",
    "endless": "long?speed=1",
}


@pytest.fixture(scope="module")
def url(servers: LoopThread, replay: ReplayServer) -> Iterator[str]:
    providers = {"as-azure": f"{{format: azure_openai, base_url: '{replay.base_url}'}}"}
    routes = {
        f"{provider}-{name}": f"{{candidates: [{{provider: {provider}, model: '{model}'}}]}}"
        for provider in PROVIDERS
        for name, model in FAULTS.items()
    }
    lines = "".join(f"  {name}: {route}\n" for name, route in routes.items())
    with live_gateway(servers, gateway_config(replay.base_url, f"routes:\n{lines}", providers=providers)) as live:
        yield live.url


@pytest.fixture(scope="module")
def node(url: str) -> Iterator[NodeProcess]:
    process = NodeProcess("openai", url, "azure")
    yield process
    process.close()


Run = Callable[..., Outcome]


@pytest.fixture
def run(url: str, node: NodeProcess) -> Run:
    def run_one(client: str, scenario: str, model: str, **request: Any) -> Outcome:
        if client == "python":
            return _python(url, scenario, model, **request)
        if not (FOLDER / "node_modules").exists():
            pytest.skip("the JavaScript SDKs are not installed: run make test")
        return node.run(scenario, model, **request)

    return run_one


def _python(url: str, scenario: str, model: str, **request: Any) -> Outcome:
    options: dict[str, Any] = {"azure_endpoint": url, "api_key": "none", "api_version": VERSION}
    options |= {"max_retries": 0, "timeout": 60}
    outcome = Outcome()
    request = {"model": model, "messages": USER, **request}

    async def stream() -> None:
        async with openai.AsyncAzureOpenAI(**options) as client:
            seen = Seen()
            chunks = await client.chat.completions.create(**request, stream=True)
            outcome.answers.append(seen)
            async for chunk in chunks:
                python_openai.add_chunk(seen, chunk)

    try:
        if scenario == "async":
            asyncio.run(stream())
        else:
            with openai.AzureOpenAI(**options) as client:
                python_openai.SCENARIOS[scenario](client, outcome, request)
    except openai.OpenAIError as error:
        outcome.failure = failure(error)
    return outcome


@pytest.mark.parametrize("script", ["hello", "text", "unicode", "parallel-tools", "zero-argument-tool", "reasoning"])
@EACH_PROVIDER
@EACH_WAY
def test_scripts(run: Run, client: str, way: str, provider: str, script: str) -> None:
    wanted = expected(script, "openai", "as-anthropic" if provider == "as-anthropic" else "as-openai")
    seen = run(client, way, f"{provider}/{script}").seen
    if (client, way) == ("js", "helper"):  # it keeps the last piece of a field that it does not know
        assert wanted.reasoning.endswith(seen.reasoning)
        wanted.reasoning = seen.reasoning
    own = {name: getattr(seen, name) for name in ("id", "request_id", "usage", "deltas")}
    assert seen == msgspec.structs.replace(wanted, **own)
    usage = SCRIPTS[script].usage
    if way == "create" and usage is not None:
        assert seen.usage == UsageSeen(*usage)


@EACH_PROVIDER
@CLIENTS
@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_and_its_result(run: Run, client: str, streamed: bool, provider: str) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tools = [{"type": "function", "function": {"name": "get_weather", "description": "", "parameters": schema}}]
    model = f"{provider}/tool-round-trip"
    outcome = run(client, "converse", model, tools=tools, result="it rains", streamed=streamed)
    assert outcome.failure is None
    first, second = outcome.answers
    assert [(call.name, call.arguments) for call in first.calls] == [("get_weather", {"city": "Vienna"})]
    assert second.text == "The tool says: it rains"


@EACH_PROVIDER
@CLIENTS
def test_reasoning_is_asked_for(run: Run, replay: ReplayServer, client: str, provider: str) -> None:
    seen = run(client, "create", f"{provider}/reasoning", reasoning_effort="low").seen
    assert seen.reasoning == REASONING
    if provider != "as-anthropic":
        assert replay.requests[-1].body["reasoning_effort"] == "low"


@EACH_PROVIDER
@CLIENTS
def test_an_image_reaches_the_provider(run: Run, replay: ReplayServer, client: str, provider: str) -> None:
    data = base64.b64encode(bytes(range(256))).decode()
    content = [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
    ]
    seen = run(client, "stream", f"{provider}/echo", messages=[{"role": "user", "content": content}]).seen
    assert "images: 1;" in seen.text
    assert data in json.dumps(replay.requests[-1].body)


@CLIENTS
def test_the_provider_is_asked_where_azure_listens(run: Run, replay: ReplayServer, client: str) -> None:
    assert run(client, "create", "as-azure/hello").seen.text
    asked = replay.requests[-1]
    assert asked.path == "/openai/deployments/hello/chat/completions"
    assert asked.body["model"] == "hello"


def test_the_newer_paths(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/openai/v1/", api_key="none", max_retries=0) as client:
        completion = client.chat.completions.create(
            model="as-azure/hello", messages=[{"role": "user", "content": "Hi"}]
        )
    assert completion.choices[0].message.content == "Hello!"


@pytest.mark.parametrize(
    ("fault", "status", "kind"),
    [("unauthorized", 401, "AuthenticationError"), ("limited", 429, "RateLimitError")],
)
@EACH_PROVIDER
@EACH_WAY
def test_a_provider_that_refuses(
    run: Run, client: str, way: str, provider: str, fault: str, status: int, kind: str
) -> None:
    failed = run(client, way, f"{provider}-{fault}").failure
    assert failed is not None
    assert (failed.kind, failed.status) == (kind, status)
    assert failed.retry_after == ("7" if fault == "limited" else None)


@CLIENTS
def test_a_deployment_that_nobody_has(run: Run, client: str) -> None:
    failed = run(client, "create", "nothing-of-this-name").failure
    assert failed is not None
    assert (failed.kind, failed.status) == ("NotFoundError", 404)
    assert "nothing-of-this-name" in failed.message


@pytest.mark.parametrize("fault", ["broken", "cut"])
@EACH_PROVIDER
@pytest.mark.parametrize(("client", "way"), [way for way in WAYS if way[1] in ("stream", "async")])
def test_a_stream_that_breaks_is_never_complete(run: Run, client: str, way: str, provider: str, fault: str) -> None:
    outcome = run(client, way, f"{provider}-{fault}")
    assert outcome.failure is not None
    (seen,) = outcome.answers
    assert seen.stop is None
    assert seen.text
    assert TEXT.startswith(seen.text)


@EACH_PROVIDER
@CLIENTS
def test_leaving_a_stream_lets_the_provider_go(run: Run, replay: ReplayServer, client: str, provider: str) -> None:
    assert eventually(lambda: replay.active == 0)
    aborted = replay.aborted
    outcome = run(client, "close", f"{provider}-endless")
    assert eventually(lambda: replay.active == 0), "the provider still sends"
    assert replay.aborted == aborted + 1
    (seen,) = outcome.answers
    assert SCRIPTS["long"].text.startswith(seen.text)
