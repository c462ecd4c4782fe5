"""Small checks that reading and writing share: JSON in strings, base64, typed conversion with the path of the bad field.

Each says what was wrong and where; none quotes the content.
"""

from __future__ import annotations

import binascii
import json as stdlib_json
import re
from typing import Any, NoReturn, TypeVar

from headrace.formats.json import convert
from headrace.model.errors import InvalidRequest

T = TypeVar("T")

_MISSING = re.compile(r"^(?:(?P<path>[^:]*): )?Object missing required field `(?P<field>[^`]+)`$")


def read_as(value: Any, type: type[T]) -> T:
    """`convert`, with the name of a missing field made part of the path."""
    try:
        return convert(value, type)
    except InvalidRequest as error:
        found = _MISSING.match(error.info.message)
        if found is None:
            raise
        path = ".".join(part for part in (found["path"], found["field"]) if part)
        raise InvalidRequest(f"{path} is required", param=path) from None


def bad(path: str, problem: str) -> NoReturn:
    """Raises InvalidRequest about one field."""
    raise InvalidRequest(f"{path} {problem}", param=path)


def is_json(text: str) -> bool:
    """Whether the text is one complete JSON value (half a surrogate pair in an escape is the model's slip, not ours)."""
    try:
        stdlib_json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return False
    return True


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def is_base64(data: str) -> bool:
    """Whether the text is base64 of at least one byte, padded, without line breaks."""
    try:
        return bool(binascii.a2b_base64(data, strict_mode=True))
    except (ValueError, binascii.Error):
        return False
