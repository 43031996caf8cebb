"""Work that is given up when something else happens first, such as its client hanging up."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Interrupted(Exception):
    """The other thing came first; the work was cancelled and has ended."""


async def unless(happens: Coroutine[Any, Any, object], work: Coroutine[Any, Any, T]) -> T:
    """What `work` gives. When `happens` ends first, `work` is cancelled and awaited. Raises Interrupted then."""
    loop = asyncio.get_running_loop()
    job, alarm = loop.create_task(work), loop.create_task(happens)
    try:
        await asyncio.wait((job, alarm), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (job, alarm):
            task.cancel()
        await asyncio.wait((job, alarm))
        if not alarm.cancelled():
            alarm.exception()
    if job.cancelled():
        raise Interrupted
    return job.result()
