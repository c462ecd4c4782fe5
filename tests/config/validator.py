"""A validator for the part of JSON Schema that the published schema uses; any other keyword fails the test."""

from __future__ import annotations

import re
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}
_KNOWN = {
    *("$schema", "$defs", "$ref", "title", "description", "default", "type", "enum", "anyOf", "pattern", "items"),
    *("properties", "required", "additionalProperties", "propertyNames", "minItems"),
    *("minimum", "maximum", "exclusiveMinimum"),
}


def is_valid(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    """Whether the schema accepts the value."""
    assert schema.keys() <= _KNOWN, schema.keys() - _KNOWN
    if "$ref" in schema:
        return is_valid(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root)
    if "anyOf" in schema and not any(is_valid(value, branch, root) for branch in schema["anyOf"]):
        return False
    if "enum" in schema:
        return value in schema["enum"]
    expected = schema.get("type")
    if expected and not isinstance(value, _TYPES[expected]):
        return False
    if isinstance(value, bool):
        return expected in (None, "boolean")
    if isinstance(value, str):
        return re.search(schema.get("pattern", ""), value) is not None
    if isinstance(value, int | float):
        low, above, high = schema.get("minimum"), schema.get("exclusiveMinimum"), schema.get("maximum")
        return (low is None or value >= low) and (above is None or value > above) and (high is None or value <= high)
    if isinstance(value, list):
        return len(value) >= schema.get("minItems", 0) and all(is_valid(item, schema["items"], root) for item in value)
    return not isinstance(value, dict) or _object_is_valid(value, schema, root)


def _object_is_valid(value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any]) -> bool:
    properties, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
    if not all(name in value for name in schema.get("required", ())):
        return False
    for name, item in value.items():
        if "propertyNames" in schema and not is_valid(name, schema["propertyNames"], root):
            return False
        inner = properties.get(name, rest)
        if inner is False or (inner is not True and not is_valid(item, inner, root)):
            return False
    return True
