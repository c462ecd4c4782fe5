"""The calls of one process that can be cancelled by their id, each by its own caller alone. Needs no extra."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headrace.serve.inference import Arrived

Entry = tuple[str, str]
"""Id of the caller's key, id of the request."""


class InFlight:
    """`add` when a call has been read, `remove` when it is over."""

    def __init__(self) -> None:
        self._cancels: dict[Entry, Callable[[], object]] = {}

    def add(self, arrived: Arrived, cancel: Callable[[], object]) -> list[Entry]:
        """What to `remove` when the call is over."""
        assert arrived.request is not None
        owner = arrived.key.id if arrived.key is not None else ""
        names = {arrived.request_id, arrived.request.request_id or arrived.request_id}
        entries = [(owner, name) for name in names]
        for entry in entries:
            self._cancels[entry] = cancel
        return entries

    def remove(self, entries: Iterable[Entry], cancel: Callable[[], object]) -> None:
        for entry in entries:
            if self._cancels.get(entry) == cancel:  # a later call of the same name may have taken the place
                del self._cancels[entry]

    def cancel(self, owner: str, request_id: str) -> bool:
        """Whether there was such a call."""
        found = self._cancels.get((owner, request_id))
        if found is not None:
            found()
        return found is not None
