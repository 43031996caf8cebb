"""Between /v2's JSON and what the services take and give. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from talon_server.api.v1.hooks import entrypoint
from talon_server.api.v1.schemas import Hooks
from talon_server.api.v2 import models_gen as models
from talon_server.control.creation import IDLE
from talon_server.control.requests import CreateRequest
from talon_server.egress.addresses import parse_network
from talon_server.errors import TalonError
from talon_server.model.network import Action, Mode, NetworkPolicy, Rule
from talon_server.model.sandbox import Recording, Resources, Sandbox, SandboxSpec, VolumeMount
from talon_server.model.units import parse_duration, parse_size

IDLE_ENTRYPOINT = ("tail", "-f", "/dev/null")
"""What hooks are started before when there is no entry process."""


def create_request(
    body: models.SandboxCreate,
    *,
    idempotency: str = "",
    fingerprint: str = "",
    queue_timeout_s: float | None = None,
    wait: bool = True,
) -> CreateRequest:
    """What a create asks. Raises invalid_request, invalid_size, invalid_duration, network_invalid."""
    spec = SandboxSpec(
        image=body.image or "",
        snapshot=body.snapshot,
        resources=resources(body.resources),
        env=_environment(body.env or {}),
        user=body.user or "",
        workdir=_absolute(body.workdir or "", "workdir"),
        entrypoint=_entrypoint(body),
        network=network(body.network),
        volumes=tuple(_mount(mount) for mount in body.volumes or ()),
        recording=_recording(body.recording),
        extensions=_extensions(body),
        hostname=body.name.replace("_", "-").replace(".", "-") if body.name else "",
        lifecycle=body.lifecycle.model_dump(exclude_none=True) if body.lifecycle else {},
    )
    unasked = {"network": body.network is None, "recording": body.recording is None or body.recording.mode is None}
    return CreateRequest(
        spec=spec,
        name=body.name or "",
        labels=body.labels or {},
        ttl_s=parse_duration(body.ttl, "ttl") if body.ttl is not None else None,
        idempotency=idempotency,
        fingerprint=fingerprint,
        queue_timeout_s=queue_timeout_s,
        wait=wait,
        pool=body.pool or "",
        unasked=frozenset(name for name, left_out in unasked.items() if left_out),
    )


def refuse_with_pool(spec: SandboxSpec) -> None:
    """Raises invalid_request when a request names a pool and something that only the pool decides."""
    fixed = ("image", "snapshot", "volumes", "user", "workdir", "entrypoint")
    asked = [name for name in fixed if getattr(spec, name)]
    if asked:
        raise TalonError("invalid_request", f"{asked[0]} is decided by the pool; leave it out, or leave the pool out")


def _entrypoint(body: models.SandboxCreate) -> tuple[str, ...] | None:
    """The entry process with its hooks around it, None for none. Raises invalid_request."""
    asked = tuple(body.entrypoint) if body.entrypoint else None
    if body.lifecycle is None:
        return asked
    first = body.lifecycle.pre_start
    try:
        hooks = Hooks.model_validate(
            {
                "preStart": _hook(first) if first is not None else None,
                "periodic": [
                    {**_hook(hook), "name": hook.name, "schedule": hook.schedule}
                    for hook in body.lifecycle.periodic or ()
                ],
            }
        )
    except ValidationError as error:
        first_error = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first_error["loc"])
        raise TalonError("invalid_request", f"lifecycle.{where}: {first_error['msg']}") from error
    return entrypoint(hooks, asked or IDLE_ENTRYPOINT)


def _hook(hook: models.Hook | models.PeriodicHook) -> dict[str, Any]:
    told = {"command": hook.command, "timeoutSeconds": hook.timeout_s}
    return {name: value for name, value in told.items() if value is not None}


def _extensions(body: models.SandboxCreate) -> dict[str, str]:
    told = {"talon.secure_access": "true"} if body.secure_access else {}
    if body.idle_timeout is not None:
        told[IDLE] = str(parse_duration(body.idle_timeout, "idle_timeout"))
    return told


def resources(given: models.Resources | None) -> Resources:
    """Limits as asked; zero where nothing was."""
    if given is None:
        return Resources()
    return Resources(
        cpu=_cores(given.cpu) if given.cpu is not None else 0.0,
        memory_bytes=parse_size(given.memory, "resources.memory") if given.memory is not None else 0,
        disk_bytes=parse_size(given.disk, "resources.disk") if given.disk is not None else 0,
        pids=given.pids or 0,
    )


def network(given: models.Network | None) -> NetworkPolicy:
    """A policy; one with rules and no default denies the rest. Raises network_invalid."""
    if given is None:
        return NetworkPolicy()
    rules = tuple(_rule(rule) for rule in given.rules or ())
    mode = Mode(given.mode) if given.mode else (Mode.ALLOWLIST if rules and given.default != "allow" else Mode.OPEN)
    default = Action(given.default) if given.default else (Action.ALLOW if mode is Mode.OPEN else Action.DENY)
    return NetworkPolicy(mode, rules, default)


def network_body(policy: NetworkPolicy) -> dict[str, Any]:
    """A policy as JSON."""
    rules = []
    for rule in policy.rules:
        shape: dict[str, Any] = {"action": str(rule.action), "target": rule.target}
        if rule.ports:
            shape["ports"] = [low if low == high else f"{low}-{high}" for low, high in rule.ports]
        if rule.protocol:
            shape["protocol"] = rule.protocol
        rules.append(shape)
    return {"mode": str(policy.mode), "default": str(policy.default), "rules": rules}


def sandbox_body(sandbox: Sandbox) -> dict[str, Any]:
    """A sandbox as JSON."""
    spec, limits = sandbox.spec, sandbox.spec.resources
    return {
        "id": sandbox.id,
        "name": sandbox.name or None,
        "state": str(sandbox.state),
        "reason": sandbox.reason or None,
        "image": spec.image,
        "snapshot": spec.snapshot,
        "resources": {
            "cpu": limits.cpu,
            "memory_bytes": limits.memory_bytes,
            "disk_bytes": limits.disk_bytes,
            "pids": limits.pids,
        },
        "labels": dict(sandbox.labels),
        "user": spec.user,
        "workdir": spec.workdir,
        "ttl_s": sandbox.ttl_s,
        "idle_timeout_s": float(spec.extensions[IDLE]) if IDLE in spec.extensions else None,
        "created_at": time(sandbox.created_at),
        "started_at": time(sandbox.started_at),
        "expires_at": time(sandbox.expires_at),
        "ended_at": time(sandbox.ended_at),
        "network": network_body(spec.network),
        "volumes": [_mount_body(mount) for mount in spec.volumes],
        "recording": {"mode": spec.recording.mode, "input": spec.recording.input, "strict": spec.recording.strict},
        "timings": {**sandbox.timings_ms, "pooled": sandbox.pooled},
    }


def spec_body(spec: SandboxSpec) -> dict[str, Any]:
    """What was asked, as it would be asked again."""
    limits = spec.resources
    asked = {"cpu": limits.cpu, "memory": limits.memory_bytes, "disk": limits.disk_bytes, "pids": limits.pids}
    shape: dict[str, Any] = {
        "image": spec.image,
        "snapshot": spec.snapshot,
        "resources": {name: value for name, value in asked.items() if value},
        "env": dict(spec.env),
        "user": spec.user,
        "workdir": spec.workdir,
        "entrypoint": list(spec.entrypoint or ()),
        "network": network_body(spec.network),
        "volumes": [_mount_body(mount) for mount in spec.volumes],
    }
    return {name: value for name, value in shape.items() if value}


def time(at: datetime | None) -> str | None:
    """RFC 3339 in UTC, to the millisecond."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z") if at is not None else None


