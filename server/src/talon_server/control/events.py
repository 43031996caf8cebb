"""What happens to sandboxes, in order, for those who follow: a bounded memory of the last, and live streams.

Services emit; the API's event streams, recordings and metrics follow. A follower reads from the memory at its own
pace; one so slow (or so late) that events were dropped meanwhile is told so, and never slows the server.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

log = logging.getLogger(__name__)

KEPT = 10000
MISSED = "missed"


@dataclass(frozen=True, slots=True)
class Event:
    """`sequence` grows by one each, and over restarts; `at` is Unix seconds. Kind `missed`: some were dropped here."""

    sequence: int
    at: float
    kind: str
    sandbox_id: str
    tenant: str
    detail: Mapping[str, Any] = field(default_factory=dict)


class Events:
    """The stream of events."""

    def __init__(self, kept: int = KEPT) -> None:
        self._recent: deque[Event] = deque(maxlen=kept)
        self._listeners: list[Callable[[Event], None]] = []
        # Microseconds since 1970: a follower of an earlier server goes on where it was, with numbers JSON can carry.
        self._sequence = time.time_ns() // 1000

    @property
    def last(self) -> int:
        """The sequence number given last."""
        return self._sequence

    def emit(self, kind: str, sandbox_id: str, tenant: str, **detail: object) -> Event:
        """Tell everyone."""
        self._sequence += 1
        event = Event(self._sequence, time.time(), kind, sandbox_id, tenant, detail)
        self._recent.append(event)
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception:
                log.exception("a listener of events failed on %s of %s", kind, sandbox_id)
        return event

    def since(self, sequence: int, *, tenant: str, sandbox_id: str | None = None) -> list[Event]:
        """The remembered events after `sequence`."""
        found = []
        for event in reversed(self._recent):
            if event.sequence <= sequence:
                break
            if event.tenant == tenant and sandbox_id in (None, event.sandbox_id):
                found.append(event)
        return found[::-1]

    def listen(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call `listener` for each event until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def follow(self, sequence: int, *, tenant: str, sandbox_id: str | None = None) -> AsyncIterator[Event]:
        """The events after `sequence` (0: all that are remembered), then those to come, for ever."""
        changed = asyncio.Event()
        stop = self.listen(lambda _event: changed.set())
        try:
            while True:
                changed.clear()
                if sequence and self._dropped_after(sequence):
                    yield Event(self._recent[0].sequence - 1, time.time(), MISSED, sandbox_id or "", tenant)
                found = self.since(sequence, tenant=tenant, sandbox_id=sandbox_id)
                sequence = self._sequence
                for event in found:
                    yield event
                await changed.wait()
        finally:
            stop()

    def _dropped_after(self, sequence: int) -> bool:
        return bool(self._recent) and self._recent[0].sequence > sequence + 1
