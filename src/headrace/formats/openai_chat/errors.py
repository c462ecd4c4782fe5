"""Errors between the model and OpenAI's `{"error": {message, type, param, code}}`, and finding them in their disguises.

The rule: an error keeps the provider's own words (`vendor_error`, returned unchanged to callers of this format), but for
credentials that a provider may have quoted, which are blanked everywhere. Codes are found from an HTTP status where one
is said (also inside a stream), else from the words in a table; what no table knows is the provider's fault.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.formats.json import encode
from headrace.model.errors import ErrorCode, ErrorInfo, code_for_status

VENDOR = "openai"
"""Whose words the error objects of this format are in."""

_C = ErrorCode
_MAX_MESSAGE = 500
_SECRET = re.compile(r"(?i)\b(bearer\s+|(?:sk|pk|rk|key|api[-_]?key|gsk|xai|hf)[-_=:]\s?)[\w.\-*]{8,}")

_BY_WORD: dict[str, ErrorCode] = {
    "authentication_error": _C.UNAUTHENTICATED,
    "invalid_api_key": _C.UNAUTHENTICATED,
    "invalid_authentication": _C.UNAUTHENTICATED,
    "permission_error": _C.FORBIDDEN,
    "permission_denied": _C.FORBIDDEN,
    "forbidden": _C.FORBIDDEN,
    "not_found_error": _C.MODEL_NOT_FOUND,
    "model_not_found": _C.MODEL_NOT_FOUND,
    "invalid_request_error": _C.INVALID_REQUEST,
    "invalid_request": _C.INVALID_REQUEST,
    "badrequesterror": _C.INVALID_REQUEST,
    "bad_request": _C.INVALID_REQUEST,
    "context_length_exceeded": _C.INVALID_REQUEST,
    "content_filter": _C.INVALID_REQUEST,
    "tool_use_failed": _C.INVALID_REQUEST,
    "validation": _C.INVALID_REQUEST,
    "rate_limit_error": _C.PROVIDER_RATE_LIMITED,
    "rate_limit_exceeded": _C.PROVIDER_RATE_LIMITED,
    "insufficient_quota": _C.PROVIDER_RATE_LIMITED,
    "timeout": _C.TIMEOUT,
    "timeout_error": _C.TIMEOUT,
}

_WORDS: dict[ErrorCode, tuple[str, str | None]] = {
    # code: (OpenAI's `type`, `code` where the error has no finer word)
    _C.UNAUTHENTICATED: ("invalid_request_error", "invalid_api_key"),
    _C.FORBIDDEN: ("permission_error", "forbidden"),
    _C.MODEL_NOT_FOUND: ("invalid_request_error", "model_not_found"),
    _C.INVALID_REQUEST: ("invalid_request_error", None),
    _C.BUDGET_EXCEEDED: ("insufficient_quota", "budget_exceeded"),
    _C.QUOTA_EXCEEDED: ("insufficient_quota", "insufficient_quota"),
    _C.PROVIDER_RATE_LIMITED: ("rate_limit_error", "rate_limit_exceeded"),
    _C.PROVIDER_UNAVAILABLE: ("server_error", "provider_unavailable"),
    _C.TIMEOUT: ("server_error", "timeout"),
    _C.CONSUMER_TOO_SLOW: ("server_error", "consumer_too_slow"),
    _C.CANCELLED: ("server_error", "cancelled"),
    _C.INTERNAL_ERROR: ("server_error", "internal_error"),
}


def find_error(body: dict[str, Any], *, named: bool = False) -> Any:
    """The error that a provider's JSON object holds, or None. `named`: its frame was called an error.

    Knows: `error` as object or text, `error_type` beside it; the error object bare (an event named error, vLLM's
    `object: "error"`, a `message` or `detail` where choices should be); an error inside a choice or inside `x_groq`.
    """
    error = body.get("error")
    if error:
        if isinstance(error, str) and isinstance(body.get("error_type"), str):
            return {"message": error, "type": body["error_type"]}
        return error
    if named or body.get("object") == "error":
        return body
    inner = body.get("x_groq")
    if isinstance(inner, dict) and inner.get("error"):
        return inner["error"]
    choices = body.get("choices")
    if choices is None:
        if isinstance(body.get("message"), str) and ("code" in body or "type" in body):
            return body
        return {"message": body["detail"]} if body.get("detail") and "object" not in body else None
    if isinstance(choices, list):
        for choice in choices:
            if isinstance(choice, dict) and choice.get("error"):
                return choice["error"]
    return None


def error_info(error: Any, *, provider: str | None = None, status: int = 0) -> ErrorInfo:
    """What `find_error` found. `status`: the HTTP status of the answer, 0 inside a stream."""
    if not isinstance(error, dict):
        error = {"message": error if isinstance(error, str) else "The provider reported an error without a message"}
    message = error.get("message")
    if not isinstance(message, str) or not message:
        message = error.get("detail") or error.get("msg")
        message = message if isinstance(message, str) and message else "The provider reported an error"
    words = [word for key in ("code", "type") if isinstance(word := error.get(key), str) and word]
    said = status or next((n for key in ("status_code", "code", "status") if (n := _http_status(error.get(key)))), 0)
    code = code_for_status(said) if said else _code_for_words(words)
    blanked = redact(message)
    param = error.get("param")
    return ErrorInfo(
        code=code,
        message=shorten(blanked),
        status=status if code is _C.INVALID_REQUEST else 0,
        type=words[0] if words else None,
        provider=provider,
        vendor=VENDOR,
        vendor_error=error if blanked == message else {**error, "message": blanked},
        param=param if isinstance(param, str) and param else None,
        retryable=False if "insufficient_quota" in words else None,
    )


def read_error(status: int, headers: Mapping[str, str], body: bytes) -> ErrorInfo:
    """A provider's HTTP error, whatever its body is. Never raises."""
    try:
        parsed = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        parsed = None
    if isinstance(parsed, list) and parsed:
        parsed = parsed[0]
    if isinstance(parsed, dict) and parsed:
        info = error_info(find_error(parsed, named=True), status=status)
    else:
        what = _describe(body)
        info = ErrorInfo(
            code=code_for_status(status), message=f"The provider answered with HTTP status {status} and {what}"
        )
        if info.code is _C.INVALID_REQUEST:
            info.status = status
    info.retry_after = _retry_after(headers)
    advice = headers.get("x-should-retry")
    if advice in {"true", "false"}:
        info.retryable = advice == "true"
    return info


