from __future__ import annotations

from pathlib import Path

import pytest

from headrace.tape.faults import FAULTS, FaultError, Faults, fault_table, from_header, from_model, parse
from headrace.tape.library import Library

DOCS = Path(__file__).resolve().parents[2] / "docs" / "replay.md"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", Faults()),
        ("cut=3", Faults(cut=3)),
        (" cut = 3 , delay=0.5,", Faults(cut=3, delay=0.5)),
        ("hang", Faults(hang=True)),
        ("hang=0", Faults()),
        ("speed=0", Faults(speed=0.0)),
        ("error=2:overloaded_error", Faults(error="2:overloaded_error")),
    ],
)
def test_header(header: str, expected: Faults) -> None:
    assert parse(from_header(header)) == expected


@pytest.mark.parametrize(
    ("model", "name", "expected"),
    [
        ("text", "text", Faults()),
        ("text?", "text", Faults()),
        ("a/b?status=503&retry_after=2", "a/b", Faults(status=503, retry_after=2.0)),
        ("text?hang", "text", Faults(hang=True)),
        ("text?error=1%3Aapi_error", "text", Faults(error="1:api_error")),
    ],
)
def test_model_suffix(model: str, name: str, expected: Faults) -> None:
    found, values = from_model(model)
    assert (found, parse(values)) == (name, expected)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("cutt=3", "Did you mean cut?"),
        ("cutt=3", ", ".join(FAULTS)),
        ("cut=-1", "Fault cut: Expected `int` >= 0"),
        ("cut=many", "Fault cut: Expected `int"),
        ("status=200", "an example is status=503"),
        ("delay=nan", "Fault delay"),
        ("speed=inf", "Fault speed"),
        ("error=x", "Fault error"),
        ("error=1:a b", "Fault error"),
    ],
)
def test_what_is_not_in_the_table_is_refused(header: str, message: str) -> None:
    with pytest.raises(FaultError) as caught:
        parse(from_header(header))
    assert message in str(caught.value)


def test_every_example_is_accepted_and_changes_something() -> None:
    for fault in FAULTS.values():
        assert parse(from_header(fault.example)) != Faults(), fault.name


def test_documentation_is_current() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert fault_table() in text, f"docs/replay.md must hold this table:\n\n{fault_table()}"
    rows = [f"| `{stream.name}` | {stream.description} |" for stream in Library.builtin()]
    table = "\n".join(["| stream | what it is |", "|---|---|", *rows]) + "\n"
    assert table in text, f"docs/replay.md must hold this table:\n\n{table}"
