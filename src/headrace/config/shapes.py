"""The types of `settings` as the reader, the schema and the reference look at them: one word a type, plus its parts.

msgspec describes a field as layers of `Metadata` around unions with None around the type proper. This module takes
the layers off.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect

_DEFAULT_KINDS: dict[type[inspect.Type], str] = {
    inspect.StrType: "text",
    inspect.IntType: "integer",
    inspect.FloatType: "number",
    inspect.AnyType: "value",
    inspect.BoolType: "boolean",
    inspect.LiteralType: "choice",
    inspect.StructType: "struct",
    inspect.DictType: "dict",
    inspect.ListType: "list",
}


class Shape(msgspec.Struct, frozen=True):
    """One type of the settings.

    `kind` is a key of `kinds.KINDS`, or struct, dict, list ("" for what no file holds). `type` is without metadata and
    None; `optional` says that None was there, so null may be written. `keys` are the only keys of the struct that may
    be written in this place (None: all). `internal` marks what may not be written at all. `unless` is the key beside it
    with which a required one may be left out.
    """

    kind: str
    type: inspect.Type
    optional: bool = False
    keys: tuple[str, ...] | None = None
    internal: bool = False
    unless: str = ""
    description: str = ""


def shape_of(expected: inspect.Type) -> Shape:
    """Take the layers off one msgspec type."""
    extra: dict[str, Any] = {}
    description = ""
    optional = False
    while True:
        if isinstance(expected, inspect.Metadata):
            extra = {**(expected.extra or {}), **extra}
            description = description or (expected.extra_json_schema or {}).get("description", "")
            expected = expected.type
        elif isinstance(expected, inspect.UnionType) and expected.includes_none:
            optional = True
            rest = tuple(part for part in expected.types if not isinstance(part, inspect.NoneType))
            expected = rest[0] if len(rest) == 1 else inspect.UnionType(rest)
        else:
            break
    kind = extra.get("kind") or _DEFAULT_KINDS.get(type(expected), "")
    return Shape(
        kind, expected, optional, extra.get("keys"), extra.get("internal", False), extra.get("unless", ""), description
    )


def fields_of(shape: Shape) -> dict[str, tuple[inspect.Field, Shape]]:
    """The keys that may be written in a struct of this shape, in order."""
    assert isinstance(shape.type, inspect.StructType)
    fields = {field.encode_name: (field, shape_of(field.type)) for field in shape.type.fields}
    return {
        name: (field, inner)
        for name, (field, inner) in fields.items()
        if not inner.internal and (shape.keys is None or name in shape.keys)
    }
