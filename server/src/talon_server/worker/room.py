"""How much of the machine there is and how much is free, for admission and `/v2/host`."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path


def measure(place: Path) -> Mapping[str, int]:
    """Cores, memory in bytes (all, available), and the disk around `place` in bytes (all, free)."""
    disk = shutil.disk_usage(place)
    return {
        "cores": os.cpu_count() or 1,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "memory_available_bytes": _available_memory(),
        "disk_bytes": disk.total,
        "disk_free_bytes": disk.free,
    }


def _available_memory() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
