"""One execution: where a kernel puts what it says, and where the answers to input() come from.

Made by `contexts`, filled by the kernels. Invariant: events are in the order in which the kernel made them, and a client
that does not read holds its kernel back, not the bridge's memory.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Emit = Callable[[str, dict[str, Any]], None]
MAX_RESULT_BYTES = 32 << 20


@dataclass(frozen=True)
class Outcome:
    """How a cell ended: `error` is None when well."""

    count: int | None = None
    error: dict[str, Any] | None = None


def failure(name: str, value: str, traceback: list[str] | None = None) -> dict[str, Any]:
    """An error as the API tells it."""
    return {"name": name, "value": value, "traceback": traceback or []}


def too_large(size: int) -> dict[str, Any]:
    words = (
        f"a result of {size >> 20} MiB is more than the {MAX_RESULT_BYTES >> 20} MiB that are sent; "
        "write it to a file and read that"
    )
    return failure("ResultTooLarge", words)


@dataclass
class Cell:
    """The running execution of a context."""

    code: str
    emit: Emit
    stdin: bool
    answers: asyncio.Queue[str] = field(default_factory=lambda: asyncio.Queue(1))
    asking: bool = False
    open: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.open.set()

    async def ask(self, prompt: str, password: bool) -> str:
        """The client's answer."""
        self.emit("input_request", {"prompt": prompt, "password": password})
        self.asking = True
        try:
            return await self.answers.get()
        finally:
            self.asking = False
