"""Errors over HTTP, both ways."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.anthropic import FORMAT
from headrace.model.errors import ErrorCode, ErrorInfo

C = ErrorCode


def body(type: str, message: str = "m") -> bytes:
    return json.dumps({"type": "error", "error": {"type": type, "message": message}, "request_id": "req_1"}).encode()


@pytest.mark.parametrize(
    ("status", "type", "code", "ours", "theirs"),
    [
        (400, "invalid_request_error", C.INVALID_REQUEST, 400, 400),
        (401, "authentication_error", C.UNAUTHENTICATED, 401, 401),
        (402, "billing_error", C.BUDGET_EXCEEDED, 402, 402),
        (403, "permission_error", C.FORBIDDEN, 403, 403),
        (404, "not_found_error", C.MODEL_NOT_FOUND, 404, 404),
        (409, "conflict_error", C.INVALID_REQUEST, 409, 409),
        (413, "request_too_large", C.INVALID_REQUEST, 413, 413),
        (429, "rate_limit_error", C.PROVIDER_RATE_LIMITED, 429, 429),
        (500, "api_error", C.PROVIDER_UNAVAILABLE, 503, 503),
        (504, "timeout_error", C.TIMEOUT, 504, 504),
        (529, "overloaded_error", C.PROVIDER_UNAVAILABLE, 503, 529),
    ],
)
def test_anthropics_errors(status: int, type: str, code: ErrorCode, ours: int, theirs: int) -> None:
    info = FORMAT.read_error(status, {}, body(type))
    assert (info.code, info.type, info.message, info.http_status) == (code, type, "m", ours)
    assert FORMAT.error_status(info) == theirs
    assert FORMAT.write_error(info) == body(type).replace(b": ", b":").replace(b", ", b",")


@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_has_a_word(code: ErrorCode) -> None:
    written = json.loads(FORMAT.write_error(ErrorInfo(code=code, message="m")))
    assert written["type"] == "error"
    assert written["error"]["type"].endswith("_error")
    assert written["error"]["message"] == "m"


@pytest.mark.parametrize(
    ("info", "type", "status"),
    [
        (ErrorInfo(code=C.INVALID_REQUEST, message="m", status=413), "request_too_large", 413),
        (ErrorInfo(code=C.INVALID_REQUEST, message="m", status=404), "not_found_error", 404),
        (ErrorInfo(code=C.INVALID_REQUEST, message="m", status=415), "invalid_request_error", 415),
        (ErrorInfo(code=C.PROVIDER_UNAVAILABLE, message="m"), "api_error", 503),
        (ErrorInfo(code=C.QUOTA_EXCEEDED, message="m"), "rate_limit_error", 429),
        (ErrorInfo(code=C.PROVIDER_UNAVAILABLE, message="m", type="overloaded_error"), "overloaded_error", 529),
        (ErrorInfo(code=C.INVALID_REQUEST, message="m", type="api_error"), "invalid_request_error", 400),
    ],
)
def test_our_own_errors(info: ErrorInfo, type: str, status: int) -> None:
    assert json.loads(FORMAT.write_error(info))["error"]["type"] == type
    assert FORMAT.error_status(info) == status


def test_anothers_error_object_is_not_sent() -> None:
    info = ErrorInfo(code=C.TIMEOUT, message="m", vendor="openai", vendor_error={"code": "x"})
    assert json.loads(FORMAT.write_error(info)) == {"type": "error", "error": {"type": "timeout_error", "message": "m"}}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert FORMAT.read_error(429, headers, body("rate_limit_error")).retry_after == seconds


@pytest.mark.parametrize(("said", "retryable"), [("true", True), ("false", False), ("", True)])
def test_the_provider_may_say_whether_to_retry(said: str, retryable: bool) -> None:
    assert FORMAT.read_error(529, {"x-should-retry": said}, body("overloaded_error")).is_retryable is retryable


@pytest.mark.parametrize(
    ("status", "given", "code", "message"),
    [
        (502, b"<html>Bad Gateway</html>", C.PROVIDER_UNAVAILABLE, "The provider answered with HTTP status 502"),
        (500, b"", C.PROVIDER_UNAVAILABLE, "The provider answered with HTTP status 500"),
        (400, b"\xff\xfe", C.INVALID_REQUEST, "The provider answered with HTTP status 400"),
        (422, b'{"message":"odd"}', C.INVALID_REQUEST, "odd"),
        (401, b'{"error":"who are you"}', C.UNAUTHENTICATED, "who are you"),
        (429, b'{"error":{"message":""}}', C.PROVIDER_RATE_LIMITED, "The provider answered with HTTP status 429"),
        (400, b"[" * 100_000, C.INVALID_REQUEST, "The provider answered with HTTP status 400"),
    ],
)
def test_other_bodies(status: int, given: bytes, code: ErrorCode, message: str) -> None:
    info = FORMAT.read_error(status, {}, given)
    assert (info.code, info.message) == (code, message)


def test_long_messages_and_credentials() -> None:
    long = FORMAT.read_error(400, {}, body("invalid_request_error", "x" * 10_000))
    assert len(long.message) == 500
    told = FORMAT.read_error(401, {}, body("authentication_error", "bad key sk-ant-api03-abc_DEF, Bearer abc.def"))
    assert told.message == "bad key [redacted], [redacted]"


@given(st.integers(400, 599), st.binary(max_size=60))
def test_any_body_is_an_error(status: int, given: bytes) -> None:
    info = FORMAT.read_error(status, {}, given)
    assert info.message
    json.loads(FORMAT.write_error(info))
