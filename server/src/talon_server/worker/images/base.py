"""Builds the image `base` with mmdebstrap, from the Debian mirror that the host itself is set to.

The recipe is deploy/images/base: the packages, and the user `sandbox` (uid 1000) who works in /workspace.
"""

import asyncio
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from talon_server.errors import TalonError
from talon_server.worker.images.store import Image, ImageStore

RECIPE = Path(__file__).parents[5] / "deploy" / "images" / "base"
SUITES = ("bookworm", "trixie", "forky")
_HOOK = """set -e
root="$1"
chroot "$root" groupadd -g 1000 sandbox
chroot "$root" useradd -m -u 1000 -g 1000 -s /bin/bash sandbox
mkdir -p "$root/workspace" && chroot "$root" chown 1000:1000 /workspace
rm -f "$root"/usr/lib/python3*/EXTERNALLY-MANAGED
ln -sf python3 "$root/usr/bin/python"
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/var/log/*
: > "$root/etc/machine-id"
rm -f "$root/etc/resolv.conf"
"""

Progress = Callable[[str], None]


async def build_base(store: ImageStore, progress: Progress) -> Image:
    """Build it and make it known as `base`. `progress` gets the builder's lines. Raises image_build_failed."""
    if shutil.which("mmdebstrap") is None:
        raise TalonError("image_build_failed", "mmdebstrap is not installed", remedy="Install mmdebstrap on the host.")
    made = store.part("base")
    try:
        await _debootstrap(made, progress)
        digest = _digest(made)
        size = await asyncio.to_thread(_size, made)
        store.keep_layer(digest, made)
    finally:
        if made.exists():
            await asyncio.to_thread(shutil.rmtree, made, True)
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
    return store.add(
        Image(
            id=f"img-{digest[:24]}",
            name="base",
            layers=(digest,),
            env=environment,
            user="sandbox",
            workdir="/workspace",
            size_bytes=size,
        )
    )


async def _debootstrap(made: Path, progress: Progress) -> None:
    packages = ",".join((RECIPE / "packages.txt").read_text().split())
    hook = made.with_name(made.name + ".hook")
    hook.write_text(_HOOK)
    command = [
        # What it mounts is gone with it, also when the server is killed meanwhile.
        *("unshare", "--mount", "--propagation", "private"),
        *("mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory", f"--include={packages}"),
        *("--skip=check/empty", "--aptopt=Acquire::Languages none", f'--customize-hook=sh {hook} "$1"'),
        *(suite(), str(made)),
    ]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    last = ""
    try:
        assert process.stdout is not None
        async for line in process.stdout:
            last = line.decode(errors="replace").strip()
            progress(last)
        if await process.wait() != 0:
            raise TalonError("image_build_failed", "mmdebstrap failed", cause=last)
    finally:
        hook.unlink(missing_ok=True)
        if process.returncode is None:
            process.terminate()
            await process.wait()


def suite() -> str:
    """The host's own Debian suite, else bookworm."""
    told = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    name = told.get("VERSION_CODENAME", "").strip('"')
    return name if name in SUITES else "bookworm"


def _digest(made: Path) -> str:
    """Of the packages' status: the same versions are the same layer."""
    status = (made / "var/lib/dpkg/status").read_bytes()
    return hashlib.sha256(status + _HOOK.encode()).hexdigest()


def _size(place: Path) -> int:
    total = 0
    for directory, _, files in os.walk(place):
        total += sum(os.lstat(os.path.join(directory, name)).st_size for name in files)
    return total
