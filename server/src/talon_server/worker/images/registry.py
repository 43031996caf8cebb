"""Pulls images from registries with skopeo. A login travels in a file that only this process's user can read.

Source: skopeo-copy(1), containers-auth.json(5).
"""

import asyncio
import base64
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from talon_server.errors import TalonError
from talon_server.worker.images import layout
from talon_server.worker.images.store import Image, ImageStore

Progress = Callable[[str], None]
REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,400}")
_REFUSED = ("unauthorized", "authentication required", "denied", "invalid username/password")


@dataclass(frozen=True, slots=True)
class Source:
    """Where an image is: a reference such as `python:3.12` or `host:5000/team/app@sha256:…`, and how to get in."""

    reference: str
    username: str = ""
    password: str = ""
    insecure: bool = False

    @property
    def registry(self) -> str:
        """The registry's name as logins are kept by."""
        first, slash, _ = self.reference.partition("/")
        return first if slash and (set(first) & {".", ":"} or first == "localhost") else "docker.io"


async def pull(store: ImageStore, source: Source, name: str, progress: Progress) -> Image:
    """Pull an image and make it known as `name`. Raises image_pull_failed, registry_unauthorized."""
    if not REFERENCE.fullmatch(source.reference):
        raise TalonError("invalid_request", f"{source.reference!r} is no reference of an image")
    place = store.part("pull")
    try:
        progress(f"pulling {source.reference}")
        words = [f"--src-tls-verify={'false' if source.insecure else 'true'}"]
        if source.username:
            words.append(f"--src-authfile={_login(place, source)}")
        await copy([*words, f"docker://{source.reference}"], place / "layout", progress)
        return await layout.take(store, place / "layout", name, progress)
    finally:
        await asyncio.to_thread(shutil.rmtree, place, True)


async def copy(words: list[str], target: Path, progress: Progress) -> None:
    """`skopeo copy` into an OCI layout. Raises image_pull_failed, registry_unauthorized."""
    if shutil.which("skopeo") is None:
        raise TalonError("image_pull_failed", "skopeo is not installed", remedy="Install skopeo on the host.")
    process = await asyncio.create_subprocess_exec(
        *("skopeo", "copy", "--remove-signatures", *words, f"oci:{target}:image"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    last = ""
    try:
        assert process.stdout is not None
        async for line in process.stdout:
            last = line.decode(errors="replace").strip() or last
            progress(last[:200])
        status = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if status != 0:
        refused = any(word in last.lower() for word in _REFUSED)
        raise TalonError("registry_unauthorized" if refused else "image_pull_failed", cause=last[-600:])


def _login(place: Path, source: Source) -> Path:
    file = place / "auth.json"
    token = base64.b64encode(f"{source.username}:{source.password}".encode()).decode()
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w") as writer:
        json.dump({"auths": {source.registry: {"auth": token}}}, writer)
    return file
