"""YAML text -> a tree of nodes that know their line and column; nothing is interpreted yet.

Scalars follow the core schema of YAML 1.2, which the published JSON Schema and editors assume too: `no`, `on`, `1:30`
and `2024-01-31` are strings, true and false the only booleans. Aliases are refused (a few lines of them can stand for
gigabytes), and so are deep nesting and files beyond a megabyte; a configuration needs none of them.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from headrace.config.errors import ConfigError, Problem

MAX_FILE_BYTES = 1024 * 1024
MAX_DEPTH = 32

_TAG = "tag:yaml.org,2002:"
_CORE_SCHEMA = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
)
_HINTS = (
    ("'\\t'", "indent with spaces; YAML allows no tabs there"),
    ("mapping values are not allowed", 'put a value that holds ": " in quotes, and check the indentation'),
    ("could not find expected ':'", "write key: value, with a space after the colon"),
    ("expected <block end>", "the indentation does not match the lines above"),
    ("expected a single document", "a configuration is one YAML document; remove the --- line"),
    ("but got '{'", 'inside {...} and [...] put a value that holds ${NAME} in quotes: "${NAME}"'),
    ("quoted scalar", "a quote is not closed"),
    ("'%'", "put a value that starts with % in quotes"),
    ("'@'", "put a value that starts with @ in quotes"),
    ("'`'", "put a value that starts with a backquote in quotes"),
)


class _Refused(yaml.MarkedYAMLError):
    """Well-formed YAML that a configuration may not use."""


class _Loader(yaml.SafeLoader):
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # the stubs
        if self.check_event(yaml.AliasEvent):
            raise _Refused(None, None, "aliases (*name) are not supported; write the value out", mark)
        if self.depth >= MAX_DEPTH:
            raise _Refused(None, None, f"nested deeper than {MAX_DEPTH} levels", mark)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


_Loader.yaml_implicit_resolvers = {}  # instead of those of YAML 1.1, which SafeLoader brings along
for _name, _pattern, _first in _CORE_SCHEMA:
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z"), list(_first))


def decode(data: bytes, filename: str) -> str:
    """The file's text; a byte order mark is allowed. Raises ConfigError where it is too large or not UTF-8."""
    if len(data) > MAX_FILE_BYTES:
        message = f"the file is larger than {MAX_FILE_BYTES // 1024} KiB"
        raise ConfigError([Problem(filename, 0, 0, "", message, "is it a configuration file?")])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # Everything before error.start is valid, so the column can be counted in characters. The codec counts from
        # behind a byte order mark.
        body = data.removeprefix(b"\xef\xbb\xbf")[: error.start].decode("utf-8", "replace")
        line, column = body.count("\n") + 1, len(body) - (body.rfind("\n") + 1) + 1
        message = "the file is not UTF-8 text"
        raise ConfigError([Problem(filename, line, column, "", message, "save it as UTF-8")]) from None


def compose(text: str, filename: str) -> yaml.Node | None:
    """The root node; None for a file without content. Raises ConfigError for anything that is not one plain document."""
    loader: _Loader | None = None
    try:
        loader = _Loader(text)
        return loader.get_single_node()
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        problem = Problem(
            filename,
            before.count("\n") + 1,
            len(before) - (before.rfind("\n") + 1) + 1,
            "",
            f"character U+{error.character:04X} is not allowed in YAML",
            "remove it",
        )
    except yaml.MarkedYAMLError as error:
        problem = _syntax_problem(error, filename)
    except (ValueError, OverflowError):
        # PyYAML passes an escape such as "\UFFFFFFFF" to chr() without looking.
        mark = loader.get_mark() if loader else None
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        problem = Problem(filename, line, column, "", "an escape in double quotes names no character")
    # The parser's exception holds the text of the file, secrets included, so it is not kept as the cause.
    raise ConfigError([problem])


def tag(node: yaml.Node) -> str:
    """The node's type in one word: str, int, float, bool, null, map, seq; an explicit tag as it was written."""
    return str(node.tag).removeprefix(_TAG)


def resolve(text: str) -> str:
    """The type, as `tag` gives it, of a plain scalar with this text."""
    for pattern_tag, pattern in _Loader.yaml_implicit_resolvers.get(text[:1], []):
        if pattern.match(text):
            return str(pattern_tag).removeprefix(_TAG)
    return "str"


def _syntax_problem(error: yaml.MarkedYAMLError, filename: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    message = error.problem or "the file is not valid YAML"
    context = error.context or ""
    hint = next((hint for words, hint in _HINTS if words in message or words in context), "")
    if isinstance(error, _Refused):
        return Problem(filename, line, column, "", message, hint)
    if context and error.context_mark and error.context_mark.line + 1 != line:
        context += f" that starts in line {error.context_mark.line + 1}"
    return Problem(filename, line, column, "", f"YAML: {message}" + (f", {context}" if context else ""), hint)
