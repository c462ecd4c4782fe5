"""The JSON Schema (draft 2020-12) of the configuration file, for editors and other tools.

msgspec derives it from `settings`; this module adds what only the file has: durations and sizes with units, a
reference in place of any number or boolean, the string form of a candidate, a provider's partial timeouts. It takes
away what the file cannot set. A schema cannot see the environment or compare values, so `load` refuses more.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import inspect

from headrace.config.credentials import Secret
from headrace.config.kinds import FORMS, KINDS
from headrace.config.settings import Config
from headrace.config.shapes import Shape, fields_of, shape_of

_KEPT_OUTSIDE = ("description", "default")


def json_schema() -> dict[str, Any]:
    """The schema as plain data. Equal in every process of one version."""
    raw = json.loads(json.dumps(msgspec.json.schema(Config, schema_hook=_custom)), parse_float=_number)
    builder = _Builder(raw["$defs"])
    root = builder.struct(shape_of(inspect.type_info(Config)))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Headrace configuration",
        **{key: value for key, value in root.items() if key != "title"},
        "$defs": dict(sorted(builder.defs.items())),
    }


def _number(text: str) -> int | float:
    """`typing` takes bounds of 1 and 1.0 for the same and keeps the one that it met first, so here they are the same, too."""
    number = float(text)
    return int(number) if number.is_integer() else number


def _custom(cls: type) -> dict[str, Any]:
    assert cls is Secret
    return {"type": "string"}


def _alternatives(shape: Shape, raw: dict[str, Any]) -> dict[str, Any]:
    """`required` without the keys that another one stands in for, and `anyOf` that says so."""
    stand_ins: dict[str, list[str]] = {}
    for name, (_, inner) in fields_of(shape).items():
        if inner.unless:
            stand_ins.setdefault(inner.unless, []).append(name)
    if not stand_ins:
        return {}
    replaced = {name for names in stand_ins.values() for name in names}
    ((other, names),) = stand_ins.items()
    required = [name for name in raw.get("required", ()) if name not in replaced]
    return {"required": required, "anyOf": [{"required": [other]}, {"required": names}]}


class _Builder:
    def __init__(self, raw: dict[str, Any]) -> None:
        self._raw = raw
        self.defs: dict[str, Any] = {}

    def struct(self, shape: Shape) -> dict[str, Any]:
        """The schema of a struct as it is written in the file, without the fields that the file cannot set."""
        assert isinstance(shape.type, inspect.StructType)
        raw = self._raw[shape.type.cls.__name__]
        properties = {}
        for name, (_, inner) in fields_of(shape).items():
            written = self._value(inner, raw["properties"][name])
            if shape.keys is not None or written.get("default") == "":
                del written["default"]  # what is not given comes from elsewhere
            properties[name] = written
        return {**raw, "properties": properties, **_alternatives(shape, raw)}

    def _value(self, shape: Shape, raw: dict[str, Any]) -> dict[str, Any]:
        outside = {key: raw[key] for key in _KEPT_OUTSIDE if key in raw}
        inside = {key: value for key, value in raw.items() if key not in _KEPT_OUTSIDE}
        if shape.optional:
            inside = next(branch for branch in inside["anyOf"] if branch != {"type": "null"})
        branches = [self._proper(shape, inside)]
        if shape.kind in KINDS:
            branches += [self._form(name) for name in KINDS[shape.kind].also]
        if shape.optional:
            branches.append({"type": "null"})
        return outside | (branches[0] if len(branches) == 1 else {"anyOf": branches})

    def _proper(self, shape: Shape, raw: dict[str, Any]) -> dict[str, Any]:
        if isinstance(shape.type, inspect.StructType):
            return self._reference(shape)
        if isinstance(shape.type, inspect.ListType):
            return {**raw, "items": self._value(shape_of(shape.type.item_type), raw.get("items", {}))}
        if isinstance(shape.type, inspect.DictType):
            key = KINDS[shape_of(shape.type.key_type).kind]
            values = self._value(shape_of(shape.type.value_type), raw.get("additionalProperties", {}))
            return {**raw, "propertyNames": {"pattern": f"^(?:{key.pattern})$"}, "additionalProperties": values}
        if pattern := KINDS[shape.kind].pattern:
            alone = shape.kind == "secret"
            return {**raw, "pattern": f"^(?:{pattern})$" if alone else rf"^(?:{pattern})$|\$\{{"}
        return raw

    def _form(self, name: str) -> dict[str, Any]:
        self.defs[name] = {"type": "string", **FORMS[name]}
        return {"$ref": f"#/$defs/{name}"}

    def _reference(self, shape: Shape) -> dict[str, Any]:
        assert isinstance(shape.type, inspect.StructType)
        name = shape.type.cls.__name__ if shape.keys is None else f"Provider{shape.type.cls.__name__}"
        if name not in self.defs:
            self.defs[name] = {**self.struct(shape), "title": name}
        return {"$ref": f"#/$defs/{name}"}
