"""The life of sandboxes: create, stop, start, pause, resume, renew, delete; what the host reports; what time ends.

Every dialect calls this one object. The create path: complete and check → place in the queue → reserve the name →
worker → one write to the store. Invariants: a sandbox is shown as running only when it answers; whatever fails or is
cancelled on the way leaves neither a row nor anything on the host.
"""

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from talon_server.config import Config
from talon_server.control.admission import Admission
from talon_server.control.events import Events
from talon_server.control.expiry import Expiry
from talon_server.control.principals import Principal
from talon_server.control.registry import Registry
from talon_server.control.requests import CreateRequest, check, complete
from talon_server.errors import TalonError
from talon_server.lib.tasks import Tasks
from talon_server.model import ids
from talon_server.model.network import NetworkPolicy
from talon_server.model.sandbox import Sandbox, SandboxSpec, State, may
from talon_server.worker.port import Observed, Started, WorkerEvent, WorkerPort

log = logging.getLogger(__name__)

STOP_GRACE_S = 3.0
RENEW = "access.renew.extend.seconds"
RENEW_STEP_S = 1.0
IDLE = "talon.idle_s"
IDLE_REASON = "nobody uses it"
FINGERPRINT = "talon.idempotency.fingerprint"
RETENTION_EVERY_S = 60.0


