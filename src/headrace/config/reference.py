"""Keeps the published description of the configuration true: the tables of docs/configuration.md and the JSON Schema.

    python -m headrace.config.reference [REPOSITORY]

rewrites both files in place. The prose of the document is written by hand; what stands between `<!-- keys: NAME -->`
(or `<!-- environment -->`, `<!-- quirks -->`) and `<!-- end -->` comes from `settings`, `environment` and the formats.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec import NODEFAULT, inspect

from headrace.config import settings
from headrace.config.kinds import BYTE_UNITS, KINDS
from headrace.config.presets import PRESETS, Preset
from headrace.config.schema import json_schema
from headrace.config.shapes import Shape, fields_of, shape_of
from headrace.formats import FORMATS

DOCUMENT = Path("docs/configuration.md")
SCHEMA = Path("schema/headrace.schema.json")

_TABLE = re.compile(r"(<!-- (?:keys: (?P<struct>\w+)|environment|quirks) -->\n).*?(<!-- end -->)", re.DOTALL)


def document_text(text: str) -> str:
    """The document with its tables as they have to be now."""

    def table(match: re.Match[str]) -> str:
        name = match["struct"]
        if name:
            rows = keys_table(getattr(settings, name))
        else:
            rows = quirks_table() if "quirks" in match[1] else environment_table()
        return match[1] + rows + match[3]

    return _TABLE.sub(table, text)


def schema_text() -> str:
    """The schema file as it has to be now."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def keys_table(struct: type) -> str:
    """One row a key: how it is written, its default, what it means."""
    rows = []
    for name, (field, shape) in fields_of(shape_of(inspect.type_info(struct))).items():
        rows.append((f"`{name}`", _written(shape), _default(field, shape), shape.description))
    return _table(("key", "value", "default", "meaning"), rows)


def environment_table() -> str:
    """One row a provider that the environment can bring."""
    rows = [
        (
            f"`{name}`",
            f"`{preset.format}`",
            f"`{preset.key_variable}`",
            f"`{preset.url_variable}`" + (f", default `{preset.base_url}`" if preset.base_url else ""),
            ", ".join(f"`{claim}`" for claim in preset.claims),
            _quirks(preset),
        )
        for name, preset in PRESETS.items()
    ]
    return _table(
        ("preset, provider", "format", "key", "address", "models without the provider's name", "quirks"), rows
    )


def _quirks(preset: Preset) -> str:
    fixed = [f"`{quirk}: {json.dumps(value).strip(chr(34))}`" for quirk, value in preset.quirks.items()]
    named = [f"`{quirk}` from `{variable}`" for quirk, variable in preset.quirk_variables.items()]
    return ", ".join(fixed + named)


def quirks_table() -> str:
    """One row a quirk of a format."""
    rows = [
        (f"`{fmt.name}`", f"`{quirk}`", meaning) for fmt in FORMATS.values() for quirk, meaning in fmt.quirks.items()
    ]
    return _table(("format", "quirk", "meaning"), rows)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


def _written(shape: Shape) -> str:
    inner = shape.type
    if isinstance(inner, inspect.StructType) and shape.kind == "struct":
        return f"mapping, see [{inner.cls.__name__.lower()}](#{inner.cls.__name__.lower()})"
    if isinstance(inner, inspect.ListType):
        return f"list of {_plural(KINDS[shape_of(inner.item_type).kind].noun)}"
    if isinstance(inner, inspect.DictType):
        value = shape_of(inner.value_type)
        noun = KINDS[value.kind].noun if value.kind in KINDS else "mapping"
        return f"mapping of names to {_plural(noun)}"
    if isinstance(inner, inspect.LiteralType):
        return " or ".join(f"`{value}`" for value in inner.values)
    noun = KINDS[shape.kind].noun
    if isinstance(inner, inspect.IntType) and inner.ge is not None and inner.le is not None:
        low, high = (_size(bound) if shape.kind == "size" else str(bound) for bound in (inner.ge, inner.le))
        noun += f", {low} to {high}"
    return noun


def _plural(noun: str) -> str:
    return noun if noun.endswith("s") or "/" in noun or " or " in noun else noun + "s"


def _default(field: inspect.Field, shape: Shape) -> str:
    if field.required:
        return f"required without `{shape.unless}`" if shape.unless else "required"
    value: Any = field.default
    if value is NODEFAULT or value is None or isinstance(shape.type, inspect.StructType):
        return ""
    if value == "":
        return "by format"
    if shape.kind == "duration":
        return f"{value:g} s"
    if shape.kind == "size":
        return _size(value)
    return f"`{json.dumps(value)}`" if not isinstance(value, str) else f"`{value}`"


def _size(value: int) -> str:
    unit = next(unit for unit in ("GiB", "MiB", "KiB", "B") if value % BYTE_UNITS[unit] == 0)
    return f"{value // BYTE_UNITS[unit]} {unit}"


def main(repository: Path) -> None:
    """Rewrite both files."""
    document = repository / DOCUMENT
    document.write_text(document_text(document.read_text("utf-8")), "utf-8")
    (repository / SCHEMA).write_text(schema_text(), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
