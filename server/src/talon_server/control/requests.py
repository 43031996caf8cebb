"""What is asked for a new sandbox, completed with the operator's defaults and held to the limits. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from talon_server.config import Defaults, Limits
from talon_server.errors import TalonError
from talon_server.model.sandbox import Resources, SandboxSpec


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """One create. `ttl_s` None: it never ends by itself. `wait` False: answer before it runs.

    `idempotency` is the client's key and `fingerprint` a hash of what it asked, to tell a repeat from a mistake.
    """

    spec: SandboxSpec
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    ttl_s: float | None = None
    idempotency: str = ""
    fingerprint: str = ""
    queue_timeout_s: float | None = None
    wait: bool = True
    pool: str = ""


def complete(spec: SandboxSpec, defaults: Defaults) -> SandboxSpec:
    """The spec with every resource told and a recording mode."""
    asked = spec.resources
    resources = Resources(
        cpu=asked.cpu or defaults.cpu,
        memory_bytes=asked.memory_bytes or defaults.memory_bytes,
        disk_bytes=asked.disk_bytes or defaults.disk_bytes,
        pids=asked.pids or defaults.pids,
    )
    return replace(spec, image=spec.image or defaults.image, resources=resources)


def check(request: CreateRequest, limits: Limits) -> None:
    """Raises invalid_request when more is asked than one sandbox may have."""
    asked = request.spec.resources
    for name in ("cpu", "memory_bytes", "disk_bytes", "pids"):
        wanted, most = getattr(asked, name), getattr(limits, name)
        if wanted < 0 or (most and wanted > most):
            raise TalonError("invalid_request", f"{name} {wanted:g} is more than this server allows ({most:g})")
    if asked.memory_bytes and asked.memory_bytes < 6 << 20:
        raise TalonError("invalid_request", "a sandbox needs at least 6 MiB of memory")
    if limits.ttl_s and (request.ttl_s is None or request.ttl_s > limits.ttl_s):
        raise TalonError("invalid_request", f"ttl must be given and at most {limits.ttl_s:g} seconds here")
