"""Warm pools: sandboxes of one kind that already run, with their start-up done, to be claimed by creates.

A pool keeps `minimum` ready. A claim takes the oldest, gives it the name, labels and time to live asked for, and the
pool makes another. What cannot be changed on a running sandbox (its resources, volumes) is the pool's.
"""

import json
import logging
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pydantic import TypeAdapter
from sqlalchemy import delete, insert, select, update

from talon_server.control.lifecycle import Lifecycle
from talon_server.control.principals import Principal
from talon_server.control.requests import CreateRequest
from talon_server.errors import TalonError
from talon_server.lib.tasks import Tasks
from talon_server.model.sandbox import Sandbox, SandboxSpec
from talon_server.store.database import Database
from talon_server.store.tables import pools as table
from talon_server.worker.port import WorkerPort

log = logging.getLogger(__name__)

LABEL = "talon.pool"
WARM_TIMEOUT_S = 300.0
_SPEC = TypeAdapter(SandboxSpec)


@dataclass(frozen=True, slots=True)
class Pool:
    """`created_at` Unix seconds; `warm_command` runs in each before it counts as ready."""

    name: str
    tenant: str
    minimum: int
    maximum: int
    spec: SandboxSpec
    warm_command: str
    created_at: float


class Pools:
    """All pools and their ready sandboxes."""

    def __init__(self, database: Database, lifecycle: Lifecycle, worker: WorkerPort, tasks: Tasks) -> None:
        self._database = database
        self._lifecycle = lifecycle
        self._worker = worker
        self._tasks = tasks
        self._pools: dict[tuple[str, str], Pool] = {}
        self._ready: dict[tuple[str, str], deque[str]] = {}
        self._filling: set[tuple[str, str]] = set()

    async def open(self) -> None:
        """Read the pools, take the ready sandboxes that an earlier server left, fill up."""
        with self._database.begin() as connection:
            for row in connection.execute(select(table)).mappings():
                told = json.loads(row["spec"])
                spec = _SPEC.validate_python(told.pop("spec"))
                pool = Pool(row["name"], row["tenant"], spec=spec, created_at=row["created_at"], **told)
                self._pools[pool.tenant, pool.name] = pool
        for key, pool in self._pools.items():
            owner = Principal("", pool.tenant, f"pool {pool.name}")
            found, _ = self._lifecycle.list(owner, labels={LABEL: pool.name}, limit=1000)
            self._ready[key] = deque(sandbox.id for sandbox in reversed(found))
            self._fill(pool)

    def list(self, principal: Principal) -> list[Pool]:
        """By name."""
        return sorted((p for p in self._pools.values() if p.tenant == principal.tenant), key=lambda pool: pool.name)

    def get(self, principal: Principal, name: str) -> Pool:
        """Raises pool_not_found."""
        pool = self._pools.get((principal.tenant, name))
        if pool is None:
            raise TalonError("pool_not_found", f"there is no pool {name!r}")
        return pool

    def ready(self, pool: Pool) -> int:
        """How many wait to be claimed."""
        return len(self._ready.get((pool.tenant, pool.name), ()))

    async def create(
        self, principal: Principal, name: str, spec: SandboxSpec, *, minimum: int, maximum: int, warm_command: str = ""
    ) -> Pool:
        """A new pool, filled in the background. Raises pool_exists, image_not_found."""
        if (principal.tenant, name) in self._pools:
            raise TalonError("pool_exists", f"there is a pool {name!r} already")
        self._lifecycle.check_image(spec)
        pool = Pool(name, principal.tenant, minimum, max(minimum, maximum), spec, warm_command, time.time())
        with self._database.begin() as connection:
            connection.execute(
                insert(table).values(name=name, tenant=pool.tenant, spec=_told(pool), created_at=pool.created_at)
            )
        self._pools[pool.tenant, name] = pool
        self._ready[pool.tenant, name] = deque()
        self._fill(pool)
        return pool

    def resize(self, principal: Principal, name: str, *, minimum: int | None, maximum: int | None) -> Pool:
        """Change how many are kept. Raises pool_not_found."""
        pool = self.get(principal, name)
        minimum = pool.minimum if minimum is None else minimum
        pool = replace(pool, minimum=minimum, maximum=max(minimum, pool.maximum if maximum is None else maximum))
        with self._database.begin() as connection:
            where = (table.c.name == name) & (table.c.tenant == pool.tenant)
            connection.execute(update(table).where(where).values(spec=_told(pool)))
        self._pools[pool.tenant, name] = pool
        self._fill(pool)
        return pool

    async def delete(self, principal: Principal, name: str) -> None:
        """Remove a pool and those that wait in it. Raises pool_not_found."""
        pool = self.get(principal, name)
        with self._database.begin() as connection:
            connection.execute(delete(table).where((table.c.name == name) & (table.c.tenant == pool.tenant)))
        del self._pools[pool.tenant, name]
        for id in self._ready.pop((pool.tenant, name)):
            await self._lifecycle.delete(principal, id)

    async def claim(self, principal: Principal, request: CreateRequest) -> Sandbox:
        """A sandbox of the pool the request names; one made on the spot when none is ready. Raises pool_not_found."""
        pool = self.get(principal, request.pool)
        ready = self._ready[pool.tenant, pool.name]
        while ready:
            id = ready.popleft()
            self._fill(pool)
            try:
                return await self._lifecycle.adopt_from_pool(principal, id, request)
            except TalonError as error:
                log.info("sandbox %s of pool %s is not usable: %s", id, pool.name, error)
        self._fill(pool)
        return await self._lifecycle.create(principal, replace(request, pool="", spec=self._merged(pool, request.spec)))

    def _merged(self, pool: Pool, asked: SandboxSpec) -> SandboxSpec:
        env: Mapping[str, str] = {**pool.spec.env, **asked.env}
        return replace(pool.spec, env=env, network=asked.network if asked.network.rules else pool.spec.network)

    def _fill(self, pool: Pool) -> None:
        key = (pool.tenant, pool.name)
        if key not in self._filling:
            self._filling.add(key)
            self._tasks.start(f"fill pool {pool.name}", self._fill_up(key))

    async def _fill_up(self, key: tuple[str, str]) -> None:
        try:
            while (pool := self._pools.get(key)) is not None and len(self._ready[key]) < pool.minimum:
                owner = Principal("", pool.tenant, f"pool {pool.name}")
                request = CreateRequest(spec=pool.spec, labels={LABEL: pool.name})
                sandbox = await self._lifecycle.create(owner, request)
                try:
                    await self._warm(pool, sandbox)
                except TalonError:
                    await self._lifecycle.delete(owner, sandbox.id)
                    raise
                if key in self._ready:
                    self._ready[key].append(sandbox.id)
                else:
                    await self._lifecycle.delete(owner, sandbox.id)
        except TalonError as error:
            log.warning("pool %s could not be filled: %s", key[1], error)
        finally:
            self._filling.discard(key)

    async def _warm(self, pool: Pool, sandbox: Sandbox) -> None:
        """Run the pool's start-up command. Raises create_failed when it fails."""
        if not pool.warm_command:
            return
        code, output = await self._worker.run(sandbox.id, pool.warm_command, timeout_s=WARM_TIMEOUT_S)
        if code != 0:
            reason = f"the pool's start-up command ended with {code}"
            raise TalonError("create_failed", reason, cause=output[-400:].strip())


def _told(pool: Pool) -> str:
    told = {"minimum": pool.minimum, "maximum": pool.maximum, "warm_command": pool.warm_command}
    return json.dumps({**told, "spec": _SPEC.dump_python(pool.spec, mode="json")})
