"""Shells: containers already started, waiting on an empty root for a sandbox to be claimed into them.

`ShellPool` keeps some ready, so that a create only has to claim one; an empty pool starts one on the spot, by the same
path. A shell is used once. Its directory `<home>/run/shells/<id>` holds the bundle, the two sockets its agent
listens on, its log and, once claimed, `claim.json`. Called by `worker.host`.
"""

import asyncio
import logging
import os
import secrets
import select
import shutil
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from talon_server.errors import TalonError
from talon_server.lib.tasks import Tasks
from talon_server.runtimes.oci import Runner, Runtime, ShellSpec
from talon_server.worker.cgroups import Cgroup
from talon_server.worker.claims import FILE, Claim
from talon_server.worker.link import ask, listen
from talon_server.worker.slots import Slot, Slots
from talon_server.worker.walls import Walls

log = logging.getLogger(__name__)

CALM_S = 0.02
"""How long after a create or an end the work in the background waits."""
_CALM_AT_MOST_S = 0.2
_LONGEST_ROOT = 75
_EMPTY_S = 5.0
_NEVER = threading.Event()


@dataclass(slots=True, eq=False)
class Shell:
    """One started shell. Its first process ends last, so `ended` tells that nothing of it runs any more."""

    id: str
    slot: Slot
    directory: Path
    pid: int
    pidfd: int
    cgroup: Cgroup
    claim: Claim | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    on_end: Callable[[], None] | None = None

    def watch(self) -> "Shell":
        """Have `ended` set and `on_end` called when the first process ends."""
        asyncio.get_running_loop().add_reader(self.pidfd, self._end)
        return self

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self.pidfd)
        self.ended.set()
        if self.on_end is not None:
            self.on_end()

    @property
    def agent_socket(self) -> Path:
        return self.directory / "agent.sock"

    @property
    def control_socket(self) -> Path:
        return self.directory / "control.sock"

    def last_words(self) -> str:
        """Why the first process ended, as the agent said it last; empty when it could not."""
        try:
            said = (self.directory / "agent.log").read_bytes()[-4096:].decode(errors="replace").splitlines()
        except OSError:
            said = []
        return next((line for line in reversed(said) if " exited with code " in line), "")

    def save(self, claim: Claim) -> None:
        """Write down whose shell this is now, for the next server."""
        self.claim = claim
        claim.save(self.directory)

    @property
    def alive(self) -> bool:
        return not self.ended.is_set() and not _readable(self.pidfd)

    def close(self) -> None:
        """Let go of it; it lives on if it lives."""
        if self.pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self.pidfd)
            os.close(self.pidfd)
            self.pidfd = -1


