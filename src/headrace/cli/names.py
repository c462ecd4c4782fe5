"""Names of formats and framings as they are written on the command line: with dashes, as people type."""

from __future__ import annotations

from enum import StrEnum

import typer

from headrace.formats import PROVIDED, Format

FORMAT_NAMES = tuple(name.replace("_", "-") for name in PROVIDED)
METAVAR = f"[{'|'.join(FORMAT_NAMES)}]"


def known_format(name: str | None) -> str | None:
    """Option callback: a name of FORMAT_NAMES passes, None too; others are a usage error."""
    if name is not None and name not in FORMAT_NAMES:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(FORMAT_NAMES)}")
    return name


def codecs(name: str) -> Format:
    """The format of a checked name."""
    return PROVIDED[name.replace("-", "_")]


class FramingName(StrEnum):
    SSE = "sse"
    NDJSON = "ndjson"
