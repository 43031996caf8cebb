"""Images for the dialects: what there is, and the long works that make one, each told step by step.

A work whose follower goes away is cancelled and leaves nothing. Two requests for the same work wait for each other.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path

from talon_server.errors import TalonError
from talon_server.lib.tasks import Tasks
from talon_server.worker.images import archive
from talon_server.worker.images.base import build_base
from talon_server.worker.images.code_interpreter import build_code_interpreter
from talon_server.worker.images.registry import REFERENCE, Source, pull
from talon_server.worker.images.store import Image, ImageStore

Progress = Callable[[str], None]
Step = Mapping[str, str] | Image


class ImageService:
    """The images of this host."""

    def __init__(self, store: ImageStore, tasks: Tasks) -> None:
        self.store = store
        self._tasks = tasks
        self._locks: dict[str, asyncio.Lock] = {}

    def build_base(self) -> AsyncIterator[Step]:
        """Build `base`. Raises image_build_failed."""
        return self._follow("base", lambda progress: build_base(self.store, progress))

    def build_code_interpreter(self) -> AsyncIterator[Step]:
        """Build `code-interpreter` over `base`. Raises image_not_found, image_build_failed."""
        return self._follow("code-interpreter", lambda progress: build_code_interpreter(self.store, progress))

    def pull(self, source: Source, name: str | None) -> AsyncIterator[Step]:
        """Pull an image; its name is its reference unless told. Raises image_pull_failed, registry_unauthorized."""
        named = image_name(name or source.reference)
        return self._follow(named, lambda progress: pull(self.store, source, named, progress))

    async def receive(self, content: AsyncIterator[bytes]) -> Path:
        """Write an archive down as it comes in; `take` removes it."""
        place = self.store.part("archive")
        try:
            with (place / "archive.tar").open("wb") as file:
                async for piece in content:
                    await asyncio.to_thread(file.write, piece)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        return place / "archive.tar"

    async def take(self, received: Path, name: str) -> AsyncIterator[Step]:
        """Import an archive that was received. Raises image_import_failed."""
        try:
            works = self._follow(name, lambda progress: archive.take(self.store, received, name, progress))
            async for step in works:
                yield step
        finally:
            await asyncio.to_thread(shutil.rmtree, received.parent, True)

    async def _follow(self, key: str, work: Callable[[Progress], Awaitable[Image]]) -> AsyncIterator[Step]:
        """Run a work in the background; give what it says, and last the image. Ends it when the follower goes."""
        said: asyncio.Queue[str | None] = asyncio.Queue(1000)

        def progress(line: str) -> None:
            with suppress(asyncio.QueueFull):
                said.put_nowait(line)

        async def alone() -> Image:
            try:
                async with self._locks.setdefault(key, asyncio.Lock()):
                    return await work(progress)
            finally:
                await said.put(None)

        task = self._tasks.start(f"image {key}", alone())
        try:
            while (line := await said.get()) is not None:
                if line:
                    yield {"message": line}
            yield await task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


def image_name(name: str) -> str:
    """The name, if an image may have it. Raises invalid_request."""
    if not REFERENCE.fullmatch(name):
        raise TalonError("invalid_request", f"{name!r} cannot be the name of an image")
    return name
