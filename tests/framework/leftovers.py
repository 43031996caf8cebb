"""What a server holds of the host, and what of it no sandbox accounts for.

A shell is a directory, an entry of the runtime and a control group, all of one name; each has a slot, a network namespace
with a veth; each sandbox has a place on the disk. `strays` lists whatever has no partner. Rules of the walls belong to numbers of
slots, not to sandboxes: they are bounded by their count and wait for the next slot of the number.
"""

import json
import subprocess
from pathlib import Path

from .platform import Platform
from .waiting import until


def shells(platform: Platform) -> set[str]:
    """The started containers: claimed ones and those of the pool."""
    return _names(platform.home / "run" / "shells")


def runtime(platform: Platform) -> set[str]:
    return _names(platform.home / "run" / "runtime")


def cgroups(platform: Platform) -> set[str]:
    """Names of control groups of shells, in whatever hierarchy."""
    parent = f"talon-{platform.instance}"
    places = [place for root in _hierarchies() if (place := root / parent).is_dir()]
    return {entry.name for place in places for entry in place.iterdir() if entry.is_dir()}


def namespaces(platform: Platform) -> set[str]:
    return {name for name in _names(Path("/run/netns")) if name.startswith(f"talon-{platform.instance}-")}


def veths(platform: Platform) -> set[str]:
    listed = json.loads(subprocess.run(["ip", "-json", "link"], capture_output=True, text=True, check=True).stdout)
    return {link["ifname"] for link in listed if link["ifname"].startswith(f"tl{platform.instance[:5]}")}


def mounts(platform: Platform) -> list[str]:
    """The host's mounts below the home, its disk aside."""
    lines = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    own = (str(platform.home / "disk"), str(platform.home / "run" / "scratch"))
    return [line for line in lines if line.startswith(str(platform.home)) and line not in own]


def rows(platform: Platform) -> set[str]:
    """The sandboxes that the API lists."""
    return {info.id for info in platform.client.list() if info.state != "terminated"}


def strays(platform: Platform) -> list[str]:
    """What is left over now; a create or destroy under way shows here too, so ask until it is empty."""
    living = shells(platform)
    slots = {name.rsplit("-", 1)[1] for name in namespaces(platform)}
    found = [
        *(f"runtime entry {name}" for name in runtime(platform) - living),
        *(f"control group {name}" for name in cgroups(platform) - living),
        *(f"mount {name}" for name in mounts(platform)),
    ]
    if len(veths(platform)) != len(slots):
        found.append(f"{len(veths(platform))} veths for {len(slots)} slots")
    claimed = {_claimed(platform, name) for name in living} - {""}
    known = rows(platform)
    found += [f"shell of {name}" for name in claimed - known]
    found += [f"disk of {name}" for name in disks(platform) - known]
    return found


def disks(platform: Platform) -> set[str]:
    """The sandboxes that have files of their own on the host."""
    return _names(platform.home / "disk" / "sandboxes")


def assert_clean(platform: Platform) -> None:
    """Nothing is left over once what is under way has ended."""
    until(lambda: not strays(platform), f"nothing left over, but: {strays(platform)}")


def _claimed(platform: Platform, shell: str) -> str:
    try:
        return str(json.loads((platform.home / "run" / "shells" / shell / "claim.json").read_text())["id"])
    except (OSError, ValueError, KeyError):
        return ""


def _names(place: Path) -> set[str]:
    return {entry.name for entry in place.iterdir()} if place.is_dir() else set()


def _hierarchies() -> list[Path]:
    root = Path("/sys/fs/cgroup")
    return [root, *(entry for entry in root.iterdir() if entry.is_dir())]
