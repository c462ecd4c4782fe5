"""The table of docs/formats.md, made from CANNOT and REQUEST_CANNOT: `python -m tests.matrix.document` writes it anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from .cannot import CANNOT, ROWS
from .cannot_requests import REQUEST_CANNOT, REQUEST_ROWS
from .pipes import ALL

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "formats.md"
ALSO = {"openai_chat": ("azure_openai",), "anthropic": ("bedrock_invoke",)}
"""Formats that have another's codecs, and so its column."""
BEGIN, END = "<!-- table -->\n", "<!-- end -->"


class Reason(Protocol):
    @property
    def what(self) -> str: ...

    @property
    def reason(self) -> str: ...


def table() -> str:
    """What each format carries, as Markdown."""
    head = ["", *(", ".join(f"`{one}`" for one in (name, *ALSO.get(name, ()))) for name in ALL)]
    return "".join(
        [
            _line(head),
            _line(["---"] * len(head)),
            _line(["**of a request**", *[""] * len(ALL)]),
            *_rows(REQUEST_ROWS, REQUEST_CANNOT),
            _line(["**of an answer**", *[""] * len(ALL)]),
            *_rows(ROWS, CANNOT),
        ]
    )


def _rows(rows: Sequence[str], limits: Mapping[str, Sequence[Reason]]) -> list[str]:
    known = {limit.what for of_format in limits.values() for limit in of_format}
    assert known <= set(rows), f"limits without a row: {sorted(known - set(rows))}"
    return [_line([row, *(_cell(row, limits[name]) for name in ALL)]) for row in rows]


def _cell(row: str, limits: Sequence[Reason]) -> str:
    return "; ".join(limit.reason for limit in limits if limit.what == row) or "yes"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


def with_table(document: str) -> str:
    """The document with the table as it is now."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + table() + END + after


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
