"""The control plane over a real database and a host in memory that can be slow, refuse, or die at any point."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from talon_server.api.services import Services
from talon_server.compose import assemble
from talon_server.config import Config
from talon_server.control.principals import Principal
from talon_server.control.requests import CreateRequest
from talon_server.egress.decisions import Decisions
from talon_server.errors import TalonError
from talon_server.model.network import NetworkPolicy
from talon_server.model.sandbox import Resources, Sandbox, SandboxSpec
from talon_server.worker.disk import Disk
from talon_server.worker.images.store import Image, ImageStore
from talon_server.worker.port import AgentAddress, Observed, Started, WorkerEvent
from talon_server.worker.recordings import Recordings
from talon_server.worker.volumes import Volumes

BOUND_S = 30.0
ME = Principal("key_me", "default", "me", admin=True)
OTHER = Principal("key_other", "elsewhere", "other")
T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """A test's coroutine on uvloop, bounded."""

    async def bounded() -> T:
        async with asyncio.timeout(120):
            return await work

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(bounded())


async def until(holds: Callable[[], bool], what: str) -> None:
    """Wait for a condition."""
    try:
        async with asyncio.timeout(BOUND_S):
            while not holds():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"never: {what}") from None


@dataclass
class MemoryHost:
    """A worker whose sandboxes are entries of a dict; it outlives the control planes that tests start on it.

    `refuse[op] = n`: the next n calls fail. `gates[op]`: calls wait until the event is set.
    """

    running: dict[str, str] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)
    applied: dict[str, dict[str, Any]] = field(default_factory=dict)
    refuse: Counter[str] = field(default_factory=Counter)
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    ran: list[tuple[str, str]] = field(default_factory=list)
    decisions: Decisions = field(default_factory=Decisions)
    recordings: dict[str, str] = field(default_factory=dict)
    told: "asyncio.Queue[WorkerEvent]" = field(default_factory=asyncio.Queue)

    async def _act(self, op: str) -> None:
        self.calls[op] += 1
        if op in self.gates:
            await self.gates[op].wait()
        if self.refuse[op] > 0:
            self.refuse[op] -= 1
            raise TalonError("runtime_failed", f"{op} was refused")

    def hold(self, op: str) -> asyncio.Event:
        """Let calls of `op` wait until the event is set."""
        self.gates[op] = asyncio.Event()
        return self.gates[op]

    async def start(self) -> list[Observed]:
        return [Observed(id, state, self.agent(id)) for id, state in self.running.items()]

    async def close(self) -> None: ...

    async def create(self, id: str, token: str, spec: SandboxSpec, image_id: str) -> Started:
        known = id in self.files
        self.files.add(id)
        try:
            await self._act("create")
        except BaseException:
            if not known:
                self.files.discard(id)
            raise
        self.running[id] = "running"
        self.applied[id] = {"spec": spec, "network": spec.network}
        return Started(self.agent(id), "10.0.0.2", True, {"shell_ms": 1.0})

    async def stop(self, id: str, *, grace_s: float) -> None:
        await self._act("stop")
        self.running.pop(id, None)

    async def destroy(self, id: str) -> None:
        await self._act("destroy")
        self.running.pop(id, None)
        self.files.discard(id)

    async def pause(self, id: str) -> None:
        await self._act("pause")
        self.running[id] = "paused"

    async def resume(self, id: str) -> None:
        await self._act("resume")
        self.running[id] = "running"

    def wake(self, id: str) -> None:
        self.running[id] = "running"

    async def resize(self, id: str, resources: Resources) -> None:
        await self._act("resize")
        self.applied[id]["resources"] = resources

    async def set_network(self, id: str, policy: NetworkPolicy) -> None:
        await self._act("set_network")
        self.applied[id]["network"] = policy

    async def set_environment(self, id: str, env: Mapping[str, str], image_id: str) -> None:
        await self._act("set_environment")
        self.applied[id]["env"] = dict(env)

    async def sweep(self, keep: Collection[str]) -> None:
        self.files -= self.files - {*keep, *self.running}

    async def snapshot(self, id: str, snapshot_id: str) -> int:
        await self._act("snapshot")
        return 4096

    async def delete_snapshot(self, snapshot_id: str) -> None: ...

    def agent(self, id: str) -> AgentAddress:
        if id not in self.running:
            raise TalonError("sandbox_not_running")
        return AgentAddress(Path("/nowhere"), "token")

    async def run(self, id: str, command: str, *, timeout_s: float) -> tuple[int, str]:
        await self._act("run")
        self.ran.append((id, command))
        return 0, ""

    def recording(self, id: str) -> str:
        return self.recordings.get(id, "")

    async def record(self, id: str, kind: str, fields: Mapping[str, Any]) -> None: ...

    async def events(self) -> AsyncIterator[WorkerEvent]:
        while True:
            yield await self.told.get()

    async def capacity(self) -> Mapping[str, Any]:
        return {"sandboxes": len(self.running), "pool": {"level": 1, "target": 2, "misses": 0}}

    def dies(self, id: str) -> None:
        """The sandbox ends by itself."""
        self.running.pop(id, None)
        self.told.put_nowait(WorkerEvent(id, "exited", {"reason": "its first process was killed"}))


@asynccontextmanager
async def control(home: Path, host: MemoryHost, **settings: Any) -> AsyncIterator[Services]:
    """A control plane on a home; leaving it is like the server's end. `settings`: sections of the configuration."""
    disk = Disk(home / "disk", limited=False)
    (home / "disk" / "volumes").mkdir(parents=True, exist_ok=True)
    images = ImageStore.open(home, disk, {"python:3.12": "base"})
    images.add(Image("img-base", "base", ()))
    config = Config(home=home, **settings)
    async with assemble(config, host, images, Volumes(disk, ()), Recordings.at(home)) as services:
        yield services


def asked(**fields: Any) -> CreateRequest:
    """A request for a sandbox of `base`."""
    return CreateRequest(**{"spec": SandboxSpec(image="base"), **fields})


async def code_of(work: Awaitable[object]) -> str:
    """The code of the error that a call ends with."""
    try:
        await work
    except TalonError as error:
        return error.code
    return ""


def states(services: Services) -> dict[str, str]:
    """The sandboxes that have not ended, by id."""
    return {one.id: str(one.state) for one in services.lifecycle.all()}


def fresh(services: Services, sandbox: Sandbox) -> Sandbox:
    """It as it stands now."""
    return services.lifecycle.get(ME, sandbox.id)
