"""Exit codes, and the one way out of a command that failed."""

from __future__ import annotations

from enum import IntEnum
from typing import NoReturn

import typer


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    """The answer failed, or ended before its terminal event."""
    USAGE = 2
    """The command line is wrong (also used by the option parser itself)."""
    UNREACHABLE = 3
    """No connection to the endpoint."""
    CONFIG = 4
    """The configuration has problems."""


def fail(message: str, code: Exit) -> NoReturn:
    """Say on standard error what went wrong and leave with `code`."""
    typer.echo(f"headrace: {message}", err=True)
    raise typer.Exit(int(code))
