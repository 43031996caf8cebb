"""Unpacks layers of OCI images into directories that overlayfs stacks: GNU tar does the files, whiteouts are turned.

What an archive may not bring is left out: device nodes, and attributes that would speak to overlayfs. Source: the OCI image
specification 1.1, layer.md (whiteouts), and the kernel's Documentation/filesystems/overlayfs.rst.
"""

import asyncio
import os
import shutil
import stat
from pathlib import Path

from talon_server.errors import TalonError

_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_TAR = (
    *("tar", "--extract", "--numeric-owner", "--same-owner", "--preserve-permissions", "--delay-directory-restore"),
    *("--xattrs", "--xattrs-include=user.*", "--xattrs-include=security.capability", "--warning=no-timestamp"),
)


async def unpack(archive: Path, target: Path) -> int:
    """Unpack a tar archive, packed or not, into a fresh directory; its size in bytes. Raises image_import_failed."""
    process = await asyncio.create_subprocess_exec(
        *_TAR,
        *("--directory", str(target), "--file", str(archive)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        lines = errors.decode(errors="replace").strip().splitlines()
        raise TalonError("image_import_failed", "the archive cannot be unpacked", cause=lines[-1] if lines else None)
    return await asyncio.to_thread(settle, target)


def settle(target: Path) -> int:
    """Turn whiteouts into overlayfs's own, drop device nodes; the size of what remains."""
    size = 0
    for directory, names, files in os.walk(target):
        for name in (*names, *files):
            path = os.path.join(directory, name)
            told = os.lstat(path)
            if name == _OPAQUE:
                os.unlink(path)
                os.setxattr(directory, "trusted.overlay.opaque", b"y")
            elif name.startswith(_WHITEOUT):
                _drop(path)
                hidden = os.path.join(directory, name.removeprefix(_WHITEOUT))
                if not os.path.lexists(hidden):
                    os.mknod(hidden, stat.S_IFCHR | 0o000, os.makedev(0, 0))
            elif stat.S_ISCHR(told.st_mode) or stat.S_ISBLK(told.st_mode):
                if told.st_rdev != 0:
                    os.unlink(path)
            else:
                size += told.st_size
    return size


def _drop(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
