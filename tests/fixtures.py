"""Looking up the recorded streams that lie beside the repository, in ../shared/fixtures.

The recordings are not part of the project. Tests that need them carry the marker `requires_fixtures` and are skipped,
with the reason, where the folder is absent. `fixture_index` then gives an empty list, so that it may be called at
import time, in `parametrize`; `fixture_params` does that for the most usual case.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

FIXTURES = Path(__file__).resolve().parents[2] / "shared" / "fixtures"
"""The folder of the recordings; it may be absent."""

requires_fixtures = pytest.mark.skipif(
    not (FIXTURES / "index.tsv").is_file(),
    reason=f"the recorded streams are not on this machine (no index.tsv in {FIXTURES})",
)


@dataclass(frozen=True, slots=True)
class FixtureRow:
    """One line of index.tsv, columns as there: `file` is the path below the folder, `bytes` the size."""

    file: str
    provider: str
    format: str
    framing: str
    repo: str
    path: str
    licence: str
    bytes: int
    shows: str


@lru_cache(maxsize=1)
def _rows() -> tuple[FixtureRow, ...]:
    index = FIXTURES / "index.tsv"
    if not index.is_file():
        return ()
    rows = []
    for line in index.read_text(encoding="utf-8").split("\n")[1:]:
        if line:
            file, provider, format_, framing, repo, path, licence, size, shows = line.split("\t")
            rows.append(FixtureRow(file, provider, format_, framing, repo, path, licence, int(size), shows))
    return tuple(rows)


def fixture_index(
    *, framing: str | None = None, format: str | None = None, provider: str | None = None
) -> list[FixtureRow]:
    """The recordings, in the index's order, narrowed by exact framing, format or provider where given."""
    return [
        row
        for row in _rows()
        if (framing is None or row.framing == framing)
        and (format is None or row.format == format)
        and (provider is None or row.provider == provider)
    ]


def fixture_bytes(name: str) -> bytes:
    """The bytes of a recording, by its `file` column. Skips the running test where the whole folder is absent."""
    if not (FIXTURES / "index.tsv").is_file():
        pytest.skip(f"the recorded stream {name} is not on this machine (no index.tsv in {FIXTURES})")
    return (FIXTURES / name).read_bytes()


def fixture_params(*, framing: str | None = None, format: str | None = None, provider: str | None = None) -> list[Any]:
    """`fixture_index` as parameters for `pytest.mark.parametrize`, with the file as id.

    Where the folder is absent this is one skipped parameter, so that the test shows up in the report with its reason.
    """
    rows = fixture_index(framing=framing, format=format, provider=provider)
    if not rows:
        return [pytest.param(None, marks=requires_fixtures, id="no-fixtures")]
    return [pytest.param(row, id=row.file) for row in rows]
