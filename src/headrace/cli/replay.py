"""`headrace replay`: a provider made of recordings."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.codes import Exit, fail
from headrace.cli.names import METAVAR, codecs, known_format
from headrace.tape import FAULTS, Library, ReplayServer

_FAULT_LINES = "\n\n".join(f"`{name}`: {fault.doc}" for name, fault in FAULTS.items())


def replay(
    path: Annotated[
        Path | None,
        typer.Argument(help="A recording or a folder of them. Without one: the streams written for the project."),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--as", callback=known_format, metavar=METAVAR, help="Format of recordings that do not say it themselves."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 0,
    speed: Annotated[
        float, typer.Option(min=0, help="1 keeps the recorded rhythm, 2 is twice as fast, 0 as fast as possible.")
    ] = 1.0,
) -> None:
    """Answer as a provider, from recordings, in their own rhythm. The request's `model` names the recording.

    Faults can be asked for, by header (`x-replay: cut=3`) or in the model's name (`text?cut=3`):
    """
    try:
        library = Library.builtin() if path is None else Library.load(path, format=codecs(form).name if form else None)
    except (OSError, ValueError) as error:
        fail(f"cannot replay {path}: {error}", Exit.FAILED)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(library, form, host, port, speed))


replay.__doc__ = f"{replay.__doc__}\n\n{_FAULT_LINES}"


async def _serve(library: Library, form: str | None, host: str, port: int, speed: float) -> None:
    server = ReplayServer(
        library, host=host, port=port, default_format=codecs(form).name if form else "anthropic", speed=speed
    )
    try:
        await server.start()
    except OSError as error:
        fail(f"cannot listen on {host}:{port}: {error.strerror or error}", Exit.FAILED)
    typer.echo(f"Replaying {len(library.names)} streams on {server.base_url}", err=True)
    for name in sorted(library.names):
        typer.echo(f"  {name}", err=True)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
    await server.aclose()
