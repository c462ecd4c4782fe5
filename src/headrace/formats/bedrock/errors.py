"""Errors in AWS's shape, both ways: `{"message": ...}` with the exception's name in the header `x-amzn-ErrorType`.

In a stream the name is the message's `:exception-type`, whose first letter is small. The rule: AWS's word decides where
there is one, the HTTP status where there is none. Bodies that we write name the exception in `__type` as well, where
AWS's clients look for it without the header. Reading survives any body whatever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.formats.json import encode
from headrace.formats.standard.errors import retry_after, tidy
from headrace.framing.eventstream import ERROR, EXCEPTION
from headrace.framing.frame import Frame
from headrace.model.errors import ErrorCode, ErrorInfo, code_for_status

from .words import VENDOR

_Code = ErrorCode

_EXCEPTIONS: dict[str, tuple[ErrorCode, int]] = {
    # name: (our code, HTTP status for callers of any format; 0 is the code's own)
    "AccessDeniedException": (_Code.FORBIDDEN, 0),
    "UnrecognizedClientException": (_Code.UNAUTHENTICATED, 0),
    "InvalidSignatureException": (_Code.UNAUTHENTICATED, 0),
    "ExpiredTokenException": (_Code.UNAUTHENTICATED, 0),
    "MissingAuthenticationTokenException": (_Code.UNAUTHENTICATED, 0),
    "ValidationException": (_Code.INVALID_REQUEST, 0),
    "ConflictException": (_Code.INVALID_REQUEST, 409),
    "ResourceNotFoundException": (_Code.MODEL_NOT_FOUND, 0),
    "ThrottlingException": (_Code.PROVIDER_RATE_LIMITED, 0),
    "TooManyRequestsException": (_Code.PROVIDER_RATE_LIMITED, 0),
    "ServiceQuotaExceededException": (_Code.PROVIDER_RATE_LIMITED, 0),
    "ModelNotReadyException": (_Code.PROVIDER_UNAVAILABLE, 0),
    "ModelErrorException": (_Code.PROVIDER_UNAVAILABLE, 0),
    "ModelStreamErrorException": (_Code.PROVIDER_UNAVAILABLE, 0),
    "ModelTimeoutException": (_Code.TIMEOUT, 0),
    "InternalServerException": (_Code.PROVIDER_UNAVAILABLE, 0),
    "ServiceUnavailableException": (_Code.PROVIDER_UNAVAILABLE, 0),
}

_WORDS: dict[ErrorCode, tuple[str, str]] = {
    # our code: (exception before a stream, exception in one, which has fewer)
    _Code.UNAUTHENTICATED: ("UnrecognizedClientException", "validationException"),
    _Code.FORBIDDEN: ("AccessDeniedException", "validationException"),
    _Code.MODEL_NOT_FOUND: ("ResourceNotFoundException", "validationException"),
    _Code.INVALID_REQUEST: ("ValidationException", "validationException"),
    _Code.BUDGET_EXCEEDED: ("ServiceQuotaExceededException", "validationException"),
    _Code.QUOTA_EXCEEDED: ("ThrottlingException", "throttlingException"),
    _Code.PROVIDER_RATE_LIMITED: ("ThrottlingException", "throttlingException"),
    _Code.PROVIDER_UNAVAILABLE: ("ServiceUnavailableException", "serviceUnavailableException"),
    _Code.TIMEOUT: ("ModelTimeoutException", "modelStreamErrorException"),
    _Code.CONSUMER_TOO_SLOW: ("ModelTimeoutException", "modelStreamErrorException"),
    _Code.CANCELLED: ("ServiceUnavailableException", "serviceUnavailableException"),
    _Code.INTERNAL_ERROR: ("InternalServerException", "internalServerException"),
}
_IN_A_STREAM = frozenset(
    {
        "internalServerException",
        "modelStreamErrorException",
        "serviceUnavailableException",
        "throttlingException",
        "validationException",
    }
)
_BROKEN = frozenset({"upstream_truncated", "malformed_upstream"})
"""Types of errors of streams that broke off: AWS calls that a ModelStreamErrorException."""

_decode = msgspec.json.Decoder().decode


def read_error(status: int, headers: Mapping[str, str], body: bytes) -> ErrorInfo:
    """A provider's HTTP error. Never raises."""
    word = headers.get("x-amzn-errortype", "")
    info = _error(_object(body), word, status=status, otherwise=f"The provider answered with HTTP status {status}")
    info.retry_after = retry_after(headers)
    return info


def error_in_body(payload: dict[str, Any], provider: str) -> ErrorInfo | None:
    """The error that a whole body is in disguise; None where it is none."""
    if "output" in payload or not any(name in payload for name in ("message", "Message", "__type", "error")):
        return None
    info = _error(payload, "", otherwise="The provider reported an error")
    info.provider = provider or None
    return info


def is_error(event: str) -> bool:
    """Whether a frame of this event tells an error."""
    return event.startswith((EXCEPTION, ERROR))


def error_frame(frame: Frame, provider: str) -> ErrorInfo:
    """The error that an exception or error message of a stream tells."""
    word = frame.event.removeprefix(EXCEPTION).removeprefix(ERROR)
    payload = _object(frame.data)
    if not payload and frame.event.startswith(ERROR):
        payload = {"message": frame.data.decode("utf-8", "replace")}
    info = _error(payload, word, otherwise="The provider reported an error in its stream")
    info.provider = provider or None
    return info


def write_error(info: ErrorInfo) -> bytes:
    """The body of an HTTP error."""
    return encode({"__type": _word(info), **_said(info)})


def error_headers(info: ErrorInfo) -> tuple[tuple[str, str], ...]:
    """The header that names the exception."""
    return (("x-amzn-ErrorType", _word(info)),)


def exception_frame(info: ErrorInfo) -> Frame:
    """The message that ends a stream with this error."""
    small = _small(info.type or "")
    if info.vendor == VENDOR and small in _IN_A_STREAM:
        word = small
    elif info.type in _BROKEN:
        word = "modelStreamErrorException"
    else:
        word = _WORDS[info.code][1]
    return Frame(encode(_said(info)), EXCEPTION + word)


def _said(info: ErrorInfo) -> dict[str, Any]:
    if info.vendor == VENDOR and info.vendor_error:
        return {name: value for name, value in info.vendor_error.items() if name != "__type"}
    return {"message": info.message}


def _word(info: ErrorInfo) -> str:
    known = _EXCEPTIONS.get(info.type or "")
    return info.type if info.type and known is not None and known[0] is info.code else _WORDS[info.code][0]


def _error(payload: dict[str, Any], word: str, *, status: int = 0, otherwise: str) -> ErrorInfo:
    said = payload.get("__type") or payload.get("code")
    word = word or (said if isinstance(said, str) else "")
    word = word.rpartition("#")[2].partition(":")[0]  # namespace#Name:http://...
    word = word[:1].upper() + word[1:]
    known = _EXCEPTIONS.get(word)
    if known is not None:
        code, own_status = known
    else:
        code, own_status = (code_for_status(status) if status else _Code.PROVIDER_UNAVAILABLE), 0
        if code is _Code.INVALID_REQUEST:
            own_status = status
    message = payload.get("message", payload.get("Message"))
    found = payload.get("error")
    if message is None and isinstance(found, dict):  # a proxy's error, in other vendors' shape
        message = found.get("message")
    return ErrorInfo(
        code=code,
        message=tidy(message, otherwise),
        status=own_status,
        type=word or None,
        vendor=VENDOR if payload else None,
        vendor_error=payload or None,
    )


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _small(word: str) -> str:
    return word[:1].lower() + word[1:]
