"""What Azure adds to OpenAI's format: its paths and key, and the chunks of its content filter."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletionChunk

from headrace.formats import FORMATS
from headrace.formats.azure_openai import FORMAT
from headrace.formats.base import Located, ReaderOptions, Target, WriterOptions
from headrace.formats.locate import Locator
from headrace.framing.frame import Frame
from headrace.model.assemble import assemble
from headrace.model.content import Text
from headrace.model.errors import ErrorCode, InvalidRequest
from headrace.model.events import Event
from headrace.model.grammar import Grammar
from headrace.model.stop import StopReason
from tests.fixtures import fixture_bytes, requires_fixtures

OPENAI = FORMATS["openai_chat"]
HI = [{"role": "user", "content": "Hi"}]
SAFE = {"hate": {"filtered": False, "severity": "safe"}}
FIRST = {"id": "", "object": "", "created": 0, "model": "", "choices": []}
PROMPT = {**FIRST, "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": SAFE}]}
HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "gpt-x"}


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "content_filter_results": {}}
    return {**HEAD, "choices": [choice]}


LATE = {
    **FIRST,
    "choices": [
        {
            "index": 0,
            "finish_reason": None,
            "content_filter_results": SAFE,
            "content_filter_offsets": {"check_offset": 0, "start_offset": 0, "end_offset": 5},
        }
    ],
}
"""A chunk of the asynchronous filter: a choice without a delta."""


def stream(*chunks: dict[str, Any]) -> list[Frame]:
    return [*(Frame(json.dumps(one).encode()) for one in chunks), Frame(b"[DONE]")]


def read(frames: list[Frame], *, passthrough: bool = False) -> list[Event]:
    reader = FORMAT.stream_reader(ReaderOptions(passthrough=passthrough))
    events = [*reader.read(frames), *reader.eof()]
    grammar = Grammar()
    for event in events:
        grammar.accept(event)
    return events


def test_streams_bodies_and_errors_are_openais() -> None:
    """So what the matrix says of `openai_chat` holds here."""
    for part in ("stream_reader", "stream_writer", "read_response", "write_response", "read_error", "write_error"):
        assert getattr(FORMAT, part) == getattr(OPENAI, part)
    assert FORMAT.framings == OPENAI.framings


# Where requests go, and where they come from.


@pytest.mark.parametrize(
    ("quirks", "path"),
    [
        ({}, "/openai/deployments/my%2Fmodel%20x/chat/completions?api-version=2024-10-21"),
        (
            {"api_version": "2025-01-01-preview"},
            "/openai/deployments/my%2Fmodel%20x/chat/completions?api-version=2025-01-01-preview",
        ),
        ({"api_version": "v1"}, "/openai/v1/chat/completions"),
    ],
)
def test_paths(quirks: dict[str, Any], path: str) -> None:
    request = OPENAI.read_request(json.dumps({"model": "m", "messages": HI}).encode())
    wire = FORMAT.write_request(request, Target(model="my/model x", vendor="openai", quirks=quirks))
    assert wire.path == path
    assert json.loads(wire.body)["model"] == "my/model x"


def test_a_configured_path() -> None:
    request = OPENAI.read_request(json.dumps({"model": "m", "messages": HI}).encode())
    target = Target(model="m", vendor="openai", path="/proxy/{model}/chat?api-version=1")
    assert FORMAT.write_request(request, target).path == "/proxy/m/chat?api-version=1"


def test_the_key_has_its_own_header() -> None:
    assert FORMAT.auth_headers("secret") == (("api-key", "secret"),)


@pytest.mark.parametrize(
    ("path", "model"),
    [("/openai/deployments/a/b/chat/completions", "a/b"), ("/openai/v1/chat/completions", "")],
)
def test_callers_are_found(path: str, model: str) -> None:
    place = Locator(FORMATS.values()).find(path, "api-version=2024-10-21")[0]
    assert (place.format, place.located.model) == (FORMAT, model)


def test_the_deployment_goes_before_the_model() -> None:
    body = json.dumps({"model": "other", "messages": HI}).encode()
    request = FORMAT.read_request(body, Located(model="deployment"))
    assert (request.model, request.format) == ("deployment", "azure_openai")
    assert FORMAT.read_request(json.dumps({"messages": HI}).encode(), Located(model="d")).model == "d"
    with pytest.raises(InvalidRequest):
        FORMAT.read_request(json.dumps({"messages": HI}).encode())


@pytest.mark.parametrize(("caller", "provider"), [("openai_chat", "azure_openai"), ("azure_openai", "azure_openai")])
def test_bodies_of_openai_go_on_as_they_are(caller: str, provider: str) -> None:
    given = {"model": "m", "messages": [{**HI[0], "x": 1}], "data_sources": [{"type": "azure_search"}], "top_k": 1}
    request = FORMATS[caller].read_request(json.dumps(given).encode())
    wire = FORMATS[provider].write_request(request, Target(model="d", vendor="openai", stream=False))
    assert json.loads(wire.body) == {**given, "model": "d"}
    assert wire.lost == ()


# The content filter.


def test_the_blank_first_chunk_names_nothing() -> None:
    response = assemble(read(stream(PROMPT, chunk(role="assistant", content=""), chunk(content="Hi"), chunk("stop"))))
    assert (response.id, response.model, response.created) == ("chatcmpl-1", "gpt-x", 7)
    assert response.choices[0].parts == [Text(text="Hi")]
    assert response.extensions == {"openai": {"prompt_filter_results": PROMPT["prompt_filter_results"]}}


@pytest.mark.parametrize("place", range(5))
def test_chunks_of_the_asynchronous_filter_add_nothing(place: int) -> None:
    chunks = [PROMPT, chunk(content="Hel"), chunk(content="lo"), chunk("stop")]
    plain = read(stream(*chunks))
    chunks.insert(place, LATE)
    with_filter = assemble(read(stream(*chunks)))
    assert with_filter.choices[0].parts == assemble(plain).choices[0].parts
    assert with_filter.choices[0].stop is StopReason.END_TURN


def test_a_late_violation() -> None:
    response = assemble(read(stream(PROMPT, chunk(content="Bad"), LATE, chunk("content_filter"))))
    (choice,) = response.choices
    assert (choice.stop, choice.parts) == (StopReason.CONTENT_FILTER, [Text(text="Bad")])


def test_callers_of_azure_get_its_chunks_as_they_came() -> None:
    usage = {**HEAD, "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}
    frames = stream(PROMPT, chunk(role="assistant", content=""), chunk(content="Hi"), LATE, chunk("stop"), usage)
    writer = FORMAT.stream_writer(WriterOptions(passthrough=True))
    assert [frame for event in read(frames, passthrough=True) for frame in writer.write([event])] == frames


def test_nobody_else_gets_chunks_with_blank_names() -> None:
    writer = OPENAI.stream_writer(WriterOptions(model="m"))
    frames = writer.write(read(stream(PROMPT, chunk(content="Hi"), LATE, chunk("stop"))))
    for frame in frames[:-1]:
        said = ChatCompletionChunk.model_validate_json(frame.data)
        assert (said.id, said.model) == ("chatcmpl-1", "gpt-x")
        assert len(said.choices) == 1
        assert "filter" not in frame.data.decode()


BLOCKED = {
    "error": {
        "message": "The response was filtered",
        "type": None,
        "param": "prompt",
        "code": "content_filter",
        "status": 400,
        "innererror": {"code": "ResponsibleAIPolicyViolation", "content_filter_result": SAFE},
    }
}


@pytest.mark.parametrize("caller", ["azure_openai", "openai_chat"])
def test_a_blocked_prompt_keeps_its_reasons(caller: str) -> None:
    info = FORMAT.read_error(400, {}, json.dumps(BLOCKED).encode())
    assert (info.code, info.type, info.http_status) == (ErrorCode.INVALID_REQUEST, "content_filter", 400)
    assert json.loads(FORMATS[caller].write_error(info)) == BLOCKED


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (404, {"error": {"code": "DeploymentNotFound", "message": "No deployment"}}, ErrorCode.MODEL_NOT_FOUND),
        (401, {"statusCode": 401, "message": "Unauthorized"}, ErrorCode.UNAUTHENTICATED),
        (429, {"error": {"code": "429", "message": "Too many"}}, ErrorCode.PROVIDER_RATE_LIMITED),
    ],
)
def test_azures_other_errors(status: int, body: dict[str, Any], code: ErrorCode) -> None:
    info = FORMAT.read_error(status, {"retry-after-ms": "1500"}, json.dumps(body).encode())
    assert (info.code, info.retry_after) == (code, 1.5)
    assert info.message in json.dumps(body)


@requires_fixtures
def test_the_recorded_model_router() -> None:
    lines = fixture_bytes("azure-openai/azure-model-router.jsonl").split(b"\n")
    frames = [*(Frame(line) for line in lines if line), Frame(b"[DONE]")]
    response = assemble(read(frames))
    assert response.model == "gpt-5-nano-2025-08-07"
    assert response.id == "chatcmpl-CYPS1lijGoK8gd9lYzY3r9Sx50nbt"
    assert response.choices[0].stop is StopReason.END_TURN
    assert "prompt_filter_results" in (response.extensions or {})["openai"]
    writer = FORMAT.stream_writer(WriterOptions(passthrough=True))
    sent = [frame for event in read(frames, passthrough=True) for frame in writer.write([event])]
    assert sent == frames
