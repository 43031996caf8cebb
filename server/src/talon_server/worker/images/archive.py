"""Imports an image from a tar archive: an OCI archive, one of `docker save`, or a root file system."""

import asyncio
import hashlib
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

from talon_server.errors import TalonError
from talon_server.worker.images import layout
from talon_server.worker.images.registry import copy
from talon_server.worker.images.store import Image, ImageStore
from talon_server.worker.images.unpack import unpack

Progress = Callable[[str], None]
_LOOK_AT = 2000


async def take(store: ImageStore, archive: Path, name: str, progress: Progress) -> Image:
    """Make an archive's image known as `name`. Raises image_import_failed."""
    kind = await asyncio.to_thread(_kind, archive)
    if kind == "root":
        progress("unpacking the root file system")
        return await _root(store, archive, name)
    place = store.part("import")
    try:
        progress(f"reading the {kind}")
        await copy([f"{kind}:{archive}"], place / "layout", progress)
        return await layout.take(store, place / "layout", name, progress)
    except TalonError as error:
        raise TalonError("image_import_failed", cause=error.cause or error.message) from error
    finally:
        await asyncio.to_thread(shutil.rmtree, place, True)


def _kind(archive: Path) -> str:
    try:
        with tarfile.open(archive) as tar:
            names = {member.name.removeprefix("./") for _, member in zip(range(_LOOK_AT), tar, strict=False)}
    except (tarfile.TarError, EOFError, OSError) as error:
        raise TalonError("image_import_failed", cause=str(error)) from error
    if not names:
        raise TalonError("image_import_failed", cause="the archive is empty")
    if "oci-layout" in names:
        return "oci-archive"
    return "docker-archive" if "manifest.json" in names else "root"


async def _root(store: ImageStore, archive: Path, name: str) -> Image:
    digest = await asyncio.to_thread(_digest, archive)
    made = store.part("import")
    try:
        size = await unpack(archive, made)
        store.keep_layer(digest, made)
    finally:
        if made.exists():
            await asyncio.to_thread(shutil.rmtree, made, True)
    return store.add(Image(id=f"img-{digest[:24]}", name=name, layers=(digest,), size_bytes=size))


def _digest(archive: Path) -> str:
    with archive.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
