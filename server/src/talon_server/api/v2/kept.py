"""/v2/volumes, /v2/snapshots, /v2/pools and /v2/keys: what outlives a sandbox."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from talon_server.api.services import Services
from talon_server.api.v2 import models_gen as models
from talon_server.api.v2.http import Call, endpoint, reply
from talon_server.api.v2.shapes import create_request, spec_body, time
from talon_server.control.keys import KeyRecord
from talon_server.control.pools import Pool
from talon_server.control.snapshots import Snapshot
from talon_server.errors import TalonError
from talon_server.model.units import parse_size
from talon_server.worker.volumes import Volume


async def list_volumes(call: Call) -> Response:
    return reply({"items": [_volume(one) for one in call.services.volumes.list(call.principal)]})


async def create_volume(call: Call) -> Response:
    body = await call.read(models.VolumeCreate)
    size = parse_size(body.size, "size") if body.size is not None else 0
    return reply(_volume(call.services.volumes.create(call.principal, body.name, size)), 201)


async def get_volume(call: Call) -> Response:
    return reply(_volume(call.services.volumes.get(call.principal, call.path("name"))))


async def delete_volume(call: Call) -> Response:
    call.services.volumes.delete(call.principal, call.path("name"))
    return Response(status_code=204)


async def create_snapshot(call: Call) -> Response:
    body = await call.read(models.SnapshotCreate)
    snapshot = await call.services.snapshots.create(call.principal, call.path("id"), body.name or "")
    return reply(_snapshot(snapshot), 201)


async def list_snapshots(call: Call) -> Response:
    return reply({"items": [_snapshot(one) for one in call.services.snapshots.list(call.principal)]})


async def get_snapshot(call: Call) -> Response:
    return reply(_snapshot(call.services.snapshots.get(call.principal, call.path("id"))))


async def delete_snapshot(call: Call) -> Response:
    await call.services.snapshots.delete(call.principal, call.path("id"))
    return Response(status_code=204)


async def list_pools(call: Call) -> Response:
    return reply({"items": [_pool(call, one) for one in call.services.pools.list(call.principal)]})


async def create_pool(call: Call) -> Response:
    body = await call.read(models.PoolCreate)
    if body.spec is not None and (body.spec.name or body.spec.pool):
        raise TalonError("invalid_request", "a pool's sandboxes have no name and no pool of their own")
    request = create_request(body.spec or models.SandboxCreate())
    minimum = body.minimum if body.minimum is not None else 1
    pool = await call.services.pools.create(
        call.principal,
        body.name,
        request.spec,
        minimum=minimum,
        maximum=body.maximum if body.maximum is not None else minimum,
        warm_command=body.warm_command or "",
    )
    return reply(_pool(call, pool), 201)


async def get_pool(call: Call) -> Response:
    return reply(_pool(call, call.services.pools.get(call.principal, call.path("name"))))


async def patch_pool(call: Call) -> Response:
    body = await call.read(models.PoolPatch)
    pool = call.services.pools.resize(call.principal, call.path("name"), minimum=body.minimum, maximum=body.maximum)
    return reply(_pool(call, pool))


async def delete_pool(call: Call) -> Response:
    await call.services.pools.delete(call.principal, call.path("name"))
    return Response(status_code=204)


async def list_keys(call: Call) -> Response:
    return reply({"items": [_key(one) for one in call.services.keys.list(call.principal.tenant)]})


async def create_key(call: Call) -> Response:
    body = await call.read(models.KeyCreate)
    record, raw = call.services.keys.create(body.name, tenant=call.principal.tenant)
    return reply({**_key(record), "key": raw}, 201)


async def delete_key(call: Call) -> Response:
    call.services.keys.delete(call.principal.tenant, call.path("id"))
    return Response(status_code=204)


def _volume(volume: Volume) -> dict[str, Any]:
    return {"name": volume.name, "size_bytes": volume.size_bytes, "created_at": _at(volume.created_at)}


def _snapshot(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "id": snapshot.id,
        "name": snapshot.name or None,
        "sandbox_id": snapshot.sandbox_id,
        "state": snapshot.state,
        "reason": snapshot.reason or None,
        "size_bytes": snapshot.size_bytes,
        "created_at": _at(snapshot.created_at),
    }


def _pool(call: Call, pool: Pool) -> dict[str, Any]:
    return {
        "name": pool.name,
        "minimum": pool.minimum,
        "maximum": pool.maximum,
        "ready": call.services.pools.ready(pool),
        "warm_command": pool.warm_command or None,
        "spec": spec_body(pool.spec),
        "created_at": _at(pool.created_at),
    }


def _key(record: KeyRecord) -> dict[str, Any]:
    return {"id": record.id, "name": record.name, "admin": record.admin, "created_at": _at(record.created_at)}


def _at(seconds: float) -> str | None:
    return time(datetime.fromtimestamp(seconds, UTC))


def routes(services: Services) -> list[Route]:
    """The routes of this module."""

    def route(path: str, method: str, handler: Callable[[Call], Awaitable[Response]], *, admin: bool = False) -> Route:
        return Route(path, endpoint(services, handler, admin=admin), methods=[method])

    return [
        route("/v2/volumes", "GET", list_volumes),
        route("/v2/volumes", "POST", create_volume),
        route("/v2/volumes/{name}", "GET", get_volume),
        route("/v2/volumes/{name}", "DELETE", delete_volume),
        route("/v2/sandboxes/{id}/snapshots", "POST", create_snapshot),
        route("/v2/snapshots", "GET", list_snapshots),
        route("/v2/snapshots/{id}", "GET", get_snapshot),
        route("/v2/snapshots/{id}", "DELETE", delete_snapshot),
        route("/v2/pools", "GET", list_pools),
        route("/v2/pools", "POST", create_pool),
        route("/v2/pools/{name}", "GET", get_pool),
        route("/v2/pools/{name}", "PATCH", patch_pool),
        route("/v2/pools/{name}", "DELETE", delete_pool),
        route("/v2/keys", "GET", list_keys),
        route("/v2/keys", "POST", create_key, admin=True),
        route("/v2/keys/{id}", "DELETE", delete_key, admin=True),
    ]
