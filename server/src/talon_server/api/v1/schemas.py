"""The bodies OpenSandbox clients send, checked field by field (OpenSandbox lifecycle API 1.1).

Read by the handlers of this package. Unknown fields are ignored as upstream does, except in lifecycle hooks. The
error messages go to the client: they name the field and what it must be.
"""

import re
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

POOL_REF = "poolRef"
RENEW_EXTENSION = "access.renew.extend.seconds"

DnsLabel = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
DnsName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=253)]
Words = Annotated[list[str], Field(min_length=1)]


class ImageAuth(BaseModel):
    username: str
    password: str


class Image(BaseModel):
    uri: Annotated[str, StringConstraints(min_length=1)]
    auth: ImageAuth | None = None


class Platform(BaseModel):
    os: Literal["linux", "windows"]
    arch: Literal["amd64", "arm64"]


class Rule(BaseModel):
    action: Literal["allow", "deny"]
    target: Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]


class Policy(BaseModel):
    default_action: Literal["allow", "deny"] | None = Field(None, alias="defaultAction")
    egress: list[Rule] = Field(default_factory=list, max_length=4096)


class HostBackend(BaseModel):
    path: str

    @field_validator("path")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if not re.match(r"^(/|[A-Za-z]:[\\/])", value):
            raise ValueError("host.path must be an absolute path")
        return value


class PvcBackend(BaseModel):
    claim_name: DnsName = Field(alias="claimName")
    create_if_not_exists: bool = Field(True, alias="createIfNotExists")
    delete_on_sandbox_termination: bool = Field(False, alias="deleteOnSandboxTermination")
    storage_class: str | None = Field(None, alias="storageClass")
    storage: Annotated[str, StringConstraints(pattern=r"^\d+(\.\d+)?(Ki|Mi|Gi|Ti|Pi|Ei)?$")] | None = None
    access_modes: list[str] | None = Field(None, alias="accessModes")


class OssfsBackend(BaseModel):
    bucket: Annotated[str, StringConstraints(min_length=3, max_length=63)]
    endpoint: Annotated[str, StringConstraints(min_length=1)]


def _sub_path(value: str | None) -> str | None:
    if value is not None and (value.startswith("/") or ".." in value.split("/")):
        raise ValueError("subPath must be relative and must not contain '..'")
    return value


class Volume(BaseModel):
    name: DnsLabel
    host: HostBackend | None = None
    pvc: PvcBackend | None = None
    ossfs: OssfsBackend | None = None
    mount_path: Annotated[str, StringConstraints(pattern=r"^/.*")] = Field(alias="mountPath")
    read_only: bool = Field(False, alias="readOnly")
    sub_path: Annotated[str | None, AfterValidator(_sub_path)] = Field(None, alias="subPath")

    @model_validator(mode="after")
    def _one_backend(self) -> Self:
        if sum(backend is not None for backend in (self.host, self.pvc, self.ossfs)) != 1:
            raise ValueError("Exactly one of host, pvc or ossfs must be given for each volume.")
        return self


class PreStart(BaseModel):
    model_config = ConfigDict(extra="forbid")
    command: Words
    timeout_seconds: int = Field(60, alias="timeoutSeconds", ge=1, le=10800)


_SCHEDULE_FIELD = re.compile(r"(\*|\d{1,2}(-\d{1,2})?)(/[1-9]\d?)?(,(\*|\d{1,2}(-\d{1,2})?)(/[1-9]\d?)?)*\Z")


class Periodic(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: DnsLabel
    schedule: str
    command: Words
    timeout_seconds: int = Field(60, alias="timeoutSeconds", ge=1, le=300)

    @field_validator("schedule")
    @classmethod
    def _cron(cls, value: str) -> str:
        if re.match(r"@every [1-9]\d*(s|m|h)\Z", value):
            return value
        fields = value.split()
        if len(fields) != 5 or not all(_SCHEDULE_FIELD.match(field) for field in fields):
            raise ValueError("schedule must be five numeric cron fields or '@every 30s'")
        return value


class Hooks(BaseModel):
    model_config = ConfigDict(extra="forbid")
    pre_start: PreStart | None = Field(None, alias="preStart")
    periodic: list[Periodic] = Field(default_factory=list, max_length=16)


class CredentialProxy(BaseModel):
    enabled: bool = False


class CreateSandbox(BaseModel):
    """The body of POST /sandboxes with upstream's cross-field rules; nothing is excluded with a pool here."""

    image: Image | None = None
    snapshot_id: str | None = Field(None, alias="snapshotId")
    template_id: Annotated[str, StringConstraints(min_length=1)] | None = Field(None, alias="templateId")
    platform: Platform | None = None
    timeout: int | None = Field(None, ge=60)
    resource_limits: dict[str, str] | None = Field(None, alias="resourceLimits")
    resource_requests: dict[str, str] | None = Field(None, alias="resourceRequests")
    env: dict[str, str | None] = Field(default_factory=dict)
    metadata: dict[str, str] = Field(default_factory=dict)
    lifecycle: Hooks | None = None
    entrypoint: Words | None = None
    network_policy: Policy | None = Field(None, alias="networkPolicy")
    credential_proxy: CredentialProxy | None = Field(None, alias="credentialProxy")
    secure_access: bool = Field(False, alias="secureAccess")
    volumes: list[Volume] = Field(default_factory=list)
    extensions: dict[str, str] = Field(default_factory=dict)

    @field_validator("env", "metadata", "extensions", mode="before")
    @classmethod
    def _null_is_empty(cls, value: Any) -> Any:
        return {} if value is None else value

    @field_validator("volumes", mode="before")
    @classmethod
    def _null_is_none(cls, value: Any) -> Any:
        return [] if value is None else value

    @property
    def pool_ref(self) -> str | None:
        return self.extensions.get(POOL_REF) or None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        sources = [self.image is not None, bool(self.snapshot_id), self.template_id is not None]
        if self.pool_ref is None and sum(sources) != 1:
            raise ValueError("Exactly one of image or snapshotId must be provided.")
        if self.pool_ref is not None and sum(sources) > 1:
            raise ValueError("At most one of image, snapshotId and templateId may be given beside extensions.poolRef.")
        if self.template_id is not None or self.pool_ref is not None:
            return self
        if self.image is not None and self.entrypoint is None:
            raise ValueError("entrypoint is required when image is provided.")
        if self.resource_limits is None:
            raise ValueError("resourceLimits is required unless extensions.poolRef is set.")
        return self


class Renew(BaseModel):
    expires_at: datetime = Field(alias="expiresAt")


class CreateSnapshot(BaseModel):
    name: Annotated[str, StringConstraints(min_length=1)] | None = None


class Capacity(BaseModel):
    buffer_max: int = Field(alias="bufferMax", ge=0)
    buffer_min: int = Field(alias="bufferMin", ge=0)
    pool_max: int = Field(alias="poolMax", ge=0)
    pool_min: int = Field(alias="poolMin", ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.buffer_min > self.buffer_max or self.pool_min > self.pool_max:
            raise ValueError("bufferMin must not exceed bufferMax, nor poolMin poolMax.")
        return self


class CreatePool(BaseModel):
    name: DnsName
    template: dict[str, Any]
    capacity: Capacity = Field(alias="capacitySpec")


class UpdatePool(BaseModel):
    capacity: Capacity = Field(alias="capacitySpec")


class MetricsEvent(BaseModel):
    event_type: Literal["sandbox.create"] = Field(alias="eventType")
    sandbox_id: str | None = Field(None, alias="sandboxId")
    image: str | None = None
    create_duration_ms: int = Field(alias="createDurationMs", ge=0)
    success: bool
