"""Builds the image `code-interpreter`: one layer over `base` with kernels, the bridge to them and libraries.

The recipe is deploy/images/code-interpreter. Wheels are downloaded by the host's pip, with the host's settings; what runs
in the new root (install.sh) has no need of the network. The layer is named by the recipe and the layers below it: the same
recipe over the same base is built once.
"""

import asyncio
import hashlib
import os
import shutil
import sys
from pathlib import Path

from talon_server.errors import TalonError
from talon_server.worker.images.base import Progress
from talon_server.worker.images.store import Image, ImageStore
from talon_server.worker.images.unpack import settle

RECIPE = Path(__file__).parents[5] / "deploy" / "images" / "code-interpreter"
NAME = "code-interpreter"
#: In a mount namespace of its own, so that nothing is left mounted however it ends.
_INSTALL = """set -e
mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$UPPER,workdir=$WORK" "$ROOT"
mkdir "$ROOT/build" && mount --bind "$BUILD" "$ROOT/build"
mount -t proc proc "$ROOT/proc" && mount --rbind /dev "$ROOT/dev"
env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \\
    chroot "$ROOT" sh /build/install.sh
umount "$ROOT/build" && rmdir "$ROOT/build"
"""


async def build_code_interpreter(store: ImageStore, progress: Progress) -> Image:
    """Build it over `base`, which must be there. Raises image_not_found, image_build_failed."""
    base = store.get("base")
    digest = _digest(base.layers)
    if not store.has_layer(digest):
        place = store.part(NAME)
        try:
            await _make(store, base, place, progress)
            store.keep_layer(digest, place / "upper")
        finally:
            await asyncio.to_thread(shutil.rmtree, place, True)
    size = await asyncio.to_thread(settle, store.layer(digest))
    return store.add(
        Image(
            id=f"img-{digest[:24]}",
            name=NAME,
            layers=(digest, *base.layers),
            env=base.env,
            user=base.user,
            workdir=base.workdir,
            size_bytes=base.size_bytes + size,
            aliases=("opensandbox/code-interpreter", "opensandbox/code-interpreter:latest"),
        )
    )


async def _make(store: ImageStore, base: Image, place: Path, progress: Progress) -> None:
    build = place / "build"
    await asyncio.to_thread(shutil.copytree, RECIPE, build, ignore=shutil.ignore_patterns("__pycache__"))
    layers = [store.layer(digest) for digest in base.layers]
    await _run(_download(build, python_of(layers)), {}, progress)
    for name in ("upper", "work", "root"):
        (place / name).mkdir(mode=0o755)
    variables = {"LOWER": ":".join(map(str, layers)), "BUILD": str(build)}
    variables |= {name.upper(): str(place / name) for name in ("upper", "work", "root")}
    await _run(["unshare", "--mount", "sh", "-c", _INSTALL], variables, progress)


def _download(build: Path, version: str) -> list[str]:
    return [
        *(sys.executable, "-m", "pip", "download", "--only-binary=:all:", "--python-version", version),
        *("--progress-bar", "off", "--dest", str(build / "wheels"), "--requirement", str(build / "requirements.txt")),
    ]


def python_of(layers: list[Path]) -> str:
    """The version of an image's Python, such as 3.11. Raises image_build_failed."""
    for layer in layers:
        program = layer / "usr/bin/python3"
        if program.is_symlink():
            return os.readlink(program).removeprefix("python")
    raise TalonError("image_build_failed", "the image base has no Python", remedy="Build base anew.")


async def _run(command: list[str], variables: dict[str, str], progress: Progress) -> None:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, **variables},
    )
    last = ""
    try:
        assert process.stdout is not None
        async for line in process.stdout:
            last = line.decode(errors="replace").strip() or last
            progress(last)
        if await process.wait() != 0:
            raise TalonError("image_build_failed", f"{Path(command[0]).name} failed", cause=last)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _digest(below: tuple[str, ...]) -> str:
    """Of the recipe's files and the layers below."""
    told = hashlib.sha256(" ".join(below).encode())
    for path in sorted(RECIPE.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            told.update(str(path.relative_to(RECIPE)).encode() + b"\0" + path.read_bytes())
    return told.hexdigest()
