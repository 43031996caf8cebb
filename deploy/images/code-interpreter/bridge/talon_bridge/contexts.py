"""Contexts: a language, a kernel that keeps its variables, one execution at a time.

Used by `link`. Invariants: an execution ends with one `complete` or `error` event, also when its kernel dies, runs into its
timeout or is taken away; a context whose kernel ended says why, and runs nothing until it is restarted.
"""

import asyncio
import os
import time
from dataclasses import dataclass, field
from typing import Any

from .cell import Cell, Emit, Outcome, failure
from .jupyter import InstalledKernel, PythonKernel, installed
from .kernel import Kernel, Place, Refused
from .node import NodeKernel
from .parents import Parents
from .pipes import Room
from .shell import BashKernel

_NAMES = {
    "python": "python",
    "python3": "python",
    "py": "python",
    "javascript": "javascript",
    "js": "javascript",
    "node": "javascript",
    "typescript": "typescript",
    "ts": "typescript",
    "bash": "bash",
    "shell": "bash",
    "sh": "bash",
}
#: After the interrupt of a timeout or a leaving client: what does not heed it is killed.
_HEED_S = 5.0
MAX_CONTEXTS = 256


@dataclass(frozen=True)
class Surroundings:
    """What all contexts share."""

    parents: Parents
    tasks: asyncio.TaskGroup
    room: Room


def language(name: str) -> str:
    """The language a client means. Raises Refused."""
    known = _NAMES.get(name.lower(), name.lower())
    if known in _NAMES.values() or installed(known) is not None:
        return known
    have = ", ".join(sorted(set(_NAMES.values())))
    words = f"there is no kernel for {name!r} in this sandbox; there are {have}"
    raise Refused(400, "unsupported_language", words, "use one of these, or install a Jupyter kernel for it")