class ImageResolver(Protocol):
    def resolve(self, name: str) -> str:
        """The id of an image by name, alias or id. Raises image_not_found."""


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
        self._images = images
        self._events = events
        self._tasks = tasks
        self.admission = Admission(config.limits.creates_at_once, config.limits.queue_length)
        self._expiry = Expiry(self._expire, self._is_current)

    async def open(self) -> None:
        """Bring what the store says and what the host has together; then watch both."""
        observed = {one.id: one for one in await self._worker.start()}
        for sandbox in self._registry.load():
            self._reconcile(sandbox, observed.pop(sandbox.id, None))
        for stray in observed:
            log.warning("sandbox %s runs but is not known: it is removed", stray)
            await self._worker.destroy(stray)
        self._tasks.start("expiry", self._expiry.run())
        self._tasks.start("host events", self._follow_host())
        self._tasks.start("retention", self._retain())

    def _reconcile(self, sandbox: Sandbox, seen: Observed | None) -> None:
        if seen is not None and sandbox.state is not State.TERMINATED:
            state = State(seen.state)
            if state is not sandbox.state and may(sandbox.state, state):
                self._registry.change(sandbox.id, state)
        elif sandbox.state is State.STOPPED or sandbox.state is State.STOPPING:
            if sandbox.state is State.STOPPING:
                self._registry.change(sandbox.id, State.STOPPED)
        else:
            reason = "the server stopped while it was made" if sandbox.state is State.PENDING else "it ended meanwhile"
            self._fail(sandbox.id, reason)
        if living := self._registry.living(sandbox.id):
            self._expiry.watch(living.id, living.expires_at)

    async def create(self, principal: Principal, request: CreateRequest) -> Sandbox:
        """A new sandbox, running (or pending, when the request does not wait).

        Raises invalid_request, image_not_found, name_taken, idempotency_conflict, queue_timeout, capacity_exhausted.
        """
        if request.idempotency and (known := self._repeated(principal, request)) is not None:
            return known
        check(request, self._config.limits)
        spec = complete(request.spec, self._config.defaults)
        if request.idempotency:
            spec = replace(spec, extensions={**spec.extensions, FINGERPRINT: request.fingerprint})
        image_id = self.check_image(spec)
        if self._registry.count() >= self._config.limits.sandboxes:
            raise TalonError("capacity_exhausted", f"this server holds {self._registry.count()} sandboxes already")
        now = datetime.now(UTC)
        sandbox = Sandbox(
            id=ids.new(ids.SANDBOX),
            name=request.name,
            tenant=principal.tenant,
            spec=spec,
            state=State.PENDING,
            token=secrets.token_urlsafe(32),
            created_at=now,
            image_id=image_id,
            labels=dict(request.labels),
            ttl_s=request.ttl_s,
            expires_at=now + timedelta(seconds=request.ttl_s) if request.ttl_s else None,
            key_id=principal.key_id,
            idempotency=request.idempotency,
        )
        self._registry.reserve(sandbox, save=not request.wait)
        if request.wait:
            return await self._start_new(sandbox, request)
        self._tasks.start(f"create {sandbox.id}", self._start_later(sandbox, request))
        return sandbox

    def _repeated(self, principal: Principal, request: CreateRequest) -> Sandbox | None:
        known = self._registry.by_idempotency(principal.tenant, request.idempotency)
        if known is not None and known.spec.extensions.get(FINGERPRINT) != request.fingerprint:
            raise TalonError("idempotency_conflict")
        return known

    async def _start_later(self, sandbox: Sandbox, request: CreateRequest) -> None:
        try:
            await self._start_new(sandbox, request)
        except TalonError as error:
            log.info("sandbox %s could not be made: %s", sandbox.id, error)
            self._fail(sandbox.id, str(error))

    async def _start_new(self, sandbox: Sandbox, request: CreateRequest) -> Sandbox:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        timeout_s = request.queue_timeout_s
        try:
            async with self.admission.place(
                sandbox.tenant, self._config.limits.queue_timeout_s if timeout_s is None else timeout_s
            ):
                queued = loop.time()
                started = await self._worker.create(sandbox.id, sandbox.token, sandbox.spec, sandbox.image_id)
        except BaseException:
            self._registry.release(sandbox.id)
            raise
        try:
            return self._running(
                sandbox, started, queue_ms=(queued - begun) * 1000, total_ms=(loop.time() - begun) * 1000
            )
        except BaseException:
            self._registry.release(sandbox.id)
            self._tasks.start(f"undo {sandbox.id}", self._worker.destroy(sandbox.id))
            raise

    def _running(self, sandbox: Sandbox, started: Started, *, queue_ms: float, total_ms: float) -> Sandbox:
        timings = {"queue_ms": round(queue_ms, 3), **started.timings_ms, "total_ms": round(total_ms, 3)}
        running = self._registry.change(
            sandbox.id,
            State.RUNNING,
            started_at=datetime.now(UTC),
            ip=started.ip,
            pooled=started.pooled,
            timings_ms=timings,
        )
        self._expiry.watch(running.id, running.expires_at)
        self._events.emit(
            "created",
            running.id,
            running.tenant,
            pooled=running.pooled,
            timings_ms=timings,
            idle_s=running.spec.extensions.get(IDLE),
        )
        return running

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

    def located(self, ref: str, tenant: str | None) -> Sandbox:
        """For the gateway: by id, or by name within a tenant. Raises sandbox_not_found, sandbox_not_running."""
        sandbox = self._registry.find(tenant, ref)
        if sandbox.state is State.PAUSED and sandbox.reason == IDLE_REASON:
            self._worker.wake(sandbox.id)
            sandbox = self._registry.change(sandbox.id, State.RUNNING, reason="")
        if sandbox.state not in (State.RUNNING, State.PAUSED):
            raise TalonError("sandbox_not_running", f"the sandbox is {sandbox.state}")
        return sandbox

    def all(self) -> Sequence[Sandbox]:
        """Every tenant's sandboxes that have not ended."""
        return tuple(self._registry.all())

    def idle_after_s(self, id: str) -> float | None:
        """After how long without a request a running sandbox is to be frozen; None: it is not."""
        sandbox = self._registry.living(id)
        if sandbox is None or sandbox.state is not State.RUNNING:
            return None
        after = sandbox.spec.extensions.get(IDLE)
        return float(after) if after else None

    async def freeze_idle(self, id: str) -> None:
        """Freeze a sandbox that nobody uses; `located` wakes it."""
        await self._worker.pause(id)
        self._registry.change(id, State.PAUSED, reason=IDLE_REASON)

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

    @property
    def waiting(self) -> int:
        """Creates that stand in line."""
        return self.admission.waiting

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

    def check_image(self, spec: SandboxSpec) -> str:
        """The id of what a spec starts from. Raises image_not_found."""
        return spec.snapshot or self._images.resolve(spec.image or self._config.defaults.image)

    async def adopt_from_pool(self, principal: Principal, id: str, request: CreateRequest) -> Sandbox:
        """Give a ready sandbox of a pool to a request. Raises sandbox_not_running, name_taken."""
        sandbox = self._registry.find(principal.tenant, id)
        if sandbox.state is not State.RUNNING:
            raise TalonError("sandbox_not_running")
        expires_at = datetime.now(UTC) + timedelta(seconds=request.ttl_s) if request.ttl_s else None
        if request.spec.network.rules:
            await self.set_network(principal, id, request.spec.network)
        changed = self._registry.change(
            id, name=request.name, labels=dict(request.labels), ttl_s=request.ttl_s, expires_at=expires_at, pooled=True
        )
        self._expiry.watch(id, expires_at)
        return changed

    async def delete(self, principal: Principal, ref: str) -> None:
        """End a sandbox for good; one that has ended is fine. Raises sandbox_not_found."""
        sandbox = self.get(principal, ref)
        if sandbox.live:
            await self._terminate(sandbox, "deleted")

    async def _terminate(self, sandbox: Sandbox, reason: str) -> None:
        self._registry.change(sandbox.id, State.TERMINATED, reason=reason)
        await self._worker.destroy(sandbox.id)

    async def stop(self, principal: Principal, ref: str) -> Sandbox:
        """End its processes, keep its files. Raises invalid_transition."""
        sandbox = self._take(principal, ref, State.STOPPING)
        self._registry.change(sandbox.id, State.STOPPING)
        await self._worker.stop(sandbox.id, grace_s=STOP_GRACE_S)
        return self._registry.change(sandbox.id, State.STOPPED)

    async def start(self, principal: Principal, ref: str) -> Sandbox:
        """Run a stopped sandbox again, with its files. Raises invalid_transition."""
        sandbox = self._take(principal, ref, State.STARTING)
        self._registry.change(sandbox.id, State.STARTING)
        try:
            started = await self._worker.create(sandbox.id, sandbox.token, sandbox.spec, sandbox.image_id)
        except BaseException:
            self._fail(sandbox.id, "it could not be started again")
            raise
        return self._running(sandbox, started, queue_ms=0.0, total_ms=sum(started.timings_ms.values()))

    async def pause(self, principal: Principal, ref: str) -> Sandbox:
        """Freeze it. Raises invalid_transition when it is not running."""
        sandbox = self._take(principal, ref, State.PAUSED)
        await self._worker.pause(sandbox.id)
        return self._registry.change(sandbox.id, State.PAUSED)

    async def resume(self, principal: Principal, ref: str) -> Sandbox:
        """Let it go on. Raises invalid_transition when it is not paused."""
        sandbox = self.get(principal, ref)
        if sandbox.state is not State.PAUSED:
            raise TalonError("invalid_transition", f"a sandbox that is {sandbox.state} cannot be resumed")
        await self._worker.resume(sandbox.id)
        return self._registry.change(sandbox.id, State.RUNNING)

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

    async def wait(self, principal: Principal, ref: str, *, timeout_s: float) -> Sandbox:
        """Wait until a pending sandbox runs or has failed. Raises wait_timeout."""
        sandbox = self.get(principal, ref)
        if sandbox.state is not State.PENDING:
            return sandbox
        try:
            async with asyncio.timeout(timeout_s):
                async for event in self._events.follow(0, tenant=principal.tenant, sandbox_id=sandbox.id):
                    if event.kind == "state" and self.get(principal, sandbox.id).state is not State.PENDING:
                        break
        except TimeoutError as error:
            raise TalonError("wait_timeout", f"sandbox {sandbox.id} is still {sandbox.state}") from error
        return self.get(principal, sandbox.id)

    def _take(self, principal: Principal, ref: str, state: State) -> Sandbox:
        sandbox = self.get(principal, ref)
        if not may(sandbox.state, state):
            raise TalonError("invalid_transition", f"a sandbox that is {sandbox.state} cannot become {state}")
        return sandbox

    def _fail(self, id: str, reason: str) -> None:
        sandbox = self._registry.living(id)
        if sandbox is not None:
            self._registry.change(id, State.FAILED, reason=reason)
            self._tasks.start(f"remove {id}", self._worker.destroy(id))

    def _is_current(self, id: str, at: float) -> bool:
        sandbox = self._registry.living(id)
        return sandbox is not None and sandbox.expires_at is not None and sandbox.expires_at.timestamp() == at

    async def _expire(self, id: str) -> None:
        sandbox = self._registry.living(id)
        if sandbox is not None:
            self._registry.change(id, State.TERMINATED, reason="its time to live ended")
            self._tasks.start(f"expire {id}", self._worker.destroy(id))

    async def _follow_host(self) -> None:
        async for event in self._worker.events():
            self._heard(event)

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

    def living(self, principal: Principal) -> Sequence[Sandbox]:
        """The tenant's sandboxes that have not ended."""
        return tuple(self._registry.all(principal.tenant))

    async def _retain(self) -> None:
        while True:
            if self._config.retention.ended_s:
                self._registry.forget_ended(self._config.retention.ended_s)
            await asyncio.sleep(RETENTION_EVERY_S)
