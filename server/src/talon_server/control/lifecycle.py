"""The life of sandboxes: create, stop, start, pause, resume, renew, delete; what the host reports; what time ends.

Every dialect calls this one object; `creation` is its first half. Invariants: a change of state is written down before
anyone sees it; a sandbox whose row has ended is taken off the host; no state between two outlives the call that
entered it, nor a crash (`reconcile`).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta

from talon_server.config import Config
from talon_server.control.creation import IDLE, Creation, ImageResolver, stamped
from talon_server.control.events import Events
from talon_server.control.expiry import Expiry
from talon_server.control.principals import Principal
from talon_server.control.reconcile import Work, decide
from talon_server.control.registry import Registry
from talon_server.control.removal import Removals
from talon_server.control.requests import CreateRequest
from talon_server.errors import TalonError
from talon_server.lib.tasks import Tasks
from talon_server.model.network import NetworkPolicy
from talon_server.model.sandbox import Sandbox, SandboxSpec, State, may
from talon_server.worker.port import Observed, WorkerEvent, WorkerPort

log = logging.getLogger(__name__)

STOP_GRACE_S = 3.0
RENEW = "access.renew.extend.seconds"
RENEW_STEP_S = 1.0
IDLE_REASON = "nobody uses it"
RETENTION_EVERY_S = 60.0


class Lifecycle:
    """All sandboxes of this server."""

    def __init__(
        self,
        config: Config,
        registry: Registry,
        worker: WorkerPort,
        images: ImageResolver,
        events: Events,
        tasks: Tasks,
    ) -> None:
        self._config = config
        self._registry = registry
        self._worker = worker
        self._events = events
        self._tasks = tasks
        self._removals = Removals(worker, tasks)
        self._expiry = Expiry(self._expire)
        self._creation = Creation(config, registry, worker, images, events, tasks, self._expiry, self._removals)
        self._freezing: dict[str, bool] = {}

    async def open(self) -> None:
        """Bring what the store says and what the host has together; then watch both."""
        observed = {one.id: one for one in await self._worker.start()}
        for sandbox in self._registry.load():
            self._reconcile(sandbox, observed.pop(sandbox.id, None))
        for stray in observed:
            log.warning("sandbox %s runs but is not known: it is removed", stray)
            self._removals.later(stray)
        await self._worker.sweep({sandbox.id for sandbox in self._registry.all()})
        self._tasks.start("expiry", self._expiry.run())
        self._tasks.start("host events", self._follow_host())
        self._tasks.start("retention", self._retain())

    def _reconcile(self, sandbox: Sandbox, seen: Observed | None) -> None:
        verdict = decide(sandbox.state, State(seen.state) if seen is not None else None)
        if verdict.state is not sandbox.state:
            log.info("sandbox %s was %s and is %s now", sandbox.id, sandbox.state, verdict.state)
            self._registry.settle(sandbox.id, verdict.state, verdict.reason)
        if verdict.work is Work.REMOVE:
            self._removals.later(sandbox.id)
        elif verdict.work is Work.STOP:
            self._tasks.start(f"stop {sandbox.id}", self._worker.stop(sandbox.id, grace_s=STOP_GRACE_S))
        if living := self._registry.living(sandbox.id):
            self._expiry.watch(living.id, living.expires_at)

    async def create(self, principal: Principal, request: CreateRequest) -> Sandbox:
        """A new sandbox, running (or pending, when the request does not wait). See `Creation.create`."""
        return await self._creation.create(principal, request)

    def repeated(self, principal: Principal, request: CreateRequest) -> Sandbox | None:
        """What an earlier create with the request's idempotency key made. Raises idempotency_conflict."""
        return self._creation.repeated(principal, request)

    def check_image(self, spec: SandboxSpec) -> str:
        """The id of what a spec starts from. Raises image_not_found."""
        return self._creation.check_image(spec)

    def get(self, principal: Principal, ref: str) -> Sandbox:
        """By id or name. Raises sandbox_not_found."""
        return self._registry.find(principal.tenant, ref)

    def list(
        self,
        principal: Principal,
        *,
        labels: Mapping[str, str] | None = None,
        states: Sequence[State] = (),
        name: str | None = None,
        limit: int = 100,
        cursor: str = "",
    ) -> tuple[list[Sandbox], str | None]:
        """A page, newest first, and the cursor of the next. Without states: those that have not ended."""
        return self._registry.list(
            principal.tenant, labels=labels or {}, states=states, name=name, limit=limit, cursor=cursor
        )

    def living(self, principal: Principal) -> Sequence[Sandbox]:
        """The tenant's sandboxes that have not ended."""
        return tuple(self._registry.all(principal.tenant))

    def all(self) -> Sequence[Sandbox]:
        """Every tenant's sandboxes that have not ended."""
        return tuple(self._registry.all())

    @property
    def waiting(self) -> int:
        """Creates that stand in line."""
        return self._creation.admission.waiting

    def counts(self) -> Mapping[str, int]:
        """How many living sandboxes are in each state."""
        return Counter(str(sandbox.state) for sandbox in self._registry.all())

    def uses_image(self, image_id: str) -> bool:
        """Does a living sandbox run from it?"""
        return any(sandbox.image_id == image_id for sandbox in self._registry.all())

    def users_of_volume(self, name: str) -> Sequence[str]:
        """The living sandboxes that mount a volume."""
        return [
            sandbox.id for sandbox in self._registry.all() if any(mount.name == name for mount in sandbox.spec.volumes)
        ]

    def located(self, ref: str, tenant: str | None) -> Sandbox:
        """For the gateway: by id, or by name within a tenant. Raises sandbox_not_found, sandbox_not_running."""
        sandbox = self._registry.find(tenant, ref)
        if sandbox.state is State.PAUSED and sandbox.reason == IDLE_REASON:
            self._worker.wake(sandbox.id)
            sandbox = self._registry.change(sandbox.id, State.RUNNING, reason="")
        if sandbox.state not in (State.RUNNING, State.PAUSED):
            raise TalonError("sandbox_not_running", f"the sandbox is {sandbox.state}")
        if sandbox.id in self._freezing:
            self._freezing[sandbox.id] = True
        return sandbox

    def idle_after_s(self, id: str) -> float | None:
        """After how long without a request a running sandbox is to be frozen; None: it is not."""
        sandbox = self._registry.living(id)
        if sandbox is None or sandbox.state is not State.RUNNING:
            return None
        after = sandbox.spec.extensions.get(IDLE)
        return float(after) if after else None

    async def freeze_idle(self, id: str) -> None:
        """Freeze a sandbox that nobody uses; `located` wakes it. A request that comes meanwhile has it thawed again."""
        self._freezing[id] = False
        try:
            await self._worker.pause(id)
        finally:
            wanted = self._freezing.pop(id)
        if wanted:
            self._worker.wake(id)
        elif (sandbox := self._registry.living(id)) is not None and sandbox.state is State.RUNNING:
            self._registry.change(id, State.PAUSED, reason=IDLE_REASON)

    async def take_from_pool(self, principal: Principal, id: str, request: CreateRequest) -> Sandbox:
        """Give a ready sandbox of a pool to a request. Raises sandbox_not_running, name_taken."""
        sandbox = self._registry.find(principal.tenant, id)
        if sandbox.state is not State.RUNNING:
            raise TalonError("sandbox_not_running")
        expires_at = datetime.now(UTC) + timedelta(seconds=request.ttl_s) if request.ttl_s else None
        # The name is taken first: a request refused for it leaves the pool's sandbox as it was.
        self._registry.change(
            id,
            name=request.name,
            labels=dict(request.labels),
            ttl_s=request.ttl_s,
            expires_at=expires_at,
            pooled=True,
            key_id=principal.key_id,
            idempotency=request.idempotency,
            spec=stamped(sandbox.spec, request) if request.idempotency else sandbox.spec,
        )
        self._expiry.watch(id, expires_at)
        try:
            return await self._fit(self._registry.find(principal.tenant, id), request)
        except BaseException:
            await self.delete(principal, id)
            raise

    async def _fit(self, sandbox: Sandbox, request: CreateRequest) -> Sandbox:
        """Apply what a claim asks beyond its pool: environment, limits, network."""
        asked = request.spec
        spec = replace(sandbox.spec, extensions={**sandbox.spec.extensions, **asked.extensions})
        if asked.env:
            spec = replace(spec, env={**spec.env, **asked.env})
            await self._worker.set_environment(sandbox.id, spec.env, sandbox.image_id)
        told = {name: value for name, value in asdict(asked.resources).items() if value}
        if told:
            spec = replace(spec, resources=replace(spec.resources, **told))
            await self._worker.resize(sandbox.id, spec.resources)
        if "network" not in request.unasked:
            spec = replace(spec, network=asked.network)
            await self._worker.set_network(sandbox.id, spec.network)
        return self._registry.change(sandbox.id, spec=spec)

    async def delete(self, principal: Principal, ref: str) -> None:
        """End a sandbox for good; one that has ended is fine. Raises sandbox_not_found."""
        sandbox = self.get(principal, ref)
        if sandbox.live:
            self._end(sandbox.id, State.TERMINATED, "deleted")
            await self._removals.now(sandbox.id)

    def _end(self, id: str, state: State, reason: str) -> None:
        self._registry.change(id, state, reason=reason)
        self._expiry.forget(id)
        self._creation.admission.freed()

    async def stop(self, principal: Principal, ref: str) -> Sandbox:
        """End its processes, keep its files. Raises invalid_transition."""
        sandbox = self._take(principal, ref, State.STOPPING, "stopped")
        return await self._tasks.whole(f"stop {sandbox.id}", self._stop(sandbox.id))

    async def _stop(self, id: str) -> Sandbox:
        try:
            await self._worker.stop(id, grace_s=STOP_GRACE_S)
        except Exception:
            self._fail(id, "it could not be stopped")
            raise
        return self._registry.change(id, State.STOPPED)

    async def start(self, principal: Principal, ref: str) -> Sandbox:
        """Run a stopped sandbox again, with its files. Raises invalid_transition."""
        return await self._creation.again(self._take(principal, ref, State.STARTING, "started"))

    async def pause(self, principal: Principal, ref: str) -> Sandbox:
        """Freeze it. Raises invalid_transition when it is not running."""
        id = self._take(principal, ref, State.PAUSING, "paused").id
        return await self._tasks.whole(f"pause {id}", self._move(id, self._worker.pause, State.PAUSED, State.RUNNING))

    async def resume(self, principal: Principal, ref: str) -> Sandbox:
        """Let it go on. Raises invalid_transition when it is not paused."""
        id = self._take(principal, ref, State.RESUMING, "resumed").id
        return await self._tasks.whole(f"resume {id}", self._move(id, self._worker.resume, State.RUNNING, State.PAUSED))

    async def _move(self, id: str, work: Callable[[str], Awaitable[None]], after: State, otherwise: State) -> Sandbox:
        try:
            await work(id)
        except Exception:
            if self._registry.living(id) is not None:
                self._registry.change(id, otherwise)
            raise
        return self._registry.change(id, after)

    def _take(self, principal: Principal, ref: str, state: State, done: str) -> Sandbox:
        sandbox = self.get(principal, ref)
        if not may(sandbox.state, state):
            raise TalonError("invalid_transition", f"a sandbox that is {sandbox.state} cannot be {done}")
        return self._registry.change(sandbox.id, state, reason="")

    def renew(self, principal: Principal, ref: str, ttl_s: float | None) -> Sandbox:
        """Let it end `ttl_s` seconds from now, or never. Raises sandbox_not_running when it has ended."""
        expires_at = datetime.now(UTC) + timedelta(seconds=ttl_s) if ttl_s is not None else None
        return self._renew(self.get(principal, ref), expires_at, ttl_s)

    def renew_until(self, principal: Principal, ref: str, expires_at: datetime) -> Sandbox:
        """Let it end at a time."""
        sandbox = self.get(principal, ref)
        return self._renew(sandbox, expires_at, (expires_at - datetime.now(UTC)).total_seconds())

    def _renew(self, sandbox: Sandbox, expires_at: datetime | None, ttl_s: float | None) -> Sandbox:
        if not sandbox.live:
            raise TalonError("sandbox_not_running", f"the sandbox is {sandbox.state}")
        most = self._config.limits.ttl_s
        if most and (ttl_s is None or ttl_s > most):
            raise TalonError("invalid_request", f"ttl must be given and at most {most:g} seconds here")
        renewed = self._registry.change(sandbox.id, expires_at=expires_at, ttl_s=ttl_s)
        self._expiry.watch(renewed.id, expires_at)
        return renewed

    def patch(self, principal: Principal, ref: str, *, labels: Mapping[str, str]) -> Sandbox:
        """Replace its labels."""
        sandbox = self.get(principal, ref)
        if not sandbox.live:
            raise TalonError("sandbox_not_running", f"the sandbox is {sandbox.state}")
        return self._registry.change(sandbox.id, labels=dict(labels))

    async def set_network(self, principal: Principal, ref: str, policy: NetworkPolicy) -> Sandbox:
        """Put another network policy in force, for existing connections too."""
        sandbox = self.get(principal, ref)
        if sandbox.state in (State.RUNNING, State.PAUSED):
            await self._worker.set_network(sandbox.id, policy)
        elif not sandbox.live:
            raise TalonError("sandbox_not_running", f"the sandbox is {sandbox.state}")
        return self._registry.change(sandbox.id, spec=replace(sandbox.spec, network=policy))

    def accessed(self, id: str) -> None:
        """A request reached it: move its expiry when its access renews it; never nearer."""
        sandbox = self._registry.living(id)
        extend = sandbox.spec.extensions.get(RENEW) if sandbox is not None else None
        if sandbox is None or sandbox.expires_at is None or not extend or not extend.isdigit():
            return
        later = datetime.now(UTC) + timedelta(seconds=int(extend))
        if (later - sandbox.expires_at).total_seconds() > RENEW_STEP_S:
            self._registry.change(id, expires_at=later)
            self._expiry.watch(id, later)

    def _fail(self, id: str, reason: str) -> None:
        if self._registry.living(id) is not None:
            self._end(id, State.FAILED, reason)
            self._removals.later(id)

    def _expire(self, id: str) -> None:
        if self._registry.living(id) is not None:
            self._end(id, State.TERMINATED, "its time to live ended")
            self._removals.later(id)

    async def _follow_host(self) -> None:
        async for event in self._worker.events():
            try:
                self._heard(event)
            except Exception:
                log.exception("what the host said of %s was not understood: %s", event.id, event.kind)

    def _heard(self, event: WorkerEvent) -> None:
        if event.kind == "recorded":
            self._recorded(event)
            return
        sandbox = self._registry.living(event.id)
        if sandbox is None:
            return
        if event.kind == "exited":
            self._fail(event.id, str(event.detail.get("reason", "it ended")))
        else:
            self._events.emit(event.kind, event.id, sandbox.tenant, **event.detail)

    def _recorded(self, event: WorkerEvent) -> None:
        try:
            sandbox = self._registry.find(None, event.id)
        except TalonError:
            log.warning("recording %s is of a sandbox that is not known", event.detail["recording"])
            return
        told = {"sandbox_name": sandbox.name, "mode": sandbox.spec.recording.mode}
        started = (sandbox.started_at or sandbox.created_at).timestamp()
        self._events.emit("recorded", sandbox.id, sandbox.tenant, **told, started_at=started, **event.detail)

    async def _retain(self) -> None:
        while True:
            if self._config.retention.ended_s:
                self._registry.forget_ended(self._config.retention.ended_s)
            await asyncio.sleep(RETENTION_EVERY_S)