@dataclass
class Context:
    """One context. `state`: starting, idle, busy, stopped (on purpose), dead."""

    id: str
    language: str
    place: Place
    idle_timeout_s: float
    around: Surroundings
    state: str = "starting"
    reason: str = ""
    executions: int = 0
    created_at: float = field(default_factory=time.time)
    used_at: float = field(default_factory=time.monotonic)
    cell: Cell | None = None
    _kernel: Kernel | None = None

    async def start(self) -> None:
        """A fresh kernel. Raises Refused."""
        if not os.path.isdir(self.place.cwd):
            raise Refused(400, "invalid_working_directory", f"no directory {self.place.cwd}", "create it first")
        self.state, self.reason, self.executions = "starting", "", 0
        kernel = self._make()
        self._kernel = kernel
        try:
            await kernel.start()
        except BaseException as error:
            self.state, self.reason = "dead", str(error)
            await kernel.close()
            raise
        self.state = "idle"
        self.used_at = time.monotonic()
        kernel.ended.add_done_callback(lambda ended: self._note_end(kernel, ended.result()))

    def _make(self) -> Kernel:
        room, tasks = self.around.room, self.around.tasks
        if self.language == "python":
            return PythonKernel(self.place, room, tasks, self.around.parents)
        if self.language == "bash":
            return BashKernel(self.place, room, tasks)
        if self.language in ("javascript", "typescript"):
            return NodeKernel(self.place, room, tasks, self.language == "typescript")
        spec = installed(self.language)
        if spec is None:
            raise Refused(400, "unsupported_language", f"no kernel for {self.language}", "install one")
        return InstalledKernel(self.place, room, tasks, spec)

    def _note_end(self, kernel: Kernel, status: int) -> None:
        if kernel is self._kernel and self.state not in ("stopped", "dead"):
            self.state, self.reason = "dead", _ending(status)

    def begin(self, code: str, stdin: bool, emit: Emit) -> Cell:
        """Take the context for an execution. Raises Refused."""
        if self.cell is not None or self.state == "starting":
            raise Refused(409, "context_busy", "session is busy", "wait for its execution to end, or interrupt it")
        if self.state != "idle":
            words = f"the context's kernel has ended: {self.reason}"
            raise Refused(409, "context_stopped", words, "restart the context; its variables are gone")
        self.cell = Cell(code, emit, stdin)
        self.state = "busy"
        return self.cell

    async def execute(self, cell: Cell, timeout_s: float | None) -> None:
        """Run what `begin` took."""
        kernel, began = self._kernel, time.monotonic()
        assert kernel is not None
        run = asyncio.get_running_loop().create_task(kernel.run(cell))
        late = not await _first(run, kernel.ended, timeout_s)
        if late:
            kernel.interrupt()
            if not await _first(run, kernel.ended, _HEED_S):
                kernel.kill()
                await asyncio.wait([kernel.ended], timeout=_HEED_S)
        outcome = await self._settle(run, kernel)
        if late:
            words = f"the cell ran longer than its timeout of {timeout_s:g} s"
            outcome = Outcome(outcome.count, failure("TimeoutError", words, [words]))
        self._finish(cell, outcome, time.monotonic() - began)

    async def _settle(self, run: "asyncio.Task[Outcome]", kernel: Kernel) -> Outcome:
        """The outcome, also of a kernel that has died."""
        if not run.done():
            # Its last words may still be on their way.
            await asyncio.wait([run], timeout=0.2)
        if run.done() and not run.cancelled() and run.exception() is None and not kernel.ended.done():
            return run.result()
        dead = kernel.ended.done()
        await kernel.pipes.drain()
        run.cancel()
        await asyncio.wait([run])
        words = self.reason if dead else f"the bridge failed: {run.exception() if not run.cancelled() else 'ended'}"
        return Outcome(None, failure("KernelDied", words, [words]))

    def _finish(self, cell: Cell, outcome: Outcome, took_s: float) -> None:
        self.executions = outcome.count or self.executions
        self.cell = None
        self.used_at = time.monotonic()
        if self.state == "busy":
            self.state = "idle"
        end = {"execution_count": outcome.count, "duration_s": round(took_s, 6)}
        if outcome.error is None:
            cell.emit("complete", end)
        else:
            cell.emit("error", {**outcome.error, **end})

    def interrupt(self) -> bool:
        """Interrupt the running cell; whether there was one."""
        if self.cell is None or self._kernel is None:
            return False
        self._kernel.interrupt()
        return True

    async def abandon(self, cell: Cell) -> None:
        """The client of an execution has left: interrupt it, and kill what does not heed that."""
        for _ in range(3):
            if self.cell is not cell or self._kernel is None:
                return
            cell.open.set()
            self._kernel.interrupt()
            for _ in range(20):
                await asyncio.sleep(_HEED_S / 60)
                if self.cell is not cell:
                    return
        if self.cell is cell and self._kernel is not None:
            self._kernel.kill()

    async def stop(self, reason: str) -> None:
        """End the kernel for a reason."""
        if self._kernel is not None and self.state != "dead":
            self.state, self.reason = "stopped", reason
        if self._kernel is not None:
            await self._kernel.close()

    async def restart(self) -> None:
        await self.stop("it was restarted")
        while self.cell is not None:
            await asyncio.sleep(0.01)
        await self.start()

    def idles(self) -> bool:
        """Its kernel has had nothing to do for too long."""
        quiet = time.monotonic() - self.used_at
        return self.state == "idle" and 0 < self.idle_timeout_s < quiet

    def told(self) -> dict[str, Any]:
        """As the API describes it."""
        pid = self._kernel.pid if self._kernel is not None and self.state in ("idle", "busy") else None
        memory = _memory(pid) if pid else (None, None)
        return {
            "id": self.id,
            "language": self.language,
            "cwd": self.place.cwd,
            "state": self.state,
            "reason": self.reason or None,
            "pid": pid,
            "memory_bytes": memory[0],
            "resident_bytes": memory[1],
            "executions": self.executions,
            "idle_timeout_s": self.idle_timeout_s,
            "created_at": self.created_at,
        }


async def _first(run: "asyncio.Task[Outcome]", ended: "asyncio.Future[int]", bound_s: float | None) -> bool:
    done, _ = await asyncio.wait([run, ended], timeout=bound_s, return_when=asyncio.FIRST_COMPLETED)
    return bool(done)


def _ending(status: int) -> str:
    if status == -9:
        return "the kernel was killed by signal 9, as happens when the sandbox runs out of memory"
    return f"the kernel was killed by signal {-status}" if status < 0 else f"the kernel exited with status {status}"


def _memory(pid: int) -> tuple[int | None, int | None]:
    """What only this process has, and all that it has in memory, in bytes."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            told = dict(line.split(":", 1) for line in file if ":" in line and "kB" in line)
    except OSError:
        return None, None
    size = {name: int(value.split()[0]) << 10 for name, value in told.items()}
    return size.get("Private_Clean", 0) + size.get("Private_Dirty", 0), size.get("Rss")
