"""Named volumes, kept on the sandboxes' disk, and the host directories that the operator lets be mounted.

A volume is a directory of its own (a limited subvolume on btrfs) with the ids its users have inside.
"""

import json
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from talon_server.errors import TalonError
from talon_server.model.sandbox import VolumeMount
from talon_server.worker.disk import Disk

_NAME = re.compile(r"[a-z0-9]([a-z0-9_.-]{0,61}[a-z0-9])?\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Volume:
    """`size_bytes` 0: no limit of its own. `created_at` Unix seconds."""

    name: str
    size_bytes: int
    created_at: float


class Volumes:
    """All volumes of a home; `host_allow` are the directories of the host that may be mounted, or parts of them."""

    def __init__(self, disk: Disk, host_allow: tuple[Path, ...]) -> None:
        self._disk = disk
        self._host_allow = tuple(path.resolve() for path in host_allow)

    @property
    def _root(self) -> Path:
        return self._disk.root / "volumes"

    def all(self) -> list[Volume]:
        """By name."""
        return [self.get(path.stem) for path in sorted(self._root.glob("*.json"))]

    def get(self, name: str) -> Volume:
        """Raises volume_not_found."""
        about = self._about(name)
        if not about.exists():
            raise TalonError("volume_not_found", f"there is no volume {name!r}")
        return Volume(**json.loads(about.read_text()))

    def create(self, name: str, size_bytes: int = 0, *, exist_ok: bool = False) -> Volume:
        """A new volume, owned by the user sandbox. Raises volume_exists, invalid_request."""
        about = self._about(name)
        if about.exists():
            if exist_ok:
                return self.get(name)
            raise TalonError("volume_exists", f"there is a volume {name!r} already")
        volume = Volume(name, size_bytes, time.time())
        place = self._root / name
        try:
            self._disk.drop(place)
            self._disk.make(place, size_bytes)
            place.chmod(0o777)
            part = about.with_suffix(".part")
            part.write_text(json.dumps(asdict(volume)))
            part.rename(about)
        except OSError as error:
            raise TalonError("capacity_exhausted", "the disk for volumes is full", cause=error.strerror) from error
        return volume

    def forget(self, name: str) -> None:
        """Nobody can mount it any more. Raises volume_not_found."""
        self.get(name)
        self._about(name).unlink(missing_ok=True)

    def drop(self, name: str) -> None:
        """Remove a forgotten volume's files; blocking."""
        if not self._about(name).exists():
            self._disk.drop(self._root / name)

    async def source(self, mount: VolumeMount) -> Path:
        """The host directory of a mount. Raises volume_not_found, host_path_not_allowed."""
        if mount.name is not None:
            self.get(mount.name)
            return self._root / mount.name
        return self._host(mount.host or "")

    def _host(self, given: str) -> Path:
        path = Path(given)
        try:
            real = path.resolve(strict=True)
        except OSError as error:
            raise TalonError("host_path_not_allowed", f"{given} is no directory of the host") from error
        if not path.is_absolute() or not real.is_dir() or not any(real.is_relative_to(one) for one in self._host_allow):
            raise TalonError("host_path_not_allowed", f"{given} is not on the operator's list of host directories")
        return real

    def _about(self, name: str) -> Path:
        if not _NAME.match(name):
            raise TalonError(
                "invalid_request", f"{name!r} is no name for a volume", remedy="Use letters, digits, . _ -"
            )
        return self._root / f"{name}.json"
