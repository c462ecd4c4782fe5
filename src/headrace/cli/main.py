"""The command tree. Each command is a module; this one only names them and sets up logging."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headrace import __version__
from headrace.cli import chat, config, keys, logs, replay, serve, stdio, translate, usage

app = typer.Typer(
    name="headrace",
    help="A streaming gateway for language models: any provider's stream in, any client's format out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("serve")(serve.serve)
app.command("stdio")(stdio.stdio)
app.command("chat")(chat.chat)
app.command("translate")(translate.translate)
app.command("replay")(replay.replay)
app.command("usage")(usage.usage)
app.add_typer(keys.app, name="keys")
app.add_typer(config.app, name="config")


def _version(value: bool) -> None:
    if value:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log more; still no prompts and no secrets.")
    ] = False,
) -> None:
    """Options that stand before the command."""
    logs.set_up(sys.stderr, verbose=verbose)


def main() -> None:
    """Entry point of the `headrace` command."""
    app()
