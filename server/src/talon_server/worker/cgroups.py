"""One sandbox's control groups: limits, freezing and descriptors, on cgroup v1, hybrid and v2 hosts alike.

The runtime made the groups; here they are found from the first process and written to. Source: the kernel's
Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from talon_server.errors import TalonError
from talon_server.model.sandbox import Resources

CPU_PERIOD_US = 100_000
_CONTROLLERS = ("memory", "cpu", "cpuacct", "pids", "freezer")


@cache
def hierarchies() -> Mapping[str, Path]:
    """Where each v1 controller is mounted, and `unified` when v2 carries the memory controller."""
    found: dict[str, Path] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        place = Path(fields.split(" ")[4])
        if kind == "cgroup2" and "memory" in (place / "cgroup.controllers").read_text().split():
            found["unified"] = place
        elif kind == "cgroup":
            found.update({name: place for name in options.split(" ")[-1].split(",") if name in _CONTROLLERS})
    return found


@cache
def mounts() -> tuple[Path, ...]:
    """Every hierarchy, those without a controller of ours too: the runtime makes groups in all."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    kinds = [(line.split(" ")[4], line.partition(" - ")[2].split(" ")[0]) for line in lines]
    return tuple(Path(place) for place, kind in kinds if kind in ("cgroup", "cgroup2"))


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The directories of one sandbox by controller (`unified` alone on v2), and its name below each mount."""

    name: str
    places: Mapping[str, Path]

    @classmethod
    def of(cls, name: str) -> "Cgroup":
        """The group `name` ("/a/b") in every hierarchy."""
        name = name.lstrip("/")
        return cls(name, {kind: place / name for kind, place in hierarchies().items()})

    def limit(self, resources: Resources) -> None:
        """Write the limits; zero leaves one as it is. Raises create_failed naming the file that refused."""
        for file, value in self._limits(resources):
            _write(file, value)

    def _limits(self, resources: Resources) -> list[tuple[Path, str]]:
        quota = str(max(1000, int(resources.cpu * CPU_PERIOD_US)))
        memory, pids = str(resources.memory_bytes), str(resources.pids)
        wanted: list[tuple[bool, str, str, str]]
        if "unified" in self.places:
            wanted = [
                (resources.memory_bytes > 0, "unified", "memory.max", memory),
                (resources.memory_bytes > 0, "unified", "memory.swap.max", "0"),
                (resources.cpu > 0, "unified", "cpu.max", f"{quota} {CPU_PERIOD_US}"),
                (resources.pids > 0, "unified", "pids.max", pids),
            ]
        else:
            wanted = [
                (resources.memory_bytes > 0, "memory", "memory.limit_in_bytes", memory),
                (resources.cpu > 0, "cpu", "cpu.cfs_quota_us", quota),
                (resources.pids > 0, "pids", "pids.max", pids),
            ]
        given = [(self.places[kind] / file, value) for on, kind, file, value in wanted if on and kind in self.places]
        return [(file, value) for file, value in given if file.name != "memory.swap.max" or file.exists()]

    async def freeze(self, on: bool, *, timeout_s: float = 10.0) -> None:
        """Freeze or thaw all processes; returns once they are. Raises runtime_failed when it takes too long."""
        if "unified" in self.places:
            file, wanted = self.places["unified"] / "cgroup.freeze", "1" if on else "0"
            done = self.places["unified"] / "cgroup.events", f"frozen {wanted}"
        else:
            file, wanted = self.places["freezer"] / "freezer.state", "FROZEN" if on else "THAWED"
            done = file, wanted
        _write(file, wanted)
        try:
            async with asyncio.timeout(timeout_s):
                while done[1] not in done[0].read_text():
                    await asyncio.sleep(0.0005)
        except TimeoutError as error:
            _write(file, "0" if "unified" in self.places else "THAWED")
            raise TalonError("runtime_failed", "the sandbox could not be paused in time") from error

    def thaw(self) -> None:
        """Let all processes go on; they do within microseconds."""
        if "unified" in self.places:
            _write(self.places["unified"] / "cgroup.freeze", "0")
        else:
            _write(self.places["freezer"] / "freezer.state", "THAWED")

    def frozen(self) -> bool:
        """Is it frozen now?"""
        if "unified" in self.places:
            return "frozen 1" in (self.places["unified"] / "cgroup.events").read_text()
        return "FROZEN" in (self.places["freezer"] / "freezer.state").read_text()

    def killed_for_memory(self) -> bool:
        """Was a process killed because the memory limit was reached?"""
        name = "memory.events" if "unified" in self.places else "memory.oom_control"
        place = self.places.get("unified") or self.places.get("memory")
        try:
            lines = (place / name).read_text().splitlines() if place else []
        except OSError:
            return False
        return any(line.startswith("oom_kill ") and line.split()[1] != "0" for line in lines)

    def descriptors(self) -> dict[str, int]:
        """Directory descriptors for the agent by the names it knows; the caller closes them."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        return {f"cgroup.{kind}": os.open(place, flags) for kind, place in self.places.items() if kind != "freezer"}

    def kill(self) -> None:
        """Kill every process in the groups, those that are being started too."""
        for place in mounts():
            try:
                pids = [int(line) for line in (place / self.name / "cgroup.procs").read_text().split()]
            except OSError:
                continue
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def remove(self) -> bool:
        """Remove the directories, with those below them; False when something still lives in one."""
        gone = [_remove(place / self.name) for place in mounts()]
        return all(gone)


def _remove(place: Path) -> bool:
    try:
        place.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        for child in [child for child in place.iterdir() if child.is_dir()]:
            _remove(child)
        try:
            place.rmdir()
        except OSError:
            return False
    return True


def _write(file: Path, value: str) -> None:
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, value.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        raise TalonError("create_failed", cause=f"{file.name}: {error.strerror}") from error
