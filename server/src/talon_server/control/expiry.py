"""Ends sandboxes when their time is up: one heap, one timer.

`watch` is told of each expiry, and again when it changes; stale entries are skipped when they come up.
"""

import asyncio
import heapq
import time
from collections.abc import Awaitable, Callable
from datetime import datetime

Due = Callable[[str], Awaitable[None]]
IsCurrent = Callable[[str, float], bool]


class Expiry:
    """Calls `due(id)` at the time watched, if `current(id, time)` still says so."""

    def __init__(self, due: Due, current: IsCurrent) -> None:
        self._due = due
        self._current = current
        self._heap: list[tuple[float, str]] = []
        self._changed = asyncio.Event()

    def watch(self, id: str, at: datetime | None) -> None:
        """`at` None: it never expires."""
        if at is not None:
            heapq.heappush(self._heap, (at.timestamp(), id))
            if self._heap[0][1] == id:
                self._changed.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            self._changed.clear()
            wait_s = self._heap[0][0] - time.time() if self._heap else None
            if wait_s is None or wait_s > 0:
                try:
                    async with asyncio.timeout(min(wait_s, 3600) if wait_s is not None else None):
                        await self._changed.wait()
                except TimeoutError:
                    pass
                continue
            at, id = heapq.heappop(self._heap)
            if self._current(id, at):
                await self._due(id)
