"""Errors in Anthropic's shape, `{"type": "error", "error": {"type", "message"}, "request_id"}`, both ways.

The rule: Anthropic's word decides where there is one, the HTTP status where there is none; an Anthropic error object
that goes to a caller of this format goes out unchanged. Reading survives any body whatever and quotes at most 500
characters of it, without what looks like a credential.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.formats.json import encode
from headrace.model.errors import ErrorCode, ErrorInfo, code_for_status

from .words import VENDOR

_Code = ErrorCode

ERROR_TYPES: dict[str, tuple[ErrorCode, int]] = {
    # Anthropic's word: (our code, HTTP status for callers of any format; 0 is the code's own)
    "invalid_request_error": (_Code.INVALID_REQUEST, 0),
    "authentication_error": (_Code.UNAUTHENTICATED, 0),
    "billing_error": (_Code.BUDGET_EXCEEDED, 0),
    "permission_error": (_Code.FORBIDDEN, 0),
    "not_found_error": (_Code.MODEL_NOT_FOUND, 0),
    "conflict_error": (_Code.INVALID_REQUEST, 409),
    "request_too_large": (_Code.INVALID_REQUEST, 413),
    "rate_limit_error": (_Code.PROVIDER_RATE_LIMITED, 0),
    "api_error": (_Code.PROVIDER_UNAVAILABLE, 0),
    "timeout_error": (_Code.TIMEOUT, 0),
    "overloaded_error": (_Code.PROVIDER_UNAVAILABLE, 0),
}

_WORDS: dict[ErrorCode, str] = {
    _Code.UNAUTHENTICATED: "authentication_error",
    _Code.FORBIDDEN: "permission_error",
    _Code.MODEL_NOT_FOUND: "not_found_error",
    _Code.INVALID_REQUEST: "invalid_request_error",
    _Code.BUDGET_EXCEEDED: "billing_error",
    _Code.QUOTA_EXCEEDED: "rate_limit_error",
    _Code.PROVIDER_RATE_LIMITED: "rate_limit_error",
    _Code.PROVIDER_UNAVAILABLE: "api_error",
    _Code.TIMEOUT: "timeout_error",
    _Code.CONSUMER_TOO_SLOW: "timeout_error",
    _Code.CANCELLED: "api_error",
    _Code.INTERNAL_ERROR: "api_error",
}
_STATUS_WORDS = {404: "not_found_error", 409: "conflict_error", 413: "request_too_large"}
_OVERLOADED_STATUS = 529

_MAX_QUOTE = 500
_CREDENTIAL = re.compile(r"(?i)\b(?:sk|pk|key)-[\w-]{6,}|\bbearer\s+\S+")
_decode = msgspec.json.Decoder().decode


def read_error(status: int, headers: Mapping[str, str], body: bytes) -> ErrorInfo:
    """A provider's HTTP error. Never raises: the body may be HTML, empty, huge or not text at all."""
    try:
        payload = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        payload = None
    info = error_in(payload, status=status)
    info.retry_after = _retry_after(headers)
    should_retry = headers.get("x-should-retry")
    if should_retry in ("true", "false"):
        info.retryable = should_retry == "true"
    return info


def error_in(payload: object, *, status: int = 0, provider: str = "") -> ErrorInfo:
    """The error that a decoded payload tells: Anthropic's own shape, or whatever a compatible server makes of it."""
    fields: dict[str, Any] = payload if isinstance(payload, dict) else {}
    found = fields.get("error")
    error = found if isinstance(found, dict) else {}
    word = error.get("type")
    word = word if isinstance(word, str) and word else None
    said = error.get("message") if error else found if isinstance(found, str) else fields.get("message")
    if isinstance(said, str) and said.strip():
        message = _CREDENTIAL.sub("[redacted]", said[:_MAX_QUOTE].strip())
    else:
        message = f"The provider answered with HTTP status {status}" if status else "The provider reported an error"
    if word in ERROR_TYPES:
        code, own_status = ERROR_TYPES[word]
    else:
        code, own_status = (code_for_status(status) if status else _Code.PROVIDER_UNAVAILABLE), 0
        if code is _Code.INVALID_REQUEST:
            own_status = status
    request_id = fields.get("request_id")
    return ErrorInfo(
        code=code,
        message=message,
        status=own_status,
        type=word,
        provider=provider or None,
        vendor=VENDOR if error else None,
        vendor_error=error or None,
        details={"request_id": request_id} if isinstance(request_id, str) else None,
    )


def write_error(info: ErrorInfo) -> bytes:
    """The body of an HTTP error, which is the payload of an `error` event too."""
    return encode(error_object(info))


def error_object(info: ErrorInfo, request_id: str = "") -> dict[str, Any]:
    """`request_id` is taken from the error itself where the provider named one."""
    if info.vendor == VENDOR and info.vendor_error:
        error = info.vendor_error
    else:
        error = {"type": _word(info), "message": info.message}
    own_id = (info.details or {}).get("request_id")
    body: dict[str, Any] = {"type": "error", "error": error}
    if isinstance(own_id, str) or request_id:
        body["request_id"] = own_id if isinstance(own_id, str) else request_id
    return body


def error_status(info: ErrorInfo) -> int:
    """HTTP status for a caller of this format: Anthropic's own 529 where the provider is overloaded."""
    return _OVERLOADED_STATUS if _word(info) == "overloaded_error" else info.http_status


def _word(info: ErrorInfo) -> str:
    if info.type in ERROR_TYPES and ERROR_TYPES[info.type][0] is info.code:
        return info.type
    if info.code is _Code.INVALID_REQUEST and info.status in _STATUS_WORDS:
        return _STATUS_WORDS[info.status]
    return _WORDS[info.code]


def _retry_after(headers: Mapping[str, str]) -> float | None:
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if 0 <= seconds < 86400 * 365:
            return seconds
    return None
