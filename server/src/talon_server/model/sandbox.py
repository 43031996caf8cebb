"""The sandbox as the platform knows it: what was asked (`SandboxSpec`), and its states.

Every dialect's state names are derived from `State`; which change of state is legal is decided by
`TRANSITIONS` alone. Pure data, imported by every layer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from talon_server.model.network import NetworkPolicy


class State(StrEnum):
    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    RESUMING = "resuming"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    TERMINATED = "terminated"


TRANSITIONS: Mapping[State, frozenset[State]] = MappingProxyType(
    {
        State.PENDING: frozenset({State.RUNNING, State.FAILED, State.TERMINATED}),
        State.STARTING: frozenset({State.RUNNING, State.STOPPED, State.FAILED, State.TERMINATED}),
        State.RUNNING: frozenset(
            {State.PAUSING, State.PAUSED, State.STOPPING, State.STOPPED, State.FAILED, State.TERMINATED}
        ),
        State.PAUSING: frozenset({State.PAUSED, State.RUNNING, State.FAILED, State.TERMINATED}),
        State.PAUSED: frozenset({State.RESUMING, State.RUNNING, State.STOPPING, State.FAILED, State.TERMINATED}),
        State.RESUMING: frozenset({State.RUNNING, State.PAUSED, State.FAILED, State.TERMINATED}),
        State.STOPPING: frozenset({State.STOPPED, State.FAILED, State.TERMINATED}),
        State.STOPPED: frozenset({State.STARTING, State.FAILED, State.TERMINATED}),
        State.FAILED: frozenset({State.TERMINATED}),
        State.TERMINATED: frozenset(),
    }
)


@dataclass(frozen=True, slots=True)
class Resources:
    """Limits of one sandbox. `cpu` in cores, sizes in bytes, `pids` in tasks; 0 = the operator's default."""

    cpu: float = 0.0
    memory_bytes: int = 0
    disk_bytes: int = 0
    pids: int = 0


@dataclass(frozen=True, slots=True)
class VolumeMount:
    """A named volume or an allow-listed host directory at `path` inside the sandbox; exactly one of the two."""

    path: str
    name: str | None = None
    host: str | None = None
    subpath: str = ""
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Recording:
    """What is recorded: `mode` off, terminals or all; `strict` refuses what cannot be recorded."""

    mode: str = "all"
    input: bool = False
    strict: bool = False


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """All that was asked for a sandbox; complete enough to start it again after a stop."""

    image: str
    resources: Resources = Resources()
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    workdir: str = ""
    entrypoint: tuple[str, ...] | None = None
    network: NetworkPolicy = NetworkPolicy()
    volumes: tuple[VolumeMount, ...] = ()
    recording: Recording = Recording()
    extensions: Mapping[str, str] = field(default_factory=dict)
    snapshot: str | None = None
    hostname: str = ""
    lifecycle: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sandbox:
    """One sandbox as it stands. Times are UTC; `ended_at` is set once it is failed or terminated.

    `token` opens its agent; `ttl_s` is what was asked last, None for no end; `idempotency` is the key it was made with.
    """

    id: str
    name: str
    tenant: str
    spec: SandboxSpec
    state: State
    token: str
    created_at: datetime
    image_id: str = ""
    reason: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    started_at: datetime | None = None
    expires_at: datetime | None = None
    ended_at: datetime | None = None
    changed_at: datetime | None = None
    ttl_s: float | None = None
    ip: str = ""
    pooled: bool = False
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    key_id: str = ""
    idempotency: str = ""

    @property
    def live(self) -> bool:
        """Neither failed nor terminated."""
        return self.ended_at is None


def may(before: State, after: State) -> bool:
    """Is this change of state legal?"""
    return after in TRANSITIONS[before]
