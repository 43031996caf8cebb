"""The pool routes of the OpenSandbox lifecycle API: a Kubernetes-shaped template over the platform's warm pools.

Handlers of `app`. Of a PodTemplateSpec the first container's image, command, args, env and limits count; creates name the
pool in `extensions.poolRef` and may ask for anything else beside it.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from talon_server.api.services import Services
from talon_server.api.v1 import shapes
from talon_server.api.v1.http import Handler, Problem, Reply, Request
from talon_server.api.v1.schemas import Capacity, CreatePool, UpdatePool
from talon_server.api.v1.sources import user_of
from talon_server.api.v1.translate import ENTRYPOINT, resources_of
from talon_server.control.pools import Pool
from talon_server.model.sandbox import SandboxSpec


class PoolRoutes:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._pools = services.pools

    async def create(self, request: Request) -> Reply:
        body = await request.read(CreatePool)
        spec, (least, most) = self._spec(body.template), _bounds(body.capacity)
        made = await self._pools.create(request.principal, body.name, spec, minimum=least, maximum=most)
        return Reply(201, self._shape(made))

    async def list(self, request: Request) -> Reply:
        return Reply(200, {"items": [self._shape(pool) for pool in self._pools.list(request.principal)]})

    async def get(self, request: Request) -> Reply:
        return Reply(200, self._shape(self._pools.get(request.principal, request.args[0])))

    async def update(self, request: Request) -> Reply:
        body = await request.read(UpdatePool)
        least, most = _bounds(body.capacity)
        resized = self._pools.resize(request.principal, request.args[0], minimum=least, maximum=most)
        return Reply(200, self._shape(resized))

    async def delete(self, request: Request) -> Reply:
        await self._pools.delete(request.principal, request.args[0])
        return Reply(204)

    def _spec(self, template: Mapping[str, Any]) -> SandboxSpec:
        try:
            container = template["spec"]["containers"][0]
            image = str(container["image"])
            env = {str(one["name"]): str(one.get("value", "")) for one in container.get("env") or ()}
            command = tuple(map(str, [*(container.get("command") or ()), *(container.get("args") or ())]))
            limits = (container.get("resources") or {}).get("limits") or {}
            resources = resources_of({str(name): str(value) for name, value in limits.items()})
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            said = "template: give spec.containers[0] with image, and optionally command, args, env, resources.limits."
            raise Problem(400, "SANDBOX::INVALID_PARAMETER", said) from error
        user = user_of(self._services, image)
        return SandboxSpec(image, resources, env, user=user, entrypoint=command or ENTRYPOINT)

    def _shape(self, pool: Pool) -> dict[str, Any]:
        ready = self._pools.ready(pool)
        counts = {
            "bufferMax": pool.maximum,
            "bufferMin": pool.minimum,
            "poolMax": pool.maximum,
            "poolMin": pool.minimum,
        }
        return {
            "name": pool.name,
            "capacitySpec": counts,
            "status": {"total": ready, "allocated": 0, "available": ready, "revision": "1"},
            "createdAt": shapes.timestamp(datetime.fromtimestamp(pool.created_at, UTC)),
        }


def _bounds(capacity: Capacity) -> tuple[int, int]:
    """How many wait at least and at most."""
    return capacity.buffer_min, max(capacity.buffer_max, capacity.pool_max)


def table(services: Services) -> Mapping[tuple[str, ...], Mapping[str, Handler]]:
    routes = PoolRoutes(services)
    return {
        ("pools",): {"GET": routes.list, "POST": routes.create},
        ("pools", "*"): {"GET": routes.get, "PUT": routes.update, "DELETE": routes.delete},
    }
