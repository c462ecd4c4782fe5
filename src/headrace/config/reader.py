"""Node tree -> plain values, led by the types of `settings`; every deviation becomes a problem with its place.

Rule: reading never stops at a problem. A value that is wrong is left out of the result, so that the checks that follow
can work with the rest. The types come from `settings` alone; nothing here knows a key by name.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml
from msgspec import inspect

from headrace.config import document
from headrace.config.errors import Invalid, Path, Problem, dotted, quoted
from headrace.config.kinds import KINDS, Scalar
from headrace.config.references import Expanded, expand
from headrace.config.shapes import Shape, fields_of, shape_of

ABSENT: Any = object()
"""In place of a value that is wrong, or not given."""

_CONTAINERS: dict[type[inspect.Type], str] = {
    inspect.StructType: "a mapping",
    inspect.DictType: "a mapping",
    inspect.ListType: "a list",
}
_FOUND = {"map": "a mapping", "seq": "a list"}


class Reader:
    """Reads one file. `problems` collects what is wrong, `references` the values that came from the environment."""

    def __init__(self, filename: str, env: Mapping[str, str]) -> None:
        self.filename = filename
        self.problems: list[Problem] = []
        self.references: dict[Path, Expanded] = {}
        self._env = env
        self._values: dict[Path, yaml.Mark] = {}
        self._keys: dict[Path, yaml.Mark] = {}

    def read(self, root: yaml.Node, settings: type) -> Any:
        """The plain value of the whole tree, which is to become a `settings` (a Struct type). ABSENT if hopeless."""
        return self._read(root, shape_of(inspect.type_info(settings)), ())

    def problem(self, path: Path, message: str, hint: str = "", *, at_key: bool = False) -> Problem:
        """A problem at the value of `path`, or at its key; at the nearest thing around it where the file has neither."""
        places = (self._keys, self._values) if at_key else (self._values, self._keys)
        for length in range(len(path), -1, -1):
            mark = places[0].get(path[:length]) or places[1].get(path[:length])
            if mark is not None:
                return self._at(mark, path, message, hint)
        return Problem(self.filename, 0, 0, dotted(path), message, hint)

    def report(self, path: Path, message: str, hint: str = "", *, at_key: bool = False) -> None:
        """Add a problem."""
        self.problems.append(self.problem(path, message, hint, at_key=at_key))

    def _at(self, mark: yaml.Mark, path: Path, message: str, hint: str) -> Problem:
        return Problem(self.filename, mark.line + 1, mark.column + 1, dotted(path), message, hint)

    # -- one node ----------------------------------------------------------------------------------------------------

    def _read(self, node: yaml.Node, shape: Shape, path: Path) -> Any:
        self._values[path] = node.start_mark
        if isinstance(node, yaml.ScalarNode) and shape.kind in KINDS:
            return self._scalar(node, shape, path)
        if shape.kind == "value":
            return self._anything(node, shape, path)
        tag = document.tag(node)
        # A section whose lines are all commented out is an empty section.
        empty = tag == "null" and isinstance(node, yaml.ScalarNode)
        mapping = tag == "map" and isinstance(node, yaml.MappingNode)
        sequence = tag == "seq" and isinstance(node, yaml.SequenceNode)
        if isinstance(shape.type, inspect.StructType) and (mapping or empty):
            return self._struct(node, shape, path)
        if isinstance(shape.type, inspect.DictType) and (mapping or empty):
            return self._dict(node, shape.type, path)
        if isinstance(shape.type, inspect.ListType) and (sequence or empty):
            return self._list(node, shape.type, path)
        self._wrong_type(node, shape, path)
        return ABSENT

    def _scalar(self, node: yaml.ScalarNode, shape: Shape, path: Path) -> Any:
        kind = KINDS[shape.kind]
        tag = document.tag(node)
        if tag == "null":
            if not shape.optional:
                self.report(path, "has no value", "give it one, or remove the line")
            return ABSENT
        if tag not in ("str", "int", "float", "bool"):
            self.report(path, f"the YAML tag {quoted(tag)} is not supported", "remove it")
            return ABSENT
        try:
            expanded = expand(node.value, self._env)
            if expanded.names:
                self.references[path] = expanded
                tag = document.resolve(expanded.text) if node.style is None else "str"
            return kind.value(Scalar(expanded.text, tag, expanded, kind.secretive), shape.type)
        except Invalid as invalid:
            self.report(path, invalid.message, invalid.hint)
            return ABSENT

    def _anything(self, node: yaml.Node, shape: Shape, path: Path) -> Any:
        """A mapping or a list whose parts may be anything."""
        if isinstance(node, yaml.SequenceNode):
            return [self._read(item, shape, (*path, index)) for index, item in enumerate(node.value)]
        read = {key: self._read(inner, shape, (*path, key)) for key, inner in self._entries(node, path)}
        return {key: value for key, value in read.items() if value is not ABSENT}

    def _wrong_type(self, node: yaml.Node, shape: Shape, path: Path) -> None:
        kind = KINDS.get(shape.kind)
        nouns = [_article(kind.noun)] if kind else []
        nouns += [noun for cls, noun in _CONTAINERS.items() if isinstance(shape.type, cls)]
        tag = document.tag(node)
        found = (
            "a single value" if isinstance(node, yaml.ScalarNode) else _FOUND.get(tag, f"the YAML tag {quoted(tag)}")
        )
        self.report(path, f"expected {' or '.join(nouns)}, found {found}")

    # -- containers --------------------------------------------------------------------------------------------------

    def _struct(self, node: yaml.Node, shape: Shape, path: Path) -> dict[str, Any]:
        assert isinstance(shape.type, inspect.StructType)
        fields = fields_of(shape)
        result: dict[str, Any] = {}
        given = set()
        for key, value_node in self._entries(node, path):
            if key not in fields:
                if shape.keys is not None and key in shape.type.cls.__struct_fields__:
                    message, hint = f"{quoted(key)} cannot be set here", f"known: {', '.join(fields)}"
                else:
                    message, hint = f"unknown key {quoted(key)}", did_you_mean(key, fields)
                self.report((*path, key), message, hint, at_key=True)
                continue
            given.add(key)
            value = self._read(value_node, fields[key][1], (*path, key))
            if value is not ABSENT:
                result[key] = value
        for name, (field, inner) in fields.items():
            if field.required and name not in given and inner.unless not in given:
                self.report((*path, name), f"{quoted(name)} is missing", "it has no default", at_key=True)
        return result

    def _dict(self, node: yaml.Node, expected: inspect.DictType, path: Path) -> dict[str, Any]:
        key_shape, value_shape = shape_of(expected.key_type), shape_of(expected.value_type)
        result: dict[str, Any] = {}
        for key, value_node in self._entries(node, path):
            try:
                KINDS[key_shape.kind].value(Scalar(key, "str", Expanded(key, key)), key_shape.type)
            except Invalid as invalid:
                self.report((*path, key), invalid.message, invalid.hint, at_key=True)
            value = self._read(value_node, value_shape, (*path, key))
            if value is not ABSENT:
                result[key] = value
        return result

    def _list(self, node: yaml.Node, expected: inspect.ListType, path: Path) -> list[Any]:
        item_shape = shape_of(expected.item_type)
        nodes = node.value if isinstance(node, yaml.SequenceNode) else []
        if len(nodes) < (expected.min_length or 0):
            self.report(path, "is empty", f"give at least {expected.min_length}")
        # Wrong items stay in it as ABSENT, so that the positions of the others are true.
        return [self._read(item, item_shape, (*path, index)) for index, item in enumerate(nodes)]

    def _entries(self, node: yaml.Node, path: Path) -> Iterator[tuple[str, yaml.Node]]:
        """The entries of a mapping with string keys, each key once."""
        lines: dict[str, int] = {}
        for key_node, value_node in node.value if isinstance(node, yaml.MappingNode) else ():
            mark = key_node.start_mark
            if not isinstance(key_node, yaml.ScalarNode) or document.tag(key_node) != "str":
                self._keys[(*path, "?")] = mark
                self.report((*path, "?"), "a key has to be a string", "put it in quotes", at_key=True)
                continue
            key = str(key_node.value)
            if key in lines:
                hint = f"the first is in line {lines[key]}; remove one"
                self.problems.append(self._at(mark, (*path, key), f"key {quoted(key)} is given twice", hint))
                continue
            lines[key] = mark.line + 1
            self._keys[(*path, key)] = mark
            yield key, value_node


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint that names the nearest of the known words, or all of them where none is near."""
    words = list(known)
    near = difflib.get_close_matches(word.lower()[:100], words, n=1)
    if near:
        return f"did you mean {quoted(near[0])}?"
    return f"known: {', '.join(words)}" if words else ""


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeio' else 'a'} {noun}"
