"""The `extensions` object: keys "vendor:NAME" on the wire, plain vendor names in the model.

The rule (llm-stream 4.7): keys are namespaced, malformed ones are refused in requests; namespaces nobody knows are
ignored, never executed. `vendor:headrace` holds our own words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.model.content import Extensions
from headrace.model.errors import InvalidRequest

OURS = "headrace"
"""Our own vendor name."""
OURS_KEY = "vendor:headrace"
_PREFIX = "vendor:"
_KEY = re.compile(r"[^\s:]+:\S+")

WireExtensions = dict[str, Any]
"""As on the wire: keys "vendor:NAME"."""


def check_keys(extensions: Mapping[str, Any] | None, path: str) -> None:
    """Raises InvalidRequest where a key of a request's extensions is not "vendor:name"."""
    for key in extensions or ():
        if not _KEY.fullmatch(key):
            place = f"{path}[{key[:80]!r}]"
            raise InvalidRequest(
                f'{place}: keys of extensions must have the form "vendor:name", as in "vendor:openai"', param=path
            )


def to_wire(extensions: Mapping[str, Any] | None) -> WireExtensions:
    """The model's extensions -> the wire's; {} where there are none."""
    return {_PREFIX + vendor: value for vendor, value in extensions.items()} if extensions else {}


def from_wire(extensions: Mapping[str, Any] | None) -> Extensions | None:
    """The wire's extensions -> the model's; other namespaces than "vendor:" are ignored. None where nothing is left."""
    if not extensions:
        return None
    return {key[len(_PREFIX) :]: value for key, value in extensions.items() if key.startswith(_PREFIX)} or None


def put(extensions: WireExtensions, vendor: str, word: str, value: Any) -> None:
    """Set one word in a vendor's object, beside what is in it already."""
    key = _PREFIX + (vendor or "unknown")
    known = extensions.get(key)
    extensions[key] = {**known, word: value} if isinstance(known, dict) else {word: value}


def find(extensions: Mapping[str, Any] | None, word: str) -> Iterator[tuple[str, Any]]:
    """(vendor, value) of every vendor's object that has this word."""
    for key, value in (extensions or {}).items():
        if key.startswith(_PREFIX) and isinstance(value, dict) and word in value:
            yield key[len(_PREFIX) :], value[word]


def without(extensions: Mapping[str, Any] | None, *words: str) -> WireExtensions:
    """The extensions less these words; a vendor's object that held nothing else goes too."""
    left: WireExtensions = {}
    for key, value in (extensions or {}).items():
        if isinstance(value, dict) and any(word in value for word in words):
            value = {name: inner for name, inner in value.items() if name not in words}
            if not value:
                continue
        left[key] = value
    return left


def split_ours(extensions: WireExtensions | None) -> tuple[dict[str, Any], WireExtensions]:
    """(our own words, what is under other keys)."""
    if not extensions:
        return {}, {}
    others = {key: value for key, value in extensions.items() if key != OURS_KEY}
    ours = extensions.get(OURS_KEY)
    return (ours if isinstance(ours, dict) else {}), others
