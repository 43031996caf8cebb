"""What is asked for a new sandbox, completed with the operator's defaults and held to the limits. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from talon_server.config import Defaults, Limits
from talon_server.errors import TalonError
from talon_server.model.ids import SANDBOX
from talon_server.model.network import Action, Mode, NetworkPolicy
from talon_server.model.sandbox import Resources, SandboxSpec


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """One create. `ttl_s` None: it never ends by itself. `wait` False: answer before it runs.

    `idempotency` is the client's key and `fingerprint` a hash of what it asked, to tell a repeat from a mistake.
    `unasked` names fields of the spec that take the operator's default: network, recording.
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
    unasked: frozenset[str] = frozenset()


def complete(request: CreateRequest, defaults: Defaults) -> SandboxSpec:
    """The spec with the operator's defaults for all that was not asked."""
    spec, asked = request.spec, request.spec.resources
    resources = Resources(
        cpu=asked.cpu or defaults.cpu,
        memory_bytes=asked.memory_bytes or defaults.memory_bytes,
        disk_bytes=asked.disk_bytes or defaults.disk_bytes,
        pids=asked.pids or defaults.pids,
    )
    spec = replace(spec, image=spec.image or defaults.image, resources=resources)
    if "network" in request.unasked:
        spec = replace(spec, network=policy_of(Mode(defaults.network)))
    if "recording" in request.unasked:
        spec = replace(spec, recording=replace(spec.recording, mode=defaults.recording))
    return spec


def policy_of(mode: Mode) -> NetworkPolicy:
    """The policy that a mode is by itself."""
    return NetworkPolicy(mode, (), Action.ALLOW if mode is Mode.OPEN else Action.DENY)


def check(request: CreateRequest, limits: Limits) -> None:
    """Raises invalid_request when more is asked than one sandbox may have."""
    if request.name.startswith(f"{SANDBOX}_"):
        raise TalonError("invalid_request", f"the name {request.name!r} looks like an id; choose another beginning")
    asked = request.spec.resources
    for name in ("cpu", "memory_bytes", "disk_bytes", "pids"):
        wanted, most = getattr(asked, name), getattr(limits, name)
        if wanted < 0 or (most and wanted > most):
            raise TalonError("invalid_request", f"{name} {wanted:g} is more than this server allows ({most:g})")
    if asked.memory_bytes and asked.memory_bytes < 6 << 20:
        raise TalonError("invalid_request", "a sandbox needs at least 6 MiB of memory")
    if limits.ttl_s and (request.ttl_s is None or request.ttl_s > limits.ttl_s):
        raise TalonError("invalid_request", f"ttl must be given and at most {limits.ttl_s:g} seconds here")