def write_error_object(info: ErrorInfo) -> dict[str, Any]:
    """The object under `error`."""
    if info.vendor == VENDOR and info.vendor_error is not None:
        return info.vendor_error
    type_, code = _WORDS[info.code]
    if info.type and info.type != "invalid_request":
        code = info.type
    return {"message": info.message, "type": type_, "param": info.param, "code": code}


def write_error(info: ErrorInfo) -> bytes:
    """The body of an HTTP error, which is also the payload of an error inside a stream."""
    return encode({"error": write_error_object(info)})


def redact(message: str) -> str:
    """The message with anything that looks like a credential blanked."""
    return _SECRET.sub(r"\1[redacted]", message)


def shorten(message: str) -> str:
    return message if len(message) <= _MAX_MESSAGE else message[: _MAX_MESSAGE - 3] + "..."


def _http_status(value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599 else 0


def _code_for_words(words: list[str]) -> ErrorCode:
    for word in words:
        code = _BY_WORD.get(word.lower())
        if code is not None:
            return code
    return _C.PROVIDER_UNAVAILABLE


def _describe(body: bytes) -> str:
    if not body.strip():
        return "an empty body"
    text = body[:2000].decode("utf-8", "replace").strip()
    if text.startswith("<"):
        return "an HTML or XML page instead of a JSON error"
    return f"this body instead of a JSON error: {shorten(redact(text))}"


def _retry_after(headers: Mapping[str, str]) -> float | None:
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
        if 0 <= seconds <= 86_400:
            return seconds
    return None
