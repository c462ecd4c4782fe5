"""Reading the configuration anew while the gateway serves: when it is asked for, and when the file has changed.

The rule: what is good is used, what is bad is reported as `headrace config check` reports it and changes nothing. A
changed file is read when it has looked the same twice in a row, so that nobody reads what an editor is still writing;
the price is that a change counts two to four seconds after it was made. Polling rather than a notification of the
kernel, as one `stat` works on every file system and through the symbolic links that containers swap.

`Source` and `FileWatch` know no clock and no loop: the supervisor of several processes asks them from its own loop,
`watch` from an event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from headrace.access.keys import KeyFileError
from headrace.config import Config, ConfigError
from headrace.serve import exposure

logger = logging.getLogger("headrace.serve")

POLL_SECONDS = 2.0
"""Between two looks at the file."""

_ASKED_SECONDS = 0.25
"""Between two looks at whether somebody asked: a signal handler can do little more than leave a note."""

FIXED: tuple[tuple[str, ...], ...] = (
    # what a running process holds on to: sockets, processes, limits that are partly used, records on their way
    ("server", "host"),
    ("server", "port"),
    ("server", "workers"),
    ("server", "grpc"),
    ("breaker",),
    ("redis",),
    ("usage",),
)
"""Keys whose change needs a restart."""

UNUSABLE = (OSError, ValueError, ImportError, KeyFileError)
"""What a configuration that reads well may still raise when it is used: a file or a folder is not what it should be, a
client library is missing."""

Fingerprint = tuple[int, int, int]


class FileWatch:
    """Notices that a file has changed, and that the change is complete."""

    def __init__(self, path: Path | None) -> None:
        """Counts from now. With None nothing ever changes."""
        self._path = path
        self._known = self._pending = self._look()

    @property
    def watching(self) -> bool:
        return self._path is not None

    def changed(self) -> bool:
        """To be asked at intervals: True once for every change, when two looks in a row see the same."""
        seen = self._look()
        settled = seen == self._pending
        self._pending = seen
        if not settled or seen == self._known:
            return False
        self._known = seen
        return True

    def read_now(self) -> None:
        """The file is about to be read, whatever it looks like."""
        self._known = self._pending = self._look()

    def _look(self) -> Fingerprint | None:
        """None where there is no file, which is a look of its own: a file that is replaced may be gone for a moment."""
        if self._path is None:
            return None
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size


class Source:
    """Where a running gateway's configuration comes from.

    `load` reads it and raises ConfigError; `started` is the one that the process was started with; `file` tells of its
    changes. `announce` is False in a worker, whose supervisor has already told what there is to tell.
    """

    def __init__(self, load: Callable[[], Config], started: Config, file: FileWatch, *, announce: bool = True) -> None:
        self._load = load
        self._started = started
        self._file = file
        self._announce = announce
        self._asked = False
        self._look_at = 0.0

    def ask(self) -> None:
        """Have it read anew. May be called from a signal handler."""
        self._asked = True

    @property
    def watching(self) -> bool:
        """Whether `due` must be asked every POLL_SECONDS, even if nobody calls `ask`."""
        return self._file.watching

    def due(self, now: float) -> bool:
        """Whether it is to be read. `now`: seconds of a monotonic clock."""
        asked, self._asked = self._asked, False
        if asked:
            return True
        if now < self._look_at:
            return False
        self._look_at = now + POLL_SECONDS
        return self._file.changed()

    def worker(self) -> Source:
        """The same for a worker process, which reads when its supervisor says so."""
        return Source(self._load, self._started, FileWatch(None), announce=False)

    def read(self) -> Config | None:
        """The configuration as it is now, with what cannot change as it was; None where it is bad, which the log tells."""
        self._file.read_now()
        try:
            config = self._load()
        except ConfigError as error:
            logger.error("the configuration stays as it was; the new one cannot be used:\n%s", error)
            return None
        config, ignored = keep_fixed(config, self._started)
        # Asked for what is really listened on: a file without keys may name an address that has yet to be taken.
        if (reason := exposure.refusal(config)) is not None:
            logger.error("the configuration stays as it was; the new one cannot be used: %s", reason)
            return None
        if self._announce:
            for problem in config.warnings:
                logger.warning("%s", problem)
            for name in ignored:
                logger.warning("%s has changed; that needs a restart, until then the old value counts", name)
        return config


def keep_fixed(config: Config, started: Config) -> tuple[Config, list[str]]:
    """`config` with the FIXED keys as in `started`, and the names of those that differ."""
    ignored = []
    for path in FIXED:
        old = _get(started, path)
        if _get(config, path) != old:
            ignored.append(".".join(path))
            config = _replaced(config, path, old)
    return config, ignored


def _get(holder: object, path: tuple[str, ...]) -> object:
    for name in path:
        holder = getattr(holder, name)
    return holder


def _replaced(config: Config, path: tuple[str, ...], value: object) -> Config:
    if len(path) == 1:
        return msgspec.structs.replace(config, **{path[0]: value})
    section, name = path
    return msgspec.structs.replace(
        config, **{section: msgspec.structs.replace(getattr(config, section), **{name: value})}
    )


async def watch(source: Source, use: Callable[[Config], Awaitable[None]]) -> None:
    """Hand every new configuration to `use`, until cancelled. The file is read in a thread: streams do not wait for it."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(_ASKED_SECONDS)
        if not source.due(loop.time()):
            continue
        try:
            config = await asyncio.to_thread(source.read)
            if config is not None:
                await use(config)
                logger.info("the configuration was read anew (providers: %s)", ", ".join(sorted(config.providers)))
        except UNUSABLE as error:
            logger.error("the configuration stays as it was; the new one cannot be used: %s", error)
        except Exception:  # a fault of ours must not end the watch, or the next file would go unnoticed
            logger.exception("the configuration stays as it was; the new one could not be taken up")
