"""Layers stay as long as an image, a snapshot or a sandbox needs them, and no longer."""

from pathlib import Path

import pytest

from talon_server.errors import TalonError
from talon_server.worker.disk import Disk
from talon_server.worker.images.store import Image, ImageStore


def store_at(home: Path) -> ImageStore:
    disk = Disk(home / "disk", limited=False)
    for name in ("sandboxes", "snapshots"):
        (home / "disk" / name).mkdir(parents=True, exist_ok=True)
    return ImageStore.open(home, disk, {})


def with_image(store: ImageStore, id: str, *layers: str, name: str = "app") -> Image:
    for digest in layers:
        if not store.has_layer(digest):
            made = store.part("test")
            (made / "from").write_text(digest)
            store.keep_layer(digest, made)
    return store.add(Image(id, name, layers))


def snapshot(store: ImageStore, home: Path, id: str, over: str) -> Path:
    upper = home / "disk" / "snapshots" / id / "upper"
    upper.mkdir(parents=True)
    store.add_snapshot(id, over)
    return upper


def test_a_removed_image_stays_while_sandboxes_run_from_it(tmp_path: Path) -> None:
    store, used = store_at(tmp_path), {"img-1"}
    store.protect(lambda: used)
    with_image(store, "img-1", "top", "bottom")
    store.remove("app")
    with pytest.raises(TalonError, match="no image"):
        store.resolve("app")
    assert [layer.name for layer in store.layers("img-1")] == ["top", "bottom"]
    used.clear()
    store.sweep()
    assert not store.has_layer("top")
    with pytest.raises(TalonError):
        store.layers("img-1")


def test_a_replaced_image_stays_too_and_after_a_restart(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    store.protect(lambda: {"img-old"})
    with_image(store, "img-old", "old", "shared")
    with_image(store, "img-new", "new", "shared")
    store = store_at(tmp_path)
    with_image(store, "img-other", "other", name="other")
    assert store.has_layer("old"), "nothing goes before it is known who runs"
    store.protect(lambda: {"img-old"})
    assert store.layers("img-old")[0].joinpath("from").read_text() == "old"
    store.protect(set)
    assert not store.has_layer("old")
    assert store.has_layer("shared")


def test_a_snapshot_of_a_snapshot_lies_over_it(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    store.protect(set)
    with_image(store, "img-1", "bottom")
    first = snapshot(store, tmp_path, "snap-1", "img-1")
    second = snapshot(store, tmp_path, "snap-2", "snap-1")
    store.remove("app")
    assert store.layers("snap-2") == [second, first, store.layer("bottom")]
    assert store.snapshots_over("snap-1") == ["snap-2"]
    store.remove_snapshot("snap-2")
    store.remove_snapshot("snap-1")
    assert not store.has_layer("bottom")
