"""Who may create now: a bound on creates at once and on sandboxes in all, with a queue that is fair between tenants.

Waiting is first come, first served within a tenant, and tenants take turns, so that one with ten thousand requests
does not keep another with one waiting. Used by `creation` around the work on the host.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from talon_server.errors import TalonError

RoomFor = Callable[[int], bool]
"""Is there room for all sandboxes but so many that still wait?"""


class Admission:
    """`at_once` creates run; at most `queue_length` wait. `freed` is to be called when a sandbox has ended."""

    def __init__(self, at_once: int, queue_length: int, room: RoomFor = lambda _waiting: True) -> None:
        self._free = at_once
        self._queue_length = queue_length
        self._room = room
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self.waiting = 0

    @asynccontextmanager
    async def place(self, tenant: str, timeout_s: float) -> AsyncIterator[None]:
        """Hold a place. Raises queue_timeout or capacity_exhausted (with when to retry) when none came free in time."""
        await self._enter(tenant, timeout_s)
        try:
            yield
        finally:
            self._free += 1
            self.freed()

    def freed(self) -> None:
        """Let in those who wait, as far as there are places."""
        while self._waiting and self._free > 0 and self._room(self.waiting - 1):
            tenant, queue = next(iter(self._waiting.items()))
            future = queue.popleft()
            self.waiting -= 1
            self._waiting.move_to_end(tenant)
            if not queue:
                del self._waiting[tenant]
            if not future.done():
                self._free -= 1
                future.set_result(None)

    async def _enter(self, tenant: str, timeout_s: float) -> None:
        if self._free > 0 and self.waiting == 0 and self._room(0):
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
            self._give_up(tenant, future)
            raise self._late(timeout_s) from error
        except BaseException:
            self._give_up(tenant, future)
            raise

    def _give_up(self, tenant: str, future: asyncio.Future[None]) -> None:
        """Leave the line; a place that was given in the same moment goes to the next."""
        queue = self._waiting.get(tenant)
        if queue is not None and future in queue:
            queue.remove(future)
            self.waiting -= 1
            if not queue:
                del self._waiting[tenant]
        elif not future.cancelled():
            self._free += 1
        self.freed()

    def _late(self, timeout_s: float) -> TalonError:
        if self._room(self.waiting):
            return TalonError("queue_timeout", f"no place became free within {timeout_s:g} s", retry_after_s=2)
        said = f"this server holds as many sandboxes as it may, and none ended within {timeout_s:g} s"
        return TalonError("capacity_exhausted", said, retry_after_s=10)
