"""Whole answers, errors in AWS's shape, and every recording."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.formats.bedrock import FORMAT
from headrace.model.assemble import assemble
from headrace.model.content import Citation, Media, Opaque, Reasoning, RedactedReasoning, Text, ToolCall
from headrace.model.errors import ErrorCode, ErrorInfo, GatewayError, ProtocolError
from headrace.model.response import Choice, Response
from headrace.model.stop import StopReason
from headrace.model.usage import Usage
from tests.fixtures import FixtureRow, fixture_params

from .helpers import fixture_frames, read

C = ErrorCode
BODY: dict[str, Any] = {
    "output": {
        "message": {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "Hm", "signature": "c2ln"}}},
                {"reasoningContent": {"redactedContent": "cmVk"}},
                {"text": "I look"},
                {"citationsContent": {"content": [{"text": "So"}], "citations": [{"title": "t"}]}},
                {"toolUse": {"toolUseId": "a", "name": "f", "input": {"x": 1}}},
                {"toolUse": {"toolUseId": "s", "name": "g", "input": {"y": 1}, "type": "server_tool_use"}},
                {"image": {"format": "png", "source": {"bytes": "aGk="}}},
            ],
        }
    },
    "stopReason": "tool_use",
    "usage": {"inputTokens": 4, "outputTokens": 5, "totalTokens": 39, "cacheReadInputTokens": 30},
    "metrics": {"latencyMs": 9},
    "trace": {"guardrail": {}},
    "additionalModelResponseFields": {"/x": 1},
}


def encoded(body: Any) -> bytes:
    return json.dumps(body).encode()


def test_reading() -> None:
    response = FORMAT.read_response(encoded(BODY), ReaderOptions(provider="p"))
    choice = response.choices[0]
    assert choice.parts == [
        Reasoning(text="Hm", signature="c2ln", vendor="bedrock"),
        RedactedReasoning(data="cmVk", vendor="bedrock"),
        Text(text="I look"),
        Text(text="So", citations=[Citation("bedrock", {"title": "t"})]),
        ToolCall(id="a", name="f", arguments='{"x": 1}'),
        Opaque(vendor="bedrock", role="server_tool_call", payload=BODY["output"]["message"]["content"][5]),
        Media(type="image", media_type="image/png", data="aGk="),
    ]
    assert (choice.stop, choice.raw_stop) == (StopReason.TOOL_USE, "tool_use")
    assert choice.extensions == {"bedrock": {"additionalModelResponseFields": {"/x": 1}}}
    assert response.usage == Usage(input_tokens=34, output_tokens=5, cached_tokens=30)
    assert response.extensions == {"bedrock": {"metrics": {"latencyMs": 9}, "trace": {"guardrail": {}}}}
    assert response.origin is None


def test_writing_it_again_gives_the_same() -> None:
    response = FORMAT.read_response(encoded(BODY), ReaderOptions())
    assert json.loads(FORMAT.write_response(response, WriterOptions())) == BODY


def test_the_same_format_passes_it_through() -> None:
    body = encoded({**BODY, "x_unknown": [1.0]})
    response = FORMAT.read_response(body, ReaderOptions(passthrough=True))
    assert FORMAT.write_response(response, WriterOptions(passthrough=True)) == body


def test_the_least_that_clients_need() -> None:
    body = json.loads(FORMAT.write_response(Response(choices=[Choice(parts=[])]), WriterOptions()))
    assert body == {
        "output": {"message": {"role": "assistant", "content": []}},
        "stopReason": "end_turn",
        "usage": {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0},
        "metrics": {"latencyMs": 0},
    }


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"output": {}},
        {"output": {"message": {"content": "x"}}},
        {"output": {"message": {"content": [{"text": 1}]}}},
    ],
)
def test_what_is_no_answer(body: Any) -> None:
    with pytest.raises(ProtocolError):
        FORMAT.read_response(encoded(body), ReaderOptions())


def test_an_error_in_disguise() -> None:
    with pytest.raises(GatewayError) as caught:
        FORMAT.read_response(
            b'{"__type":"com.amazon#ThrottlingException","message":"slow"}', ReaderOptions(provider="p")
        )
    info = caught.value.info
    assert (info.code, info.message, info.provider) == (C.PROVIDER_RATE_LIMITED, "slow", "p")


# Errors.


@pytest.mark.parametrize(
    ("status", "word", "code"),
    [
        (400, "ValidationException", C.INVALID_REQUEST),
        (400, "ValidationException:http://internal.amazon.com/coral/", C.INVALID_REQUEST),
        (403, "AccessDeniedException", C.FORBIDDEN),
        (403, "UnrecognizedClientException", C.UNAUTHENTICATED),
        (403, "ExpiredTokenException", C.UNAUTHENTICATED),
        (404, "ResourceNotFoundException", C.MODEL_NOT_FOUND),
        (408, "ModelTimeoutException", C.TIMEOUT),
        (424, "ModelErrorException", C.PROVIDER_UNAVAILABLE),
        (429, "ThrottlingException", C.PROVIDER_RATE_LIMITED),
        (429, "ModelNotReadyException", C.PROVIDER_UNAVAILABLE),
        (400, "ServiceQuotaExceededException", C.PROVIDER_RATE_LIMITED),
        (500, "InternalServerException", C.PROVIDER_UNAVAILABLE),
        (503, "ServiceUnavailableException", C.PROVIDER_UNAVAILABLE),
        (418, "SomethingNew", C.INVALID_REQUEST),
    ],
)
def test_http_errors(status: int, word: str, code: ErrorCode) -> None:
    info = FORMAT.read_error(status, {"x-amzn-errortype": word, "retry-after": "3"}, b'{"message":"It was wrong"}')
    assert (info.code, info.message, info.retry_after) == (code, "It was wrong", 3.0)
    assert info.type == word.partition(":")[0]
    assert (info.vendor, info.vendor_error) == ("bedrock", {"message": "It was wrong"})


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b'{"message":""}', b'{"message":7}', b"[" * 100_000, b"\xff"]
)
def test_bodies_of_any_kind(body: bytes) -> None:
    info = FORMAT.read_error(503, {}, body)
    assert (info.code, info.message) == (C.PROVIDER_UNAVAILABLE, "The provider answered with HTTP status 503")


@given(st.integers(400, 599), st.binary(max_size=60), st.text(max_size=20))
def test_any_body_is_an_error(status: int, body: bytes, word: str) -> None:
    info = FORMAT.read_error(status, {"x-amzn-errortype": word}, body)
    assert info.message
    json.loads(FORMAT.write_error(info))
    assert FORMAT.error_headers(info)


def test_messages_show_no_credentials() -> None:
    body = encoded({"message": "bad key: Bearer abcdefghijkl"})
    assert "abcdefghijkl" not in FORMAT.read_error(403, {}, body).message


@pytest.mark.parametrize(
    ("info", "word"),
    [
        (ErrorInfo(code=C.UNAUTHENTICATED, message="m"), "UnrecognizedClientException"),
        (ErrorInfo(code=C.MODEL_NOT_FOUND, message="m"), "ResourceNotFoundException"),
        (ErrorInfo(code=C.QUOTA_EXCEEDED, message="m"), "ThrottlingException"),
        (ErrorInfo(code=C.TIMEOUT, message="m", type="first_token_timeout"), "ModelTimeoutException"),
        (ErrorInfo(code=C.PROVIDER_UNAVAILABLE, message="m", type="ModelNotReadyException"), "ModelNotReadyException"),
        (ErrorInfo(code=C.INTERNAL_ERROR, message="m", type="ValidationException"), "InternalServerException"),
    ],
)
def test_writing_errors(info: ErrorInfo, word: str) -> None:
    assert FORMAT.error_headers(info) == (("x-amzn-ErrorType", word),)
    assert json.loads(FORMAT.write_error(info)) == {"__type": word, "message": "m"}


def test_every_code_can_be_told() -> None:
    for code in ErrorCode:
        ((_, word),) = FORMAT.error_headers(ErrorInfo(code=code, message="m"))
        assert word.endswith("Exception")


# Recordings.

EXPECTED = {
    # recording: (text, reasoning, signature's length, calls, stop, input, output)
    "amazon-bedrock-tool-call-1.jsonl": ("", "", 0, [("test-tool", '{"value":"Sparkle Day"}')], "tool_use", 125, 45),
    "amazon-bedrock-tool-no-args.jsonl": (
        *("I'll update the issue list for you.", "", 0, [("updateIssueList", "{}")], "tool_use", 100, 25),
    ),
    "converse-nova-text.eventstream": ("The capital of France", "", 0, [], "end_turn", 13, 82),
    "converse-thinking.eventstream": ("Hello!", "The user has greeted me", 496, [], "end_turn", 36, 73),
}


@pytest.mark.parametrize("row", fixture_params(provider="bedrock", format="bedrock.converse"))
def test_what_recordings_say(row: FixtureRow) -> None:
    name = row.file.removeprefix("bedrock/")
    if name == "agw-broken.eventstream":
        return  # no stream: the tests of its framing read it
    text, reasoning, signature, calls, stop, input, output = EXPECTED[name]
    response = assemble(read(fixture_frames(row)))
    choice, usage = response.choices[0], response.usage
    said = "".join(part.text for part in choice.parts if isinstance(part, Text))
    thought = [part for part in choice.parts if isinstance(part, Reasoning)]
    assert said.startswith(text)
    assert "".join(part.text for part in thought).startswith(reasoning)
    assert sum(len(part.signature or "") for part in thought) == signature
    assert [(part.name, part.arguments) for part in choice.parts if isinstance(part, ToolCall)] == calls
    assert (choice.raw_stop, usage and usage.input_tokens, usage and usage.output_tokens) == (stop, input, output)
