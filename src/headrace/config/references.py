"""`${NAME}` references to environment variables inside the scalar values of the file.

    ${NAME}             the variable; an error where it is not set
    ${NAME:-default}    the default where the variable is not set or is empty
    $${                 a plain ${

Rule: references are replaced after the YAML is parsed, in values only, so what a variable holds can never change the
structure of the file. A default is plain text: references do not nest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from headrace.config.errors import Invalid

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_TOKEN = re.compile(r"\$\$\{|\$\{(?P<body>[^}]*)\}|\$\{")
_BODY = re.compile(rf"(?P<name>{VARIABLE.pattern})(?::-(?P<default>.*))?\Z", re.DOTALL)
_HOW = "write ${NAME} or ${NAME:-default}, and $${ for a plain ${"


class Expanded(msgspec.Struct, frozen=True):
    """A scalar's text after replacement.

    `raw` is the text in the file. `names` are the variables it refers to, `defaults` says whether one of them has a
    default in the file, and `alone` that the text is one reference and nothing else.
    """

    text: str
    raw: str
    names: tuple[str, ...] = ()
    defaults: bool = False
    alone: bool = False


def expand(text: str, env: Mapping[str, str]) -> Expanded:
    """Replace the references in `text`. Raises Invalid for a malformed one and for variables that are not set."""
    if "${" not in text:
        return Expanded(text, text)
    pieces: list[str] = []
    names: list[str] = []
    unset: list[str] = []
    defaults = False
    end = 0
    for token in _TOKEN.finditer(text):
        pieces.append(text[end : token.start()])
        end = token.end()
        if token[0] == "$${":
            pieces.append("${")
            continue
        body = _BODY.match(token["body"] or "")
        if body is None:
            if token["body"] is None:
                raise Invalid('a "${" is never closed', _HOW)
            raise Invalid('a "${...}" does not hold the name of an environment variable', _HOW)
        name, default = body["name"], body["default"]
        names.append(name)
        value = env.get(name)
        if default is not None:
            defaults = True
            value = value or default
        if value is None:
            unset.append(name)
        else:
            pieces.append(value)
    if unset:
        raise Invalid(*_not_set(list(dict.fromkeys(unset))))
    pieces.append(text[end:])
    alone = len(names) == 1 and re.fullmatch(r"\$\{[^}]*\}", text) is not None
    return Expanded("".join(pieces), text, tuple(names), defaults, alone)


def _not_set(names: list[str]) -> tuple[str, str]:
    if len(names) == 1:
        return f"environment variable {names[0]} is not set", f"set it, or write ${{{names[0]}:-default}}"
    return f"environment variables {', '.join(names)} are not set", "set them, or give defaults: ${NAME:-default}"
