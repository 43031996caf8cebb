"""Removes the test servers of checkouts that are gone: `python -m tests.framework.sweep`, called by scripts/test.

A checkout's homes stay below /var/lib/talon-test for its next run; when the checkout itself has been deleted nobody else
would ever remove what they hold of the host. Only processes in those servers' own control groups are ended.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

from .platform import instance
from .waiting import until

BASE = Path("/var/lib/talon-test")


def abandoned() -> list[Path]:
    """Directories of checkouts that do not exist any more."""
    told = [(entry, entry / "checkout") for entry in BASE.iterdir()] if BASE.is_dir() else []
    return [entry for entry, name in told if name.is_file() and not Path(name.read_text().strip(), ".git").exists()]


def remove(home: Path) -> None:
    """End and remove one server: processes, namespaces, rules, addresses, groups, files."""
    name = instance(home)
    for pid in _processes(name) | _server(home):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: not _processes(name), f"the end of the processes of {home}")
    for netns in Path("/run/netns").glob(f"talon-{name}-*"):
        _run("ip", "netns", "delete", netns.name)
    _run("nft", "delete", "table", "inet", f"talon_{name}")
    _run("ip", "address", "flush", "dev", "lo", "label", f"lo:tg{name}")
    for root in Path("/sys/fs/cgroup").glob(f"**/talon-{name}"):
        for place in [*root.rglob("*/"), root]:
            with contextlib.suppress(OSError):
                place.rmdir()
    _run("umount", "--lazy", str(home / "disk"))
    shutil.rmtree(home, ignore_errors=True)


def _processes(name: str) -> set[int]:
    found = set()
    for entry in Path("/proc").glob("[0-9]*/cgroup"):
        with contextlib.suppress(OSError):
            if f"/talon-{name}/" in entry.read_text():
                found.add(int(entry.parent.name))
    return found


def _server(home: Path) -> set[int]:
    try:
        pid = int((home / "test-server.pid").read_text())
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return set()
    return {pid} if str(home).encode() in words else set()


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=False)


def main() -> None:
    for base in abandoned():
        print(f"removing what the tests of {(base / 'checkout').read_text().strip()} left")
        for home in base.iterdir():
            if home.is_dir():
                remove(home)
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
