"""`headrace config check | schema`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from headrace.cli.serve import ConfigOption, read_config
from headrace.config import Catalogue, json_schema

app = typer.Typer(help="Check the configuration, or print its JSON Schema.", no_args_is_help=True)


@app.command()
def check(
    config: ConfigOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing when all is well.")] = False,
) -> None:
    """Read the configuration as `serve` would, and say what is wrong with it (exit code 4) or what it amounts to."""
    settings = read_config(config)
    for problem in settings.warnings:
        typer.echo(f"warning: {problem}", err=True)
    if quiet:
        return
    typer.echo(f"ok: listens on {settings.server.host}:{settings.server.port}")
    for name, provider in sorted(settings.providers.items()):
        place = "embedded" if provider.embedded else provider.base_url
        typer.echo(f"  provider {name}: {provider.format} at {place}")
    for name, route in sorted(settings.routes.items()):
        candidates = ", ".join(f"{c.provider}/{c.model}" for c in route.candidates)
        typer.echo(f"  route {name}: {candidates}")
    entries = Catalogue(settings).list()
    typer.echo(f"  {len(entries)} model names listed; provider/model names any other")


@app.command()
def schema() -> None:
    """Print the JSON Schema of the configuration file (draft 2020-12)."""
    typer.echo(json.dumps(json_schema(), indent=2))
