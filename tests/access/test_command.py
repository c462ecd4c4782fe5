"""`headrace keys`, called as typer calls it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headrace.access.keys import KeyFile, parse_time
from headrace.cli.keys import app
from headrace.model.errors import GatewayError

NOW = datetime(2025, 12, 1, 12, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def run(path: Path | None, *arguments: str) -> Result:
    env: dict[str, str | None] = {"HEADRACE_KEYS": None if path is None else str(path), "COLUMNS": "200"}
    return CliRunner().invoke(app, list(arguments), env=env)


def run_ok(path: Path, *arguments: str) -> str:
    result = run(path, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_secret_alone_goes_to_standard_output(path: Path) -> None:
    result = run(path, "create", "ann")
    secret = result.stdout.removesuffix("\n")
    key = KeyFile(path).authenticate(secret, NOW.timestamp())
    assert key.name == "ann"
    assert key.id in result.stderr
    assert secret not in result.stderr
    assert secret not in run_ok(path, "list")
    assert secret not in run_ok(path, "list", "--json")


def test_every_option_reaches_the_key(path: Path) -> None:
    run_ok(
        path,
        *("create", "ann", "--model", "gpt-*", "-m", "openai/*", "--requests-per-minute", "60"),
        *(
            "--tokens-per-minute",
            "1000",
            "--concurrent-streams",
            "4",
            "--cost-per-day",
            "1.5",
            "--cost-per-month",
            "20",
        ),
        *("--expires", "2100-01-01T00:00:00+01:00", "--metadata", "team=a=b", "--metadata", "env=prod"),
    )
    (key,) = KeyFile(path).keys
    assert key.models == ("gpt-*", "openai/*")
    assert (key.requests_per_minute, key.tokens_per_minute, key.concurrent_streams) == (60, 1000, 4)
    assert (key.cost_per_day, key.cost_per_month) == (1.5, 20.0)
    assert key.expires_at == "2099-12-31T23:00:00+00:00"
    assert key.metadata == {"team": "a=b", "env": "prod"}
    table = run_ok(path, "list")
    for shown in (key.id, "ann", "gpt-*, openai/*", "60 requests/min", "$1.5/day", "2099-12-31", "active"):
        assert shown in table


@pytest.mark.parametrize(
    ("span", "length"), [("12h", timedelta(hours=12)), ("30d", timedelta(30)), ("2w", timedelta(14))]
)
def test_spans(path: Path, span: str, length: timedelta) -> None:
    before = datetime.now(UTC)
    run_ok(path, "create", "ann", "--expires", span)
    (key,) = KeyFile(path).keys
    assert key.expires_at is not None
    assert parse_time(key.expires_at) == pytest.approx((before + length).timestamp(), abs=120)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--expires", "soon"], "neither a span"),
        (["--expires", "2030-01-01T00:00:00"], "neither a span"),
        (["--expires", "999999w"], "neither a span"),
        (["--expires", "2020-01-01T00:00:00Z"], "has passed"),
        (["--metadata", "team"], "NAME=VALUE"),
        (["--requests-per-minute", "0"], "--requests-per-minute"),
        (["--cost-per-day", "-1"], "--cost-per-day"),
        (["--cost-per-day", "nan"], "--cost-per-day"),
    ],
)
def test_bad_options_exit_with_2_and_make_nothing(path: Path, arguments: list[str], message: str) -> None:
    result = run(path, "create", "ann", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create", " "], "name is empty"),
        (["create", "ann", "--cost-per-day", "0"], "above 0"),
        (["create", "ann", "-m", ""], "empty pattern"),
        (["revoke", "bob"], "no key"),
        (["rotate", "bob"], "no key"),
    ],
)
def test_what_the_file_refuses_exits_with_4(path: Path, arguments: list[str], message: str) -> None:
    result = run(path, *arguments)
    assert result.exit_code == 4
    assert message in result.stderr
    assert not path.exists()


@pytest.mark.parametrize("command", [["create", "a"], ["list"], ["revoke", "a"], ["rotate", "a"]])
def test_without_a_file_and_with_a_broken_one(tmp_path: Path, command: list[str]) -> None:
    result = run(None, *command)
    assert result.exit_code == 2
    assert "HEADRACE_KEYS" in result.stderr
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    result = run(None, *command, "--file", str(broken))
    assert result.exit_code == 4
    assert str(broken) in result.stderr
    assert broken.read_text() == "{"


def test_rotate_and_revoke(path: Path) -> None:
    old = json.loads(run_ok(path, "create", "ann", "--json"))
    new = json.loads(run_ok(path, "rotate", old["id"], "--json"))
    assert (new["id"], new["name"]) == (old["id"], "ann")
    keys = KeyFile(path)
    assert keys.authenticate(new["secret"], NOW.timestamp()).id == old["id"]
    with pytest.raises(GatewayError):
        keys.authenticate(old["secret"], NOW.timestamp())
    run_ok(path, "revoke", "ann")
    keys.refresh()
    with pytest.raises(GatewayError, match="revoked"):
        keys.authenticate(new["secret"], NOW.timestamp())
    assert "revoked" in run_ok(path, "list")


def test_list_as_json(path: Path) -> None:
    assert json.loads(run_ok(path, "list", "--json")) == []
    run_ok(path, "create", "ann", "--cost-per-day", "2")
    (shown,) = json.loads(run_ok(path, "list", "--json"))
    assert shown.pop("created_at")
    assert len(shown.pop("id")) == 8
    assert shown == {"name": "ann", "cost_per_day": 2.0, "state": "active"}


def test_a_name_given_twice_is_noted(path: Path) -> None:
    run_ok(path, "create", "ann")
    assert "already" in run(path, "create", "ann").stderr
    result = run(path, "revoke", "ann")
    assert result.exit_code == 4
    assert "2 keys" in result.stderr
