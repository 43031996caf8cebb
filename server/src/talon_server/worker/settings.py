"""The claim's settings: what an agent is told of the sandbox it becomes. The agent's side is agent/src/agent.rs."""

from dataclasses import dataclass
from typing import Any

from talon_server.model.sandbox import Resources, SandboxSpec, VolumeMount
from talon_server.worker.stores import ImageConfig


@dataclass(frozen=True, slots=True)
class HouseRules:
    """What the operator decided for every sandbox. See `Hardening`, `Execd` and `Volumes` of the configuration."""

    bare: bool = False
    landlock: bool = False
    loopback: bool = False
    mounts: tuple[VolumeMount, ...] = ()


def claim_settings(
    id: str, token: str, spec: SandboxSpec, config: ImageConfig, resolver: str, rules: HouseRules
) -> dict[str, Any]:
    recording = spec.recording
    return {
        "id": id,
        "token": token,
        "hostname": spec.hostname or id.replace("_", "-")[:63],
        "env": {**config.env, **spec.env},
        "user": spec.user or config.user,
        "workdir": spec.workdir or config.workdir,
        "entrypoint": list(spec.entrypoint) if spec.entrypoint else None,
        "dns": [resolver],
        "record": {"mode": recording.mode, "input": recording.input, "strict": recording.strict},
        "extensions": dict(spec.extensions),
        "limits": limits(spec.resources),
        "hardening": {
            "capabilities": "none" if rules.bare else "packages",
            "writable": [mount.path for mount in spec.volumes if not mount.read_only] if rules.landlock else None,
        },
        "loopback": rules.loopback,
    }


def limits(resources: Resources) -> dict[str, Any]:
    return {"memory": resources.memory_bytes or None, "cpu": resources.cpu or None, "pids": resources.pids or None}
