"""What the matrix must know of a format beyond its codecs: what it cannot carry, how its streams end, how requests look."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.formats.base import WireRequest
from headrace.framing import Frame
from headrace.model.request import Request
from tests.fixtures import FixtureRow
from tests.matrix.limits import Limit
from tests.matrix.request_limits import RequestLimit

if TYPE_CHECKING:
    from tests.matrix.pipes import Digest


def _as_it_is(request: Request) -> None:
    pass


def _nothing_missing(told: Digest) -> None:
    pass


@dataclass(frozen=True)
class Column:
    name: str
    limits: tuple[Limit, ...]
    """What of an answer it cannot carry."""
    request_limits: tuple[RequestLimit, ...]
    """What of a request its providers cannot be told."""
    bodies: Mapping[str, Mapping[str, Any]]
    """Id of a case (requests.CASES) -> the caller's body that says it, without model and stream."""
    unknown: Mapping[str, Any]
    """A caller's body with fields that nobody knows, at every depth, without model and stream."""
    check_whole_ending: Callable[[Sequence[Frame]], None]
    """Exactly one ending, the format's own."""
    check_failed_ending: Callable[[Sequence[Frame], Sequence[int]], None]
    """As the table "How a failed stream ends" says; with the choices that had really finished before."""
    recordings: tuple[str, ...] = ()
    """The index's words for recordings in this format (column `format`)."""
    damaged: tuple[str, ...] = ()
    """Of these, files that are no whole streams; the tests of their framing read them."""
    recorded: Callable[[FixtureRow, bytes], bytes] | None = None
    """A recording's file -> the bytes of the provider's stream, in the format's native framing; None: they are that."""
    prepared: Callable[[dict[str, Any], bool], dict[str, Any]] | None = None
    """The body of a case with what every body needs; with whether a stream is asked for. None: model and stream."""
    arriving: Callable[[WireRequest], Request] | None = None
    """A request for a provider as the provider reads it, its URL included. None: the body says all."""
    caller_limits: Callable[[Request], None] = _as_it_is
    """Makes of a case's request what this caller's format can say of it."""
    unnamed: Callable[[Digest], None] = _nothing_missing
    """Takes out of an answer what the format has no place for beside the content (its id, its time)."""
    seals: bool = False
    """Other vendors' signatures are sealed, and whole bodies are read with the seals opened."""
    quirks: Mapping[str, Any] = field(default_factory=dict)
    """Those that the reader needs to read what the writer wrote."""
