"""Errors in one vocabulary (the table of spec/gateway.md), and the exceptions that carry them inside the gateway.

An `ErrorInfo` is data: it is what a provider, the engine or a validator found out, and every format has a writer for it.
`GatewayError` is the exception to raise where an error ends a request before its stream begins.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class ErrorCode(StrEnum):
    """The codes of the gateway format."""

    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    MODEL_NOT_FOUND = "model_not_found"
    INVALID_REQUEST = "invalid_request"
    BUDGET_EXCEEDED = "budget_exceeded"
    QUOTA_EXCEEDED = "quota_exceeded"
    PROVIDER_RATE_LIMITED = "provider_rate_limited"
    PROVIDER_UNAVAILABLE = "provider_unavailable"
    TIMEOUT = "timeout"
    CONSUMER_TOO_SLOW = "consumer_too_slow"
    CANCELLED = "cancelled"
    INTERNAL_ERROR = "internal_error"


ERROR_TABLE: dict[ErrorCode, tuple[int, bool]] = {
    # code: (HTTP status when the headers are still ours to choose, retryable)
    ErrorCode.UNAUTHENTICATED: (401, False),
    ErrorCode.FORBIDDEN: (403, False),
    ErrorCode.MODEL_NOT_FOUND: (404, False),
    ErrorCode.INVALID_REQUEST: (400, False),
    ErrorCode.BUDGET_EXCEEDED: (402, False),
    ErrorCode.QUOTA_EXCEEDED: (429, True),
    ErrorCode.PROVIDER_RATE_LIMITED: (429, True),
    ErrorCode.PROVIDER_UNAVAILABLE: (503, True),
    ErrorCode.TIMEOUT: (504, True),
    ErrorCode.CONSUMER_TOO_SLOW: (503, False),
    ErrorCode.CANCELLED: (499, False),
    ErrorCode.INTERNAL_ERROR: (500, False),
}

_BY_STATUS = {
    401: ErrorCode.UNAUTHENTICATED,
    402: ErrorCode.BUDGET_EXCEEDED,
    403: ErrorCode.FORBIDDEN,
    404: ErrorCode.MODEL_NOT_FOUND,
    408: ErrorCode.TIMEOUT,
    429: ErrorCode.PROVIDER_RATE_LIMITED,
    504: ErrorCode.PROVIDER_UNAVAILABLE,
}


def code_for_status(status: int) -> ErrorCode:
    """The code for a provider's HTTP status: 4xx are the request's fault, 5xx (and anything odd) the provider's."""
    known = _BY_STATUS.get(status)
    if known is not None:
        return known
    return ErrorCode.INVALID_REQUEST if 400 <= status < 500 else ErrorCode.PROVIDER_UNAVAILABLE


class ErrorInfo(msgspec.Struct, kw_only=True):
    """One error, told to the caller in the caller's format."""

    code: ErrorCode
    message: str
    """A sentence for a person: what was wrong, where, what to do. Never holds secrets or prompt text."""
    status: int = 0
    """HTTP status to answer with while that is still possible; 0: the code's own (see `http_status`)."""
    type: str | None = None
    """A finer machine-readable word: "upstream_truncated", the provider's own error type ..."""
    provider: str | None = None
    vendor: str | None = None
    """Whose words `vendor_error` are in."""
    vendor_error: dict[str, Any] | None = None
    """The provider's error object, unchanged: comes back out byte for byte where the target is that vendor's format."""
    param: str | None = None
    """Path of the offending request field ("messages[2].content"), where that is known."""
    retry_after: float | None = None
    """Seconds the provider asks to wait."""
    retryable: bool | None = None
    """None: by the code's row in ERROR_TABLE."""
    details: dict[str, Any] | None = None

    @property
    def http_status(self) -> int:
        return self.status or ERROR_TABLE[self.code][0]

    @property
    def is_retryable(self) -> bool:
        return ERROR_TABLE[self.code][1] if self.retryable is None else self.retryable


class GatewayError(Exception):
    """An error that ends a request before its stream has begun."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.message)
        self.info = info


class InvalidRequest(GatewayError):
    """The caller's request is wrong. `param` is the path of the bad field, "" for the body as a whole."""

    def __init__(self, message: str, *, param: str = "", status: int = 400, type: str = "invalid_request") -> None:
        super().__init__(
            ErrorInfo(code=ErrorCode.INVALID_REQUEST, message=message, status=status, type=type, param=param or None)
        )


class ProtocolError(Exception):
    """A provider sent what its format does not allow (not JSON, wrong types, events out of order).

    Readers raise it; the engine turns it into an `Error` event, or skips the frame where the configuration says so.
    Never holds the offending content, only its place.
    """

    events: list[Any] = []
    """Events of the frames before the bad one, in the same call (set by the reader: nothing accepted is lost)."""
    consumed: int = 0
    """Frames of that call used up, the bad one included."""
