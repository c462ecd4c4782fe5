"""Errors between the model and Google's `{"error": {code, message, status, details}}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.formats.json import encode
from headrace.formats.openai_chat.errors import read_error as read_any
from headrace.formats.openai_chat.errors import redact, shorten
from headrace.model.errors import ErrorCode, ErrorInfo, code_for_status

from .words import VENDOR

_C = ErrorCode

_STATUSES: dict[ErrorCode, str] = {
    _C.UNAUTHENTICATED: "UNAUTHENTICATED",
    _C.FORBIDDEN: "PERMISSION_DENIED",
    _C.MODEL_NOT_FOUND: "NOT_FOUND",
    _C.INVALID_REQUEST: "INVALID_ARGUMENT",
    _C.BUDGET_EXCEEDED: "FAILED_PRECONDITION",
    _C.QUOTA_EXCEEDED: "RESOURCE_EXHAUSTED",
    _C.PROVIDER_RATE_LIMITED: "RESOURCE_EXHAUSTED",
    _C.PROVIDER_UNAVAILABLE: "UNAVAILABLE",
    _C.TIMEOUT: "DEADLINE_EXCEEDED",
    _C.CONSUMER_TOO_SLOW: "ABORTED",
    _C.CANCELLED: "CANCELLED",
    _C.INTERNAL_ERROR: "INTERNAL",
}

_BY_STATUS: dict[str, ErrorCode] = {
    "UNAUTHENTICATED": _C.UNAUTHENTICATED,
    "PERMISSION_DENIED": _C.FORBIDDEN,
    "NOT_FOUND": _C.MODEL_NOT_FOUND,
    "INVALID_ARGUMENT": _C.INVALID_REQUEST,
    "FAILED_PRECONDITION": _C.INVALID_REQUEST,
    "OUT_OF_RANGE": _C.INVALID_REQUEST,
    "RESOURCE_EXHAUSTED": _C.PROVIDER_RATE_LIMITED,
    "DEADLINE_EXCEEDED": _C.TIMEOUT,
}

_SECONDS = re.compile(r"(\d{1,6}(?:\.\d{1,9})?)s")


def find_error(payload: Any) -> dict[str, Any] | None:
    """The error object of a body or a chunk; a list holds it in its first element."""
    if isinstance(payload, list) and payload:
        payload = payload[0]
    error = payload.get("error") if isinstance(payload, dict) else None
    if isinstance(error, dict):
        return error
    return {"message": error} if isinstance(error, str) and error else None


def error_info(error: dict[str, Any], *, provider: str | None = None, status: int = 0) -> ErrorInfo:
    """`status`: the HTTP status of the answer, 0 inside a stream."""
    message, word, number = error.get("message"), error.get("status"), error.get("code")
    message = message if isinstance(message, str) and message else "The provider reported an error without a message"
    blanked = redact(message)
    said = status or (number if isinstance(number, int) and 400 <= number <= 599 else 0)
    code = _BY_STATUS.get(word) if isinstance(word, str) else None
    if code is None:
        code = code_for_status(said) if said else _C.PROVIDER_UNAVAILABLE
    return ErrorInfo(
        code=code,
        message=shorten(blanked),
        status=status if code is _C.INVALID_REQUEST else 0,
        type=word if isinstance(word, str) and word else None,
        provider=provider,
        vendor=VENDOR,
        vendor_error=error if blanked == message else {**error, "message": blanked},
        retry_after=_retry_delay(error.get("details")),
    )


def read_error(status: int, headers: Mapping[str, str], body: bytes) -> ErrorInfo:
    """A provider's HTTP error, whatever its body is. Never raises."""
    try:
        error = find_error(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        error = None
    general = read_any(status, headers, body)
    if error is None:
        return general
    info = error_info(error, status=status)
    if general.retry_after is not None:
        info.retry_after = general.retry_after
    return info


def write_error_object(info: ErrorInfo) -> dict[str, Any]:
    if info.vendor == VENDOR and info.vendor_error is not None:
        return info.vendor_error
    return {"code": info.http_status, "message": info.message, "status": _STATUSES[info.code]}


def write_error(info: ErrorInfo) -> bytes:
    """The body of an HTTP error, which is also the last frame of a failed stream."""
    return encode({"error": write_error_object(info)})


def _retry_delay(details: Any) -> float | None:
    """google.rpc.RetryInfo's `retryDelay` ("34s")."""
    for detail in details if isinstance(details, list) else []:
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        found = _SECONDS.fullmatch(delay) if isinstance(delay, str) else None
        if found:
            return float(found[1])
    return None
