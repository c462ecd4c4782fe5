"""`headrace usage` on a ledger of a few records."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from headrace.cli.usage import usage
from headrace.metering import AttemptRecord, RecordedUsage, open_ledger
from tests.metering.samples import record

app = typer.Typer()
app.command()(usage)

TITLES = "model requests failed prompt completion cached reasoning cost other attempts unpriced"
EVIL = "\x1b[31mred\x1b[0m\nnext"


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/usage.db"
    ledger = open_ledger(url)
    unpriced = RecordedUsage(prompt_tokens=7, completion_tokens=1, total_tokens=8)
    cheap = RecordedUsage(prompt_tokens=1, completion_tokens=1, total_tokens=2, cost_usd=0.000001)
    lost = AttemptRecord(provider="a", model="m", code="hedge_lost", usage=RecordedUsage(cost_usd=0.25))
    ledger.insert(
        [
            record("1", attribution={"key": "k1"}),
            record("2", attribution={"key": "k1"}, timestamp="2026-03-05T00:00:00Z", outcome="failed"),
            record("3", model="own", usage=unpriced, attempts=[lost, AttemptRecord(provider="b", model="m")]),
            record("4", model=EVIL, usage=cheap),
        ]
    )
    ledger.close()
    return url


def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, arguments, env={"HEADRACE_LEDGER": None, "COLUMNS": "60", **(env or {})})


def table(text: str) -> list[list[str]]:
    return [line.split() for line in text.split("\n")]


def test_a_table_for_people(url: str) -> None:
    result = run("--ledger", url)
    assert result.exit_code == 0, result.output
    lines = table(result.output)
    assert " ".join(lines[0]) == TITLES
    assert lines[1] == ["fast", "2", "1", "200", "40", "0", "0", "$1.0000", "-", "0"]
    assert lines[2] == ["\ufffd[31mred\ufffd[0m\ufffdnext", "1", "0", "1", "1", "0", "0", "<$0.0001", "-", "0"]
    assert lines[3] == ["own", "1", "0", "7", "1", "0", "0", "-", "$0.2500", "1"], "unknown is not zero"
    assert lines[4] == ["total", "4", "1", "208", "42", "0", "0", "$1.0000", "$0.2500", "1"]
    assert "1 requests have no price" in result.output
    assert "\x1b" not in result.output


def test_csv_and_json_say_the_same(url: str) -> None:
    rows = list(csv.DictReader(io.StringIO(run("--ledger", url, "--format", "csv").output)))
    objects: list[dict[str, Any]] = json.loads(run("--ledger", url, "--format", "json").output)
    assert objects[2] == {
        "model": "own",
        "requests": 1,
        "failed": 0,
        "prompt_tokens": 7,
        "completion_tokens": 1,
        "cached_tokens": 0,
        "reasoning_tokens": 0,
        "cost_usd": None,
        "other_cost_usd": 0.25,
        "unpriced": 1,
    }
    assert [{name: "" if value is None else str(value) for name, value in one.items()} for one in objects] == rows
    assert rows[1]["model"] == EVIL


@pytest.mark.parametrize(
    ("arguments", "groups"),
    [
        (["--by", "key"], ["k1", ""]),
        (["--by", "provider"], ["openai"]),
        (["--by", "day"], ["2026-03-04", "2026-03-05"]),
        (["--by", "day", "--since", "2026-03-05"], ["2026-03-05"]),
        (["--by", "day", "--until", "2026-03-04"], ["2026-03-04"]),
        (["--since", "2027-01-01"], []),
    ],
)
def test_groups_and_days(url: str, arguments: list[str], groups: list[str]) -> None:
    result = run("--format", "json", *arguments, env={"HEADRACE_LEDGER": url})
    by = arguments[1] if arguments[0] == "--by" else "model"
    assert [one[by] for one in json.loads(result.output)] == groups


def test_nothing_recorded_is_said(url: str) -> None:
    assert run("--ledger", url, "--since", "2027-01-01").output == "no usage was recorded in this time\n"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 1, "there is no ledger at /no/such/headrace/usage.db"),
        (["--ledger", "usage.db"], 2, "sqlite:///PATH"),
        (["--ledger", "sqlite:////no/such/usage.db"], 1, "there is no ledger at /no/such/usage.db"),
        (["--by", "colour"], 2, "colour"),
        (["--format", "xml"], 2, "xml"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], code: int, says: str) -> None:
    result = run(*arguments, env={"XDG_STATE_HOME": "/no/such"})
    assert result.exit_code == code
    assert says in result.output
    assert "Traceback" not in result.output


def test_a_wrong_date_is_said(url: str) -> None:
    result = run("--ledger", url, "--since", "yesterday")
    assert result.exit_code == 2
    assert "not a date (YYYY-MM-DD): yesterday" in result.output


def test_the_ledger_of_the_configuration(tmp_path: Path, url: str) -> None:
    config = tmp_path / "headrace.yaml"
    config.write_text(f"usage: {{folder: {tmp_path}}}\n")
    assert run("--config", str(config), "--format", "json").output == run("--ledger", url, "--format", "json").output
