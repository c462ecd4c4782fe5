"""Errors in Ollama's shape, `{"error": "message"}`, which is the body of an HTTP error and the last line of a stream.

The rule: the message is for people and is all that Ollama's clients look at. What stands beside it (`code`, `status`) is
ours, so that a gateway behind a gateway knows what has happened; Ollama's own cloud says `StatusCode` there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.formats.json import encode
from headrace.formats.standard.errors import code_named, retry_after, tidy
from headrace.model.errors import ErrorCode, ErrorInfo, code_for_status

from .words import VENDOR

_decode = msgspec.json.Decoder().decode
_NO_MESSAGE = "The provider reported an error without a message"
_STATUS_FIELDS = ("status", "status_code", "StatusCode")


def error_info(body: Mapping[str, Any], *, status: int = 0, provider: str | None = None) -> ErrorInfo:
    """The error that a line or a body tells. `status`: the HTTP status of the answer, 0 inside a stream."""
    error = body.get("error")
    fields: Mapping[str, Any] = error if isinstance(error, dict) else body
    message = fields.get("message") if isinstance(error, dict) else error
    said = status or next((n for name in _STATUS_FIELDS if (n := _http_status(fields.get(name)))), 0)
    code = code_named(fields.get("code"))
    if code is None:
        code = code_for_status(said) if said else ErrorCode.PROVIDER_UNAVAILABLE
    tidied = tidy(message, _NO_MESSAGE)
    type_ = fields.get("type")
    return ErrorInfo(
        code=code,
        message=tidied,
        status=said if code is ErrorCode.INVALID_REQUEST else 0,
        type=type_ if isinstance(type_, str) else None,
        provider=provider,
        vendor=VENDOR,
        vendor_error=dict(body) if tidied == message else {**body, "error": tidied},
    )


def read_error(status: int, headers: Mapping[str, str], body: bytes) -> ErrorInfo:
    """A provider's HTTP error, whatever its body is. Never raises."""
    try:
        parsed = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        parsed = None
    if isinstance(parsed, dict) and parsed.get("error"):
        info = error_info(parsed, status=status)
    else:
        code = code_for_status(status)
        text = body[:2000].decode("utf-8", "replace").strip()
        what = tidy(text, "an empty body") if not text.startswith("<") else "an HTML or XML page instead of JSON"
        info = ErrorInfo(
            code=code,
            message=tidy(f"The provider answered with HTTP status {status} and {what}", _NO_MESSAGE),
            status=status if code is ErrorCode.INVALID_REQUEST else 0,
        )
    info.retry_after = retry_after(headers)
    return info


def write_error(info: ErrorInfo) -> bytes:
    """The body of an HTTP error, and the line that ends a stream."""
    if info.vendor == VENDOR and info.vendor_error is not None:
        return encode(info.vendor_error)
    body: dict[str, Any] = {"error": info.message or str(info.code), "code": info.code, "status": info.http_status}
    if info.type:
        body["type"] = info.type
    if info.param:
        body["param"] = info.param
    return encode(body)


def _http_status(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599 else 0
