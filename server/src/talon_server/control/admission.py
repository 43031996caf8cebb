"""Who may create now: a bound on creates at once, with a queue that is fair between tenants.

Waiting is first come, first served within a tenant, and tenants take turns, so that one with ten thousand requests
does not keep another with one waiting. Used by `lifecycle` around the work on the host.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from talon_server.errors import TalonError


class Admission:
    """`at_once` creates run; at most `queue_length` wait."""

    def __init__(self, at_once: int, queue_length: int) -> None:
        self._free = at_once
        self._queue_length = queue_length
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self.waiting = 0

    @asynccontextmanager
    async def place(self, tenant: str, timeout_s: float) -> AsyncIterator[None]:
        """Hold a place. Raises queue_timeout (with when to retry) when none came free in time."""
        await self._enter(tenant, timeout_s)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, tenant: str, timeout_s: float) -> None:
        if self._free > 0 and self.waiting == 0:
            self._free -= 1
            return
        if self.waiting >= self._queue_length:
            raise TalonError("queue_timeout", "too many requests wait already", retry_after_s=5)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(future)
        self.waiting += 1
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError as error:
            raise TalonError(
                "queue_timeout", f"no place became free within {timeout_s:g} s", retry_after_s=2
            ) from error
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._leave()
            raise
        finally:
            if not future.done() or future.cancelled():
                self._give_up(tenant, future)

    def _give_up(self, tenant: str, future: asyncio.Future[None]) -> None:
        queue = self._waiting.get(tenant)
        if queue is not None and future in queue:
            queue.remove(future)
            self.waiting -= 1
            if not queue:
                del self._waiting[tenant]

    def _leave(self) -> None:
        while self._waiting:
            tenant, queue = next(iter(self._waiting.items()))
            future = queue.popleft()
            self.waiting -= 1
            self._waiting.move_to_end(tenant)
            if not queue:
                del self._waiting[tenant]
            if not future.done():
                future.set_result(None)
                return
        self._free += 1
