"""What this host lacks for running sandboxes well, and what each lack costs.

`talon-server doctor` prints `run()`. A check looks and never changes anything; levels are ok, warn (works, at a cost)
and fail (no sandbox can start). Run as root: some checks see nothing otherwise.
"""

import ctypes
import os
import platform
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from talon_server.errors import TalonError
from talon_server.runtimes.oci import select
from talon_server.worker import prepare

OK, WARN, FAIL = "ok", "warn", "fail"
_CAPABILITIES = {"SYS_ADMIN": 21, "NET_ADMIN": 12, "SETUID": 7, "SETGID": 6, "CHOWN": 0, "KILL": 5, "MKNOD": 27}


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's result: `found` is what is there; `cost` and `remedy` are empty when all is well."""

    name: str
    level: str
    found: str
    cost: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is examined: the server's home, the agent's binary and the runtime the configuration asks for."""

    home: Path
    agent: Path
    runtime: str = ""


Check = Callable[[Subject], Iterator[Finding]]


def run(subject: Subject) -> list[Finding]:
    """All checks in order."""
    return [finding for check in CHECKS for finding in check(subject)]


def privileges(_: Subject) -> Iterator[Finding]:
    """Root with the capabilities that namespaces, mounts and networks take."""
    held = int(_field("/proc/self/status", "CapEff"), 16)
    missing = [name for name, number in _CAPABILITIES.items() if not held >> number & 1]
    if os.geteuid() != 0 or missing:
        cost = "No sandbox can be started."
        yield Finding(
            "privileges", FAIL, f"user {os.geteuid()}, without {', '.join(missing) or 'root'}", cost, "Run as root."
        )
    else:
        yield Finding("privileges", OK, "root")


def kernel(_: Subject) -> Iterator[Finding]:
    """Linux 5.19 for overlays over idmapped layers; newer ones spare steps."""
    release = platform.release()
    major, minor = (int("".join(filter(str.isdigit, part)) or 0) for part in release.split(".")[:2])
    if (major, minor) < (5, 19):
        yield Finding(
            "kernel", FAIL, release, "Image layers cannot be shared between sandboxes.", "Use Linux 5.19 or newer."
        )
    elif (major, minor) < (6, 5):
        yield Finding("kernel", WARN, release, "Images of many layers may not mount.", "Use Linux 6.5 or newer.")
    else:
        yield Finding("kernel", OK, release)


def runtime(subject: Subject) -> Iterator[Finding]:
    """crun, else runc; and why."""
    try:
        chosen = select(Path("/run"), subject.agent, subject.runtime)
    except TalonError as error:
        yield Finding("runtime", FAIL, error.message, "No sandbox can be started.", error.remedy)
        return
    if chosen.name == "crun":
        yield Finding("runtime", OK, chosen.version)
        return
    why = "asked for by the configuration" if subject.runtime else "crun is not installed"
    yield Finding("runtime", WARN, f"{chosen.version} ({why})", "Sandboxes start three times slower.", "Install crun.")


def programs(_: Subject) -> Iterator[Finding]:
    """The programs that the server starts."""
    wanted = (
        ("ip", "iproute2", FAIL, "Sandboxes get no network."),
        ("mkfs.btrfs", "btrfs-progs", WARN, "A sandbox's disk cannot be limited."),
        ("skopeo", "skopeo", WARN, "Images cannot be pulled or imported."),
        ("umoci", "umoci", WARN, "Images cannot be unpacked."),
        ("mmdebstrap", "mmdebstrap", WARN, "The base image cannot be built here."),
    )
    for program, package, level, cost in wanted:
        path = shutil.which(program)
        yield Finding(program, OK, path) if path else Finding(program, level, "missing", cost, f"Install {package}.")


def agent(subject: Subject) -> Iterator[Finding]:
    """The binary that is every sandbox's first process."""
    if os.access(subject.agent, os.X_OK):
        yield Finding("agent", OK, str(subject.agent))
    else:
        yield Finding(
            "agent", FAIL, f"missing at {subject.agent}", "No sandbox can be started.", "Run scripts/build-agent."
        )


def firewall(_: Subject) -> Iterator[Finding]:
    """nftables in this process."""
    try:
        ctypes.CDLL("libnftables.so.1")
    except OSError:
        yield Finding(
            "nftables", FAIL, "missing", "Sandboxes could not be kept apart, so none starts.", "Install nftables."
        )
    else:
        yield Finding("nftables", OK, "libnftables.so.1")


def control_groups(_: Subject) -> Iterator[Finding]:
    """The controllers for limits, on v1 or v2."""
    mounted = prepare.hierarchies()
    v1 = {option for _, kind, options in mounted if kind == "cgroup" for option in options}
    v2 = {name for place, kind, _ in mounted if kind == "cgroup2" for name in prepare.controllers(place)}
    lacking = sorted({"memory", "cpu", "pids"} - v1 - v2)
    version = "v2" if "memory" in v2 else "hybrid" if v2 else "v1"
    if lacking:
        cost = f"No limit on {', '.join(lacking)}: one sandbox can starve the others."
        yield Finding(
            "cgroups", FAIL, f"{version} without {', '.join(lacking)}", cost, "Mount or enable these controllers."
        )
    else:
        yield Finding("cgroups", OK, version)
    if prepare.hybrid_without_hugetlb():
        remedy = "The server mounts it at its start; before, crun refuses this host."
        yield Finding("hugetlb", WARN, "held by cgroup v2", "crun refuses until it is mounted as v1.", remedy)
    if prepare.slow_moves():
        remedy = "The server remounts them with favordynmods at its start."
        yield Finding("cgroup moves", WARN, "slow", "A start and a command take some 10 ms longer.", remedy)


