"""Where the sandboxes' own files lie: a btrfs file system in one sparse file, a subvolume with a limit each.

Files are kept with the ids they have inside, so a snapshot of a sandbox is a layer that any other can start from. Where
btrfs is missing, plain directories serve, without limits and with slower snapshots; `doctor` tells.
"""

import asyncio
import logging
import os
import shutil
import subprocess
from pathlib import Path

from talon_server.errors import TalonError
from talon_server.worker import btrfs

log = logging.getLogger(__name__)

_UNIT = 1 << 30


class Disk:
    """The disk of one server's home. Directories: `sandboxes/<id>/{upper,work}`, `snapshots/<id>`, `volumes/<name>`."""

    def __init__(self, root: Path, *, limited: bool) -> None:
        self.root = root
        self.limited = limited

    @classmethod
    async def open(cls, home: Path, image_bytes: int) -> "Disk":
        """Make and mount it where needed. `image_bytes` 0: as large as what is free around it allows."""
        return await asyncio.to_thread(cls._open, home, image_bytes)

    @classmethod
    def _open(cls, home: Path, image_bytes: int) -> "Disk":
        root = home / "disk"
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        limited = True
        if not os.path.ismount(root) and not btrfs.is_btrfs(root):
            limited = _mount(home / "disk.img", root, image_bytes)
        # What is set-user-id root inside a sandbox lies here as the host's root's: no user of the host may come near.
        root.chmod(0o700)
        for name in ("sandboxes", "snapshots", "volumes"):
            (root / name).mkdir(mode=0o700, exist_ok=True)
            (root / name).chmod(0o700)
        return cls(root, limited=limited)

    async def upper(self, id: str, size_bytes: int) -> Path:
        """The directory that holds `upper` and `work` of a sandbox, made when missing. Raises capacity_exhausted."""
        place = self.root / "sandboxes" / id
        if place.exists():
            return place
        try:
            self.make(place, size_bytes)
            for name in ("upper", "work"):
                (place / name).mkdir(mode=0o755)
        except OSError as error:
            raise TalonError("capacity_exhausted", "the disk for sandboxes is full", cause=error.strerror) from error
        return place

    def make(self, place: Path, size_bytes: int) -> None:
        """A directory of its own, limited to a size (0: not)."""
        if not self.limited:
            place.mkdir()
            return
        btrfs.create(place)
        if size_bytes:
            btrfs.limit(place, size_bytes)

    def has(self, id: str) -> bool:
        """Does a sandbox have files here?"""
        return (self.root / "sandboxes" / id).exists()

    async def remove(self, id: str) -> None:
        """All files of a sandbox."""
        await asyncio.to_thread(self.drop, self.root / "sandboxes" / id)

    def drop(self, place: Path) -> None:
        """Remove a directory that `make` made."""
        if not place.exists():
            return
        try:
            if self.limited:
                btrfs.destroy(place)
                return
        except OSError as error:
            log.debug("%s is removed file by file: %s", place, error)
        shutil.rmtree(place, ignore_errors=True)

    async def snapshot(self, id: str, snapshot_id: str) -> int:
        """Freeze a sandbox's files as a layer; returns bytes. Raises snapshot_failed."""
        source, target = self.root / "sandboxes" / id, self.root / "snapshots" / snapshot_id
        try:
            if self.limited:
                btrfs.snapshot(source, target, read_only=True)
            else:
                await asyncio.to_thread(_copy, source, target)
        except (OSError, subprocess.CalledProcessError) as error:
            raise TalonError("snapshot_failed", cause=str(error)) from error
        return await asyncio.to_thread(_size, target / "upper")

    def snapshot_layer(self, snapshot_id: str) -> Path:
        """A snapshot as a layer. Raises snapshot_not_found."""
        layer = self.root / "snapshots" / snapshot_id / "upper"
        if not layer.exists():
            raise TalonError("snapshot_not_found", f"there is no snapshot {snapshot_id}")
        return layer

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Remove a snapshot's files."""
        await asyncio.to_thread(self.drop, self.root / "snapshots" / snapshot_id)

    def known(self) -> list[str]:
        """The sandboxes that have files here."""
        return sorted(entry.name for entry in (self.root / "sandboxes").iterdir())


def unmount(home: Path) -> None:
    """Let go of the disk: for tests and uninstalling."""
    subprocess.run(["umount", "-l", str(home / "disk")], check=False, stderr=subprocess.DEVNULL)


def _mount(image: Path, root: Path, image_bytes: int) -> bool:
    if shutil.which("mkfs.btrfs") is None:
        log.warning("btrfs-progs is not installed: sandboxes have no disk limits")
        return False
    try:
        if not image.exists():
            _format(image, image_bytes)
        options = "loop,noatime,nosuid,nodev,discard=async"
        subprocess.run(["mount", "-o", options, str(image), str(root)], check=True, capture_output=True)
        subprocess.run(["btrfs", "quota", "enable", str(root)], check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        log.warning("no btrfs disk, so no disk limits: %s", error.stderr.decode(errors="replace").strip())
        return False
    return True


def _format(image: Path, image_bytes: int) -> None:
    free = shutil.disk_usage(image.parent).free
    size = image_bytes or max(8 * _UNIT, free // _UNIT * _UNIT * 9 // 10)
    part = image.with_suffix(".part")
    with part.open("wb") as file:
        file.truncate(size)
    part.chmod(0o600)
    subprocess.run(["mkfs.btrfs", "-q", "-m", "single", str(part)], check=True, capture_output=True)
    part.rename(image)


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", "--reflink=auto", str(source), str(target)], check=True, capture_output=True)


def _size(place: Path) -> int:
    total = 0
    for directory, _, files in os.walk(place):
        for name in files:
            try:
                total += os.lstat(os.path.join(directory, name)).st_blocks * 512
            except OSError:
                continue
    return total
