"""Freezes sandboxes that nobody uses, where that was asked for; the next request wakes them.

A frozen sandbox costs no CPU and keeps its memory. Only sandboxes with an idle time are looked at, once a second;
without any, nothing runs.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from talon_server.control.creation import IDLE
from talon_server.control.events import Event, Events
from talon_server.control.lifecycle import Lifecycle
from talon_server.errors import TalonError

log = logging.getLogger(__name__)

EVERY_S = 1.0
IdleFor = Callable[[str, float], float]
"""(sandbox, since) → seconds without a request, counted from `since` (monotonic) at the earliest."""


class IdleFreezer:
    """Looks after the sandboxes with an idle time."""

    def __init__(self, lifecycle: Lifecycle, events: Events, idle_for: IdleFor, forget: Callable[[str], None]) -> None:
        self._lifecycle = lifecycle
        self._idle_for = idle_for
        self._forget = forget
        self._since: dict[str, float] = {}
        self._some = asyncio.Event()
        for sandbox in lifecycle.all():
            if IDLE in sandbox.spec.extensions:
                self._watch(sandbox.id)
        events.listen(self._heard)

    def _heard(self, event: Event) -> None:
        if event.kind == "created" and event.detail.get("idle_s"):
            self._watch(event.sandbox_id)
        elif event.kind == "state" and event.detail["state"] in ("failed", "terminated"):
            self._since.pop(event.sandbox_id, None)
            self._forget(event.sandbox_id)
        elif event.kind == "state" and event.detail["state"] == "running" and event.sandbox_id in self._since:
            self._since[event.sandbox_id] = time.monotonic()

    def _watch(self, id: str) -> None:
        self._since[id] = time.monotonic()
        self._some.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            if not self._since:
                self._some.clear()
                await self._some.wait()
            for id, since in list(self._since.items()):
                await self._look(id, since)
            await asyncio.sleep(EVERY_S)

    async def _look(self, id: str, since: float) -> None:
        try:
            after_s = self._lifecycle.idle_after_s(id)
            if after_s is not None and self._idle_for(id, since) >= after_s:
                await self._lifecycle.freeze_idle(id)
        except TalonError as error:
            log.info("sandbox %s could not be frozen: %s", id, error)
