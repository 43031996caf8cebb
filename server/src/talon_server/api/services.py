"""All application services, as the dialects get them from `compose`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from talon_server.config import Config
from talon_server.control.audit import Audit
from talon_server.control.events import Events
from talon_server.control.keys import Keys
from talon_server.control.lifecycle import Lifecycle
from talon_server.worker.port import WorkerPort

if TYPE_CHECKING:
    from talon_server.control.images import ImageService
    from talon_server.control.pools import Pools
    from talon_server.control.recordings import RecordingService
    from talon_server.control.snapshots import Snapshots
    from talon_server.control.volumes import VolumeService
    from talon_server.worker.images.store import ImageStore


@dataclass(frozen=True, slots=True)
class Services:
    """One of each."""

    config: Config
    lifecycle: Lifecycle
    keys: Keys
    events: Events
    worker: WorkerPort
    images: "ImageStore"
    image_works: "ImageService"
    volumes: "VolumeService"
    snapshots: "Snapshots"
    pools: "Pools"
    recordings: "RecordingService"
    audit: Audit
