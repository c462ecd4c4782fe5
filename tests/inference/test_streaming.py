"""A real inference server behind the gateway: callers of every format get what it says, as it says it.

What a model of random weights says is its own business. At temperature 0 it says the same again, so the answer that the
server gives to a plain OpenAI request, without the gateway, is what every caller must get.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import pytest

from headrace.formats import FORMATS, PROVIDED
from headrace.formats.base import ReaderOptions, Target
from headrace.model.content import Text, ToolCall
from headrace.model.events import Event, TextDelta
from headrace.model.request import Message, Request, ResponseFormat, Tool, ToolChoice
from headrace.model.response import Response
from headrace.model.stop import StopReason
from tests.gateway.client import Answer, Connection, post
from tests.live import LiveGateway, LoopThread, gateway_config, live_gateway
from tests.matrix.pipes import frames_of, read, response_of
from tests.matrix.test_callers import CLIENTS

from .server import ALIAS, inference_server
from .tiny_model import make

UPSTREAMS = {
    # provider: (settings beside the address, suffix of the address); the formats that this server itself speaks
    "chat": ("preset: llamacpp", "/v1"),
    "messages": ("format: anthropic", ""),
    "responses": ("format: openai_responses", "/v1"),
}
CUT_OFF = {
    "chat": StopReason.MAX_TOKENS,
    "messages": StopReason.MAX_TOKENS,
    "responses": StopReason.END_TURN,  # this server calls every response completed
}
"""How an answer ends that reached `max_tokens`."""
LENGTH = 24
TALK = [Message(role="user", parts=[Text(text="Tell me of the sea 🌊, please.")])]
CITY = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
WEATHER = Tool(name="get_weather", description="The weather of a city", parameters=CITY)
CALL = ToolChoice(mode="required")


@dataclass
class Behind:
    """A gateway, and the inference server behind it."""

    gateway: LiveGateway
    port: int

    def says(self, request: Request) -> Response:
        """What the server answers without the gateway."""
        format = FORMATS["openai_chat"]
        wire = format.write_request(request, Target(model=ALIAS, vendor="openai", stream=False))
        answer = post(self.port, "/v1/chat/completions", wire.body)
        assert answer.status == 200, answer.body
        return format.read_response(answer.body, ReaderOptions())


def _running(servers: LoopThread, folders: pytest.TempPathFactory, *, eager: bool) -> Iterator[Behind]:
    path = folders.mktemp("model") / "tiny.gguf"
    make(path, eager=eager)
    with inference_server(path) as address:
        providers = {
            name: f"{{{settings}, base_url: '{address}{suffix}'}}" for name, (settings, suffix) in UPSTREAMS.items()
        }
        with live_gateway(servers, gateway_config(address, providers=providers)) as gateway:
            port = urlsplit(address).port
            assert port is not None
            yield Behind(gateway, port)


@pytest.fixture(scope="module")
def talker(servers: LoopThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    yield from _running(servers, tmp_path_factory, eager=False)


@pytest.fixture(scope="module")
def worker(servers: LoopThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    """Behind it is a model that calls tools."""
    yield from _running(servers, tmp_path_factory, eager=True)


def ask(behind: Behind, caller: str, request: Request) -> Answer:
    """Send a request as callers of this format do. Those of formats that are for answers alone name them in Accept."""
    fmt = FORMATS[caller if caller in PROVIDED else "openai_chat"]
    wire = fmt.write_request(request, Target(model=request.model, vendor=fmt.vendor, stream=request.stream))
    headers = dict(wire.headers)
    path = fmt.caller_path(request.model)
    if not request.stream and fmt.routes[0].stream:
        path = next(route.path for route in fmt.routes if route.stream is False).replace("{model}", request.model)
    if fmt is not FORMATS[caller]:
        headers["accept"] = f'text/event-stream; profile="{FORMATS[caller].profile}"'
    return post(behind.gateway.port, path, wire.body, content_type=None, headers=headers)


def events_of(caller: str, answer: Answer) -> list[Event]:
    assert answer.status == 200, answer.body
    return read(caller, [piece for _, piece in answer.pieces])


def streamed(caller: str, answer: Answer) -> Response:
    response, error = response_of(events_of(caller, answer))
    assert error is None
    return response


def text_of(response: Response) -> str:
    return "".join(part.text for part in response.choices[0].parts if isinstance(part, Text))


def calls_of(response: Response) -> list[tuple[str, Any]]:
    parts = response.choices[0].parts
    return [(part.name, json.loads(part.arguments)) for part in parts if isinstance(part, ToolCall)]


@cache
def carrying(field: str) -> tuple[str, ...]:
    """The formats whose requests can say this."""
    given: dict[str, dict[str, Any]] = {
        "tools": {"tools": [WEATHER], "tool_choice": CALL},
        "response_format": {"response_format": ResponseFormat(type="json_schema", schema=CITY, name="city")},
    }
    request = Request(model="m", messages=TALK, **given[field])
    found = []
    for name, fmt in PROVIDED.items():
        lost = fmt.write_request(request, Target(model="m", vendor=fmt.vendor)).lost
        if not any(path.removeprefix("request.").startswith((field, "tool_choice")) for path in lost):
            found.append(name)
    return tuple(found)


EACH_UPSTREAM = pytest.mark.parametrize("upstream", UPSTREAMS)
EACH_CALLER = pytest.mark.parametrize("caller", PROVIDED)


@EACH_UPSTREAM
@EACH_CALLER
def test_text(talker: Behind, caller: str, upstream: str) -> None:
    request = Request(model=f"{upstream}/{ALIAS}", messages=TALK, max_tokens=LENGTH, temperature=0.0, stream=True)
    expected = talker.says(request)
    events = events_of(caller, ask(talker, caller, request))
    assert sum(isinstance(event, TextDelta) for event in events) > LENGTH / 2
    response, error = response_of(events)
    assert error is None
    assert text_of(response) == text_of(expected)
    assert len(text_of(response).split()) > LENGTH / 2  # the model is not stuck
    assert response.choices[0].stop is CUT_OFF[upstream]
    assert response.usage is not None
    assert expected.usage is not None
    assert response.usage.output_tokens == expected.usage.output_tokens == LENGTH
    assert response.usage.input_tokens == expected.usage.input_tokens


@EACH_UPSTREAM
@pytest.mark.parametrize("caller", CLIENTS)
def test_text_for_user_interfaces(talker: Behind, caller: str, upstream: str) -> None:
    request = Request(model=f"{upstream}/{ALIAS}", messages=TALK, max_tokens=LENGTH, temperature=0.0, stream=True)
    answer = ask(talker, caller, request)
    assert answer.status == 200
    frames = frames_of(answer.body)
    assert len(frames) > LENGTH / 2
    seen = CLIENTS[caller](frames)
    assert (seen.text, seen.ended) == (text_of(talker.says(request)), True)


@EACH_UPSTREAM
@EACH_CALLER
def test_a_whole_body(talker: Behind, caller: str, upstream: str) -> None:
    request = Request(model=f"{upstream}/{ALIAS}", messages=TALK, max_tokens=LENGTH, temperature=0.0)
    answer = ask(talker, caller, request)
    assert answer.status == 200, answer.body
    response = FORMATS[caller].read_response(answer.body, ReaderOptions())
    assert text_of(response) == text_of(talker.says(request))
    assert response.choices[0].stop is CUT_OFF[upstream]


@EACH_UPSTREAM
@pytest.mark.parametrize("caller", carrying("tools"))
def test_a_tool_call(worker: Behind, caller: str, upstream: str) -> None:
    request = Request(
        model=f"{upstream}/{ALIAS}",
        messages=TALK,
        tools=[WEATHER],
        tool_choice=CALL,
        max_tokens=400,
        temperature=0.0,
        stream=True,
    )
    response = streamed(caller, ask(worker, caller, request))
    assert calls_of(response) == calls_of(worker.says(request))
    [(name, arguments)] = calls_of(response)
    assert name == "get_weather"
    assert arguments["city"] in ("Paris", "Rome")
    assert response.choices[0].stop is StopReason.TOOL_USE


@pytest.mark.parametrize("caller", carrying("response_format"))
def test_structured_output(talker: Behind, caller: str) -> None:
    """The server holds the model to the schema, if it got it."""
    request = Request(
        model=f"chat/{ALIAS}",
        messages=TALK,
        response_format=ResponseFormat(type="json_schema", schema=CITY, name="city"),
        max_tokens=400,
        temperature=0.0,
        stream=True,
    )
    response = streamed(caller, ask(talker, caller, request))
    assert json.loads(text_of(response))["city"] in ("Paris", "Rome")


@EACH_UPSTREAM
@EACH_CALLER
def test_a_prompt_that_is_too_long(talker: Behind, caller: str, upstream: str) -> None:
    messages = [Message(role="user", parts=[Text(text="word " * 3000)])]
    request = Request(model=f"{upstream}/{ALIAS}", messages=messages, max_tokens=LENGTH, stream=True)
    answer = ask(talker, caller, request)
    assert answer.status == 400, answer.body
    info = FORMATS[caller].read_error(answer.status, answer.headers, answer.body)
    assert "context" in info.message


@EACH_UPSTREAM
def test_a_caller_that_leaves_stops_the_model(talker: Behind, upstream: str) -> None:
    request = Request(model=f"{upstream}/{ALIAS}", messages=TALK, max_tokens=3000, temperature=0.0, stream=True)
    wire = FORMATS["openai_chat"].write_request(request, Target(model=request.model, vendor="openai"))
    with Connection(talker.gateway.port) as connection:
        connection.send("/v1/chat/completions", wire.body, dict(wire.headers))
        _, headers = connection.head()
        next(iter(connection.chunks(headers)))
        assert busy(talker)
    end = time.monotonic() + 20
    while busy(talker):
        assert time.monotonic() < end
        time.sleep(0.01)


def busy(behind: Behind) -> bool:
    with Connection(behind.port) as connection:
        connection.send("/slots", b"", method="GET")
        slots: Sequence[dict[str, Any]] = connection.answer().json()
    return any(slot["is_processing"] for slot in slots)
