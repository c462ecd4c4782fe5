"""docs/formats.md says what the tests of the matrix demand."""

from __future__ import annotations

from .document import BEGIN, DOCUMENT, END, with_table


def test_the_table_is_current() -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    assert document.count(BEGIN) == document.count(END) == 1
    assert with_table(document) == document, "run python -m tests.matrix.document"
