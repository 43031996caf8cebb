"""What the control plane asks of one host: the only door between `control` and `worker`.

`control` holds a `WorkerPort`; in the single process it is `worker.host.Host`. Every method is idempotent
where it can be: destroying what is gone succeeds. Errors are `TalonError`s.
"""

from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from talon_server.egress.decisions import Decisions
from talon_server.model.network import NetworkPolicy
from talon_server.model.sandbox import Resources, SandboxSpec


@dataclass(frozen=True, slots=True)
class AgentAddress:
    """Where a sandbox's agent listens and the token that opens it."""

    socket: Path
    token: str


@dataclass(frozen=True, slots=True)
class Started:
    """A sandbox that answers: its address in the host's network and where the time went (milliseconds)."""

    agent: AgentAddress
    ip: str
    pooled: bool
    timings_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observed:
    """One sandbox found on the host (adoption after a restart): `state` is running, paused or stopped."""

    id: str
    state: str
    agent: AgentAddress | None


@dataclass(frozen=True, slots=True)
class WorkerEvent:
    """`kind`: exited (reason, exit_code), oom, ready. Emitted once per happening."""

    id: str
    kind: str
    detail: Mapping[str, Any] = field(default_factory=dict)


class WorkerPort(Protocol):
    decisions: Decisions
    """What the network layer decided for its sandboxes."""

    async def start(self) -> list[Observed]:
        """Open the host (helper, network, pool), adopt what runs, sweep what is left over; called once."""

    async def close(self) -> None:
        """Drain the pool and let go; running sandboxes stay."""

    async def create(self, id: str, token: str, spec: SandboxSpec, image_id: str) -> Started:
        """Start sandbox `id` from image (or snapshot) `image_id`; on error or cancellation nothing is left behind."""

    async def stop(self, id: str, *, grace_s: float) -> None:
        """End all processes, keep the file system for a later `create` of the same id."""

    async def destroy(self, id: str) -> None:
        """End it and remove all of it; returns when its processes are gone, the rest is swept in the background."""

    async def pause(self, id: str) -> None: ...

    async def resume(self, id: str) -> None: ...

    def wake(self, id: str) -> None:
        """Let a frozen sandbox go on, without waiting for it. Raises sandbox_not_running."""

    async def resize(self, id: str, resources: Resources) -> None: ...

    async def set_network(self, id: str, policy: NetworkPolicy) -> None: ...

    async def set_environment(self, id: str, env: Mapping[str, str], image_id: str) -> None:
        """Give the commands to come these variables, beside the image's."""

    async def sweep(self, keep: Collection[str]) -> None:
        """Remove, in the background, the files of all sandboxes but these and those that run."""

    async def snapshot(self, id: str, snapshot_id: str) -> int:
        """Freeze the sandbox's file system as `snapshot_id` (usable as image_id); returns its size in bytes."""

    async def delete_snapshot(self, snapshot_id: str) -> None: ...

    def agent(self, id: str) -> AgentAddress:
        """Raises `SandboxNotRunning`-coded TalonError when it does not answer here."""

    async def run(self, id: str, command: str, *, timeout_s: float) -> tuple[int, str]:
        """Run a shell command inside and return its exit code and output (both streams). Raises agent_unreachable."""

    def recording(self, id: str) -> str:
        """The recording that a running sandbox writes; empty when there is none."""

    async def record(self, id: str, kind: str, fields: Mapping[str, Any]) -> None:
        """Add a record of the server's to a running sandbox's recording; nothing when there is none."""

    def events(self) -> AsyncIterator[WorkerEvent]: ...

    async def capacity(self) -> Mapping[str, Any]:
        """cores, memory, disk, sandboxes, pool level, runtime name and version."""