def namespaces(_: Subject) -> Iterator[Finding]:
    """User namespaces must be allowed."""
    try:
        limit = int(Path("/proc/sys/user/max_user_namespaces").read_text())
    except (OSError, ValueError):
        limit = 0
    if limit:
        yield Finding("user namespaces", OK, f"up to {limit} for each user")
    else:
        remedy = "Set user.max_user_namespaces to 10000 with sysctl."
        yield Finding("user namespaces", FAIL, "switched off", "No sandbox can be started.", remedy)


def file_systems(_: Subject) -> Iterator[Finding]:
    """Overlay for roots, btrfs for disk limits and snapshots."""
    known = Path("/proc/filesystems").read_text().split()
    for name, level, cost in (
        ("overlay", FAIL, "No sandbox can be started."),
        ("btrfs", WARN, "A sandbox's disk cannot be limited and snapshots are copies."),
    ):
        if name in known or Path("/sys/module", name).exists():
            yield Finding(name, OK, "in the kernel")
        elif _has_module(name):
            yield Finding(name, OK, "a module, loaded at the server's start")
        else:
            yield Finding(name, level, "missing", cost, f"Use a kernel with {name}.")


def confinement(_: Subject) -> Iterator[Finding]:
    """The system-call filter."""
    actions = Path("/proc/sys/kernel/seccomp/actions_avail")
    if actions.exists() and "errno" in actions.read_text().split():
        yield Finding("seccomp", OK, "filters available")
    else:
        yield Finding(
            "seccomp",
            FAIL,
            "missing",
            "No sandbox can be sealed, so none starts.",
            "Use a kernel with seccomp filters.",
        )


def room(subject: Subject) -> Iterator[Finding]:
    """Disk at home, memory, open files."""
    place = next(path for path in (subject.home, *subject.home.parents) if path.exists())
    free_gib = shutil.disk_usage(place).free / 2**30
    level = OK if free_gib >= 5 else WARN
    yield Finding(
        "disk",
        level,
        f"{free_gib:.1f} GiB free at {place}",
        *_unless(level, "Images and sandboxes soon fill it.", "Free some."),
    )
    memory_gib = int(_field("/proc/meminfo", "MemTotal").split()[0]) / 2**20
    level = OK if memory_gib >= 1.5 else WARN
    yield Finding(
        "memory", level, f"{memory_gib:.1f} GiB", *_unless(level, "Few sandboxes fit.", "Use a larger machine.")
    )
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    level = OK if files >= 8192 or files == resource.RLIM_INFINITY else WARN
    yield Finding(
        "open files",
        level,
        str(files),
        *_unless(level, "About a thousand sandboxes at most.", "Raise the hard limit (ulimit -Hn)."),
    )


def home(subject: Subject) -> Iterator[Finding]:
    """Sandboxes' users must be able to pass the home's directories."""
    closed = [path for path in subject.home.parents if path.exists() and not path.stat().st_mode & 0o001]
    if closed:
        remedy = f"Run chmod o+x {closed[0]}, or choose another home."
        yield Finding("home", FAIL, f"{closed[0]} is closed to others", "No sandbox can be started.", remedy)
    else:
        yield Finding("home", OK, str(subject.home))


def forwarding(_: Subject) -> Iterator[Finding]:
    """Another firewall (Docker's, for one) may drop what is not its own, whatever the server's table says."""
    try:
        done = subprocess.run(
            ["nft", "list", "chain", "ip", "filter", "FORWARD"], capture_output=True, text=True, check=False
        )
    except OSError:
        return
    if "policy drop" in done.stdout:
        remedy = "Run iptables -I FORWARD -i tl+ -j ACCEPT and iptables -I FORWARD -o tl+ -j ACCEPT."
        cost = "Sandboxes do not reach the Internet."
        yield Finding("forwarding", WARN, "the table ip filter drops it", cost, remedy)


def resolver(_: Subject) -> Iterator[Finding]:
    """Whom the sandboxes' questions for names are passed to."""
    try:
        lines = Path("/etc/resolv.conf").read_text().splitlines()
    except OSError:
        lines = []
    servers = [line.split()[1] for line in lines if line.startswith("nameserver") and len(line.split()) > 1]
    if servers:
        yield Finding("resolver", OK, ", ".join(servers))
    else:
        yield Finding(
            "resolver", WARN, "none", "Sandboxes resolve no names.", "Put a nameserver into /etc/resolv.conf."
        )


CHECKS: tuple[Check, ...] = (
    privileges, home, kernel, runtime, agent, programs, firewall, control_groups, namespaces, file_systems, confinement, room,
    resolver,
    forwarding,
)  # fmt: skip


def _unless(level: str, cost: str, remedy: str) -> tuple[str, str]:
    return ("", "") if level == OK else (cost, remedy)


def _has_module(name: str) -> bool:
    if shutil.which("modinfo") is None:
        return False
    return subprocess.run(["modinfo", name], capture_output=True, check=False).returncode == 0


def _field(file: str, name: str) -> str:
    for line in Path(file).read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return value.strip()
    return "0"
