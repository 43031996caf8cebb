"""What the API answers, as plain data classes; made by `parse`, which ignores fields that this version does not know.

Times are timezone-aware datetimes, sizes bytes, durations seconds. `raw` in the larger ones holds the answer as it
came.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

T = TypeVar("T")


def parse(cls: type[T], data: Mapping[str, Any]) -> T:
    """Make a `cls` of a JSON object; times become datetimes."""
    known: Mapping[str, Any] = cls.__dataclass_fields__  # type: ignore[attr-defined]
    fields = {key: _value(key, value) for key, value in data.items() if key in known}
    if "raw" in known:
        fields["raw"] = data
    return cls(**fields)


def _value(key: str, value: Any) -> Any:
    if isinstance(value, str) and key.endswith("_at"):
        from datetime import datetime

        return datetime.fromisoformat(value)
    return value


@dataclass(frozen=True)
class Result:
    """How a command ended. `exit_code` is 128+n after signal n."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0
    duration_s: float = 0.0
    timed_out: bool = False
    oom_killed: bool = False
    signal: str | int | None = None
    process_id: str = ""
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    stdout_bytes: bytes = field(default=b"", repr=False)
    stderr_bytes: bytes = field(default=b"", repr=False)

    @property
    def ok(self) -> bool:
        """True when the exit code is 0 and the time was not over."""
        return self.exit_code == 0 and not self.timed_out


@dataclass(frozen=True)
class SandboxInfo:
    """One sandbox as the server sees it. States: pending, running, paused, stopped, failed, terminated,
    and on the way starting, pausing, resuming, stopping. `reason` says why it failed.
    """

    id: str
    name: str | None = None
    state: str = ""
    reason: str | None = None
    image: str | None = None
    snapshot: str | None = None
    resources: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    user: str | None = None
    workdir: str | None = None
    ttl_s: float | None = None
    idle_timeout_s: float | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    expires_at: datetime | None = None
    ended_at: datetime | None = None
    network: dict[str, Any] | None = None
    volumes: list[dict[str, Any]] = field(default_factory=list)
    recording: dict[str, Any] | None = None
    timings: dict[str, Any] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class ProcessInfo:
    """One background command. `state` is running, exited, killed or failed."""

    id: str
    command: str | list[str] = ""
    cwd: str = ""
    user: str = ""
    pid: int = 0
    state: str = ""
    exit_code: int | None = None
    signal: str | int | None = None
    timed_out: bool = False
    oom_killed: bool = False
    started_at: datetime | None = None
    finished_at: datetime | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class FileInfo:
    """One file-system entry. `type` is file, dir, symlink or other; `mode` octal digits such as "0644"."""

    path: str
    name: str = ""
    type: str = ""
    size: int = 0
    mode: str = ""
    owner: str = ""
    group: str = ""
    uid: int = 0
    gid: int = 0
    modified_at: datetime | None = None
    target: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_dir(self) -> bool:
        return self.type == "dir"


@dataclass(frozen=True)
class Match:
    """A line of a file in which something was found; lines count from 1."""

    path: str
    line: int = 0
    text: str = ""


@dataclass(frozen=True)
class Metrics:
    """What a sandbox uses at this moment; `memory_limit_bytes` is None when there is no limit."""

    cpu_count: float = 0.0
    cpu_used_pct: float = 0.0
    cpu_usage_s: float = 0.0
    memory_bytes: int = 0
    memory_limit_bytes: int | None = None
    pids: int = 0
    oom_kills: int = 0


@dataclass(frozen=True)
class Port:
    """A TCP port on which something in the sandbox listens."""

    port: int
    address: str = ""
    protocol: str = "tcp"
    pid: int | None = None
    process: str | None = None


@dataclass(frozen=True)
class Image:
    """One image of the server's store, with the other names (aliases) it goes by."""

    name: str
    id: str = ""
    size_bytes: int | None = None
    aliases: list[str] = field(default_factory=list)
    layers: int | None = None
    user: str | None = None
    workdir: str | None = None
    created_at: datetime | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class TerminalInfo:
    """A terminal of a sandbox; `output_offset` counts all bytes it has shown so far."""

    id: str
    command: str = ""
    cwd: str | None = None
    user: str | None = None
    pid: int = 0
    state: str = "running"
    exit_code: int | None = None
    cols: int = 80
    rows: int = 24
    clients: int = 0
    output_offset: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Volume:
    """Named storage that outlives sandboxes."""

    name: str
    size_bytes: int | None = None
    used_bytes: int | None = None
    created_at: datetime | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Snapshot:
    """The file system of a sandbox at one moment; new sandboxes can start from it."""

    id: str
    name: str | None = None
    sandbox_id: str | None = None
    state: str | None = None
    reason: str | None = None
    size_bytes: int | None = None
    created_at: datetime | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Pool:
    """Sandboxes of one kind (`spec`) that are already up: at least `minimum`, at most `maximum` wait to be claimed."""

    name: str
    minimum: int = 0
    maximum: int = 0
    ready: int = 0
    warm_command: str | None = None
    spec: dict[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class ApiKey:
    """An API key; `key` itself is known only in the answer to its creation."""

    id: str
    name: str | None = None
    key: str | None = field(default=None, repr=False)
    admin: bool = False
    created_at: datetime | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Transfer:
    """What an upload or download of a directory moved; `skipped` names entries that were left out, with the reason."""

    files: int = 0
    bytes: int = 0
    skipped: tuple[str, ...] = ()


class LogChunk(str):
    """A piece of output: text, with its `stream` ("stdout" or "stderr") and the `offset` of the next, if known.

    `dropped` counts bytes before it that the sandbox no longer had.
    """

    __slots__ = ("dropped", "offset", "stream")
    stream: str
    offset: int | None
    dropped: int

    def __new__(cls, text: str, stream: str = "stdout", offset: int | None = None, dropped: int = 0) -> LogChunk:
        chunk = super().__new__(cls, text)
        chunk.stream = stream
        chunk.offset = offset
        chunk.dropped = dropped
        return chunk
