"""What is wrong with a configuration, said so that it can be repaired: file, line, field, message, hint.

Rule: a problem never quotes a value that may be a secret, and all problems found are reported together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import msgspec

Path = tuple[str | int, ...]
"""Where a value stands in the file: mapping keys and list positions from the root, `("routes", "fast", "candidates", 0)`."""

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,59}\Z")
_SHOWN = 60


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong.

    `line` and `column` count from 1; line 0 means the file as a whole. `field` is a dotted path ("" for the whole
    file). `hint` says what to do ("" where the message says it already).
    """

    file: str
    line: int
    column: int
    field: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        field = f"{self.field}: " if self.field else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}: {field}{self.message}{hint}"


class ConfigError(Exception):
    """The configuration cannot be used. `problems` holds everything that was found, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(problems, key=lambda problem: (problem.line, problem.column))
        super().__init__("\n".join(map(str, self.problems)))


class Invalid(Exception):
    """One value is wrong; whoever knows the value's place makes a `Problem` of it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def dotted(path: Path) -> str:
    """The path as people write it: `routes.fast.candidates[0]`, with odd keys quoted: `routes["gpt-4.1"]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_KEY.match(part):
            text += f".{part}" if text else part
        else:
            text += f"[{quoted(part)}]"
    return text


def quoted(text: str, limit: int = _SHOWN) -> str:
    """The text in double quotes on one line, shortened, safe to print on any terminal."""
    return json.dumps(text if len(text) <= limit else text[: limit - 1] + "…", ensure_ascii=not text.isprintable())
