"""The images of one host: layers unpacked once by digest, images that name them, and their other names.

`<home>/images/layers/<digest>` holds a layer's files with the ids they have inside; `<home>/images/index.json` the
images. A layer goes when no image, no snapshot and no sandbox uses it any more: an image that was removed or replaced while
sandboxes run from it stays, without its names, until they are gone. Everything is made beside and renamed into place, so
a crash leaves at most a directory that the next start sweeps.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from talon_server.errors import TalonError
from talon_server.worker.disk import Disk
from talon_server.worker.stores import ImageConfig


@dataclass(frozen=True, slots=True)
class Image:
    """One image. `layers` are digests, topmost first; sizes in bytes; `created_at` Unix seconds."""

    id: str
    name: str
    layers: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    workdir: str = ""
    entrypoint: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    size_bytes: int = 0
    created_at: float = field(default_factory=time.time)
    aliases: tuple[str, ...] = ()


class ImageStore:
    """All images of a home. `aliases` of the configuration name images that may come later."""

    def __init__(self, root: Path, disk: Disk, aliases: Mapping[str, str]) -> None:
        self._root = root
        self._disk = disk
        self._aliases = aliases
        self._images: dict[str, Image] = {}
        self._snapshots: dict[str, dict[str, Any]] = {}
        self._removed: dict[str, Image] = {}
        self._used: Callable[[], Set[str]] | None = None
        self._load()

    @classmethod
    def open(cls, home: Path, disk: Disk, aliases: Mapping[str, str]) -> "ImageStore":
        """The store of a home; what an interrupted import left is removed."""
        root = home / "images"
        (root / "layers").mkdir(mode=0o700, parents=True, exist_ok=True)
        # Layers bring set-user-id programs of whoever made them: no user of the host may come near.
        for place in (root, root / "layers"):
            place.chmod(0o700)
        for entry in root.iterdir():
            if entry.name.startswith("part-"):
                shutil.rmtree(entry, ignore_errors=True)
        return cls(root, disk, aliases)

    def _load(self) -> None:
        index = self._root / "index.json"
        told = json.loads(index.read_text()) if index.exists() else {}
        self._images = {image.name: image for image in map(_image, told.get("images", []))}
        self._removed = {image.id: image for image in map(_image, told.get("removed", []))}
        self._snapshots = told.get("snapshots", {})

    def _save(self) -> None:
        told = {
            "images": [asdict(image) for image in self._images.values()],
            "removed": [asdict(image) for image in self._removed.values()],
            "snapshots": self._snapshots,
        }
        part = self._root / "index.part"
        part.write_text(json.dumps(told, indent=1))
        part.rename(self._root / "index.json")

    def all(self) -> list[Image]:
        """By name."""
        return sorted(self._images.values(), key=lambda image: image.name)

    def get(self, name: str) -> Image:
        """By name, other name or id. Raises image_not_found."""
        known = self._images.get(name) or self._images.get(self._aliases.get(name, ""))
        if known is None:
            known = next((one for one in self._images.values() if name in (one.id, *one.aliases)), None)
        if known is None:
            have = ", ".join(sorted(self._images)) or "none yet: build one with `tsb image build-base`"
            raise TalonError("image_not_found", f"there is no image {name!r} here", cause=f"images here: {have}")
        return known

    def resolve(self, name: str) -> str:
        """The id of an image. Raises image_not_found."""
        return self.get(name).id

    def layers(self, image_id: str) -> list[Path]:
        """Directories of an image or snapshot, topmost first. Raises image_not_found, snapshot_not_found."""
        if image_id in self._snapshots:
            below = self.layers(self._snapshots[image_id]["over"])
            return [self._disk.snapshot_layer(image_id), *below]
        return [self._place(digest) for digest in self._by_id(image_id).layers]

    def config(self, image_id: str) -> ImageConfig:
        """How to run an image or snapshot."""
        if image_id in self._snapshots:
            told = self._snapshots[image_id]["config"]
            return ImageConfig(told["env"], told["user"], told["workdir"], tuple(told["entrypoint"]))
        image = self._by_id(image_id)
        return ImageConfig(image.env, image.user, image.workdir, image.entrypoint)

    def add(self, image: Image) -> Image:
        """Make an image known; one of the same name is replaced."""
        replaced = self._images.get(image.name)
        self._images[image.name] = image
        if replaced is not None and replaced.id != image.id:
            self._removed[replaced.id] = replaced
        self.sweep()
        return image

    def alias(self, name: str, alias: str) -> Image:
        """Give an image another name, taking it from whichever has it."""
        image = self.get(name)
        for other in list(self._images.values()):
            if alias in other.aliases:
                self._images[other.name] = replace(other, aliases=tuple(a for a in other.aliases if a != alias))
        image = replace(self._images[image.name], aliases=(*self._images[image.name].aliases, alias))
        return self.add(image)

    def remove(self, name: str) -> None:
        """Forget an image; layers that something still uses stay. Raises image_not_found."""
        image = self._images.pop(self.get(name).name)
        self._removed[image.id] = image
        self.sweep()

    def add_snapshot(self, snapshot_id: str, of_image: str) -> None:
        """Note a snapshot of a sandbox that runs `of_image`: its layers lie under the snapshot's own."""
        below = self._snapshots[of_image]["layers"] if of_image in self._snapshots else self._by_id(of_image).layers
        config = self.config(of_image)
        self._snapshots[snapshot_id] = {"layers": list(below), "config": asdict(config), "over": of_image}
        self._save()

    def remove_snapshot(self, snapshot_id: str) -> None:
        """Forget a snapshot. Raises nothing when it is unknown."""
        self._snapshots.pop(snapshot_id, None)
        self.sweep()

    def snapshots_over(self, snapshot_id: str) -> list[str]:
        """The snapshots of sandboxes that ran from this one: they hold only what changed since."""
        return [id for id, snapshot in self._snapshots.items() if snapshot["over"] == snapshot_id]

    def protect(self, used: Callable[[], Set[str]]) -> None:
        """Ask `used` for the ids of the images and snapshots that sandboxes run from, and keep those."""
        self._used = used
        self.sweep()

    def sweep(self) -> None:
        """Save, and remove what nothing uses. Removed images are all kept until `protect` told who uses them."""
        if self._used is not None:
            needed = self._used() | {snapshot["over"] for snapshot in self._snapshots.values()}
            self._removed = {id: image for id, image in self._removed.items() if id in needed}
        self._save()
        kept = (*self._images.values(), *self._removed.values())
        used = {digest for image in kept for digest in image.layers}
        used |= {digest for snapshot in self._snapshots.values() for digest in snapshot["layers"]}
        for entry in (self._root / "layers").iterdir():
            if entry.name not in used and not entry.name.startswith("part-"):
                shutil.rmtree(entry, ignore_errors=True)

    def has_layer(self, digest: str) -> bool:
        return self._place(digest).exists()

    def layer(self, digest: str) -> Path:
        """A layer's directory."""
        return self._place(digest)

    def part(self, name: str) -> Path:
        """A fresh directory to make something in; `keep_layer` takes it."""
        place = self._root / f"part-{name}-{time.monotonic_ns()}"
        place.mkdir(mode=0o755)
        return place

    def keep_layer(self, digest: str, made: Path) -> None:
        """Take a finished directory as the layer `digest`."""
        place = self._place(digest)
        if place.exists():
            shutil.rmtree(made, ignore_errors=True)
        else:
            made.rename(place)

    def _by_id(self, image_id: str) -> Image:
        for image in (*self._images.values(), *self._removed.values()):
            if image.id == image_id:
                return image
        raise TalonError("image_not_found", f"there is no image {image_id!r} here")

    def _place(self, digest: str) -> Path:
        return self._root / "layers" / digest

    def __iter__(self) -> Iterator[Image]:
        return iter(self.all())


def _image(told: dict[str, Any]) -> Image:
    return Image(**{**told, **{key: tuple(told[key]) for key in ("layers", "entrypoint", "aliases")}})