class Shells:
    """How shells are started, found again and ended."""

    def __init__(self, run: Path, runtime: Runtime, runner: Runner, slots: Slots, walls: Walls, tasks: Tasks) -> None:
        self._run = run
        self._runner = runner
        self._tasks = tasks
        self._runtime = runtime
        self._slots = slots
        self._walls = walls

    @property
    def directory(self) -> Path:
        return self._run / "shells"

    @property
    def cgroup(self) -> str:
        """The group that holds those of all shells."""
        return f"/talon-{self._slots.plan.instance}"

    def prepare(self) -> None:
        """Make the directories and the root that every shell starts on."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        root = self._run / "shell-root"
        for name in ("newroot", "proc", "dev", "sys", "tmp"):
            (root / name).mkdir(parents=True, exist_ok=True)
        target = root / "agent"
        if not target.exists() or target.read_bytes() != self._runtime.agent.read_bytes():
            part = root / ".agent"
            shutil.copy(self._runtime.agent, part)
            part.chmod(0o755)
            part.rename(target)
        for place, mode in ((self._run.parent, 0o711), (self._run, 0o711), (root, 0o755)):
            place.chmod(mode)
        _check_reachable(root)

    async def start(self) -> Shell:
        """A new shell whose agent listens. On error nothing is left of it."""
        while (slot := self._slots.take()) is None:
            await self._tasks.whole("make a slot", self._make_slot())
        try:
            return await self._start(slot)
        except TalonError:
            self._tasks.start(f"discard slot {slot.number}", self._slots.discard(slot))
            raise
        except BaseException:
            self._slots.give(slot)
            raise

    async def reserve(self, count: int) -> bool:
        """Make one slot more when fewer than `count` are free; False when there is nothing to do."""
        if self._slots.free >= count or self._slots.exhausted:
            return False
        await self._tasks.whole("make a slot", self._make_slot())
        return True

    async def _make_slot(self) -> None:
        slot = await self._slots.make()
        self._walls.add(slot)
        self._slots.give(slot)

    async def _start(self, slot: Slot) -> Shell:
        id = f"s{slot.number}-{secrets.token_hex(4)}"
        directory = self.directory / id
        cgroup = f"{self.cgroup}/{id}"
        spec = ShellSpec(id, directory, slot.uid, slot.uid, slot.netns, cgroup)
        self._runtime.write_bundle(spec, self._run / "shell-root")
        try:
            with (
                listen(directory / "agent.sock", socket.SOCK_STREAM) as agent,
                listen(directory / "control.sock", socket.SOCK_SEQPACKET) as control,
                (directory / "agent.log").open("ab") as output,
            ):
                sockets = (agent.fileno(), control.fileno())
                starting = self._runtime.start(spec, self._runner, sockets, output.fileno())
                pid = await self._tasks.whole(f"start {id}", starting)
        except BaseException:
            await self._runtime.delete(id)
            Cgroup.of(cgroup).remove()
            shutil.rmtree(directory, ignore_errors=True)
            raise
        return Shell(id, slot, directory, pid, os.pidfd_open(pid), Cgroup.of(cgroup)).watch()

    def found(self) -> Iterator[Shell]:
        """The shells that an earlier server left and that still live."""
        for directory in sorted(self.directory.iterdir()):
            number = directory.name[1:].split("-")[0]
            try:
                pid = int((directory / "pid").read_text())
                pidfd = os.pidfd_open(pid)
            except (OSError, ValueError):
                continue
            cgroup = f"{self.cgroup}/{directory.name}"
            if not _in_cgroup(pid, cgroup):
                os.close(pidfd)
                continue
            claim = Claim.load(directory)
            slot = self._slots.plan.slot(int(number))
            yield Shell(directory.name, slot, directory, pid, pidfd, Cgroup.of(cgroup), claim).watch()

    async def end(self, shell: Shell) -> None:
        """Kill a shell and wait for the end of its first process; the rest is `sweep`'s."""
        try:
            signal.pidfd_send_signal(shell.pidfd, signal.SIGKILL)
        except ProcessLookupError:
            return
        if shell.cgroup.frozen():
            await shell.cgroup.freeze(False)
        await shell.ended.wait()

    async def sweep(self, shell: Shell) -> None:
        """Remove what is left of an ended shell and take its slot back; not at once, so that nobody waits for it."""
        await asyncio.sleep(CALM_S)
        shell.close()
        self._runtime.forget(shell.id)
        await asyncio.to_thread(_clear, shell.cgroup, shell.directory)
        self._walls.reset(shell.slot)
        self._slots.give(shell.slot)

    async def sweep_strays(self, living: set[str]) -> None:
        """Remove every directory and runtime entry of a shell that lives no more, or that was never finished."""
        names = {entry.name for entry in self.directory.iterdir()} | set(self._runtime.known())
        await asyncio.to_thread(self._clear_strays, sorted(names - living))

    def _clear_strays(self, names: list[str]) -> None:
        for name in names:
            cgroup = Cgroup.of(f"{self.cgroup}/{name}")
            cgroup.kill()
            _clear(cgroup, self.directory / name)
            self._runtime.forget(name)


