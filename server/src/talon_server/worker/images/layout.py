"""Reads an image in OCI layout, as skopeo leaves it, into the store: each layer unpacked once, by the digest of its content.

Source: the OCI image specification 1.1, image-layout.md, manifest.md, config.md.
"""

import asyncio
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from talon_server.errors import TalonError
from talon_server.worker.images.store import Image, ImageStore
from talon_server.worker.images.unpack import unpack

Progress = Callable[[str], None]


async def take(store: ImageStore, layout: Path, name: str, progress: Progress) -> Image:
    """Make the layout's image known as `name`. Raises image_import_failed."""
    try:
        manifest = _manifest(layout)
        digest = str(manifest["config"]["digest"])
        config = json.loads(_blob(layout, digest).read_text())
        diffs = [str(diff) for diff in config["rootfs"]["diff_ids"]]
        blobs = [_blob(layout, str(layer["digest"])) for layer in manifest["layers"]]
        image = _image(name, digest.partition(":")[2], config, diffs)
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise TalonError("image_import_failed", "the image's description cannot be read", cause=str(error)) from error
    if len(diffs) != len(blobs):
        raise TalonError("image_import_failed", "the image's description names other layers than it has")
    size = 0
    for number, (diff, blob) in enumerate(zip(diffs, blobs, strict=True), 1):
        progress(f"layer {number} of {len(diffs)}")
        size += await _layer(store, diff.partition(":")[2], blob)
    return store.add(replace(image, size_bytes=size))


async def _layer(store: ImageStore, digest: str, blob: Path) -> int:
    if not digest.isalnum():
        raise TalonError("image_import_failed", "the image's description names a layer in an unknown way")
    if store.has_layer(digest):
        return await asyncio.to_thread(measure, store.layer(digest))
    made = store.part("layer")
    try:
        size = await unpack(blob, made)
        store.keep_layer(digest, made)
    finally:
        if made.exists():
            await asyncio.to_thread(shutil.rmtree, made, True)
    return size


def measure(place: Path) -> int:
    """The bytes of all files below a directory."""
    return sum(path.lstat().st_size for path in place.rglob("*") if not path.is_dir() or path.is_symlink())


def _manifest(layout: Path) -> dict[str, Any]:
    index = json.loads((layout / "index.json").read_text())
    told: dict[str, Any] = json.loads(_blob(layout, str(index["manifests"][0]["digest"])).read_text())
    return told


def _blob(layout: Path, digest: str) -> Path:
    kind, _, value = digest.partition(":")
    if not (kind.isalnum() and value.isalnum()):
        raise ValueError(f"{digest!r} is no digest")
    return layout / "blobs" / kind / value


def _image(name: str, digest: str, config: dict[str, Any], diffs: list[str]) -> Image:
    told = config.get("config") or {}
    environment = dict(entry.partition("=")[::2] for entry in told.get("Env") or ())
    return Image(
        id=f"img-{digest[:24]}",
        name=name,
        layers=tuple(diff.partition(":")[2] for diff in reversed(diffs)),
        env=environment,
        user=str(told.get("User") or ""),
        workdir=str(told.get("WorkingDir") or ""),
        entrypoint=(*(told.get("Entrypoint") or ()), *(told.get("Cmd") or ())),
        labels=dict(told.get("Labels") or {}),
    )
