"""What differs between the two worlds: waiting, file work, callbacks, `create` as a context, default clients.

Hand-written here and, with the same names, in `_async`; everything else here is generated from there.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Lock = threading.Lock


def now() -> float:
    """Seconds of a clock that only goes forward."""
    return time.monotonic()


def sleep(seconds: float) -> None:
    """Wait."""
    threading.Event().wait(seconds)


def blocking(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do file work."""
    return call(*args, **kwargs)


def in_pieces(source: Iterator[bytes]) -> Iterator[bytes]:
    """Iterate over a generator that reads files."""
    return source


def notify(callback: Callable[[str], Any] | None, text: str) -> None:
    """Tell a callback."""
    if callback is not None:
        callback(text)


def pending(make: Callable[P, T]) -> Callable[P, T]:
    """The sandbox itself is the context manager; nothing is to be added."""
    return make


def gather(calls: list[Callable[[], T]]) -> list[T]:
    """Do several things at once, in threads."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=min(32, max(1, len(calls)))) as pool:
        return list(pool.map(lambda call: call(), calls))


class Defaults(Generic[T]):
    """Clients for calls that name none: one for each server and key, shared by all threads, closed at exit."""

    def __init__(self, make: Callable[..., T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._clients: dict[tuple[str, str], T] = {}
        atexit.register(self.close)

    def get(self, server: str, api_key: str) -> T:
        with self._lock:
            if (server, api_key) not in self._clients:
                client = self._make(server, api_key)
                client.retain()  # type: ignore[attr-defined]
                self._clients[server, api_key] = client
            return self._clients[server, api_key]

    def close(self) -> None:
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()  # type: ignore[attr-defined]
