"""The faults that a replayed stream can be asked for, as one table: `FAULTS`, made of the fields of `Faults`.

A caller asks with the header `x-replay: cut=3,delay=0.5`, or behind the model's name, `text?cut=3&delay=0.5`, which
passes through any gateway. The rule: a name or value that is not in the table is refused, never ignored, since a test
whose fault did not happen would pass for the wrong reason.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, NamedTuple, get_type_hints
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta

_Count = Annotated[int, Meta(ge=0)]
_Seconds = Annotated[float, Meta(ge=0, le=86_400)]
_Speed = Annotated[float, Meta(ge=0, le=1_000_000)]


class FaultError(ValueError):
    """A fault that does not exist, or a value that it does not take. The message lists what there is."""


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """How one answer shall be played. Absent fields change nothing.

    Events are counted from 1; `k` is a number of events of the stream. A `k` beyond the end of the stream has no effect.
    The body of an answer that is not streamed is one event.
    """

    speed: Annotated[
        _Speed | None,
        Meta(description="Play at this multiple of the recorded rhythm; 0 is as fast as possible.", examples=["2"]),
    ] = None
    delay: Annotated[_Seconds, Meta(description="Seconds before the response headers.", examples=["0.5"])] = 0.0
    first_delay: Annotated[
        _Seconds, Meta(description="Seconds between the headers and the first event.", examples=["0.5"])
    ] = 0.0
    status: Annotated[
        Annotated[int, Meta(ge=400, le=599)] | None,
        Meta(description="Answer with this HTTP status and the vendor's error body.", examples=["503"]),
    ] = None
    retry_after: Annotated[
        _Seconds | None, Meta(description="With `status`: send Retry-After, in seconds.", examples=["2"])
    ] = None
    hang: Annotated[bool, Meta(description="Accept the request and never answer.", examples=["1"])] = False
    cut: Annotated[
        _Count | None,
        Meta(description="Close the connection after k events, inside the chunked body.", examples=["3"]),
    ] = None
    cut_clean: Annotated[
        bool,
        Meta(description="With `cut`: end the HTTP body properly; only the terminal event is missing.", examples=["1"]),
    ] = False
    reset: Annotated[
        _Count | None, Meta(description="Reset the connection (TCP RST) after k events.", examples=["3"])
    ] = None
    silence: Annotated[
        _Count | None, Meta(description="Send nothing after k events and keep the connection open.", examples=["3"])
    ] = None
    error: Annotated[
        Annotated[str, Meta(pattern=r"^[0-9]{1,9}(:[A-Za-z0-9_.-]{1,64})?$")] | None,
        Meta(
            description="After k events send an error event in the vendor's form, of the type after the colon.",
            examples=["3:overloaded_error"],
        ),
    ] = None
    malformed: Annotated[
        _Count | None, Meta(description="Event k is broken JSON (its first half).", examples=["3"])
    ] = None
    garbage: Annotated[
        _Count | None,
        Meta(description="After k events send a block that is neither an event nor UTF-8, then go on.", examples=["3"]),
    ] = None
    duplicate_terminal: Annotated[bool, Meta(description="Send the last event twice.", examples=["1"])] = False
    comment: Annotated[
        _Count, Meta(description="Send a keepalive comment before every k-th event.", examples=["2"])
    ] = 0
    crlf: Annotated[bool, Meta(description="End lines with CRLF.", examples=["1"])] = False
    cr: Annotated[bool, Meta(description="End lines with a bare CR.", examples=["1"])] = False
    nospace: Annotated[bool, Meta(description="No blank after the colon of an SSE field.", examples=["1"])] = False
    eventless: Annotated[bool, Meta(description="Leave out the `event:` lines.", examples=["1"])] = False
    coalesce: Annotated[
        _Count, Meta(description="Send k events in one write, when the last of them is due.", examples=["4"])
    ] = 0
    split: Annotated[
        _Count, Meta(description="Send the body n bytes at a time, each its own chunk.", examples=["7"])
    ] = 0
    drip: Annotated[
        bool,
        Meta(
            description="Send the whole response byte by byte, one each millisecond (scaled by speed).", examples=["1"]
        ),
    ] = False
    gzip: Annotated[bool, Meta(description="Compress the body (Content-Encoding: gzip).", examples=["1"])] = False
    json: Annotated[
        bool, Meta(description="Answer a request for a stream with the whole body as JSON.", examples=["1"])
    ] = False

    @property
    def error_after(self) -> tuple[int, str] | None:
        """(number of events, error type) of `error`."""
        if self.error is None:
            return None
        count, _, type_ = self.error.partition(":")
        return int(count), type_ or "api_error"


class Fault(NamedTuple):
    """A row of the table."""

    name: str
    example: str
    """Name and value, as one would ask for it."""
    doc: str


def _rows() -> dict[str, Fault]:
    rows = {}
    for name, hint in get_type_hints(Faults, include_extras=True).items():
        meta = next(item for item in hint.__metadata__ if isinstance(item, Meta) and item.description)
        rows[name] = Fault(name, f"{name}={(meta.examples or ['1'])[0]}", meta.description or "")
    return rows


FAULTS: dict[str, Fault] = _rows()
"""Every fault by its name, in the order of the documentation."""


def from_header(value: str) -> dict[str, str]:
    """`cut=3, hang` -> {"cut": "3", "hang": "1"}."""
    pairs = (item.partition("=") for item in value.split(",") if item.strip())
    return {name.strip(): text.strip() if equals else "1" for name, equals, text in pairs}


def from_model(model: str) -> tuple[str, dict[str, str]]:
    """`text?cut=3&hang` -> ("text", {"cut": "3", "hang": "1"})."""
    name, _, query = model.partition("?")
    return name, {key: value or "1" for key, value in parse_qsl(query, keep_blank_values=True, separator="&")}


def parse(values: Mapping[str, str]) -> Faults:
    """Raises FaultError for a name that is not in the table and for a value that does not fit."""
    for name in values:
        if name not in FAULTS:
            close = difflib.get_close_matches(name, FAULTS, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise FaultError(f"There is no fault {name[:40]!r}.{hint} Faults are: {', '.join(FAULTS)}.")
        if values[name].strip().lower() in _NO_NUMBERS:
            raise FaultError(f"Fault {name} takes no {values[name]!r}; an example is {FAULTS[name].example}.")
    try:
        return msgspec.convert(dict(values), Faults, strict=False)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$.")
        name = path.rstrip("`")
        raise FaultError(f"Fault {name}: {message}; an example is {FAULTS[name].example}.") from None


_NO_NUMBERS = frozenset(("nan", "-nan", "+nan", "null"))
"""Words that pass for a number or for none, and that no fault means."""


def fault_table() -> str:
    """The table in Markdown, for the documentation and for help output."""
    rows = ["| fault | what happens |", "|---|---|"]
    rows += [f"| `{fault.example}` | {fault.doc} |" for fault in FAULTS.values()]
    return "\n".join(rows) + "\n"
