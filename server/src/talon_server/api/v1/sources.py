"""What a new sandbox is made of: its image, snapshot or pool, and its volumes, brought in before it is created.

Called by the create and delete handlers.
"""

from dataclasses import replace

from talon_server.api.services import Services
from talon_server.api.v1.http import Problem
from talon_server.api.v1.schemas import CreateSandbox, PvcBackend
from talon_server.api.v1.translate import KEPT, kept, spec_of
from talon_server.control.principals import Principal
from talon_server.errors import TalonError
from talon_server.model.sandbox import Sandbox, SandboxSpec

_OWN_USER = "sandbox"
"""The user of images that we build; OpenSandbox's clients expect root unless an image says otherwise."""


def prepare(services: Services, principal: Principal, body: CreateSandbox) -> SandboxSpec:
    """The complete specification, its volumes made where that was asked. Raises `Problem`, TalonError."""
    image = body.image.uri if body.image is not None else ""
    spec = spec_of(body, image)
    if body.snapshot_id:
        spec = replace(spec, snapshot=_ready_snapshot(services, principal, body.snapshot_id))
    made = [backend.claim_name for backend in _claims(body) if _ensure(services, principal, backend)]
    if made:
        spec = replace(spec, extensions={**spec.extensions, KEPT + "volumes": ",".join(made)})
    if image:
        spec = replace(spec, user=user_of(services, image))
    return spec


def _ready_snapshot(services: Services, principal: Principal, ref: str) -> str:
    snapshot = services.snapshots.get(principal, ref)
    if snapshot.state != "ready":
        raise Problem(
            409, "SNAPSHOT::NOT_READY", f"snapshotId: the snapshot is {snapshot.state}; wait until it is Ready."
        )
    return snapshot.id


def user_of(services: Services, image: str) -> str:
    """Who runs commands: the image's user (empty: as it says), else root. Raises image_not_found."""
    return "" if services.images.get(image).user not in ("", _OWN_USER) else "root"


def release(services: Services, principal: Principal, sandbox: Sandbox) -> None:
    """Remove the volumes that were made with the sandbox and were to end with it."""
    for name in (kept(sandbox.spec.extensions, "volumes") or "").split(","):
        if name:
            try:
                services.volumes.delete(principal, name)
            except TalonError as error:
                if error.code not in ("volume_not_found", "volume_in_use"):
                    raise


def _claims(body: CreateSandbox) -> list[PvcBackend]:
    return [volume.pvc for volume in body.volumes if volume.pvc is not None]


def _ensure(services: Services, principal: Principal, backend: PvcBackend) -> bool:
    """Whether the volume was made here and is to be deleted with the sandbox."""
    try:
        services.volumes.get(principal, backend.claim_name)
    except TalonError as error:
        if error.code != "volume_not_found":
            raise
        if not backend.create_if_not_exists:
            raise Problem(
                404,
                "VOLUME::PVC_NOT_FOUND",
                f"volumes: there is no volume {backend.claim_name!r}; allow createIfNotExists.",
            ) from error
        services.volumes.create(principal, backend.claim_name)
        return backend.delete_on_sandbox_termination
    return False
