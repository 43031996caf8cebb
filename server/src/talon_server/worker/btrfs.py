"""The few btrfs operations on the create path, as ioctls: no program is started for a subvolume.

Source: linux/btrfs.h (uapi). All take a directory's path; errors are OSErrors.
"""

import fcntl
import os
import struct
from pathlib import Path

_NAME = 4087
_SUBVOL_CREATE = 0x5000940E
_SNAP_DESTROY = 0x5000940F
_SNAP_CREATE_V2 = 0x50009417
_INO_LOOKUP = 0xD0009412
_QGROUP_LIMIT = 0x8030942B
_READ_ONLY = 1 << 1
_LIMIT_RFER = 1 << 0
_FIRST_FREE = 256


def create(path: Path) -> None:
    """A new empty subvolume."""
    with _directory(path.parent) as parent:
        fcntl.ioctl(parent.number, _SUBVOL_CREATE, bytearray(struct.pack(f"q{_NAME + 1}s", 0, os.fsencode(path.name))))


def snapshot(source: Path, path: Path, *, read_only: bool) -> None:
    """A snapshot of a subvolume; takes milliseconds whatever its size."""
    with _directory(source) as origin, _directory(path.parent) as parent:
        flags = _READ_ONLY if read_only else 0
        arguments = bytearray(struct.pack("qQQ32x4040s", origin.number, 0, flags, os.fsencode(path.name)))
        fcntl.ioctl(parent.number, _SNAP_CREATE_V2, arguments)


def destroy(path: Path) -> None:
    """Remove a subvolume with all that is in it; its space comes back in the background."""
    with _directory(path.parent) as parent:
        fcntl.ioctl(parent.number, _SNAP_DESTROY, bytearray(struct.pack(f"q{_NAME + 1}s", 0, os.fsencode(path.name))))


def limit(path: Path, size_bytes: int) -> None:
    """Bound what a subvolume may hold; needs quotas enabled on the file system."""
    with _directory(path) as subvolume:
        number = _subvolume_id(subvolume.number)
        arguments = struct.pack("QQQQQQ", number, _LIMIT_RFER, size_bytes, 0, 0, 0)
        fcntl.ioctl(subvolume.number, _QGROUP_LIMIT, arguments)


def is_btrfs(path: Path) -> bool:
    """Does the path lie on btrfs?"""
    try:
        with _directory(path) as directory:
            _subvolume_id(directory.number)
    except OSError:
        return False
    return True


def _subvolume_id(descriptor: int) -> int:
    arguments = bytearray(struct.pack("QQ4080s", 0, _FIRST_FREE, b""))
    fcntl.ioctl(descriptor, _INO_LOOKUP, arguments)
    number: int = struct.unpack_from("Q", arguments)[0]
    return number


class _directory:
    def __init__(self, path: Path) -> None:
        self.number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> "_directory":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.number)
