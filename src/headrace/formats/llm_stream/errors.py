"""Errors of the draft: its five codes, and our own code beside them in `extensions["vendor:headrace"]`.

In a stream only the five exist. In the body of an HTTP error, which the draft leaves open, what none of the five fits has
the gateway's own code: `{"error": {"code", "message", "extensions": {"vendor:headrace": {"code", "type", ...}}}}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.formats.json import encode
from headrace.formats.standard.errors import (
    read_error_body,
    read_fields,
    tidy,
    vendor_error_of,
    write_fields,
)
from headrace.formats.standard.extensions import OURS_KEY, split_ours
from headrace.model.errors import ErrorCode, ErrorInfo

VENDOR = "llm_stream"
ENVELOPE = ("v", "seq", "type")
"""Fields of an event that are not the error's."""

_C = ErrorCode
_BY_TYPE = {
    # the finer word of an error -> the draft's code
    "context_length_exceeded": "context_length_exceeded",
    "context_window_exceeded": "context_length_exceeded",
    "content_filtered": "content_filtered",
    "content_filter": "content_filtered",
    "content_policy_violation": "content_filtered",
    "overloaded": "overloaded",
    "overloaded_error": "overloaded",
    "upstream_truncated": "internal_error",
}
_BY_CODE = {
    _C.PROVIDER_RATE_LIMITED: "rate_limited",
    _C.QUOTA_EXCEEDED: "rate_limited",
    _C.PROVIDER_UNAVAILABLE: "overloaded",
    _C.TIMEOUT: "overloaded",
    _C.INTERNAL_ERROR: "internal_error",
}
"""Of the others the draft knows nothing: internal_error in a stream, their own code in a body."""

_READ: dict[str, tuple[ErrorCode, str | None]] = {
    "rate_limited": (_C.PROVIDER_RATE_LIMITED, None),
    "context_length_exceeded": (_C.INVALID_REQUEST, "context_length_exceeded"),
    "content_filtered": (_C.INVALID_REQUEST, "content_filtered"),
    "internal_error": (_C.PROVIDER_UNAVAILABLE, "internal_error"),
    "overloaded": (_C.PROVIDER_UNAVAILABLE, "overloaded"),
}


def draft_code(info: ErrorInfo) -> str | None:
    """The draft's code for an error, None where it has none that fits."""
    words = [info.type]
    if info.vendor_error:
        words += [info.vendor_error.get("code"), info.vendor_error.get("type")]
    for word in words:
        if isinstance(word, str) and word in _BY_TYPE:
            return _BY_TYPE[word]
    return _BY_CODE.get(info.code)


def error_fields(info: ErrorInfo, *, in_stream: bool) -> dict[str, Any]:
    """code, message and extensions: the fields of the `error` event, and the object in an error body."""
    if info.vendor == VENDOR and info.vendor_error is not None:
        own = info.vendor_error
        return {name: value for name, value in own.items() if name not in ENVELOPE} if in_stream else own
    code = draft_code(info) or ("internal_error" if in_stream else info.code.value)
    extensions: dict[str, Any] = {OURS_KEY: {"code": info.code.value, **write_fields(info)}}
    if info.vendor and info.vendor_error is not None:
        extensions[f"vendor:{info.vendor}"] = info.vendor_error
    return {"code": code, "message": info.message, "extensions": extensions}


def read_fields_of(fields: Mapping[str, Any], provider: str, otherwise: ErrorCode) -> ErrorInfo:
    """The inverse. `otherwise`: the code where the one that is said is not known."""
    said = fields.get("code")
    code, type_ = _READ.get(said, (otherwise, said)) if isinstance(said, str) else (otherwise, None)
    extensions = fields.get("extensions")
    extensions = extensions if isinstance(extensions, dict) else None
    message = tidy(fields.get("message"), "The provider reported an error without a message")
    ours, others = split_ours(extensions)
    info = ErrorInfo(
        code=code,
        type=type_,
        message=message,
        provider=provider or None,
        vendor=VENDOR,
        vendor_error={
            **fields,
            "code": said if isinstance(said, str) else "internal_error",
            "message": message,
            **({"extensions": extensions} if extensions else {}),
        },
    )
    if ours:
        info.type = None
        read_fields(info, ours)
        info.vendor, info.vendor_error = vendor_error_of(others) or (None, None)
    return info


def read_error(status: int, headers: Mapping[str, str], body: bytes) -> ErrorInfo:
    """A provider's HTTP error. Never raises."""
    return read_error_body(status, headers, body, lambda error, code: read_fields_of(error, "", code))


def write_error(info: ErrorInfo) -> bytes:
    """The body of an HTTP error."""
    return encode({"error": error_fields(info, in_stream=False)})
