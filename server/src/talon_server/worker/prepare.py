"""What the host must have before its first sandbox, done at the server's start and told in the log.

Each step looks first and changes nothing that is right already; a step that fails is told and costs what
`talon-server doctor` says, it does not stop the server. Called by `worker.host` in a thread: it runs programs.
"""

import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger(__name__)

NETNS = Path("/run/netns")
CGROUPS = Path("/sys/fs/cgroup")
MODULES = ("overlay", "veth", "dummy", "nf_tables", "nf_conntrack", "nfnetlink_log", "loop", "btrfs")
_NEIGHBOURS = "net/ipv4/neigh/default/gc_thresh"
SYSCTLS = {
    "net/ipv4/ip_forward": 1,
    # The neighbour table is one for all network namespaces, and every sandbox takes two entries.
    f"{_NEIGHBOURS}1": 8192,
    f"{_NEIGHBOURS}2": 32768,
    f"{_NEIGHBOURS}3": 65536,
    "net/netfilter/nf_conntrack_max": 262144,
    "fs/inotify/max_user_instances": 1024,
    "kernel/keys/maxkeys": 2000,
}
"""Least values below /proc/sys."""


def prepare() -> list[str]:
    """Make the host ready; returns (and logs) what was changed and what could not be."""
    told = [*_modules(), *_sysctls(), *_hugetlb(), *_favor_moves(), *_namespaces_mount()]
    for line in told:
        log.info("host: %s", line)
    return told


def hierarchies() -> list[tuple[Path, str, set[str]]]:
    """The mounted control group hierarchies: place, kind (`cgroup` or `cgroup2`), options of the file system."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            found.append((Path(fields.split(" ")[4]), kind, set(options.split(" ")[-1].split(","))))
    return found


def hybrid_without_hugetlb() -> bool:
    """Controllers on v1 while v2 holds hugetlb: crun before 1.9 takes such a host for an unknown one."""
    mounted = hierarchies()
    on_v1 = {option for _, kind, options in mounted if kind == "cgroup" for option in options}
    on_v2 = {name for place, kind, _ in mounted if kind == "cgroup2" for name in controllers(place)}
    return "memory" in on_v1 and "hugetlb" in on_v2 and "hugetlb" not in on_v1


def slow_moves() -> bool:
    """Does putting a process into a group wait for every core (milliseconds)? One mount's option spares all of them."""
    return not any("favordynmods" in options for _, _, options in hierarchies())


def controllers(place: Path) -> list[str]:
    """The controllers that a v2 hierarchy holds."""
    try:
        return (place / "cgroup.controllers").read_text().split()
    except OSError:
        return []


def _modules() -> Iterator[str]:
    for name in MODULES:
        if Path("/sys/module", name).exists():
            continue
        if _run("modprobe", "--quiet", name) is None:
            yield f"loaded the kernel module {name}"


def _sysctls() -> Iterator[str]:
    for name, least in SYSCTLS.items():
        file = Path("/proc/sys", name)
        try:
            before = int(file.read_text())
            if before < least:
                file.write_text(f"{least}\n")
                yield f"set {name.replace('/', '.')} to {least}, was {before}"
        except (OSError, ValueError) as error:
            yield f"could not set {name.replace('/', '.')} to {least}: {error}"


def _hugetlb() -> Iterator[str]:
    if not hybrid_without_hugetlb():
        return
    place = CGROUPS / "hugetlb"
    try:
        place.mkdir(exist_ok=True)
    except OSError as error:
        yield f"could not make {place}: {error}"
        return
    failed = _run("mount", "-t", "cgroup", "-o", "hugetlb", "cgroup", str(place))
    yield (
        f"could not mount the hugetlb controller: {failed}" if failed else f"mounted the hugetlb controller at {place}"
    )


def _favor_moves() -> Iterator[str]:
    if not slow_moves():
        return
    failed: str | None = "no control groups are mounted"
    for place, _, _ in sorted(hierarchies(), key=lambda mounted: mounted[1], reverse=True):
        failed = _run("mount", "-o", "remount,favordynmods", str(place))
        if failed is None:
            yield f"remounted {place} with favordynmods"
            return
    yield f"could not remount the control groups with favordynmods: {failed}"


def _namespaces_mount() -> Iterator[str]:
    """Make the place of named network namespaces a mount, as ip-netns(8) does, so that the helper can let go of it."""
    NETNS.mkdir(exist_ok=True)
    # Path.is_mount sees no bind mount of a directory on its own file system; another one each time would double them all.
    if _mounted(NETNS):
        return
    for step in (("--bind", str(NETNS), str(NETNS)), ("--make-shared", str(NETNS))):
        if failed := _run("mount", *step):
            yield f"could not make {NETNS} a mount: {failed}"
            return
    yield f"made {NETNS} a mount"


def _mounted(place: Path) -> bool:
    with open("/proc/self/mountinfo") as mounts:
        return any(line.split(" ", 5)[4] == str(place) for line in mounts)


def _run(*command: str) -> str | None:
    """None when it worked, else why not."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else " ".join(done.stderr.split())[:200] or f"status {done.returncode}"
