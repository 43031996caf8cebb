"""Takes ended sandboxes off the host, and goes on trying when the host refuses.

Called by `lifecycle` once a sandbox's end is written down. Invariant: what is handed in is removed while the server
lives; after a crash the next server finds it unknown and removes it.
"""

import asyncio
import logging

from talon_server.lib.tasks import Tasks
from talon_server.worker.port import WorkerPort

log = logging.getLogger(__name__)

FIRST_RETRY_S = 0.5
LAST_RETRY_S = 60.0


class Removals:
    """The sandboxes on their way out."""

    def __init__(self, worker: WorkerPort, tasks: Tasks, *, first_retry_s: float = FIRST_RETRY_S) -> None:
        self._worker = worker
        self._tasks = tasks
        self._first_retry_s = first_retry_s

    async def now(self, id: str) -> None:
        """Returns once it is removed, or once the first try failed and others follow. Not undone by cancellation."""
        if not await self._tasks.whole(f"remove {id}", self._try(id)):
            self._tasks.start(f"remove {id} again", self._again(id))

    def later(self, id: str) -> None:
        """Remove it in the background."""
        self._tasks.start(f"remove {id}", self.now(id))

    async def _try(self, id: str) -> bool:
        try:
            await self._worker.destroy(id)
        except Exception:
            log.exception("sandbox %s could not be removed from the host; it is tried again", id)
            return False
        return True

    async def _again(self, id: str) -> None:
        wait_s = self._first_retry_s
        while True:
            await asyncio.sleep(wait_s)
            if await self._try(id):
                return
            wait_s = min(wait_s * 2, LAST_RETRY_S)
