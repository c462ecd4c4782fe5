"""`headrace serve`: run the gateway."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from headrace.cli.codes import Exit, fail
from headrace.config import Config, ConfigError, load
from headrace.serve.server import bind, run

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        envvar="HEADRACE_CONFIG",
        show_default=False,
        help="Configuration file (YAML). Without one: providers from the environment, and the embedded replay.",
    ),
]


def read_config(path: Path | None) -> Config:
    """The configuration, or the way out with every problem listed."""
    try:
        return load(path, os.environ)
    except ConfigError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(int(Exit.CONFIG)) from None


def serve(
    config: ConfigOption = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on, instead of server.host.")] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on, instead of server.port; 0 takes a free one.")
    ] = None,
) -> None:
    """Run the gateway until SIGINT or SIGTERM."""
    settings = read_config(config)
    for problem in settings.warnings:
        typer.echo(f"warning: {problem}", err=True)
    server = msgspec.structs.replace(
        settings.server,
        host=settings.server.host if host is None else host,
        port=settings.server.port if port is None else port,
    )
    settings = msgspec.structs.replace(settings, server=server)
    try:
        listener = bind(server.host, server.port)
    except OSError as error:
        fail(f"cannot listen on {server.host}:{server.port}: {error.strerror or error}", Exit.FAILED)
    address = listener.getsockname()
    providers = ", ".join(sorted(settings.providers))
    typer.echo(f"Headrace listens on http://{_host(address[0])}:{address[1]} (providers: {providers})", err=True)
    run(settings, listener)


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
