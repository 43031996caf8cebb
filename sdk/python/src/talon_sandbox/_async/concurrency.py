"""What differs between the two worlds: waiting, file work, callbacks, `create` as a context, default clients.

Hand-written here and, with the same names, in `_sync`; everything else there is generated.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from functools import wraps
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="_Context")
Lock = asyncio.Lock


class _Context(Protocol):
    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, *exc: Any) -> None: ...


def now() -> float:
    """Seconds of a clock that only goes forward."""
    return time.monotonic()


async def sleep(seconds: float) -> None:
    """Wait."""
    await asyncio.sleep(seconds)


async def blocking(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do file work without holding up the event loop."""
    return await asyncio.to_thread(call, *args, **kwargs)


async def in_pieces(source: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Iterate over a generator that reads files, off the event loop."""
    while (piece := await asyncio.to_thread(next, source, None)) is not None:
        yield piece


async def notify(callback: Callable[[str], Any] | None, text: str) -> None:
    """Tell a callback, which may be a coroutine function."""
    if callback is not None:
        told = callback(text)
        if inspect.isawaitable(told):
            await told


class Pending(Generic[S]):
    """A sandbox on its way: await it to have it, or enter it with `async with` to have it destroyed at the end."""

    def __init__(self, making: Coroutine[Any, Any, S]) -> None:
        self._making = making
        self._made: S | None = None

    def __await__(self) -> Generator[Any, None, S]:
        return self._making.__await__()

    async def __aenter__(self) -> S:
        self._made = await self._making
        await self._made.__aenter__()
        return self._made

    async def __aexit__(self, *exc: Any) -> None:
        if self._made is not None:
            await self._made.__aexit__(*exc)


def pending(make: Callable[P, Coroutine[Any, Any, S]]) -> Callable[P, Pending[S]]:
    """Let the result of a coroutine function be awaited or entered."""

    @wraps(make)
    def start(*args: P.args, **kwargs: P.kwargs) -> Pending[S]:
        return Pending(make(*args, **kwargs))

    return start


async def gather(calls: list[Callable[[], Awaitable[T]]]) -> list[T]:
    """Do several things at once."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_of(call)) for call in calls]
    return [task.result() for task in tasks]


async def _of(call: Callable[[], Awaitable[T]]) -> T:
    return await call()


class Defaults(Generic[T]):
    """Clients for calls that name none: a new one each time, closed with the sandbox it was made for."""

    def __init__(self, make: Callable[..., T]) -> None:
        self._make = make

    def get(self, server: str, api_key: str) -> T:
        return self._make(server, api_key)
