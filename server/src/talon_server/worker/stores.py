"""What the worker needs of images, disk and volumes: the protocols that `images.store`, `disk` and `volumes` fulfil."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from talon_server.model.sandbox import VolumeMount


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """What an image says of how to run it."""

    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    workdir: str = ""
    entrypoint: tuple[str, ...] = ()


class Images(Protocol):
    """Where layers come from; snapshots are images too."""

    def layers(self, image_id: str) -> list[Path]:
        """Directories, topmost first. Raises image_not_found."""

    def config(self, image_id: str) -> ImageConfig: ...


class Disk(Protocol):
    """Where sandboxes' own files are."""

    def has(self, id: str) -> bool:
        """Does the sandbox have files from before?"""

    async def upper(self, id: str, size_bytes: int) -> Path:
        """The directory with `upper` and `work`, made when missing, limited to a size (0 = the default)."""

    async def remove(self, id: str) -> None: ...

    async def snapshot(self, id: str, snapshot_id: str) -> int: ...

    async def delete_snapshot(self, snapshot_id: str) -> None: ...

    def known(self) -> list[str]: ...


class Volumes(Protocol):
    """Named volumes and allowed host directories."""

    async def source(self, mount: VolumeMount) -> Path:
        """The host directory of a mount. Raises volume_not_found or host_path_not_allowed."""
