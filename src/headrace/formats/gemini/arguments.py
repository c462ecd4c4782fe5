"""Arguments of a function call that come in pieces: `partialArgs`, each a value at a path, strings in several pieces.

They are put together and told whole when the call is: which containers are still open cannot be said before.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from headrace.formats.json import encode
from headrace.model.errors import ProtocolError

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d{1,6})\]|\['((?:[^'\\]|\\.)*)'\]")
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")
_MAX_DEPTH = 64


class _Pieces(list[str]):
    """A string in pieces; told from an array by its type."""


class Arguments:
    """The arguments of one call, as far as they have come."""

    __slots__ = ("_root", "_strings")

    def __init__(self) -> None:
        self._root: dict[str, Any] = {}
        self._strings: dict[str, _Pieces] = {}

    def put(self, piece: dict[str, Any]) -> None:
        """One element of `partialArgs`. Raises ProtocolError."""
        path = piece.get("jsonPath")
        if not isinstance(path, str):
            raise ProtocolError("A piece of a function call's arguments has no jsonPath")
        kind = next((name for name in _VALUES if name in piece), None)
        if kind is None:
            return
        if kind == "stringValue":
            text = piece[kind]
            if not isinstance(text, str):
                raise ProtocolError("A stringValue of a function call's arguments is no string")
            pieces = self._strings.get(path)
            if pieces is None:
                pieces = self._strings[path] = _Pieces()
                self._place(path, pieces)
            pieces.append(text)
        else:
            self._place(path, None if kind == "nullValue" else piece[kind])

    def text(self) -> str:
        """All of them as JSON."""
        return encode(_joined(self._root)).decode()

    def _place(self, path: str, value: Any) -> None:
        steps = _steps(path)
        holder: Any = self._root
        for step, following in pairwise(steps):
            holder = _child(holder, step, [] if isinstance(following, int) else {})
        _set(holder, steps[-1], value)


def _steps(path: str) -> list[str | int]:
    if not path.startswith("$"):
        raise ProtocolError("A jsonPath of a function call's arguments does not begin with $")
    steps: list[str | int] = []
    place = 1
    while place < len(path):
        found = _STEP.match(path, place)
        if found is None or len(steps) >= _MAX_DEPTH:
            raise ProtocolError("A jsonPath of a function call's arguments cannot be understood")
        name, index, quoted = found.groups()
        steps.append(int(index) if index is not None else name if name is not None else quoted)
        place = found.end()
    if not steps or isinstance(steps[0], int):
        raise ProtocolError("A jsonPath of a function call's arguments names no member")
    return steps


def _child(holder: Any, step: str | int, fresh: Any) -> Any:
    known = _get(holder, step)
    if type(known) is type(fresh):
        return known
    _set(holder, step, fresh)
    return fresh


def _get(holder: Any, step: str | int) -> Any:
    if isinstance(holder, dict) and isinstance(step, str):
        return holder.get(step)
    if type(holder) is list and isinstance(step, int) and step < len(holder):
        return holder[step]
    return None


def _set(holder: Any, step: str | int, value: Any) -> None:
    if isinstance(holder, dict) and isinstance(step, str):
        holder[step] = value
    elif type(holder) is list and isinstance(step, int) and step <= len(holder):
        holder[step : step + 1] = [value]
    else:
        raise ProtocolError("A jsonPath of a function call's arguments does not fit those before it")


def _joined(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _joined(one) for name, one in value.items()}
    if isinstance(value, _Pieces):
        return "".join(value)
    return [_joined(one) for one in value] if isinstance(value, list) else value
