"""The snapshot routes of the OpenSandbox lifecycle API.

Handlers of `app`. A snapshot is made while the request waits (milliseconds on btrfs), so it is Ready when told.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from talon_server.api.services import Services
from talon_server.api.v1 import shapes
from talon_server.api.v1.http import Handler, Problem, Reply, Request, paged, without_nulls
from talon_server.api.v1.schemas import CreateSnapshot
from talon_server.control.snapshots import Snapshot
from talon_server.errors import TalonError

_STATES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "creating": ("Creating", "snapshot_accepted"),
        "ready": ("Ready", "snapshot_runtime_ready"),
        "failed": ("Failed", "snapshot_runtime_failed"),
    }
)


class SnapshotRoutes:
    def __init__(self, services: Services) -> None:
        self._snapshots = services.snapshots
        self._lifecycle = services.lifecycle

    async def create(self, request: Request) -> Reply:
        body = await request.read(CreateSnapshot)
        source = self._lifecycle.get(request.principal, request.args[0])
        try:
            made = await self._snapshots.create(request.principal, source.id, body.name or "")
        except TalonError as error:
            if error.code != "sandbox_not_running":
                raise
            raise Problem(409, "SNAPSHOT::INVALID_SOURCE_STATE", f"{error}. {error.remedy}") from error
        return Reply(202, shape(made), {"Location": f"/v1/snapshots/{made.id}"})

    async def list(self, request: Request) -> Reply:
        page, size = request.page()
        source, name = request.one("sandboxId"), request.one("name")
        states = {state.lower() for state in request.query().get("state", [])}
        found = [
            one
            for one in self._snapshots.list(request.principal)
            if source in (None, one.sandbox_id) and name in (None, one.name) and (not states or one.state in states)
        ]
        shown = [shape(one) for one in found[(page - 1) * size : page * size]]
        return Reply(200, paged(shown, page, size, len(found)))

    async def get(self, request: Request) -> Reply:
        return Reply(200, shape(self._snapshots.get(request.principal, request.args[0])))

    async def delete(self, request: Request) -> Reply:
        if self._snapshots.get(request.principal, request.args[0]).state == "creating":
            raise Problem(
                409, "SNAPSHOT::INVALID_STATE", "The snapshot is still being made; delete it when it is Ready."
            )
        await self._snapshots.delete(request.principal, request.args[0])
        return Reply(204)


def shape(snapshot: Snapshot) -> dict[str, Any]:
    """Snapshot of the lifecycle API."""
    state, reason = _STATES[snapshot.state]
    at = shapes.timestamp(datetime.fromtimestamp(snapshot.created_at, UTC))
    status = {"state": state, "reason": reason, "message": snapshot.reason or None, "lastTransitionAt": at}
    return without_nulls(
        {
            "id": snapshot.id,
            "sandboxId": snapshot.sandbox_id,
            "name": snapshot.name or None,
            "status": without_nulls(status),
            "createdAt": at,
        }
    )


def table(services: Services) -> Mapping[tuple[str, ...], Mapping[str, Handler]]:
    routes = SnapshotRoutes(services)
    return {
        ("sandboxes", "*", "snapshots"): {"POST": routes.create},
        ("snapshots",): {"GET": routes.list},
        ("snapshots", "*"): {"GET": routes.get, "DELETE": routes.delete},
    }
