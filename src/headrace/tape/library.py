"""The library: everything a replaying provider can play, by name.

Scripts and recordings stand side by side; a name is a file's path below the folder it came from, without extension
("parallel-tools", "anthropic/cache-read"), and its last part does as well where only one stream has it. What could not
be read is kept with its reason in `skipped`, so that a program can say so.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from headrace.tape.files import Row, read_file, read_index
from headrace.tape.recording import Recording, RecordingError
from headrace.tape.script import Script, ScriptError

Stream = Script | Recording

_SCRIPT_EXTENSIONS = (".yaml", ".yml")


class LibraryError(ValueError):
    """There is nothing to play at a path. The message names the path and the reason."""


class Skipped(NamedTuple):
    """A file that is not served, and why."""

    file: str
    reason: str


class Library:
    """Streams by name."""

    def __init__(self, streams: Iterable[Stream] = (), skipped: Iterable[Skipped] = ()) -> None:
        self._streams = {stream.name: stream for stream in streams}
        self.skipped = tuple(skipped)
        short: dict[str, list[Stream]] = {}
        for stream in self._streams.values():
            short.setdefault(PurePosixPath(stream.name).name, []).append(stream)
        self._by_short_name = {name: found[0] for name, found in short.items() if len(found) == 1}

    @classmethod
    def builtin(cls) -> Library:
        """The scripts that come with the package."""
        return _builtin()

    @classmethod
    def load(cls, path: str | Path, *, format: str | None = None) -> Library:
        """Everything that can be played in a file or folder: scripts (.yaml), recordings, files of an index.tsv.

        `format` is the format of files that do not show their own. Raises LibraryError where nothing can be played.
        """
        path = Path(path)
        if not path.exists():
            raise LibraryError(f"{path}: no such file or folder")
        streams: list[Stream] = []
        skipped: list[Skipped] = []
        taken: set[str] = set()
        try:
            files = list(_files(path))
        except (OSError, UnicodeDecodeError, RecordingError) as error:
            raise LibraryError(str(error)) from None
        for file, name, row in files:
            if name in taken:
                name = f"{name}{file.suffix}"
            taken.add(name)
            try:
                streams.append(_read(file, name, row, format))
            except (RecordingError, ScriptError) as error:
                skipped.append(Skipped(str(file), str(error)))
            except (OSError, UnicodeDecodeError) as error:
                skipped.append(Skipped(str(file), f"it cannot be read: {error}"))
        if not streams:
            reasons = "; ".join(f"{file}: {reason}" for file, reason in skipped[:5])
            raise LibraryError(f"{path}: nothing to play here" + (f" ({reasons})" if reasons else ""))
        return cls(streams, skipped)

    def get(self, name: str) -> Stream | None:
        """A stream by its name, or by the last part of its name."""
        return self._streams.get(name) or self._by_short_name.get(name)

    def near(self, name: str) -> list[str]:
        """Names that somebody may have meant."""
        return difflib.get_close_matches(name, self._streams, n=3, cutoff=0.5)

    def __or__(self, other: Library) -> Library:
        """Both libraries; the other's streams win where names are the same."""
        return Library([*self, *other], [*self.skipped, *other.skipped])

    def __iter__(self) -> Iterator[Stream]:
        return iter(self._streams.values())

    def __len__(self) -> int:
        return len(self._streams)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    @property
    def names(self) -> list[str]:
        return list(self._streams)


@lru_cache(maxsize=1)
def _builtin() -> Library:
    files = sorted(resources.files(__package__).joinpath("scripts").iterdir(), key=lambda file: file.name)
    return Library(
        Script.parse(file.name.removesuffix(".yaml"), file.read_text(encoding="utf-8"))
        for file in files
        if file.name.endswith(".yaml")
    )


def _files(path: Path) -> Iterator[tuple[Path, str, Row]]:
    """(file, name of its stream, what is known of it)."""
    if path.is_file():
        yield path, path.stem, Row()
        return
    index = read_index(path)
    if index is not None:
        for file, row in index.items():
            yield path / file, PurePosixPath(file).with_suffix("").as_posix(), row
        return
    for file_path in sorted(path.rglob("*")):
        hidden = any(part.startswith(".") for part in file_path.relative_to(path).parts)
        if file_path.is_file() and not hidden:
            yield file_path, file_path.relative_to(path).with_suffix("").as_posix(), Row()


def _read(path: Path, name: str, row: Row, format: str | None) -> Stream:
    if path.suffix.lower() in _SCRIPT_EXTENSIONS:
        return Script.parse(name, path.read_text(encoding="utf-8"))
    return read_file(path, name, row, format)
