"""`headrace keys create | list | revoke | rotate`: the file of the keys that callers use.

A secret goes to standard output alone, once, so that a script can take it; what is said about it goes to standard error.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from headrace.access.keys import Key, KeyFile, KeyFileError, parse_time
from headrace.cli.codes import Exit, fail

app = typer.Typer(help="Make and revoke the keys that callers use.", no_args_is_help=True)

FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file", "-f", envvar="HEADRACE_KEYS", show_default=False, help="The key file; created with its first key."
    ),
]
WhichArgument = Annotated[str, typer.Argument(metavar="KEY", help="The key's id, or its name.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Calls = Annotated[int | None, typer.Option(min=1, show_default=False)]
_Cost = Annotated[float | None, typer.Option(min=0, show_default=False, metavar="USD")]

_SPAN = re.compile(r"([1-9][0-9]{0,5})([hdw])")
_SPANS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Whose key it is.")],
    file: FileOption = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            metavar="PATTERN",
            help="A model it may use (`gpt-*`, `openai/*`, a route); repeat for more.",
        ),
    ] = None,
    requests_per_minute: _Calls = None,
    tokens_per_minute: _Calls = None,
    concurrent_streams: _Calls = None,
    cost_per_day: _Cost = None,
    cost_per_month: _Cost = None,
    expires: Annotated[
        str | None, typer.Option(metavar="WHEN", help="12h, 30d, 8w from now; or a time such as 2030-01-31T00:00:00Z.")
    ] = None,
    metadata: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="For attribution; repeat for more.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key and print its secret, which is shown this once and kept nowhere."""
    now = datetime.now(UTC)
    keys = _open(file)
    if any(key.name == name and not key.disabled for key in keys.keys):
        typer.echo(f"note: another key is called {name!r} already; name them by their ids", err=True)
    try:
        key, secret = keys.create(
            name,
            now=now,
            models=tuple(model or ()),
            requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute,
            concurrent_streams=concurrent_streams,
            cost_per_day=cost_per_day,
            cost_per_month=cost_per_month,
            expires_at=None if expires is None else _end(expires, now),
            metadata=dict(_pair(text) for text in metadata or ()),
        )
    except KeyFileError as error:
        fail(str(error), Exit.CONFIG)
    _print_secret(key, secret, as_json)


@app.command("list")
def list_keys(file: FileOption = None, as_json: JsonOption = False) -> None:
    """Show all keys, without their secrets."""
    now = datetime.now(UTC).timestamp()
    keys = _open(file)
    if as_json:
        typer.echo(json.dumps([_public(key, now) for key in keys.keys], indent=2))
        return
    table = Table("id", "name", "state", "models", "limits", "expires", box=None, pad_edge=False)
    for key in keys.keys:
        table.add_row(
            key.id, key.name, _state(key, now), ", ".join(key.models) or "all", _limits(key), key.expires_at or "never"
        )
    Console().print(table)


@app.command()
def revoke(which: WhichArgument, file: FileOption = None) -> None:
    """Void a key. A running gateway notices within a second or so; its entry stays, so that usage keeps a name."""
    try:
        key = _open(file).revoke(which)
    except KeyFileError as error:
        fail(str(error), Exit.CONFIG)
    typer.echo(f"revoked {key.name} ({key.id})", err=True)


@app.command()
def rotate(which: WhichArgument, file: FileOption = None, as_json: JsonOption = False) -> None:
    """Give a key a new secret and print it. The old one is void; limits, budgets and usage go on."""
    try:
        key, secret = _open(file).rotate(which)
    except KeyFileError as error:
        fail(str(error), Exit.CONFIG)
    _print_secret(key, secret, as_json)


def _open(file: Path | None) -> KeyFile:
    if file is None:
        fail("which key file? Name it with --file PATH, or in the environment variable HEADRACE_KEYS", Exit.USAGE)
    try:
        return KeyFile(file)
    except KeyFileError as error:
        fail(str(error), Exit.CONFIG)


def _print_secret(key: Key, secret: str, as_json: bool) -> None:
    typer.echo(f"key {key.id} for {key.name}; this is its secret, and it is shown this once:", err=True)
    typer.echo(json.dumps({"id": key.id, "name": key.name, "secret": secret}) if as_json else secret)


def _public(key: Key, now: float) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(key)
    del fields["hash"]
    return {**fields, "state": _state(key, now)}


def _state(key: Key, now: float) -> str:
    if key.disabled:
        return "revoked"
    return "expired" if key.expires_at is not None and parse_time(key.expires_at) <= now else "active"


def _limits(key: Key) -> str:
    shown = {
        "{} requests/min": key.requests_per_minute,
        "{} tokens/min": key.tokens_per_minute,
        "{} at a time": key.concurrent_streams,
        "${:g}/day": key.cost_per_day,
        "${:g}/month": key.cost_per_month,
    }
    return ", ".join(text.format(value) for text, value in shown.items() if value is not None) or "none"


def _end(text: str, now: datetime) -> str:
    span = _SPAN.fullmatch(text)
    try:
        if span is None:
            end = parse_time(text)
        else:
            end = (now + int(span[1]) * _SPANS[span[2]]).timestamp()
        if end <= now.timestamp():
            fail(f"--expires {text}: that has passed", Exit.USAGE)
        return datetime.fromtimestamp(end, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError):
        fail(f"--expires {text}: neither a span (12h, 30d, 8w) nor a time (2030-01-31T00:00:00Z)", Exit.USAGE)


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        fail(f"--metadata {text}: not of the form NAME=VALUE", Exit.USAGE)
    return name, value
