"""Starts and ends shells through an OCI runtime (crun, else runc).

A shell is a container on an empty read-only root whose first process is the agent; what makes it a sandbox is done at
its claim. This module knows bundles, the runtime's command line and nothing else. Called by `worker.shells`.
Source: the OCI runtime specification 1.0.2 (config.json), crun(1), runc(8).
"""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from talon_server.errors import TalonError

ID_COUNT = 65536
FIRST_DESCRIPTOR = 3
PASSED = 2
"""The agent's listening sockets; the descriptor after them is the runtime's own: the user namespace to join."""
_CAPABILITIES = (
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "MKNOD",
    "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_ADMIN", "SYS_CHROOT",
)  # fmt: skip
_MASKED = (
    "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/latency_stats", "/proc/timer_list",
    "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/proc/kallsyms", "/proc/kpagecount", "/proc/kpageflags",
    "/proc/kpagecgroup", "/proc/config.gz", "/proc/interrupts", "/proc/iomem", "/proc/ioports", "/proc/modules",
    "/proc/slabinfo", "/proc/vmallocinfo", "/proc/sysvipc", "/proc/asound", "/proc/swaps", "/proc/partitions",
    "/proc/diskstats", "/proc/mdstat",
)  # fmt: skip
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
_CPU_FILES = ("/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/kernel/mm/transparent_hugepage")


class Runner(Protocol):
    """How a program is run on the host: with the first descriptor as its output and the others at 3 and up.

    `owner` (first host id, count) has a user namespace made that belongs to that id, passed as the last descriptor.
    Returns the program's exit status.
    """

    async def __call__(
        self, command: Sequence[str], descriptors: Sequence[int], owner: tuple[int, int] | None
    ) -> int: ...


@dataclass(frozen=True, slots=True)
class ShellSpec:
    """One shell: its bundle directory, host ids, network namespace and cgroup."""

    id: str
    bundle: Path
    uid: int
    gid: int
    netns: Path
    cgroup: str


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime program and its state directory. `name` is crun or runc."""

    name: str
    program: str
    version: str
    state: Path
    agent: Path

    async def start(self, spec: ShellSpec, run: Runner, descriptors: Sequence[int], log: int) -> int:
        """Start the shell with `descriptors` at 3 and up; returns its first process's pid. Raises runtime_failed."""
        pid_file = spec.bundle / "pid"
        command = [
            *(self.program, "--root", str(self.state), *self._cgroup_options()),
            *("run", "--detach", "--preserve-fds", str(len(descriptors))),
            *("--pid-file", str(pid_file), "--bundle", str(spec.bundle), spec.id),
        ]
        owner = (spec.uid, ID_COUNT) if self.joins_user_namespaces else None
        if await run(command, (log, *descriptors), owner) != 0:
            raise TalonError("runtime_failed", f"{self.name} could not start a sandbox", cause=_last_line(spec.bundle))
        return int(pid_file.read_text())

    @property
    def joins_user_namespaces(self) -> bool:
        """crun opens a namespace's path itself; runc in a child that has no such descriptor, so it makes its own."""
        return self.name == "crun"

    def write_bundle(self, spec: ShellSpec, root: Path) -> None:
        """Make the bundle directory with its config.json."""
        spec.bundle.mkdir(mode=0o700, parents=True, exist_ok=True)
        wanted = config(spec, root, join_user_namespace=self.joins_user_namespaces)
        (spec.bundle / "config.json").write_text(json.dumps(wanted))

    async def delete(self, id: str) -> None:
        """Kill what is left of a shell that may live, and forget it; one that is gone is fine."""
        process = await asyncio.create_subprocess_exec(
            self.program, "--root", str(self.state), *self._cgroup_options(), "delete", "--force", id,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        await process.wait()
        self.forget(id)

    def forget(self, id: str) -> None:
        """Forget a shell whose processes have ended: spares a run of the runtime, which would do no more."""
        shutil.rmtree(self.state / id, ignore_errors=True)

    def known(self) -> list[str]:
        """The shells that the runtime's state directory lists."""
        return sorted(entry.name for entry in self.state.iterdir()) if self.state.exists() else []

    def _cgroup_options(self) -> tuple[str, ...]:
        return ("--cgroup-manager", "cgroupfs") if self.name == "crun" else ()


def config(spec: ShellSpec, root: Path, *, join_user_namespace: bool) -> dict[str, Any]:
    """The bundle's config.json: all namespaces, no limits yet, nothing of any user."""
    user = {"path": f"/proc/self/fd/{FIRST_DESCRIPTOR + PASSED}"} if join_user_namespace else {}
    capabilities = [f"CAP_{name}" for name in _CAPABILITIES]
    sets = dict.fromkeys(("bounding", "effective", "permitted"), capabilities)
    return {
        "ociVersion": "1.0.2",
        "hostname": "sandbox",
        "root": {"path": str(root), "readonly": True},
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": ["/agent", "init"],
            "env": ["PATH=/"],
            "cwd": "/",
            "capabilities": sets,
            "noNewPrivileges": False,
        },
        "mounts": _mounts(),
        "linux": {
            "cgroupsPath": spec.cgroup,
            "uidMappings": [{"containerID": 0, "hostID": spec.uid, "size": ID_COUNT}],
            "gidMappings": [{"containerID": 0, "hostID": spec.gid, "size": ID_COUNT}],
            "namespaces": [
                *({"type": kind} for kind in ("pid", "ipc", "uts", "mount", "cgroup")),
                {"type": "user", **user},
                {"type": "network", "path": str(spec.netns)},
            ],
            "maskedPaths": [path for path in _MASKED if Path(path).exists()],
            "readonlyPaths": [path for path in _READ_ONLY if Path(path).exists()],
        },
    }


def select(state: Path, agent: Path, wanted: str = "") -> Runtime:
    """The runtime to use: `wanted`, else crun, else runc. Raises host_unsuitable."""
    for name in (wanted,) if wanted else ("crun", "runc"):
        if program := shutil.which(name):
            return Runtime(name, program, _version(program), state, agent)
    raise TalonError("host_unsuitable", "there is no OCI runtime", remedy="Install crun (or runc) and start again.")


def _version(program: str) -> str:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[0].strip() if done.stdout else "unknown"


def _mounts() -> list[dict[str, Any]]:
    hard = ["nosuid", "noexec", "nodev"]
    return [
        _mount("/proc", "proc", "proc", hard),
        _mount("/dev", "tmpfs", "tmpfs", ["nosuid", "noexec", "strictatime", "mode=755", "size=64k"]),
        _mount(
            "/dev/pts", "devpts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]
        ),
        _mount("/dev/shm", "tmpfs", "shm", [*hard, "mode=1777", "size=1073741824"]),
        _mount("/dev/mqueue", "mqueue", "mqueue", hard),
        _mount("/sys", "tmpfs", "tmpfs", [*hard, "mode=755", "size=64k"]),
        *(_mount(path, "bind", path, ["rbind", "ro", *hard]) for path in _CPU_FILES if Path(path).exists()),
    ]


def _mount(destination: str, kind: str, source: str, options: list[str]) -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": source, "options": options}


def _last_line(bundle: Path) -> str:
    lines = (bundle / "agent.log").read_text(errors="replace").splitlines() if (bundle / "agent.log").exists() else []
    return lines[-1][-400:] if lines else "it said nothing"
