"""Errors: every shape in which one may come, the words they become, and HTTP bodies of any kind."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.openai_chat import FORMAT
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.errors import ErrorCode as C
from headrace.model.errors import ErrorInfo

from .helpers import DONE, HEAD, bodies, chunk, decode, error_of, frame, read, write

TEXT = chunk({"content": "a"})
STOP = chunk(finish="stop")
ERROR = {"message": "no good", "type": "server_error", "param": None, "code": None}

# The frame, and what is to be read from it.
SHAPES: dict[str, tuple[Frame, C, str | None]] = {
    "error object": (frame({"error": ERROR}), C.PROVIDER_UNAVAILABLE, "server_error"),
    "error object beside empty choices": (
        frame({"error": ERROR, "choices": []}),
        C.PROVIDER_UNAVAILABLE,
        "server_error",
    ),
    "numeric code": (frame({"error": {"message": "no good", "code": 429}}), C.PROVIDER_RATE_LIMITED, None),
    "numeric code as text": (frame({"error": {"message": "no good", "code": "400"}}), C.INVALID_REQUEST, "400"),
    "error text": (frame({"error": "no good"}), C.PROVIDER_UNAVAILABLE, None),
    "error text with error_type": (
        frame({"error": "no good", "error_type": "validation"}),
        C.INVALID_REQUEST,
        "validation",
    ),
    "named event": (
        frame({"error": {"message": "no good", "code": "tool_use_failed", "status_code": 400}}, "error"),
        C.INVALID_REQUEST,
        "tool_use_failed",
    ),
    "named event, bare object": (
        frame({"code": 503, "message": "no good", "type": "x"}, "error"),
        C.PROVIDER_UNAVAILABLE,
        "x",
    ),
    "named event, plain text": (Frame(b"no good", "error"), C.PROVIDER_UNAVAILABLE, None),
    "vLLM's old object": (
        frame({"object": "error", "message": "no good", "type": "BadRequestError", "code": 400}),
        C.INVALID_REQUEST,
        "BadRequestError",
    ),
    "error within a chunk": (
        frame(
            {
                **HEAD,
                "error": {"code": 502, "message": "no good"},
                "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
            }
        ),
        C.PROVIDER_UNAVAILABLE,
        None,
    ),
    "error within a choice": (
        frame({**HEAD, "choices": [{"index": 0, "delta": {}, "error": {"code": 429, "message": "no good"}}]}),
        C.PROVIDER_RATE_LIMITED,
        None,
    ),
    "x_groq": (frame({**HEAD, "choices": [], "x_groq": {"error": "no good"}}), C.PROVIDER_UNAVAILABLE, None),
    "bare message and code": (frame({"code": 401, "message": "no good"}), C.UNAUTHENTICATED, None),
    "detail": (frame({"detail": "no good"}), C.PROVIDER_UNAVAILABLE, None),
}

POSITIONS = {
    "first": [],
    "after text": [TEXT],
    "after the finish reason": [TEXT, STOP],
}


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("passthrough", [False, True])
def test_an_error_is_an_error_in_any_shape_and_position(shape: str, position: str, passthrough: bool) -> None:
    bad, code, type_ = SHAPES[shape]
    events = read([*POSITIONS[position], bad, DONE], passthrough=passthrough, provider="p")
    error = error_of(events)
    assert (error.code, error.type, error.message, error.provider) == (code, type_, "no good", "p")
    assert not any(isinstance(e, ev.End) for e in events)
    if position == "first":
        assert len(events) == 1  # nothing has started, so another provider can still be asked
    written = write(events, passthrough=passthrough)
    said = bodies(written)
    assert said[-1] == "[DONE]"
    assert said[:-1].count("[DONE]") == 0
    assert said[-2]["error"]["message"] if isinstance(said[-2]["error"], dict) else said[-2]["error"] == "no good"
    finishes = [c["finish_reason"] for body in said[:-1] for c in body.get("choices", []) if c.get("finish_reason")]
    assert set(finishes) <= {"stop", "error"}
    assert len(finishes) <= (2 if position == "after the finish reason" else 1)


def test_the_error_field_of_llama_cpp() -> None:
    data = TEXT.data.join([b"data: ", b"\n\n"]) + b'error: {"code":500,"message":"no good","type":"server_error"}\n\n'
    frames, leftover = decode(data)
    error = error_of(read(frames, leftover=leftover, passthrough=True))
    assert (error.message, error.type) == ("no good", "server_error")


def test_an_error_frame_is_passed_on_as_it_is() -> None:
    bad = frame({"error": {**ERROR, "metadata": {"x": 1}}})
    assert write(read([TEXT, bad, DONE], passthrough=True), passthrough=True) == [TEXT, bad, DONE]
    groq = frame({"error": ERROR}, "error")
    assert write(read([TEXT, groq], passthrough=True), passthrough=True) == [TEXT, groq, DONE]


def test_the_content_of_an_error_chunk_is_not_lost() -> None:
    bad = frame({**HEAD, "error": {"message": "no good"}, "choices": [{"index": 0, "delta": {"content": "b"}}]})
    events = read([TEXT, bad])
    assert [e.text for e in events if isinstance(e, ev.TextDelta)] == ["a", "b"]
    assert write(read([TEXT, bad], passthrough=True), passthrough=True) == [TEXT, bad, DONE]


def test_the_vendors_own_words_come_back() -> None:
    own = {"message": "no good", "type": "t", "code": 7, "metadata": {"provider": "x"}}
    info = error_of(read([frame({"error": own})]))
    assert (info.vendor, info.vendor_error) == ("openai", own)
    assert json.loads(FORMAT.write_error(info)) == {"error": own}


@pytest.mark.parametrize(
    ("info", "said"),
    [
        (
            ErrorInfo(code=C.INVALID_REQUEST, message="m", param="messages[0]"),
            {"message": "m", "type": "invalid_request_error", "param": "messages[0]", "code": None},
        ),
        (
            ErrorInfo(code=C.PROVIDER_UNAVAILABLE, message="m", type="upstream_truncated"),
            {"message": "m", "type": "server_error", "param": None, "code": "upstream_truncated"},
        ),
        (
            ErrorInfo(
                code=C.PROVIDER_UNAVAILABLE,
                message="m",
                type="overloaded_error",
                vendor="anthropic",
                vendor_error={"type": "x"},
            ),
            {"message": "m", "type": "server_error", "param": None, "code": "overloaded_error"},
        ),
        (
            ErrorInfo(code=C.MODEL_NOT_FOUND, message="m"),
            {"message": "m", "type": "invalid_request_error", "param": None, "code": "model_not_found"},
        ),
    ],
)
def test_written_errors(info: ErrorInfo, said: dict[str, Any]) -> None:
    assert json.loads(FORMAT.write_error(info)) == {"error": said}


@pytest.mark.parametrize("code", C)
def test_every_code_has_words_and_survives_being_read(code: C) -> None:
    info = ErrorInfo(code=code, message="m")
    again = FORMAT.read_error(info.http_status, {}, FORMAT.write_error(info))
    assert again.message == "m"
    assert again.is_retryable == info.is_retryable or code in {
        C.QUOTA_EXCEEDED,
        C.CONSUMER_TOO_SLOW,
        C.CANCELLED,
        C.INTERNAL_ERROR,
    }


@pytest.mark.parametrize(
    ("status", "body", "code", "message"),
    [
        (
            401,
            b'{"error":{"message":"who","type":"invalid_request_error","code":"invalid_api_key"}}',
            C.UNAUTHENTICATED,
            "who",
        ),
        (404, b'{"error":{"message":"what","code":"model_not_found"}}', C.MODEL_NOT_FOUND, "what"),
        (
            400,
            b'{"error":{"message":"bad","param":"messages","code":"context_length_exceeded"}}',
            C.INVALID_REQUEST,
            "bad",
        ),
        (422, b'{"detail":"unprocessable"}', C.INVALID_REQUEST, "unprocessable"),
        (500, b'{"object":"error","message":"old","code":500}', C.PROVIDER_UNAVAILABLE, "old"),
        (400, b'[{"error":{"code":400,"message":"listed"}}]', C.INVALID_REQUEST, "listed"),
        (429, b'{"error":"slow down"}', C.PROVIDER_RATE_LIMITED, "slow down"),
        (502, b"<html><h1>Bad Gateway</h1></html>", C.PROVIDER_UNAVAILABLE, "an HTML or XML page"),
        (503, b"", C.PROVIDER_UNAVAILABLE, "an empty body"),
        (500, b"\xff\xfe\x00", C.PROVIDER_UNAVAILABLE, "status 500"),
        (529, b"busy", C.PROVIDER_UNAVAILABLE, "busy"),
        (500, b"[" * 100_000, C.PROVIDER_UNAVAILABLE, "status 500"),
    ],
)
def test_http_errors(status: int, body: bytes, code: C, message: str) -> None:
    info = FORMAT.read_error(status, {}, body)
    assert info.code is code
    assert message in info.message
    assert len(info.message) <= 700


def test_a_rejected_request_keeps_its_status_and_field() -> None:
    info = FORMAT.read_error(413, {}, b'{"error":{"message":"too big","param":"messages"}}')
    assert (info.http_status, info.param) == (413, "messages")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert FORMAT.read_error(429, headers, b"").retry_after == seconds


def test_retrying_as_the_provider_advises() -> None:
    quota = b'{"error":{"message":"m","type":"insufficient_quota","code":"insufficient_quota"}}'
    assert not FORMAT.read_error(429, {}, quota).is_retryable
    assert not FORMAT.read_error(503, {"x-should-retry": "false"}, b"").is_retryable
    assert FORMAT.read_error(400, {"x-should-retry": "true"}, b"").is_retryable


@pytest.mark.parametrize(
    "secret", ["sk-proj-abcdefghijklmnop", "gsk_abcdefghijklmnop1234", "Bearer abcdefghij.klm-nop"]
)
def test_credentials_are_blanked(secret: str) -> None:
    body = json.dumps({"error": {"message": f"Incorrect API key provided: {secret}. Look it up"}}).encode()
    info = FORMAT.read_error(401, {}, body)
    written = FORMAT.write_error(info).decode()
    for text in (info.message, written):
        assert secret.removeprefix("Bearer ") not in text
        assert "Incorrect API key provided" in text


def test_long_messages_are_cut() -> None:
    body = json.dumps({"error": {"message": "x" * 10_000}}).encode()
    assert len(FORMAT.read_error(400, {}, body).message) == 500
    assert len(FORMAT.read_error(400, {}, b"y" * 1_000_000).message) < 700


@given(st.integers(400, 599), st.binary(max_size=60) | st.from_regex(rb'\{"error":.{0,20}\}', fullmatch=True))
def test_no_body_raises(status: int, body: bytes) -> None:
    info = FORMAT.read_error(status, {}, body)
    assert info.message
    assert 400 <= info.http_status <= 599
    json.loads(FORMAT.write_error(info))
