"""A create request as the platform's own specification. Pure; called by the create handler.

What only OpenSandbox knows of (the image as it was written, the platform, secure access) is kept with the sandbox
under extension keys of our own (`KEPT`), never shown as extensions.
"""

import json
import platform
from collections.abc import Mapping

from talon_server.api.v1 import hooks, quantities
from talon_server.api.v1 import policy as policies
from talon_server.api.v1.http import Problem
from talon_server.api.v1.schemas import RENEW_EXTENSION, CreateSandbox, Volume
from talon_server.model.network import NetworkPolicy
from talon_server.model.sandbox import Resources, SandboxSpec, VolumeMount

KEPT = "talon.opensandbox."
ENV_FILE = "/opt/opensandbox/.env"
"""Where `set_env` of the SDKs keeps variables; the agent reads it again for every command."""
ENTRYPOINT = ("tail", "-f", "/dev/null")
_ARCH = {"x86_64": "amd64", "aarch64": "arm64"}
_RESOURCES = frozenset({"cpu", "memory", "disk", "pids", "ephemeral-storage"})


def spec_of(body: CreateSandbox, image: str) -> SandboxSpec:
    """`image` is the image's name, empty for a snapshot or pool. Raises `Problem`."""
    check_offer(body)
    return SandboxSpec(
        image=image,
        resources=resources_of(body.resource_limits or {}),
        env={"EXECD_ENVS": ENV_FILE, **{name: value for name, value in body.env.items() if value is not None}},
        user="root",
        entrypoint=hooks.entrypoint(body.lifecycle, body.entrypoint or ENTRYPOINT),
        network=NetworkPolicy() if body.network_policy is None else _policy(body),
        volumes=tuple(_mount(volume) for volume in body.volumes),
        extensions={**body.extensions, **_kept(body)},
        snapshot=body.snapshot_id,
        lifecycle=body.lifecycle.model_dump(by_alias=True, exclude_none=True) if body.lifecycle else {},
    )


def check_offer(body: CreateSandbox) -> None:
    """Refuse what this server cannot give, field by field."""
    if body.template_id is not None:
        raise Problem(
            501, "FSB::API_NOT_SUPPORTED", "templateId: micro-VM templates are not supported; use snapshotId."
        )
    if body.credential_proxy is not None and body.credential_proxy.enabled:
        raise _parameter("credentialProxy: the credential vault is not available on this server; leave it out.")
    if body.platform is not None:
        here = _ARCH.get(platform.machine(), platform.machine())
        if (body.platform.os, body.platform.arch) != ("linux", here):
            raise _parameter(f"platform: this host runs linux/{here}; ask for that or leave platform out.")
    if any(name.startswith("opensandbox.io/") for name in body.extensions):
        raise _parameter("extensions: the prefix 'opensandbox.io/' is reserved.")
    if "OPENSANDBOX_LIFECYCLE" in body.env:
        raise _parameter("env: the name OPENSANDBOX_LIFECYCLE is reserved; choose another.")
    if any(not name or "=" in name or "\0" in name + (value or "") for name, value in body.env.items()):
        raise _parameter("env: names must not be empty or contain '=', and nothing may contain a NUL.")
    if any("\0" in word for word in body.entrypoint or ()):
        raise _parameter("entrypoint: a word must not contain a NUL.")
    renew = body.extensions.get(RENEW_EXTENSION)
    if renew is not None and not (renew.isascii() and renew.isdigit() and 300 <= int(renew[:9]) <= 86400):
        raise _parameter(f"extensions: {RENEW_EXTENSION} must be a whole number of seconds from 300 to 86400.")


def resources_of(limits: Mapping[str, str]) -> Resources:
    """Raises `Problem` for a limit that is no quantity, or that this host cannot give."""
    unknown = sorted(name for name in limits if name not in _RESOURCES)
    if unknown:
        raise _parameter(f"resourceLimits: {unknown[0]!r} is not offered here; use cpu, memory, disk or pids.")
    try:
        amounts = {name: quantities.parse(text) for name, text in limits.items()}
    except quantities.BadQuantity as error:
        raise _parameter(f"resourceLimits: {error}.") from error
    if any(amount <= 0 for amount in amounts.values()):
        raise _parameter("resourceLimits: every limit must be greater than zero.")
    disk = amounts.get("disk", amounts.get("ephemeral-storage", 0))
    return Resources(
        float(amounts.get("cpu", 0)), int(amounts.get("memory", 0)), int(disk), int(amounts.get("pids", 0))
    )


def kept(extensions: Mapping[str, str], name: str) -> str | None:
    """What a create request left under `KEPT`."""
    return extensions.get(KEPT + name)


def shown(extensions: Mapping[str, str]) -> dict[str, str]:
    """The client's own extensions."""
    return {name: value for name, value in extensions.items() if not name.startswith(KEPT)}


def _kept(body: CreateSandbox) -> dict[str, str]:
    notes = {
        "image": body.image.uri if body.image else None,
        "platform": f"{body.platform.os}/{body.platform.arch}" if body.platform else None,
        "secure": "true" if body.secure_access else None,
        "entrypoint": json.dumps(body.entrypoint or ENTRYPOINT) if body.lifecycle else None,
        "pool": body.pool_ref,
    }
    return {KEPT + name: value for name, value in notes.items() if value is not None}


def _policy(body: CreateSandbox) -> NetworkPolicy:
    assert body.network_policy is not None
    try:
        return policies.to_model(body.network_policy)
    except policies.BadTarget as error:
        raise _parameter(f"networkPolicy: {error}") from error


def _mount(volume: Volume) -> VolumeMount:
    if volume.ossfs is not None:
        raise Problem(
            400,
            "VOLUME::UNSUPPORTED_BACKEND",
            f"volumes: {volume.name!r} uses ossfs, which is not offered here; use pvc (a named volume) or host.",
        )
    return VolumeMount(
        path=volume.mount_path,
        name=volume.pvc.claim_name if volume.pvc else None,
        host=volume.host.path if volume.host else None,
        subpath=volume.sub_path or "",
        read_only=volume.read_only,
    )


def _parameter(message: str) -> Problem:
    return Problem(400, "SANDBOX::INVALID_PARAMETER", message)
