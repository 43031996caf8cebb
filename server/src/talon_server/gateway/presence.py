"""Which sandboxes are in use right now, and since when the others are not. Counts requests; used by the gateway.

Pure state. A request in flight, however long it streams, keeps its sandbox in use.
"""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Presence:
    """Requests in flight by sandbox, and when the last one ended (monotonic seconds)."""

    def __init__(self) -> None:
        self._active: Counter[str] = Counter()
        self._left: dict[str, float] = {}

    @contextmanager
    def using(self, id: str) -> Iterator[None]:
        """Count one request for as long as the block runs."""
        self._active[id] += 1
        try:
            yield
        finally:
            self._active[id] -= 1
            if self._active[id] <= 0:
                del self._active[id]
            self._left[id] = time.monotonic()

    def idle_s(self, id: str, since: float) -> float:
        """Seconds without a request, counted from `since` (monotonic) at the earliest; 0 while one runs."""
        if id in self._active:
            return 0.0
        return time.monotonic() - max(since, self._left.get(id, since))

    def forget(self, id: str) -> None:
        """The sandbox is gone."""
        self._left.pop(id, None)
