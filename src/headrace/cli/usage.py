"""`headrace usage`: what was consumed and what it cost, from the ledger."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from headrace.cli.codes import Exit, fail
from headrace.cli.serve import ConfigOption, read_config
from headrace.metering.ledger import Total, open_ledger
from headrace.serve.bookkeeping import ledger_url


class Group(StrEnum):
    MODEL = "model"
    PROVIDER = "provider"
    KEY = "key"
    DAY = "day"


class Form(StrEnum):
    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def usage(
    ledger: Annotated[
        str | None,
        typer.Option(
            envvar="HEADRACE_LEDGER",
            show_default=False,
            help="The ledger: sqlite:///PATH (sqlite:////PATH from the root) or postgresql://USER@HOST/DATABASE. "
            "Without it: the one that the configuration names, or the default one.",
        ),
    ] = None,
    config: ConfigOption = None,
    by: Annotated[Group, typer.Option(help="What to add up by.")] = Group.MODEL,
    since: Annotated[
        str,
        typer.Option(metavar="YYYY-MM-DD", show_default=False, help="First day (UTC). The beginning, if not given."),
    ] = "",
    until: Annotated[
        str,
        typer.Option(metavar="YYYY-MM-DD", show_default=False, help="Last day (UTC), included. Today, if not given."),
    ] = "",
    form: Annotated[Form, typer.Option("--format", "-f", help="How to print it.")] = Form.TABLE,
) -> None:
    """Print what requests consumed and cost: by model, provider, key or day."""
    if not ledger:
        ledger = ledger_url(read_config(config))
    try:
        opened = open_ledger(ledger, create=False)
        try:
            totals = opened.totals(by.value, since=since, until=until)
        finally:
            opened.close()
    except ValueError as error:
        fail(str(error), Exit.USAGE)
    except OSError as error:
        fail(str(error), Exit.FAILED)
    {Form.TABLE: _print_table, Form.CSV: _print_csv, Form.JSON: _print_json}[form](totals, by)


_COUNTS = ("requests", "failed", "prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens")
_COSTS = ("cost_usd", "other_cost_usd")
_FIELDS = (*_COUNTS, *_COSTS, "unpriced")
_TITLES = {
    "prompt_tokens": "prompt",
    "completion_tokens": "completion",
    "cached_tokens": "cached",
    "reasoning_tokens": "reasoning",
    "cost_usd": "cost",
    "other_cost_usd": "other attempts",
}

_LONGEST_NAME = 80
_WIDEST = 1000


def _print_table(totals: Sequence[Total], by: Group) -> None:
    console = Console(highlight=False, markup=False)
    if not totals:
        console.print("no usage was recorded in this time")
        return
    table = Table(box=None, pad_edge=False, show_footer=len(totals) > 1)
    everything = _sum(totals)
    table.add_column(by.value, footer="total", no_wrap=True)
    for name in _FIELDS:
        title = _TITLES.get(name, name)
        table.add_column(title, footer=_cell(everything, name), justify="right", no_wrap=True)
    for total in totals:
        table.add_row(Text(_plain(total.group)), *[_cell(total, name) for name in _FIELDS])
    # A figure that is cut is a wrong figure: rather let the lines wrap.
    needed = Measurement.get(console, console.options.update(max_width=_WIDEST), table).maximum
    console.width = max(console.width, needed)
    console.print(table)
    if everything.unpriced:
        console.print(
            f"{everything.unpriced} requests have no price and are in no cost; give their models one under `prices`",
            style="dim",
        )


def _print_csv(totals: Sequence[Total], by: Group) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([by.value, *_FIELDS])
    writer.writerows([[total.group, *[_value(total, name) for name in _FIELDS]] for total in totals])


def _print_json(totals: Sequence[Total], by: Group) -> None:
    rows = [{by.value: total.group, **{name: _value(total, name) for name in _FIELDS}} for total in totals]
    typer.echo(msgspec.json.format(msgspec.json.encode(rows)).decode())


def _sum(totals: Sequence[Total]) -> Total:
    def cost(name: str) -> float | None:
        known = [value for total in totals if (value := _value(total, name)) is not None]
        return sum(known) if known else None

    counts = {name: sum([_value(total, name) for total in totals]) for name in (*_COUNTS, "unpriced")}
    return Total(group="", **counts, cost_usd=cost("cost_usd"), other_cost_usd=cost("other_cost_usd"))


def _value(total: Total, name: str) -> Any:
    value = getattr(total, name)
    return round(value, 9) if isinstance(value, float) else value


def _cell(total: Total, name: str) -> str:
    """A figure as people read it. A cost that is not known is a dash, never a zero."""
    value = _value(total, name)
    if name not in _COSTS:
        return f"{value:,}"
    if value is None:
        return "-"
    return "<$0.0001" if 0 < value < 0.0001 else f"${value:,.4f}"


def _plain(name: str) -> str:
    """A name that a caller chose: of bounded length, and without what a terminal would obey."""
    text = "".join([character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in name]) or "-"
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}\N{HORIZONTAL ELLIPSIS}"
