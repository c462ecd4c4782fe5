"""Errors of the gateway format: `{"code", "message", "type", "provider", "retryable", "details"}`.

The same object is the `data` of an error event and, under `error`, the body of an HTTP error. The six fields are always
there; `param` and `retry_after` where they are known, a provider's own error object under `extensions` ("vendor:NAME").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.formats.json import encode
from headrace.formats.standard.errors import code_named, read_error_body, read_fields, tidy, vendor_error_of
from headrace.model.errors import ErrorCode, ErrorInfo

VENDOR = "headrace"


def error_object(info: ErrorInfo) -> dict[str, Any]:
    """The error in this format's words; as it came where it came in this format."""
    if info.vendor == VENDOR and info.vendor_error is not None:
        return info.vendor_error
    fields: dict[str, Any] = {
        "code": info.code.value,
        "message": info.message,
        "type": info.type,
        "provider": info.provider,
        "retryable": info.is_retryable,
        "details": info.details,
    }
    for name in ("param", "retry_after"):
        value = getattr(info, name)
        if value is not None:
            fields[name] = value
    if info.vendor and info.vendor_error is not None:
        fields["extensions"] = {f"vendor:{info.vendor}": info.vendor_error}
    return fields


def read_object(fields: Mapping[str, Any], provider: str, otherwise: ErrorCode) -> ErrorInfo:
    """The inverse. `otherwise`: the code where the one that is said is not known."""
    said = fields.get("code")
    message = tidy(fields.get("message"), "The provider reported an error without a message")
    code = code_named(said)
    info = ErrorInfo(code=code or otherwise, message=message, provider=provider or None)
    if code is None and isinstance(said, str):
        info.type = said
    read_fields(info, fields)
    extensions = fields.get("extensions")
    found = vendor_error_of(extensions if isinstance(extensions, dict) else None)
    info.vendor, info.vendor_error = found or (VENDOR, {**fields, "message": message})
    return info


def read_error(status: int, headers: Mapping[str, str], body: bytes) -> ErrorInfo:
    """A provider's HTTP error. Never raises."""
    return read_error_body(status, headers, body, lambda error, code: read_object(error, "", code))


def write_error(info: ErrorInfo) -> bytes:
    """The body of an HTTP error."""
    return encode({"error": error_object(info)})
