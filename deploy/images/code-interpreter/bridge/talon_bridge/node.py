"""JavaScript and TypeScript as kernels: a node process whose main thread runs the cells, asked by its inspector.

The node side is javascript/kernel.mjs beside this package. What is not there: input() from the client.
"""

import asyncio
import json
import os
import socket
from pathlib import Path
from typing import Any

from .cell import MAX_RESULT_BYTES, Cell, Outcome, failure, too_large
from .kernel import Kernel, Place, Refused
from .pipes import Room

_PROGRAM = Path(__file__).parent.parent.parent / "javascript" / "kernel.mjs"
_NODE = os.environ.get("TALON_CODE_NODE", "node")


class NodeKernel(Kernel):
    """One node process."""

    def __init__(self, place: Place, room: Room, tasks: asyncio.TaskGroup, typescript: bool) -> None:
        super().__init__(place, room, tasks)
        self._typescript = typescript
        self._count = 0

    async def start(self) -> None:
        ours, theirs = socket.socketpair()
        env = {**self.place.env, "TALON_KERNEL_FD": str(theirs.fileno())}
        self.place = Place(self.place.cwd, env)
        self.spawn([_NODE, "--no-warnings", str(_PROGRAM)], [theirs.fileno()])
        theirs.close()
        self._said, self._control = await asyncio.open_unix_connection(sock=ours, limit=MAX_RESULT_BYTES)
        try:
            line = await asyncio.wait_for(self._said.readline(), 60)
        except TimeoutError:
            line = b""
        if not line:
            raise Refused(500, "kernel_failed", "node did not start", "check that node works in this image")

    async def run(self, cell: Cell) -> Outcome:
        self._count += 1
        self.pipes.begin(cell)
        order = {"op": "run", "code": cell.code, "count": self._count, "typescript": self._typescript}
        self._control.write(json.dumps(order).encode() + b"\n")
        error: dict[str, Any] | None = None
        try:
            while True:
                told = await self._next()
                if told is None:
                    error = too_large(MAX_RESULT_BYTES)
                    continue
                await self.pipes.drain()
                if "data" in told:
                    cell.emit("result", {"execution_count": self._count, **told})
                if "done" in told:
                    return Outcome(self._count, told.get("error") or error)
        finally:
            self.pipes.finish()

    async def _next(self) -> dict[str, Any] | None:
        """What it says next; None for a line that is too long, which is passed over."""
        try:
            line = await self._said.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            status = await self.ended
            return {"done": True, "error": failure("KernelDied", f"node ended with {status}")}
        except asyncio.LimitOverrunError as over:
            await self._said.readexactly(over.consumed)
            await self._skip()
            return None
        return dict(json.loads(line))

    async def _skip(self) -> None:
        while True:
            try:
                await self._said.readuntil(b"\n")
                return
            except asyncio.LimitOverrunError as over:
                await self._said.readexactly(over.consumed)

    def interrupt(self) -> None:
        self._control.write(b'{"op":"interrupt"}\n')
        super().interrupt()

    async def close(self) -> None:
        await super().close()
        self._control.close()
