"""`headrace stdio`: the gateway on standard input and output, for the program that starts it."""

from __future__ import annotations

import logging
import os
from typing import Annotated

import typer
import uvloop

from headrace.cli.codes import Exit, fail
from headrace.cli.serve import ConfigOption, read_config
from headrace.formats import FORMATS
from headrace.model.errors import GatewayError
from headrace.serve import stdio as serving
from headrace.serve.bookkeeping import open_recorder
from headrace.serve.reload import UNUSABLE
from headrace.serve.server import freeze, raise_file_limit

logger = logging.getLogger("headrace.serve")

EVENTS = {"gateway": "gateway", "llm-stream": "llm_stream"}
"""Which format a name of the command line stands for."""


def _known(name: str) -> str:
    if name not in EVENTS:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(EVENTS)}")
    return name


def stdio(
    config: ConfigOption = None,
    format: Annotated[
        str,
        typer.Option(
            "--format", metavar=f"[{'|'.join(EVENTS)}]", callback=_known, help="Of requests and of the events."
        ),
    ] = "gateway",
) -> None:
    """Serve the program that starts this one: JSON lines on standard input and output, as on a WebSocket or as JSON-RPC.

    Ends with its input. HEADRACE_KEY holds the caller's key, where the configuration asks for one.
    """
    settings = read_config(config)
    for problem in settings.warnings:
        typer.echo(f"warning: {problem}", err=True)
    output = os.dup(1)
    os.dup2(2, 1)  # whatever else is printed must not stand among the messages
    raise_file_limit()
    recorder = None
    try:
        recorder = open_recorder(settings)
        freeze()
        typer.echo(f"Headrace serves standard input (providers: {', '.join(sorted(settings.providers))})", err=True)
        key = os.environ.get("HEADRACE_KEY")
        end = uvloop.run(
            serving.serve(settings, FORMATS[EVENTS[format]], recorder=recorder, key=key, output=output),
        )
    except UNUSABLE as error:
        fail(f"cannot start: {error}", Exit.FAILED)
    except GatewayError as error:
        fail(f"HEADRACE_KEY: {error.info.message}", Exit.FAILED)
    finally:
        if recorder is not None:
            recorder.close()
    logger.info("ended: %s", end.value)
    if end is serving.End.OUTPUT:
        raise typer.Exit(int(Exit.FAILED))
