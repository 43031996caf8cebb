"""What a kernel's process writes to its standard output and error, passed on while it is written.

Used by every kernel. Invariants: text is never cut inside a character; a reader that is slow makes the process wait; what
is written between two cells is kept, bounded, for the next.
"""

import asyncio
import codecs
import os
from collections import deque
from collections.abc import Awaitable, Callable

from .cell import Cell

_READ_BYTES = 64 << 10
_IDLE_PIECES = 4
#: More than a pipe holds: what is there when a cell ends is read, what a thread writes from then on is not waited for.
_DRAIN_BYTES = 128 << 10

Room = Callable[[], Awaitable[None]]


class Pipe:
    """One stream of a process."""

    def __init__(self, fd: int, name: str, room: Room) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._name = name
        self._room = room
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._idle: deque[str] = deque(maxlen=_IDLE_PIECES)
        self.cell: Cell | None = None

    def begin(self, cell: Cell) -> None:
        """From now on everything belongs to this cell."""
        self.cell = cell
        while self._idle:
            self._emit(self._idle.popleft())

    async def pump(self) -> None:
        """Read until the last writer has closed it."""
        while True:
            await self._readable()
            await self._wait_for_room()
            if self._take() == -1:
                return

    async def drain(self) -> None:
        """Read what is there now."""
        taken = 0
        while taken < _DRAIN_BYTES:
            await self._wait_for_room()
            count = self._take()
            if count <= 0:
                return
            taken += count

    def finish(self) -> None:
        """The cell has ended."""
        self._emit(self._decoder.decode(b"", True))
        self._decoder.reset()
        self.cell = None

    def idle_text(self) -> str:
        """What was written while no cell ran."""
        return "".join(self._idle)

    def forget(self) -> None:
        self._idle.clear()

    def close(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    async def _wait_for_room(self) -> None:
        await self._room()
        if self.cell is not None:
            await self.cell.open.wait()

    def _take(self) -> int:
        """Bytes read; 0 when there are none now, -1 at the end."""
        if self._fd < 0:
            return -1
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return 0
        self._emit(self._decoder.decode(data))
        return len(data) or -1

    def _emit(self, text: str) -> None:
        if not text:
            return
        if self.cell is None:
            self._idle.append(text)
        else:
            self.cell.emit(self._name, {"data": text})

    async def _readable(self) -> None:
        if self._fd < 0:
            return
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        loop.add_reader(self._fd, lambda: ready.done() or ready.set_result(None))
        try:
            await ready
        finally:
            if self._fd >= 0:
                loop.remove_reader(self._fd)


class Pipes:
    """Standard output and error of one process."""

    def __init__(self, room: Room) -> None:
        out, err = os.pipe(), os.pipe()
        self.theirs = (out[1], err[1])
        self.both = (Pipe(out[0], "stdout", room), Pipe(err[0], "stderr", room))

    def started(self) -> None:
        """The process has its ends now."""
        for fd in self.theirs:
            os.close(fd)

    def begin(self, cell: Cell) -> None:
        for pipe in self.both:
            pipe.begin(cell)

    async def drain(self) -> None:
        for pipe in self.both:
            await pipe.drain()

    def finish(self) -> None:
        for pipe in self.both:
            pipe.finish()

    def forget(self) -> None:
        """Drop what was written so far."""
        for pipe in self.both:
            pipe.forget()

    def close(self) -> None:
        for pipe in self.both:
            pipe.close()
