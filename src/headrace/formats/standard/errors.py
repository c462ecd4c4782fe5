"""Reading a provider's HTTP error in either format, whatever body it has.

The rule: it never raises, never quotes more than 500 characters, and never quotes what may hold a credential.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from headrace.model.errors import ErrorCode, ErrorInfo, code_for_status

from .extensions import from_wire

MAX_MESSAGE = 500
_LONGEST_WAIT = 86_400.0
_SECRET = re.compile(r"(?i)\b(bearer\s+|(?:sk|pk|rk|key|api[-_]?key)[-_=:]\s?)[\w.\-*]{8,}")
_decode = msgspec.json.Decoder().decode
_CODES = {code.value: code for code in ErrorCode}


def code_named(word: Any) -> ErrorCode | None:
    """The code of that name, or None."""
    return _CODES.get(word) if isinstance(word, str) else None


def tidy(message: Any, otherwise: str) -> str:
    """A provider's message: shortened, credentials blanked; `otherwise` where there is none."""
    if not isinstance(message, str) or not message.strip():
        return otherwise
    tidied = _SECRET.sub(r"\1[redacted]", message[: 2 * MAX_MESSAGE])
    return tidied if len(tidied) <= MAX_MESSAGE else tidied[: MAX_MESSAGE - 3] + "..."


def read_error_body(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    read_object: Callable[[dict[str, Any], ErrorCode], ErrorInfo],
) -> ErrorInfo:
    """`read_object` takes the `error` object and the code that the status suggests."""
    code = code_for_status(status) if status >= 400 else ErrorCode.PROVIDER_UNAVAILABLE
    try:
        parsed = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        parsed = None
    error = parsed.get("error") if isinstance(parsed, dict) else None
    if isinstance(error, dict):
        info = read_object(error, code)
    else:
        info = ErrorInfo(code=code, message=_describe(status, body, error))
    if info.code is ErrorCode.INVALID_REQUEST and 400 <= status < 500:
        info.status = status
    wait = retry_after(headers)
    if wait is not None:
        info.retry_after = wait
    return info


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from `retry-after-ms` or `retry-after` in seconds."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
        if 0 <= seconds <= _LONGEST_WAIT:
            return seconds
    return None


def read_fields(info: ErrorInfo, fields: Mapping[str, Any]) -> None:
    """Set on an error what both formats say beside code and message: the words that `write_fields` writes."""
    code = code_named(fields.get("code"))
    if code is not None:
        info.code = code
    for name, kinds in _FIELDS.items():
        value = fields.get(name)
        if isinstance(value, kinds) and (kinds is bool or not isinstance(value, bool)):
            setattr(info, name, value)


def write_fields(info: ErrorInfo) -> dict[str, Any]:
    """What is known of type, provider, param, retry_after and details; `retryable` always."""
    fields = {name: getattr(info, name) for name in _FIELDS}
    fields["retryable"] = info.is_retryable
    return {name: value for name, value in fields.items() if value is not None}


_FIELDS: dict[str, Any] = {
    "type": str,
    "provider": str,
    "param": str,
    "retryable": bool,
    "retry_after": int | float,
    "details": dict,
}


def vendor_error_of(extensions: Mapping[str, Any] | None) -> tuple[str, dict[str, Any]] | None:
    """(vendor, its own error object) where an error's extensions hold one."""
    for vendor, error in (from_wire(extensions) or {}).items():
        if isinstance(error, dict):
            return vendor, error
    return None


def _describe(status: int, body: bytes, error: Any) -> str:
    text = error if isinstance(error, str) else body[: 4 * MAX_MESSAGE].decode("utf-8", "replace").strip()
    if not text:
        what = "an empty body"
    elif text.startswith("<"):
        what = "an HTML or XML page instead of a JSON error"
    else:
        what = f"this instead of an error object: {tidy(text, '')}"
    return tidy(f"The provider answered with HTTP status {status} and {what}", "")
