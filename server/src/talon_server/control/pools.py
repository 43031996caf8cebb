"""Warm pools: sandboxes of one kind that already run, with their start-up done, to be claimed by creates.

A pool keeps `minimum` ready, and never more than `maximum`. A claim takes the oldest, gives it the name, labels, time to
live, environment, limits and network asked for, and the pool makes another. What cannot be changed on a running sandbox
(its image, volumes, user, entry process) is the pool's.
"""

import asyncio
import json
import logging
import time
from collections import deque
from dataclasses import asdict, dataclass, replace

from pydantic import TypeAdapter
from sqlalchemy import delete, insert, select, update

from talon_server.control.events import Event, Events
from talon_server.control.lifecycle import Lifecycle
from talon_server.control.principals import Principal
from talon_server.control.requests import CreateRequest
from talon_server.errors import TalonError
from talon_server.lib.tasks import Tasks
from talon_server.model.sandbox import Sandbox, SandboxSpec, State
from talon_server.store.database import Database
from talon_server.store.tables import pools as table
from talon_server.worker.port import WorkerPort

log = logging.getLogger(__name__)

LABEL = "talon.pool"
WARM_TIMEOUT_S = 300.0
FIRST_RETRY_S = 1.0
LAST_RETRY_S = 60.0
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

    def __init__(
        self,
        database: Database,
        lifecycle: Lifecycle,
        worker: WorkerPort,
        events: Events,
        tasks: Tasks,
        *,
        first_retry_s: float = FIRST_RETRY_S,
    ) -> None:
        self._database = database
        self._lifecycle = lifecycle
        self._worker = worker
        self._tasks = tasks
        self._pools: dict[tuple[str, str], Pool] = {}
        self._ready: dict[tuple[str, str], deque[str]] = {}
        self._filling: set[tuple[str, str]] = set()
        self._first_retry_s = first_retry_s
        events.listen(self._heard)

    async def open(self) -> None:
        """Read the pools, take the ready sandboxes that an earlier server left, fill up."""
        with self._database.begin() as connection:
            for row in connection.execute(select(table)).mappings():
                told = json.loads(row["spec"])
                spec = _SPEC.validate_python(told.pop("spec"))
                pool = Pool(row["name"], row["tenant"], spec=spec, created_at=row["created_at"], **told)
                self._pools[pool.tenant, pool.name] = pool
        for key, pool in self._pools.items():
            states = (State.RUNNING,)
            found, _ = self._lifecycle.list(_owner(pool), labels={LABEL: pool.name}, states=states, limit=1000)
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
        ready = self._ready[pool.tenant, name]
        for id in [ready.pop() for _ in range(len(ready) - pool.maximum)]:
            self._tasks.start(f"shrink pool {name}", self._lifecycle.delete(principal, id))
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
        if (known := self._lifecycle.repeated(principal, request)) is not None:
            return known
        pool = self.get(principal, request.pool)
        ready = self._ready[pool.tenant, pool.name]
        while ready and self._fits(pool, request.spec):
            id = ready.popleft()
            try:
                return await self._lifecycle.take_from_pool(principal, id, request)
            except TalonError as error:
                if error.code == "name_taken":
                    ready.appendleft(id)
                    raise
                log.info("sandbox %s of pool %s is not usable: %s", id, pool.name, error)
            finally:
                self._fill(pool)
        self._fill(pool)
        return await self._lifecycle.create(principal, _beyond(pool, request))

    def _fits(self, pool: Pool, asked: SandboxSpec) -> bool:
        """Can what is asked be had of a sandbox that runs already?"""
        if asked.snapshot or asked.volumes:
            return False
        return not asked.image or self._lifecycle.check_image(asked) == self._lifecycle.check_image(pool.spec)

    def _heard(self, event: Event) -> None:
        """One that ended while it waited is replaced."""
        if event.kind != "state" or event.detail["state"] not in ("stopped", "failed", "terminated"):
            return
        for key, ready in self._ready.items():
            if key[0] == event.tenant and event.sandbox_id in ready:
                ready.remove(event.sandbox_id)
                self._fill(self._pools[key])

    def _fill(self, pool: Pool) -> None:
        key = (pool.tenant, pool.name)
        if key not in self._filling:
            self._filling.add(key)
            self._tasks.start(f"fill pool {pool.name}", self._fill_up(key))

    async def _fill_up(self, key: tuple[str, str]) -> None:
        """Make what is missing, one after another; wait ever longer while that fails."""
        wait_s = self._first_retry_s
        try:
            while (pool := self._pools.get(key)) is not None and len(self._ready[key]) < pool.minimum:
                try:
                    await self._add(key, pool)
                    wait_s = self._first_retry_s
                except TalonError as error:
                    log.warning("pool %s could not be filled, it is tried again: %s", key[1], error)
                    await asyncio.sleep(wait_s)
                    wait_s = min(wait_s * 2, LAST_RETRY_S)
        finally:
            self._filling.discard(key)

    async def _add(self, key: tuple[str, str], pool: Pool) -> None:
        owner = _owner(pool)
        sandbox = await self._lifecycle.create(owner, CreateRequest(spec=pool.spec, labels={LABEL: pool.name}))
        try:
            await self._warm(pool, sandbox)
        except BaseException:
            await self._lifecycle.delete(owner, sandbox.id)
            raise
        now = self._pools.get(key)
        if now is None or now.created_at != pool.created_at or not self._lifecycle.get(owner, sandbox.id).live:
            await self._lifecycle.delete(owner, sandbox.id)
        else:
            self._ready[key].append(sandbox.id)

    async def _warm(self, pool: Pool, sandbox: Sandbox) -> None:
        """Run the pool's start-up command. Raises create_failed when it fails."""
        if not pool.warm_command:
            return
        code, output = await self._worker.run(sandbox.id, pool.warm_command, timeout_s=WARM_TIMEOUT_S)
        if code != 0:
            reason = f"the pool's start-up command ended with {code}"
            raise TalonError("create_failed", reason, cause=output[-400:].strip())


def _owner(pool: Pool) -> Principal:
    return Principal("", pool.tenant, f"pool {pool.name}")


def _beyond(pool: Pool, request: CreateRequest) -> CreateRequest:
    """What to make when the pool has none ready: its kind of sandbox, with what is asked beside."""
    asked = request.spec
    told = {name: value for name, value in asdict(asked.resources).items() if value}
    started_from = pool.spec if not (asked.image or asked.snapshot) else asked
    spec = replace(
        pool.spec,
        image=started_from.image,
        snapshot=started_from.snapshot,
        volumes=(*pool.spec.volumes, *asked.volumes),
        extensions={**pool.spec.extensions, **asked.extensions},
        env={**pool.spec.env, **asked.env},
        resources=replace(pool.spec.resources, **told),
        network=pool.spec.network if "network" in request.unasked else asked.network,
    )
    return replace(request, pool="", spec=spec, unasked=frozenset())


def _told(pool: Pool) -> str:
    told = {"minimum": pool.minimum, "maximum": pool.maximum, "warm_command": pool.warm_command}
    return json.dumps({**told, "spec": _SPEC.dump_python(pool.spec, mode="json")})
