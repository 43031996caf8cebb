"""scripts/quickstart on a home of its own: starts a server, says what to type, does nothing the second time, and stops."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.framework.platform import ROOT, Platform, free_port, home


@pytest.fixture
def quick(shared_platform: Platform) -> Iterator[tuple[Path, int]]:
    """The home of the shared server, which is stopped meanwhile: its image `base` is there."""
    platform = shared_platform
    platform.stop()
    port = free_port()
    yield platform.home, port
    quickstart(platform.home, port, "--stop")
    platform.start()


def quickstart(place: Path, port: int, *words: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TALON_")}
    done = subprocess.run(
        [str(ROOT / "scripts" / "quickstart"), "--home", str(place), "--port", str(port), *words],
        env=inherited,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_quickstart(quick: tuple[Path, int]) -> None:
    place, port = quick
    said = quickstart(place, port)
    assert "hello from" in said
    assert "Type next:" in said
    assert httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=60).status_code == 200
    pid = (place / "talon-server.pid").read_text()
    assert "is running" in quickstart(place, port)
    assert (place / "talon-server.pid").read_text() == pid, "the second time it is the same server"
    quickstart(place, port, "--stop")
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=60)


def test_a_port_that_is_taken_is_told(shared_platform: Platform) -> None:
    with pytest.raises(AssertionError, match="choose another --port"):
        quickstart(home("other"), shared_platform.port)
