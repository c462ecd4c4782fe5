"""`headrace serve`: run the gateway."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from headrace.cli.codes import Exit, fail
from headrace.config import Config, ConfigError, Grpc, load
from headrace.serve import exposure
from headrace.serve.reload import FileWatch, Source
from headrace.serve.server import bind, reserve, run
from headrace.serve.supervisor import Supervisor, bind_shared

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
        int | None,
        typer.Option(min=0, max=65535, help="Port to listen on, instead of server.port; 0 takes a free one."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=256, help="Processes that serve the port, instead of server.workers.")
    ] = None,
) -> None:
    """Run the gateway until SIGINT or SIGTERM. SIGHUP, or a change of the file, has the configuration read anew."""
    given = {"host": host, "port": port, "workers": workers}

    def with_options(settings: Config) -> Config:
        options = {name: value for name, value in given.items() if value is not None}
        return msgspec.structs.replace(settings, server=msgspec.structs.replace(settings.server, **options))

    def with_grpc_port(settings: Config, grpc: Grpc, port: int) -> Config:
        grpc = msgspec.structs.replace(grpc, port=port)
        return msgspec.structs.replace(settings, server=msgspec.structs.replace(settings.server, grpc=grpc))

    file = FileWatch(config)  # before it is read: a change in between is a change
    settings = with_options(read_config(config))
    for problem in settings.warnings:
        typer.echo(f"warning: {problem}", err=True)
    if (reason := exposure.refusal(settings)) is not None:
        fail(reason, Exit.CONFIG)
    grpc = settings.server.grpc
    if grpc is not None:
        try:
            held = reserve(grpc.host, grpc.port)  # for as long as this process lives
        except OSError as error:
            fail(f"cannot listen on {grpc.host}:{grpc.port} (server.grpc): {error.strerror or error}", Exit.FAILED)
        settings = with_grpc_port(settings, grpc, held.getsockname()[1])
    source = Source(lambda: with_options(load(config, os.environ)), settings, file)
    server = settings.server
    try:
        listeners = (
            [bind(server.host, server.port)]
            if server.workers == 1
            else bind_shared(server.host, server.port, server.workers)
        )
    except OSError as error:
        fail(f"cannot listen on {server.host}:{server.port}: {error.strerror or error}", Exit.FAILED)
    address = listeners[0].getsockname()
    providers = ", ".join(sorted(settings.providers))
    typer.echo(f"Headrace listens on http://{_host(address[0])}:{address[1]} (providers: {providers})", err=True)
    if settings.server.grpc is not None:
        typer.echo(f"gRPC on {_host(settings.server.grpc.host)}:{settings.server.grpc.port}", err=True)
    if (keyless := exposure.warning(settings)) is not None:
        typer.echo(f"warning: {keyless}", err=True)
    if server.workers == 1:
        served = run(settings, listeners[0], source)
    else:
        served = Supervisor(settings, listeners, source).run()
    if not served:
        raise typer.Exit(int(Exit.FAILED))


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
