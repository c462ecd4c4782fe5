"""`headrace translate`: a recorded or live stream on standard input, in another format on standard output.

The same engine as the gateway's: standard input plays the provider, standard output the caller.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Annotated

import typer

from headrace import engine
from headrace.cli.codes import Exit
from headrace.cli.names import METAVAR, FramingName, codecs, known_format
from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.framing import FRAMINGS
from headrace.routing.retry import RetryPolicy

_ATTEMPT = 0
_CHUNK = 64 * 1024


def translate(
    source: Annotated[
        str, typer.Option("--from", callback=known_format, metavar=METAVAR, help="Format of standard input.")
    ],
    target: Annotated[
        str, typer.Option("--to", callback=known_format, metavar=METAVAR, help="Format of standard output.")
    ],
    framing_in: Annotated[FramingName, typer.Option("--framing-in", help="Framing of the input.")] = FramingName.SSE,
    framing_out: Annotated[FramingName, typer.Option("--framing-out", help="Framing of the output.")] = FramingName.SSE,
    whole: Annotated[bool, typer.Option("--whole", help="Write one JSON body instead of a stream.")] = False,
    model: Annotated[str, typer.Option(help="Model name to show where the input has none.")] = "",
) -> None:
    """Translate a stream between formats, event by event, as it arrives.

    Exit code 1 when the input ended in an error or without its terminal event; the output then ends as its format
    says that a failed stream ends.
    """
    stream = _stream(source, target, framing_in, framing_out, whole=whole, model=model)
    stream.begin(time.monotonic())
    stream.upstream_headers(_ATTEMPT, 200, {"content-type": FRAMINGS[framing_in].media_type}, time.monotonic())
    outcome = None
    while outcome is None:
        chunk = os.read(sys.stdin.fileno(), _CHUNK)
        if chunk:
            _write(stream.upstream_data(_ATTEMPT, chunk, time.monotonic()))
        else:
            stream.upstream_ended(_ATTEMPT, time.monotonic())
        outcome = _drain(stream)
    for name in sorted(outcome.lost):
        typer.echo(f"headrace: not carried by {target}: {name}", err=True)
    if outcome.kind != "completed":
        reason = outcome.error.message if outcome.error else outcome.kind
        typer.echo(f"headrace: {reason}", err=True)
        raise typer.Exit(int(Exit.FAILED))


def _drain(stream: engine.Stream) -> engine.Outcome | None:
    """Write what the engine has for us; its outcome when it has settled."""
    outcome = None
    while True:
        commands = stream.commands()
        for command in commands:
            if isinstance(command, engine.Settle):
                outcome = command.outcome
        data = stream.data_to_send()
        _write(data)
        if not data and not commands:
            return outcome


def _write(data: bytes) -> None:
    if data:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _stream(
    source: str,
    target: str,
    framing_in: FramingName,
    framing_out: FramingName,
    *,
    whole: bool,
    model: str,
) -> engine.Stream:
    # Nobody waits at the other end of a pipe: its clock is the writer's business.
    forever = engine.Timeouts(
        first_token=float("inf"),
        request=float("inf"),
        idle_stream=float("inf"),
        slow_consumer=float("inf"),
        keepalive=float("inf"),
    )
    same = source == target
    return engine.Stream(
        caller=engine.Caller(
            format=codecs(target),
            framing=framing_out.value,
            stream=not whole,
            writer_options=WriterOptions(
                request_id="req_translate",
                created=int(time.time()),  # noqa: TID251  # a timestamp for the caller, not a duration
                model=model,
                provider=source,
                passthrough=same,
            ),
        ),
        plan=engine.Plan(
            [
                engine.Upstream(
                    provider=source,
                    model=model,
                    format=codecs(source),
                    framing=framing_in.value,
                    reader_options=ReaderOptions(provider=source, passthrough=same),
                    timeouts=forever,
                )
            ],
            retry=RetryPolicy(attempts=1),
        ),
        limits=engine.Limits(),
        timeouts=forever,
    )
