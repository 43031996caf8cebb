"""What every kernel has: a process, its output, its end. Languages are in `jupyter`, `shell` and `node`.

Used by `contexts`. Invariant: a kernel is a process group of its own, so that what it starts is signalled with it.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .cell import Cell, Outcome
from .pipes import Pipes, Room


class Refused(Exception):
    """What cannot be done, as the agent tells it: a status, a code of the API, words and what to do next."""

    def __init__(self, status: int, code: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.told = {"status": status, "code": code, "message": message, "remedy": remedy}


@dataclass(frozen=True)
class Place:
    """Where a kernel runs."""

    cwd: str
    env: Mapping[str, str]


class Kernel:
    """A process that runs cells. Subclasses start it, and run a cell."""

    #: A signal interrupts a cell.
    signals = True

    def __init__(self, place: Place, room: Room, tasks: asyncio.TaskGroup) -> None:
        self.place = place
        self.pipes = Pipes(room)
        self.pid = 0
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._tasks = tasks

    async def start(self) -> None:
        raise NotImplementedError

    async def run(self, cell: Cell) -> Outcome:
        raise NotImplementedError

    def watch(self) -> None:
        """The process runs: read its output."""
        self.pipes.started()
        for pipe in self.pipes.both:
            self._tasks.create_task(pipe.pump())

    def interrupt(self) -> None:
        self.signal(signal.SIGINT)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Of the kernel and what it started."""
        if self.pid and not self.ended.done():
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                pass

    def note_end(self, status: int) -> None:
        """`status` as subprocess has it: negative for a signal."""
        if not self.ended.done():
            self.ended.set_result(status)

    async def close(self) -> None:
        """End it and give back what it had."""
        self.kill()
        if self.pid:
            await asyncio.wait([self.ended], timeout=10)
        self.pipes.close()

    def spawn(self, argv: Sequence[str], fds: Sequence[int] = (), stdin: int = subprocess.DEVNULL) -> None:
        """Start a program as the kernel."""
        try:
            process = subprocess.Popen(
                argv,
                stdin=stdin,
                stdout=self.pipes.theirs[0],
                stderr=self.pipes.theirs[1],
                cwd=self.place.cwd,
                env=dict(self.place.env),
                pass_fds=fds,
                start_new_session=True,
            )
        except OSError as error:
            raise Refused(400, "kernel_failed", f"cannot start {argv[0]}: {error}", "check the context's cwd") from None
        self.pid = process.pid
        make_expendable(self.pid)
        self.watch()
        self._tasks.create_task(self._wait(process))

    async def _wait(self, process: "subprocess.Popen[bytes]") -> None:
        loop = asyncio.get_running_loop()
        fd = os.pidfd_open(process.pid)
        ready = loop.create_future()
        loop.add_reader(fd, lambda: ready.done() or ready.set_result(None))
        try:
            await ready
        finally:
            loop.remove_reader(fd)
            os.close(fd)
        self.note_end(process.wait())


def make_expendable(pid: int) -> None:
    """When memory runs out a kernel goes, not the bridge that tells of it."""
    try:
        with open(f"/proc/{pid}/oom_score_adj", "w") as file:
            file.write("500")
    except OSError:
        pass
