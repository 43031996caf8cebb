"""The claim's settings: what an agent is told of the sandbox it becomes. The agent's side is agent/src/agent.rs."""

from typing import Any

from talon_server.model.sandbox import Resources, SandboxSpec
from talon_server.worker.stores import ImageConfig


def claim_settings(id: str, token: str, spec: SandboxSpec, config: ImageConfig, resolver: str) -> dict[str, Any]:
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
    }


def limits(resources: Resources) -> dict[str, Any]:
    return {"memory": resources.memory_bytes or None, "cpu": resources.cpu or None, "pids": resources.pids or None}
