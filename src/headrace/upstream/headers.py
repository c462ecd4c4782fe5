"""Header fields: the answer's as a case-insensitive multi-map, the request's checked before they are written.

Names and values of a request are validated here, in one place, because a line break in either would let a value add
headers or a second request (RFC 9110, section 5.5). Headers that frame the message belong to the client alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

RESERVED = frozenset(
    (
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
"""Lower-case names that the client sets itself or never sends; a request that brings one is refused."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class Headers:
    """The header fields of an answer, in the order they came. Names compare without regard to case."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Iterable[tuple[str, str]] = ()) -> None:
        self._fields = [(name.lower(), value) for name, value in fields]

    def get(self, name: str) -> str | None:
        """The first value of `name`, or None."""
        name = name.lower()
        for field, value in self._fields:
            if field == name:
                return value
        return None

    def get_all(self, name: str) -> list[str]:
        """Every value of `name`, in order."""
        name = name.lower()
        return [value for field, value in self._fields if field == name]

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """(lower-case name, value) pairs, in order, repeated names included."""
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        """Names alone: values may be secret (`set-cookie`)."""
        return f"Headers({[name for name, _ in self._fields]})"


def is_token(text: str) -> bool:
    """Whether `text` is a token of RFC 9110, as methods and header names must be."""
    return _TOKEN.fullmatch(text) is not None


@lru_cache(maxsize=1024)
def _name_problem(name: str) -> str | None:
    """What is wrong with a header's name; requests send the same few again and again."""
    if not is_token(name):
        return f"header name {name!a} is not valid: use letters, digits and - only"
    return f"header {name!r} is set by the HTTP client itself: remove it" if name.lower() in RESERVED else None


def check_headers(headers: Iterable[tuple[str, str]]) -> None:
    """Raise ValueError, naming the header but never its value, where one may not be sent."""
    for name, value in headers:
        problem = _name_problem(name)
        if problem is not None:
            raise ValueError(problem)
        if _VALUE.fullmatch(value) is None:
            raise ValueError(
                f"the value of header {name!r} holds a character that a header may not carry "
                "(a line break, NUL, another control character, or one outside Latin-1)"
            )
