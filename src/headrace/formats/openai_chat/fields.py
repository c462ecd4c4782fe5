"""Checks of single fields of a caller's body: the value, or an InvalidRequest that names the field in the caller's terms."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from headrace.model.errors import InvalidRequest

from .media import split_data_url


def data_url_at(url: str, path: str) -> tuple[str, str]:
    media_type, data = split_data_url(url)
    if not media_type or not data:
        raise bad(path, "A data URL must look like data:image/png;base64,...")
    return media_type, base64_at(data, path)


def base64_at(data: str, path: str) -> str:
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise bad(path, "The data is not valid base64") from None
    return data


def object_at(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise bad(path, "Expected `object`")
    return value


def string_at(value: Any, path: str, *, empty: bool = False) -> str:
    if not isinstance(value, str):
        raise bad(path, "Expected `str`")
    if not value and not empty:
        raise bad(path, "Expected a string that is not empty")
    return value


def bad(path: str, message: str) -> InvalidRequest:
    return InvalidRequest(f"{path}: {message}", param=path)
