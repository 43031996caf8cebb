"""A task that lives exactly as long as a block, whose end it never delays or disguises.

Unlike a TaskGroup it does not wrap the block's exception in a group, so callers can catch it by type.
"""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any


class Companion:
    """`async with Companion(work()):` runs `work()` beside the block and cancels it when the block ends."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = self._task
        assert task is not None
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
        if not task.cancelled() and (failure := task.exception()) is not None and error is None:
            raise failure
