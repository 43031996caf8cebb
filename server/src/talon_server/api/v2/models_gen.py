"""Bodies of /v2. Made by tools/gen_models.py of api/openapi.yaml: change that, not this."""

from __future__ import annotations
from typing import Annotated, Any, Literal
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field


class Error(BaseModel):
    code: Annotated[str, Field(description='A code of errors.yaml')]
    message: str
    cause: str | None
    remedy: str | None
    retryable: bool
    request_id: str | None


class Resources(BaseModel):
    model_config = ConfigDict(
        extra='forbid',
    )
    cpu: Annotated[float | str | None, Field(description='Cores')] = None
    memory: Annotated[
        str | int | None,
        Field(description='Bytes, or a number with a unit: 512MiB', examples=['4GiB']),
    ] = None
    disk: Annotated[
        str | int | None,
        Field(description='Bytes, or a number with a unit: 512MiB', examples=['4GiB']),
    ] = None
    pids: Annotated[int | None, Field(ge=1)] = None


class NetworkRule(BaseModel):
    model_config = ConfigDict(
        extra='forbid',
    )
    action: Literal['allow', 'deny']
    target: Annotated[str, Field(description='A name, *.suffix, address or network')]
    ports: Annotated[
        list[int | str] | None, Field(description='Ports and ranges: 443, 8000-8100')
    ] = None
    protocol: Literal['tcp', 'udp'] | None = None


class Network(BaseModel):
    model_config = ConfigDict(
        extra='forbid',
    )
    mode: Literal['open', 'allowlist', 'sealed'] | None = None
    default: Literal['allow', 'deny'] | None = None
    rules: Annotated[list[NetworkRule] | None, Field(max_length=4096)] = None


class VolumeMount(BaseModel):
    model_config = ConfigDict(
        extra='forbid',
    )
    name: str | None = None
    host: str | None = None
    path: str
    subpath: str | None = None
    read_only: bool | None = None


class RecordingMode(BaseModel):
    model_config = ConfigDict(
        extra='forbid',
    )
    mode: Literal['off', 'terminals', 'all'] | None = None
    input: bool | None = None
    strict: bool | None = None


class Hook(BaseModel):
    model_config = ConfigDict(
        extra='forbid',
    )
    command: Annotated[list[str], Field(min_length=1)]
    timeout_s: Annotated[
        int | None, Field(description='60 unless told', ge=1, le=10800)
    ] = None


class PeriodicHook(BaseModel):
    model_config = ConfigDict(
        extra='forbid',
    )
    name: Annotated[str, Field(max_length=63)]
    schedule: Annotated[
        str,
        Field(description='Five cron fields, or @every 30s', examples=['*/5 * * * *']),
    ]
    command: Annotated[list[str], Field(min_length=1)]
    timeout_s: Annotated[
        int | None, Field(description='60 unless told', ge=1, le=300)
    ] = None


class Lifecycle(BaseModel):
    model_config = ConfigDict(
        extra='forbid',
    )
    pre_start: Hook | None = None
    periodic: Annotated[list[PeriodicHook] | None, Field(max_length=16)] = None


class SandboxCreate(BaseModel):
    model_config = ConfigDict(
        extra='forbid',
    )
    name: Annotated[
        str | None,
        Field(max_length=63, pattern='^[a-zA-Z0-9]([a-zA-Z0-9_.-]*[a-zA-Z0-9])?$'),
    ] = None
    image: str | None = None
    snapshot: str | None = None
    pool: str | None = None
    resources: Resources | None = None
    env: dict[str, str] | None = None
    user: str | None = None
    workdir: str | None = None
    entrypoint: list[str] | None = None
    labels: dict[str, str] | None = None
    ttl: Annotated[
        str | float | None,
        Field(description='Seconds, or a number with a unit: 10m', examples=['10m']),
    ] = None
    idle_timeout: Annotated[
        str | float | None,
        Field(
            description='Freeze it after so long without a request; the next one wakes it'
        ),
    ] = None
    network: Network | None = None
    volumes: Annotated[list[VolumeMount] | None, Field(max_length=32)] = None
    recording: RecordingMode | None = None
    lifecycle: Lifecycle | None = None
    secure_access: bool | None = None


class Resources1(BaseModel):
    cpu: float | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    pids: int | None = None


class Sandbox(BaseModel):
    id: str
    name: str | None = None
    state: Literal[
        'pending',
        'starting',
        'running',
        'pausing',
        'paused',
        'resuming',
        'stopping',
        'stopped',
        'failed',
        'terminated',
    ]
    reason: str | None = None
    image: str
    snapshot: str | None = None
    resources: Resources1
    labels: dict[str, str]
    user: str | None = None
    workdir: str | None = None
    ttl_s: float | None = None
    idle_timeout_s: float | None = None
    created_at: AwareDatetime
    started_at: AwareDatetime | None = None
    expires_at: AwareDatetime | None = None
    ended_at: AwareDatetime | None = None
    network: Network | None = None
    volumes: list[VolumeMount] | None = None
    recording: RecordingMode | None = None
    timings: Annotated[
        dict[str, float | bool],
        Field(description='Milliseconds of each phase of the start'),
    ]


class SandboxList(BaseModel):
    items: list[Sandbox]
    next_cursor: str | None = None


class SandboxPatch(BaseModel):
    model_config = ConfigDict(
        extra='forbid',
    )
    labels: dict[str, str] | None = None
    ttl: Annotated[
        str | float | None,
        Field(description='Seconds, or a number with a unit: 10m', examples=['10m']),
    ] = None


