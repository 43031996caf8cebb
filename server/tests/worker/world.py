"""A real worker on this host for the tests: its own home, network and a small image of busybox.

Needs root and busybox-static. Every world has its own instance, so tests disturb neither each other nor a server.
"""

import asyncio
import http.client
import json
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from talon_server.model.sandbox import SandboxSpec, VolumeMount
from talon_server.worker.assembly import HostOptions, open_host
from talon_server.worker.host import Host
from talon_server.worker.port import AgentAddress
from talon_server.worker.recordings import Recordings
from talon_server.worker.stores import ImageConfig

AGENT = Path(os.environ.get("TALON_AGENT", Path(__file__).parents[3] / "agent/target/release/talon-agent"))
BOUND_S = 60.0


class PlainImages:
    """One image, "base": busybox."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def layers(self, image_id: str) -> list[Path]:
        return [self.root]

    def config(self, image_id: str) -> ImageConfig:
        return ImageConfig(env={"PATH": "/bin"}, workdir="/")


class PlainDisk:
    """Uppers as plain directories, without limits."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def has(self, id: str) -> bool:
        return (self._root / id).exists()

    async def upper(self, id: str, size_bytes: int) -> Path:
        for name in ("upper", "work"):
            (self._root / id / name).mkdir(parents=True, exist_ok=True)
        return self._root / id

    async def remove(self, id: str) -> None:
        shutil.rmtree(self._root / id, ignore_errors=True)

    async def snapshot(self, id: str, snapshot_id: str) -> int:
        raise NotImplementedError

    async def delete_snapshot(self, snapshot_id: str) -> None:
        raise NotImplementedError

    def known(self) -> list[str]:
        return [entry.name for entry in self._root.iterdir()]


class PlainVolumes:
    """A mount's `host` is taken as it is."""

    async def source(self, mount: VolumeMount) -> Path:
        assert mount.host is not None
        return Path(mount.host)


def make_image(root: Path) -> Path:
    """A busybox root file system."""
    for name in ("bin", "etc", "tmp", "root", "var"):
        (root / name).mkdir(parents=True)
    busybox = shutil.which("busybox")
    assert busybox is not None, "install busybox-static"
    shutil.copy(busybox, root / "bin/busybox")
    subprocess.run([busybox, "--install", "-s", str(root / "bin")], check=False, capture_output=True)
    for link in (root / "bin").iterdir():
        if link.is_symlink():
            link.unlink()
            link.symlink_to("busybox")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\nuser:x:1000:\n")
    (root / "tmp").chmod(0o1777)
    return root


def options(home: Path, *, pool: int = 1, runtime: str = "", **more: Any) -> HostOptions:
    """The options of a test's worker."""
    return HostOptions(home, AGENT, runtime=runtime, pool_min=pool, pool_max=pool, slots=64, **more)


@asynccontextmanager
async def a_host(chosen: HostOptions, image: Path) -> AsyncIterator[Host]:
    """A worker, not yet started; its sandboxes stay when it closes, as in life."""
    disk = PlainDisk(chosen.home / "disk")
    parts = (PlainImages(image), disk, PlainVolumes(), Recordings.at(chosen.home))
    async with open_host(chosen, *parts) as host:
        yield host


async def start(host: Host, id: str, spec: SandboxSpec | None = None) -> AgentAddress:
    """A running sandbox."""
    return (await host.create(id, f"token-of-{id}", spec or SandboxSpec(image="base"), "base")).agent


def left_over(home: Path) -> list[str]:
    """What of a server's things is on the host: namespaces, interfaces, groups, walls, mounts, processes."""
    instance = options(home).instance
    found = [f"netns {path.name}" for path in Path("/run/netns").glob(f"talon-{instance}-*")]
    found += [f"link {path.name}" for path in Path("/sys/class/net").glob(f"tl{instance[:5]}*")]
    found += [f"cgroup {path}" for path in Path("/sys/fs/cgroup").glob(f"*/talon-{instance}")]
    found += [f"cgroup {path}" for path in Path("/sys/fs/cgroup").glob(f"talon-{instance}")]
    tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
    found += [line for line in tables.splitlines() if f"talon_{instance}" in line]
    found += [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(home) in line]
    return found


def walls_of(host: Host) -> str:
    """The server's whole table."""
    table = f"talon_{host.instance}"
    return subprocess.run(["nft", "list", "table", "inet", table], capture_output=True, text=True, check=True).stdout


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition, within bounds."""
    async with asyncio.timeout(BOUND_S):
        while not condition():
            await asyncio.sleep(0.02)
    assert condition(), what


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("agent", timeout=BOUND_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(BOUND_S)
        self.sock.connect(str(self._path))


@dataclass(frozen=True, slots=True)
class Result:
    """What a command said and how it ended."""

    stdout: str
    stderr: str
    exit_code: int


def call(agent: AgentAddress, command: str, **fields: Any) -> Result:
    """Run a command through the sandbox's agent; blocking."""
    connection = _Connection(agent.socket)
    try:
        headers = {"X-EXECD-ACCESS-TOKEN": agent.token, "Content-Type": "application/json"}
        connection.request("POST", "/command", json.dumps({"command": command, **fields}), headers)
        body = connection.getresponse().read().decode()
    finally:
        connection.close()
    events = [json.loads(line) for line in body.split("\n\n") if line.strip()]
    texts = {
        kind: "\n".join(event["text"] for event in events if event["type"] == kind) for kind in ("stdout", "stderr")
    }
    errors = [event["error"]["evalue"] for event in events if event["type"] == "error"]
    return Result(texts["stdout"], texts["stderr"], int(errors[0]) if errors else 0)


async def run(agent: AgentAddress, command: str, **fields: Any) -> Result:
    """Run a command through the sandbox's agent."""
    return await asyncio.to_thread(call, agent, command, **fields)
