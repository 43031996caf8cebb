"""Named volumes for the dialects: who may use them, and that none goes while a sandbox has it."""

import asyncio

from talon_server.control.lifecycle import Lifecycle
from talon_server.control.principals import Principal
from talon_server.errors import TalonError
from talon_server.lib.tasks import Tasks
from talon_server.worker.volumes import Volume, Volumes


class VolumeService:
    """All volumes."""

    def __init__(self, volumes: Volumes, lifecycle: Lifecycle, tasks: Tasks) -> None:
        self._volumes = volumes
        self._lifecycle = lifecycle
        self._tasks = tasks

    def list(self, _principal: Principal) -> list[Volume]:
        """By name."""
        return self._volumes.all()

    def get(self, _principal: Principal, name: str) -> Volume:
        """Raises volume_not_found."""
        return self._volumes.get(name)

    def create(self, _principal: Principal, name: str, size_bytes: int = 0) -> Volume:
        """Raises volume_exists, invalid_request."""
        return self._volumes.create(name, size_bytes)

    def delete(self, _principal: Principal, name: str) -> None:
        """Remove a volume with all that is in it. Raises volume_not_found, volume_in_use."""
        self._volumes.get(name)
        users = self._lifecycle.users_of_volume(name)
        if users:
            raise TalonError("volume_in_use", f"volume {name!r} is used by {', '.join(users[:5])}")
        self._volumes.forget(name)
        self._tasks.start(f"remove volume {name}", asyncio.to_thread(self._volumes.drop, name))
