"""How a sandbox comes to run: checked, placed in the queue, reserved under its name, made on the host, written down.

The first half of `lifecycle`, which owns it. Invariant: a sandbox is shown as running only when it answers; whatever
fails or is cancelled on the way leaves neither a row nor anything on the host. There is one write to the store.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from talon_server.config import Config
from talon_server.control.admission import Admission
from talon_server.control.events import Events
from talon_server.control.expiry import Expiry
from talon_server.control.principals import Principal
from talon_server.control.registry import Registry
from talon_server.control.removal import Removals
from talon_server.control.requests import CreateRequest, check, complete
from talon_server.errors import TalonError
from talon_server.lib.tasks import Tasks
from talon_server.model import ids
from talon_server.model.sandbox import Sandbox, SandboxSpec, State
from talon_server.worker.port import Started, WorkerPort

log = logging.getLogger(__name__)

IDLE = "talon.idle_s"
FINGERPRINT = "talon.idempotency.fingerprint"
UNEXPECTED = "the server made a mistake while it was made; its log has the cause"


class ImageResolver(Protocol):
    def resolve(self, name: str) -> str:
        """The id of an image by name, alias or id. Raises image_not_found."""


class Creation:
    """Makes sandboxes, and starts stopped ones again."""

    def __init__(
        self,
        config: Config,
        registry: Registry,
        worker: WorkerPort,
        images: ImageResolver,
        events: Events,
        tasks: Tasks,
        expiry: Expiry,
        removals: Removals,
    ) -> None:
        self._config = config
        self._registry = registry
        self._worker = worker
        self._images = images
        self._events = events
        self._tasks = tasks
        self._expiry = expiry
        self._removals = removals
        self._making: dict[str, asyncio.Task[Sandbox | TalonError]] = {}
        limits = config.limits
        self.admission = Admission(limits.creates_at_once, limits.queue_length, self._has_room)

    def _has_room(self, waiting: int) -> bool:
        return self._registry.count() - waiting <= self._config.limits.sandboxes

    async def create(self, principal: Principal, request: CreateRequest) -> Sandbox:
        """A new sandbox, running (or pending, when the request does not wait).

        Cancelling undoes it, unless it has an idempotency key: then it goes on, for whoever asks again.
        Raises invalid_request, image_not_found, name_taken, idempotency_conflict, queue_timeout, capacity_exhausted.
        """
        known = self.repeated(principal, request)
        if known is not None:
            return await self._outcome(known) if request.wait else known
        sandbox = self._asked(principal, request)
        self._registry.reserve(sandbox, save=not request.wait)
        if request.wait and not request.idempotency:
            return await self._make(sandbox, request)
        task = self._tasks.start(f"create {sandbox.id}", self._make_alone(sandbox, request))
        self._making[sandbox.id] = task
        task.add_done_callback(lambda _task: self._making.pop(sandbox.id, None))
        return await self._outcome(sandbox) if request.wait else sandbox

    def repeated(self, principal: Principal, request: CreateRequest) -> Sandbox | None:
        """What an earlier create with the request's idempotency key made. Raises idempotency_conflict."""
        if not request.idempotency:
            return None
        known = self._registry.by_idempotency(principal.tenant, request.idempotency)
        if known is not None and known.spec.extensions.get(FINGERPRINT) != request.fingerprint:
            raise TalonError("idempotency_conflict")
        return known

    async def _outcome(self, sandbox: Sandbox) -> Sandbox:
        """The sandbox once it is made, which goes on should the caller be cancelled."""
        task = self._making.get(sandbox.id)
        if task is None:
            return sandbox
        made = await asyncio.shield(task)
        if isinstance(made, TalonError):
            raise made
        return made

    def _asked(self, principal: Principal, request: CreateRequest) -> Sandbox:
        """The sandbox that a request asks for, not yet made."""
        check(request, self._config.limits)
        spec = complete(request, self._config.defaults)
        if request.idempotency:
            spec = stamped(spec, request)
        now = datetime.now(UTC)
        return Sandbox(
            id=ids.new(ids.SANDBOX),
            name=request.name,
            tenant=principal.tenant,
            spec=spec,
            state=State.PENDING,
            token=secrets.token_urlsafe(32),
            created_at=now,
            image_id=self.check_image(spec),
            labels=dict(request.labels),
            ttl_s=request.ttl_s,
            expires_at=now + timedelta(seconds=request.ttl_s) if request.ttl_s else None,
            key_id=principal.key_id,
            idempotency=request.idempotency,
        )

    def check_image(self, spec: SandboxSpec) -> str:
        """The id of what a spec starts from. Raises image_not_found."""
        return spec.snapshot or self._images.resolve(spec.image or self._config.defaults.image)

    async def _make_alone(self, sandbox: Sandbox, request: CreateRequest) -> Sandbox | TalonError:
        """In the background: an error is the result, and a row that exists says failed."""
        try:
            return await self._make(sandbox, request)
        except TalonError as error:
            log.info("sandbox %s could not be made: %s", sandbox.id, error)
            failure = error
        except Exception:
            log.exception("sandbox %s could not be made", sandbox.id)
            failure = TalonError("internal", UNEXPECTED)
        if self._registry.living(sandbox.id) is not None:
            self._registry.change(sandbox.id, State.FAILED, reason=str(failure))
        return failure

    async def _make(self, sandbox: Sandbox, request: CreateRequest) -> Sandbox:
        begun = time.perf_counter()
        asked_s = request.queue_timeout_s
        timeout_s = self._config.limits.queue_timeout_s if asked_s is None else asked_s
        try:
            async with self.admission.place(sandbox.tenant, timeout_s):
                queued = time.perf_counter()
                if self._registry.living(sandbox.id) is None:
                    raise TalonError("sandbox_not_found", "the sandbox was deleted before it was made")
                started = await self._worker.create(sandbox.id, sandbox.token, sandbox.spec, sandbox.image_id)
        except BaseException:
            self._registry.release(sandbox.id)
            self.admission.freed()
            raise
        try:
            return self._runs(sandbox, started, queue_s=queued - begun, total_s=time.perf_counter() - begun)
        except BaseException:
            self._registry.release(sandbox.id)
            self._removals.later(sandbox.id)
            raise

    async def again(self, sandbox: Sandbox) -> Sandbox:
        """Start a sandbox that was stopped and is `starting` now; it is stopped again when that fails."""
        begun = time.perf_counter()
        try:
            async with self.admission.place(sandbox.tenant, self._config.limits.queue_timeout_s):
                queued = time.perf_counter()
                started = await self._worker.create(sandbox.id, sandbox.token, sandbox.spec, sandbox.image_id)
        except BaseException:
            if self._registry.living(sandbox.id) is not None:
                self._registry.change(sandbox.id, State.STOPPED)
            raise
        if self._registry.living(sandbox.id) is None:
            self._removals.later(sandbox.id)
        return self._runs(sandbox, started, queue_s=queued - begun, total_s=time.perf_counter() - begun)

    def _runs(self, sandbox: Sandbox, started: Started, *, queue_s: float, total_s: float) -> Sandbox:
        timings: Mapping[str, float] = {
            "queue_ms": round(queue_s * 1000, 3),
            **started.timings_ms,
            "total_ms": round(total_s * 1000, 3),
        }
        running = self._registry.change(
            sandbox.id,
            State.RUNNING,
            started_at=datetime.now(UTC),
            ip=started.ip,
            pooled=started.pooled,
            timings_ms=timings,
        )
        self._expiry.watch(running.id, running.expires_at)
        told = {"pooled": running.pooled, "timings_ms": timings, "idle_s": running.spec.extensions.get(IDLE)}
        self._events.emit("created", running.id, running.tenant, **told)
        return running


def stamped(spec: SandboxSpec, request: CreateRequest) -> SandboxSpec:
    """The spec with what tells a repeat of the request from another under the same key."""
    return replace(spec, extensions={**spec.extensions, FINGERPRINT: request.fingerprint})
