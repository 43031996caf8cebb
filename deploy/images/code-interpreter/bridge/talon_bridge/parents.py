"""The warmed parents of Python kernels: processes that have imported what kernels need, and fork one when asked.

There are two: one that is ready as soon as ipykernel is imported, and one that goes on to import the libraries the image
names in TALON_CODE_PRELOAD; it takes over when it has them. A parent is single-threaded Python and does nothing but fork,
so that a fork is safe. `make` is called before the bridge's event loop exists; the other side is `_Parent.serve`.
"""

import asyncio
import importlib
import json
import os
import select
import signal
import socket
import sys
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

from .kernel import Refused

_MAX = 1 << 20

Ended = Callable[[int], None]


def make(preload: list[str]) -> list[socket.socket]:
    """Fork the two parents; the sockets to them, the plain one first."""
    return [_fork_parent([]), _fork_parent(preload)] if preload else [_fork_parent([])]


def _fork_parent(preload: list[str]) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MAX)
    if os.fork() == 0:
        ours.close()
        _Parent(theirs).serve(preload)
    theirs.close()
    ours.setblocking(False)
    return ours


class _Parent:
    """The side that forks."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._names: dict[int, int] = {}

    def serve(self, preload: list[str]) -> NoReturn:
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 0)
        for name in preload:
            try:
                importlib.import_module(name)
            except ImportError:
                continue
        import gc

        gc.collect()
        gc.freeze()
        warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
        woken = self._wake_on_children()
        self._say({"ready": True})
        try:
            while True:
                readable, _, _ = select.select([self._link, woken], [], [])
                if woken in readable:
                    os.read(woken, 4096)
                    self._reap()
                if self._link in readable:
                    self._take()
        finally:
            os._exit(0)

    def _wake_on_children(self) -> int:
        read, write = os.pipe()
        os.set_blocking(read, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._wake = (read, write)
        return read

    def _say(self, told: dict[str, Any]) -> None:
        self._link.send(json.dumps(told).encode())

    def _reap(self) -> None:
        while self._names:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            order = self._names.pop(pid, None)
            if order is not None:
                self._say({"order": order, "ended": os.waitstatus_to_exitcode(status)})

    def _take(self) -> None:
        data, fds, _, _ = socket.recv_fds(self._link, _MAX, 2)
        if not data:
            os._exit(0)
        order = json.loads(data)
        pid = os.fork()
        if pid == 0:
            self._become(order, fds)
        for fd in fds:
            os.close(fd)
        self._names[pid] = order["order"]
        self._say({"order": order["order"], "pid": pid})

    def _become(self, order: dict[str, Any], fds: list[int]) -> NoReturn:
        """The child: a kernel from here on."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            for number, fd in enumerate(fds, start=1):
                os.dup2(fd, number)
            for fd in (*fds, self._link.detach(), *self._wake):
                os.close(fd)
            from . import python

            python.serve(order)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:
            import traceback

            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(code)


class Parents:
    """The bridge's side of them."""

    def __init__(self, sockets: list[socket.socket], tasks: asyncio.TaskGroup) -> None:
        self._sockets = sockets
        self._ready = [asyncio.Event() for _ in sockets]
        self._orders = 0
        self._pids: dict[int, asyncio.Future[int]] = {}
        self._ends: dict[int, Ended] = {}
        for number, link in enumerate(sockets):
            tasks.create_task(self._listen(number, link))

    async def fork(self, order: dict[str, Any], fds: tuple[int, int], ended: Ended) -> int:
        """A new kernel's process id. Raises Refused."""
        await self._ready[0].wait()
        number = max(number for number, ready in enumerate(self._ready) if ready.is_set())
        self._orders += 1
        name = self._orders
        self._pids[name] = asyncio.get_running_loop().create_future()
        self._ends[name] = ended
        try:
            socket.send_fds(self._sockets[number], [json.dumps({**order, "order": name}).encode()], list(fds))
            return await asyncio.wait_for(self._pids[name], 30)
        except (OSError, TimeoutError) as error:
            raise Refused(503, "kernel_failed", f"no Python kernel can start: {error}", "restart the sandbox") from None
        finally:
            del self._pids[name]

    async def _listen(self, number: int, link: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while data := await loop.sock_recv(link, _MAX):
            told = json.loads(data)
            if "ready" in told:
                self._ready[number].set()
            elif "pid" in told:
                waiting = self._pids.get(told["order"])
                if waiting is not None and not waiting.done():
                    waiting.set_result(told["pid"])
            else:
                self._ends.pop(told["order"])(told["ended"])
        self._ready[number].clear()