def _cores(given: float | str) -> float:
    try:
        cores = float(given[:-1]) / 1000 if isinstance(given, str) and given.endswith("m") else float(given)
    except ValueError as error:
        raise TalonError("invalid_request", f"resources.cpu {given!r} is not a number of cores") from error
    if not 0.01 <= cores <= 1024:
        raise TalonError("invalid_request", f"resources.cpu {given!r} must be between 0.01 and 1024 cores")
    return cores


def _environment(env: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in env.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise TalonError("invalid_request", f"env: {name!r} is not a variable's name, or its value has a NUL byte")
    return dict(env)


def _absolute(path: str, field: str) -> str:
    if path and (not path.startswith("/") or ".." in path.split("/") or "\0" in path):
        raise TalonError("invalid_request", f"{field} {path!r} must be an absolute path without '..'")
    return path


def _rule(rule: models.NetworkRule) -> Rule:
    target = rule.target.strip()
    if parse_network(target) is None and not _is_name(target):
        raise TalonError("network_invalid", f"the target {rule.target!r} is no name, *.suffix, address or network")
    ports = tuple(_ports(port) for port in rule.ports or ())
    return Rule(Action(rule.action), target, ports, rule.protocol)


def _is_name(target: str) -> bool:
    name = target.removeprefix("*.").rstrip(".")
    labels = name.split(".")
    return target == "*" or (
        0 < len(name) <= 253
        and all(0 < len(label) <= 63 and not label.startswith("-") for label in labels)
        and all(letter.isalnum() or letter in "-_" for label in labels for letter in label)
    )


def _ports(given: int | str) -> tuple[int, int]:
    low, _, high = str(given).partition("-")
    if low.isascii() and low.isdigit() and (not high or (high.isascii() and high.isdigit())):
        first, last = int(low), int(high or low)
        if 1 <= first <= last <= 65535:
            return first, last
    raise TalonError("network_invalid", f"ports: {given!r} is no port and no range such as 8000-8100")


def _mount(mount: models.VolumeMount) -> VolumeMount:
    if (mount.name is None) == (mount.host is None):
        raise TalonError("invalid_request", "a volume has either a name or a host path")
    path = _absolute(mount.path, "volumes.path")
    if path.rstrip("/") in ("", "/proc", "/dev", "/sys") or path.startswith(("/proc/", "/dev/", "/sys/")):
        raise TalonError("invalid_request", f"nothing can be mounted at {mount.path!r}")
    subpath = mount.subpath or ""
    if subpath.startswith("/") or ".." in subpath.split("/"):
        raise TalonError("invalid_request", f"volumes.subpath {subpath!r} must lie inside the volume")
    return VolumeMount(path, mount.name, mount.host, subpath, bool(mount.read_only))


def _mount_body(mount: VolumeMount) -> dict[str, Any]:
    shape = {"name": mount.name, "host": mount.host, "path": mount.path, "subpath": mount.subpath or None}
    return {name: value for name, value in shape.items() if value is not None} | {"read_only": mount.read_only}


def _recording(given: models.RecordingMode | None) -> Recording:
    if given is None:
        return Recording()
    return Recording(given.mode or "all", bool(given.input), bool(given.strict))