class Renew(BaseModel):
    model_config = ConfigDict(
        extra='forbid',
    )
    ttl: Annotated[
        str | float | None,
        Field(description='Seconds, or a number with a unit: 10m', examples=['10m']),
    ]


class BatchCreate(BaseModel):
    model_config = ConfigDict(
        extra='forbid',
    )
    count: Annotated[int, Field(ge=1, le=10000)]
    spec: SandboxCreate | None = None


class LabelSelector(BaseModel):
    model_config = ConfigDict(
        extra='forbid',
    )
    labels: dict[str, str]


class BatchResult(BaseModel):
    done: list[str]
    failed: list[dict[str, Any]]


class Decision(BaseModel):
    sequence: int | None = None
    at_s: float | None = None
    allowed: bool | None = None
    layer: str | None = None
    name: str | None = None
    address: str | None = None
    port: int | None = None
    protocol: str | None = None
    rule: int | None = None
    reason: str | None = None
    count: int | None = None


class DecisionList(BaseModel):
    items: list[Decision]


class SnapshotCreate(BaseModel):
    model_config = ConfigDict(
        extra='forbid',
    )
    name: str | None = None


class Snapshot(BaseModel):
    id: str
    name: str | None = None
    sandbox_id: str
    state: Literal['creating', 'ready', 'failed']
    reason: str | None = None
    size_bytes: int | None = None
    created_at: AwareDatetime


class SnapshotList(BaseModel):
    items: list[Snapshot]


class Image(BaseModel):
    id: str
    name: str
    aliases: list[str] | None = None
    size_bytes: int
    layers: int | None = None
    user: str | None = None
    workdir: str | None = None
    created_at: AwareDatetime


class ImageList(BaseModel):
    items: list[Image]


class ImagePull(BaseModel):
    model_config = ConfigDict(
        extra='forbid',
    )
    ref: str
    name: str | None = None
    username: str | None = None
    password: str | None = None
    insecure: bool | None = None


class ImagePush(BaseModel):
    model_config = ConfigDict(
        extra='forbid',
    )
    name: str
    ref: str
    username: str | None = None
    password: str | None = None
    insecure: bool | None = None


class Volume(BaseModel):
    name: str
    size_bytes: int | None = None
    used_bytes: int | None = None
    created_at: AwareDatetime


class VolumeList(BaseModel):
    items: list[Volume]


class VolumeCreate(BaseModel):
    model_config = ConfigDict(
        extra='forbid',
    )
    name: str
    size: Annotated[
        str | int | None,
        Field(description='Bytes, or a number with a unit: 512MiB', examples=['4GiB']),
    ] = None


class Pool(BaseModel):
    name: str
    minimum: int
    maximum: int
    ready: int
    warm_command: str | None = None
    spec: SandboxCreate
    created_at: AwareDatetime | None = None


class PoolList(BaseModel):
    items: list[Pool]


class PoolCreate(BaseModel):
    model_config = ConfigDict(
        extra='forbid',
    )
    name: Annotated[str, Field(max_length=63)]
    minimum: Annotated[int | None, Field(ge=0, le=1000)] = None
    maximum: Annotated[int | None, Field(ge=0, le=1000)] = None
    warm_command: Annotated[
        str | None, Field(description='Run in each before it counts as ready')
    ] = None
    spec: SandboxCreate | None = None


class PoolPatch(BaseModel):
    model_config = ConfigDict(
        extra='forbid',
    )
    minimum: Annotated[int | None, Field(ge=0, le=1000)] = None
    maximum: Annotated[int | None, Field(ge=0, le=1000)] = None


class Key(BaseModel):
    id: str
    name: str
    admin: bool | None = None
    created_at: AwareDatetime


class KeyList(BaseModel):
    items: list[Key]


class KeyCreate(BaseModel):
    model_config = ConfigDict(
        extra='forbid',
    )
    name: Annotated[str, Field(max_length=200)]


class KeyCreated(BaseModel):
    id: str
    name: str
    key: Annotated[str, Field(description='The secret; it cannot be had again')]
    created_at: AwareDatetime | None = None


class Recording(BaseModel):
    id: str
    sandbox_id: str
    sandbox_name: str | None = None
    mode: str | None = None
    state: Literal['live', 'closed']
    started_at: AwareDatetime
    closed_at: AwareDatetime | None = None
    records: int | None = None
    size_bytes: int | None = None
    held: bool | None = None
    terminals: list[str] | None = None
    verified: bool | None = None
    reason: str | None = None
    head: dict[str, Any] | None = None


class RecordingList(BaseModel):
    items: list[Recording]
    next_cursor: str | None = None


class RecordingPatch(BaseModel):
    model_config = ConfigDict(
        extra='forbid',
    )
    held: bool


class AuditEvent(BaseModel):
    sequence: int
    at: AwareDatetime
    tenant: str | None = None
    key_id: str | None = None
    action: str
    target: str | None = None
    outcome: str
    status: int | None = None
    address: str | None = None
    request_id: str | None = None
    hash: str | None = None


class AuditList(BaseModel):
    items: list[AuditEvent]
    next_cursor: str | None = None


class Verification(BaseModel):
    sound: bool
    records: int
    bad_record: int | None = None
    reason: str | None = None
    head: str | None = None


class Host(BaseModel):
    pass


class Health(BaseModel):
    status: str


class Version(BaseModel):
    version: str
