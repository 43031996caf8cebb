"""Named background tasks with an owner: the only place that calls `create_task`.

An owner (`async with Tasks("worker") as tasks`) cancels and awaits what is left when it ends. A task that fails is
logged with its name, and never silently lost.
"""

import asyncio
import logging
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)


class Tasks:
    """A set of running tasks."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `work` in the background under `name`."""
        task = asyncio.get_running_loop().create_task(work, name=f"{self._owner}: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def whole(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end even when the caller is cancelled meanwhile; the cancellation is raised after it."""
        task: asyncio.Task[T] = self.start(name, work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            raise

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task %s failed", task.get_name(), exc_info=error)

    async def close(self) -> None:
        """Cancel what still runs and wait for its end."""
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def drain(self) -> None:
        """Wait for the end of what runs, without cancelling."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    async def __aenter__(self) -> "Tasks":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
