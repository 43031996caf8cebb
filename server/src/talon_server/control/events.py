"""What happens to sandboxes, in order, for those who follow: a bounded memory of the last, and live streams.

Services emit; the API's event streams, the hooks of recordings and metrics follow. A follower that is too slow is told
that it missed some, and never slows the server.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

KEPT = 10000
_BACKLOG = 1000


@dataclass(frozen=True, slots=True)
class Event:
    """`sequence` counts from 1 since the server's start; `at` is Unix seconds."""

    sequence: int
    at: float
    kind: str
    sandbox_id: str
    tenant: str
    detail: Mapping[str, Any] = field(default_factory=dict)


class Events:
    """The stream of events."""

    def __init__(self) -> None:
        self._recent: deque[Event] = deque(maxlen=KEPT)
        self._listeners: list[Callable[[Event], None]] = []
        self._sequence = 0

    def emit(self, kind: str, sandbox_id: str, tenant: str, **detail: object) -> Event:
        """Tell everyone."""
        self._sequence += 1
        event = Event(self._sequence, time.time(), kind, sandbox_id, tenant, detail)
        self._recent.append(event)
        for listener in tuple(self._listeners):
            listener(event)
        return event

    def since(self, sequence: int, *, tenant: str, sandbox_id: str | None = None) -> list[Event]:
        """The remembered events after `sequence`."""
        return [
            event
            for event in self._recent
            if event.sequence > sequence
            and event.tenant == tenant
            and (sandbox_id is None or event.sandbox_id == sandbox_id)
        ]

    def listen(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call `listener` for each event until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def follow(self, sequence: int, *, tenant: str, sandbox_id: str | None = None) -> AsyncIterator[Event]:
        """The events after `sequence`, then those to come, for ever."""
        queue: asyncio.Queue[Event] = asyncio.Queue(_BACKLOG)

        def put(event: Event) -> None:
            if event.tenant == tenant and sandbox_id in (None, event.sandbox_id) and not queue.full():
                queue.put_nowait(event)

        stop = self.listen(put)
        try:
            last = sequence
            for event in self.since(sequence, tenant=tenant, sandbox_id=sandbox_id):
                last = event.sequence
                yield event
            while True:
                event = await queue.get()
                if event.sequence > last:
                    yield event
        finally:
            stop()
