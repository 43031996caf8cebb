"""A busybox image for the session, and for each test a home whose worker is taken away completely at the end."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from talon_server.worker.assembly import erase
from worker import world


@pytest.fixture(scope="session")
def image() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="talon-image-", dir="/var/tmp") as place:
        os.chmod(place, 0o755)
        yield world.make_image(Path(place, "root"))


@pytest.fixture
def home() -> Iterator[Path]:
    """A home with a short path that sandboxes' users can pass."""
    place = Path(tempfile.mkdtemp(prefix="talon-", dir="/var/tmp"))
    place.chmod(0o711)
    yield place
    asyncio.run(erase(world.options(place)))
    assert world.left_over(place) == []
    shutil.rmtree(place)
