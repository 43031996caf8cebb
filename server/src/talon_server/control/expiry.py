"""Ends sandboxes when their time is up: one heap, one timer.

`watch` is told of each expiry and again when it changes. Moving one further away costs nothing until its old time
comes, so a sandbox renewed by every request keeps one entry. Called by `lifecycle`.
"""

import asyncio
import heapq
import logging
import time
from collections.abc import Callable
from datetime import datetime

log = logging.getLogger(__name__)

LONGEST_WAIT_S = 3600.0
RETRY_S = 1.0


class Expiry:
    """Calls `due(id)` at the time last watched for it."""

    def __init__(self, due: Callable[[str], None]) -> None:
        self._due = due
        self._wanted: dict[str, float] = {}
        self._queued: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._changed = asyncio.Event()

    def watch(self, id: str, at: datetime | None) -> None:
        """`at` None: it never expires."""
        if at is None:
            self.forget(id)
            return
        self._wanted[id] = at.timestamp()
        if self._wanted[id] < self._queued.get(id, float("inf")):
            self._push(id, self._wanted[id])

    def forget(self, id: str) -> None:
        """It has ended already, or never expires."""
        self._wanted.pop(id, None)

    def __len__(self) -> int:
        """How many entries are kept, stale ones included."""
        return len(self._heap)

    def _push(self, id: str, at: float) -> None:
        self._queued[id] = at
        heapq.heappush(self._heap, (at, id))
        if self._heap[0] == (at, id):
            self._changed.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            self._changed.clear()
            wait_s = self._heap[0][0] - time.time() if self._heap else LONGEST_WAIT_S
            if wait_s <= 0:
                self._come(*heapq.heappop(self._heap))
                continue
            try:
                async with asyncio.timeout(min(wait_s, LONGEST_WAIT_S)):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _come(self, at: float, id: str) -> None:
        if self._queued.get(id) != at:
            return
        del self._queued[id]
        wanted = self._wanted.get(id)
        if wanted is None:
            return
        if wanted > at:
            self._push(id, wanted)
            return
        try:
            self._due(id)
        except Exception:
            log.exception("sandbox %s could not be ended at its time; it is tried again", id)
            self._wanted[id] = time.time() + RETRY_S
            self._push(id, self._wanted[id])
        else:
            self.forget(id)