class ShellPool:
    """Ready shells. `target` is how many to keep; demand of the last minute raises it up to `maximum`."""

    def __init__(self, shells: Shells, tasks: Tasks, minimum: int, maximum: int) -> None:
        self._shells = shells
        self._tasks = tasks
        self._minimum = minimum
        self._maximum = maximum
        self._ready: deque[Shell] = deque()
        self._takes: deque[float] = deque(maxlen=1024)
        self._wanted = asyncio.Event()
        self._filling: asyncio.Task[None] | None = None
        self.misses = 0

    @property
    def level(self) -> int:
        return len(self._ready)

    @property
    def target(self) -> int:
        """Enough for what one second of the last ten took, within the bounds."""
        now = time.monotonic()
        recent = sum(1 for at in self._takes if now - at < 10)
        return max(self._minimum, min(self._maximum, recent // 4))

    def open(self) -> None:
        """Begin to fill."""
        self._filling = self._tasks.start("shell pool", self._fill())

    async def take(self) -> tuple[Shell, bool]:
        """A shell, and whether it was ready."""
        self._takes.append(time.monotonic())
        self._wanted.set()
        while self._ready:
            shell = self._ready.popleft()
            if shell.alive:
                return shell, True
            await self._shells.sweep(shell)
        self.misses += 1
        return await self._shells.start(), False

    async def _fill(self) -> None:
        failures = 0
        while True:
            full = len(self._ready) >= self.target
            await self._calm()
            try:
                if full:
                    if not await self._shells.reserve(self._maximum):
                        self._wanted.clear()
                        await self._wanted.wait()
                    continue
                shell = await self._start_answering()
            except TalonError as error:
                failures += 1
                log.warning("the shell pool could not be filled: %s", error)
                await asyncio.sleep(min(30.0, 0.2 * 2**failures))
                continue
            failures = 0
            self._ready.append(shell)

    async def _start_answering(self) -> Shell:
        shell = await self._shells.start()
        try:
            await ask(shell.control_socket, {"op": "ping"})
        except BaseException:
            await self._shells.end(shell)
            self._tasks.start(f"sweep {shell.id}", self._shells.sweep(shell))
            raise
        return shell

    async def _calm(self) -> None:
        """Let a create and its first command go first: a start takes a core for milliseconds. Not when shells run out."""
        latest = time.monotonic() + _CALM_AT_MOST_S
        while self._takes and len(self._ready) > self.target // 4:
            now = time.monotonic()
            until = min(self._takes[-1] + CALM_S, latest)
            if now >= until:
                return
            await asyncio.sleep(until - now)

    async def drain(self) -> None:
        """End the shells nobody claimed."""
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.wait([self._filling])
        while self._ready:
            shell = self._ready.popleft()
            await self._shells.end(shell)
            await self._shells.sweep(shell)


def _clear(cgroup: Cgroup, directory: Path) -> None:
    """Remove groups, which may take a moment to be empty, and a directory; in a thread, it is a hundred calls."""
    deadline = time.monotonic() + _EMPTY_S
    while not cgroup.remove() and time.monotonic() < deadline:
        cgroup.kill()
        _NEVER.wait(0.01)
    shutil.rmtree(directory, ignore_errors=True)


def occupied(shells: Path) -> bool:
    """Does a sandbox of an earlier server run in one of these directories?"""
    pids = [file.with_name("pid") for file in shells.glob(f"*/{FILE}")]
    return any(Path("/proc", pid.read_text().strip()).exists() for pid in pids if pid.exists())


def _check_reachable(root: Path) -> None:
    """The runtime opens the root as the sandbox's own user, who owns nothing of the host."""
    for place in root.parents:
        if not place.stat().st_mode & 0o001:
            remedy = f"Run chmod o+x {place}, or choose another home."
            raise TalonError("host_unsuitable", f"{place} cannot be passed by other users", remedy=remedy)
    if len(str(root)) > _LONGEST_ROOT:
        remedy = "Choose a home with a shorter path."
        raise TalonError("host_unsuitable", f"{root} is too long for the sockets beside it", remedy=remedy)


def _readable(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _in_cgroup(pid: int, cgroup: str) -> bool:
    try:
        return cgroup in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False
