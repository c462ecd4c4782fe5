"""One coarse timer for all streams: deadlines cost nothing on the hot path, only a scan four times a second.

The trade-off: a deadline is noticed up to one interval late, and each scan touches every live stream (about 0.1 us
each, so a millisecond for 10,000).
"""

from __future__ import annotations

import asyncio
import logging

from headrace.serve.driver import StreamDriver

logger = logging.getLogger("headrace.serve")

INTERVAL = 0.25
"""Seconds between two scans."""


class Ticker:
    """Holds the live drivers and wakes those whose deadline has passed."""

    def __init__(self, interval: float = INTERVAL) -> None:
        self._interval = interval
        self._live: set[StreamDriver] = set()
        self._handle: asyncio.TimerHandle | None = None

    @property
    def live(self) -> frozenset[StreamDriver]:
        """The streams in flight."""
        return frozenset(self._live)

    def add(self, driver: StreamDriver) -> None:
        self._live.add(driver)
        if self._handle is None:
            self._schedule()

    def remove(self, driver: StreamDriver) -> None:
        self._live.discard(driver)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _schedule(self) -> None:
        self._handle = asyncio.get_running_loop().call_later(self._interval, self._scan)

    def _scan(self) -> None:
        now = asyncio.get_running_loop().time()
        due = [driver for driver in self._live if driver.stream.next_deadline <= now]
        for driver in due:
            try:
                driver.tick(now)
            except Exception:  # one stream's fault must not stop the clock of all others
                logger.exception("a deadline could not be handled")
        if self._live:
            self._schedule()
        else:
            self._handle = None
