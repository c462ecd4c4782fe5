"""Whole bodies of both endpoints, and errors."""

from __future__ import annotations

import json

import ollama as sdk
import pytest

from headrace.formats import FORMATS
from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.formats.ollama import FORMAT
from headrace.model.content import Reasoning, Text, ToolCall
from headrace.model.errors import ErrorCode, ErrorInfo, GatewayError, ProtocolError
from headrace.model.response import Choice, Response
from headrace.model.stop import StopReason
from headrace.model.usage import Usage

BODY = {
    "model": "m",
    "created_at": "2026-01-01T00:00:00Z",
    "message": {
        "role": "assistant",
        "content": "So",
        "thinking": "Hm",
        "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}],
    },
    "done": True,
    "done_reason": "stop",
    "prompt_eval_count": 3,
    "eval_count": 2,
}
RESPONSE = Response(
    model="m",
    created=1_767_225_600,
    choices=[
        Choice(
            parts=[
                Reasoning(text="Hm"),
                Text(text="So", logprobs=[{"token": "So", "logprob": -1.0}]),
                ToolCall(id="c", name="f", arguments='{"a":1}'),
                ToolCall(id="d", name="f", arguments='{"a', complete=False),
            ],
            stop=StopReason.TOOL_USE,
        ),
        Choice(index=1, parts=[Text(text="other")]),
    ],
    usage=Usage(input_tokens=3, output_tokens=2),
)


def test_a_body_is_read() -> None:
    response = FORMAT.read_response(json.dumps(BODY).encode(), ReaderOptions(provider="p"))
    (choice,) = response.choices
    assert (response.model, response.provider, choice.stop) == ("m", "p", StopReason.TOOL_USE)
    assert [type(part) for part in choice.parts] == [Reasoning, Text, ToolCall]
    assert response.usage == Usage(input_tokens=3, output_tokens=2)


@pytest.mark.parametrize("name", ["ollama", "ollama_generate"])
def test_the_sdk_takes_a_body(name: str) -> None:
    body = json.loads(FORMATS[name].write_response(RESPONSE, WriterOptions()))
    said = sdk.ChatResponse(**body) if name == "ollama" else sdk.GenerateResponse(**body)
    assert said.done
    assert (said.prompt_eval_count, said.eval_count, said.total_duration) == (3, 2, 0)
    content = said.message if isinstance(said, sdk.ChatResponse) else said
    assert content.thinking == "Hm"
    if isinstance(said, sdk.ChatResponse):
        assert said.message.content == "So"
        (call,) = said.message.tool_calls or []
        assert (call.function.name, call.function.arguments) == ("f", {"a": 1})
    assert said.logprobs


@pytest.mark.parametrize("body", [b"{}", b'{"done":false,"message":{"content":"x"}}', b"[]", b"", b"\xff"])
def test_what_is_no_answer(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        FORMAT.read_response(body, ReaderOptions())


def test_an_error_in_disguise() -> None:
    with pytest.raises(GatewayError, match="no such model"):
        FORMAT.read_response(b'{"error":"no such model"}', ReaderOptions())


@pytest.mark.parametrize(
    ("status", "body", "code", "message"),
    [
        (404, b'{"error":"model \'x\' not found"}', ErrorCode.MODEL_NOT_FOUND, "model 'x' not found"),
        (400, b'{"error":"\\"x\\" does not support tools"}', ErrorCode.INVALID_REQUEST, '"x" does not support tools'),
        (500, b'{"error":{"message":"inner"}}', ErrorCode.PROVIDER_UNAVAILABLE, "inner"),
        (401, b'{"StatusCode":401,"error":"unauthorized"}', ErrorCode.UNAUTHENTICATED, "unauthorized"),
        (503, b'{"error":"sk-abcdefghijkl is wrong"}', ErrorCode.PROVIDER_UNAVAILABLE, "sk-[redacted] is wrong"),
        (502, b"<html>", ErrorCode.PROVIDER_UNAVAILABLE, "HTML"),
        (429, b"", ErrorCode.PROVIDER_RATE_LIMITED, "an empty body"),
        (418, b"\xff[", ErrorCode.INVALID_REQUEST, "418"),
    ],
)
def test_errors_are_read(status: int, body: bytes, code: ErrorCode, message: str) -> None:
    info = FORMAT.read_error(status, {"retry-after": "3"}, body)
    assert info.code is code
    assert message in info.message
    assert info.retry_after == 3
    assert b"abcdefghijkl" not in FORMAT.write_error(info)


def test_an_error_of_ollama_comes_back_as_it_was() -> None:
    body = b'{"error":"model gone","signin_url":"https://example.com"}'
    assert FORMAT.write_error(FORMAT.read_error(404, {}, body)) == body


def test_an_error_of_ours_keeps_its_code() -> None:
    info = ErrorInfo(code=ErrorCode.BUDGET_EXCEEDED, message="Spent", type="budget", param="model")
    body = FORMAT.write_error(info)
    assert json.loads(body)["error"] == "Spent"
    assert FORMAT.read_error(402, {}, body).code is ErrorCode.BUDGET_EXCEEDED
    assert sdk.ResponseError(body.decode(), 402).error == "Spent"


def test_an_error_without_words_is_one_all_the_same() -> None:
    assert json.loads(FORMAT.write_error(ErrorInfo(code=ErrorCode.TIMEOUT, message="")))["error"] == "timeout"
