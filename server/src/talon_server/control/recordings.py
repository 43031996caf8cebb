"""Recordings as tenants see them: which there are, how long they are kept, and what a check of one finds.

A recording that is being written belongs to a living sandbox; a closed one is a row. This service follows the events:
a closed recording becomes a row, a change of state goes into the running one.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import delete, func, insert, select, update

from talon_server.config import Retention
from talon_server.control.events import Event, Events
from talon_server.control.lifecycle import Lifecycle
from talon_server.control.principals import Principal
from talon_server.errors import TalonError
from talon_server.lib.tasks import Tasks
from talon_server.model.recording import Verification
from talon_server.model.sandbox import Sandbox
from talon_server.store.database import Database
from talon_server.store.tables import recordings as table
from talon_server.worker.port import WorkerPort
from talon_server.worker.recordings import Head, Recordings

RETENTION_EVERY_S = 600.0


@dataclass(frozen=True, slots=True)
class RecordingInfo:
    """`closed_at` None: it is being written. Times are Unix seconds; `records` and size are known once closed."""

    id: str
    tenant: str
    sandbox_id: str
    sandbox_name: str
    mode: str
    started_at: float
    closed_at: float | None = None
    records: int = 0
    size_bytes: int = 0
    held: int = 0


class RecordingService:
    """All recordings."""

    def __init__(
        self,
        database: Database,
        files: Recordings,
        lifecycle: Lifecycle,
        worker: WorkerPort,
        events: Events,
        tasks: Tasks,
        retention: Retention,
    ) -> None:
        self._database = database
        self.files = files
        self._lifecycle = lifecycle
        self._worker = worker
        self._tasks = tasks
        self._retention = retention
        events.listen(self._heard)
        tasks.start("retention of recordings", self._retain())

    def _heard(self, event: Event) -> None:
        if event.kind == "recorded":
            self._closed(event)
        elif event.kind == "state":
            fields = {"state": event.detail["state"], "reason": event.detail.get("reason") or ""}
            self._tasks.start("record a state", self._worker.record(event.sandbox_id, "life", fields))

    def _closed(self, event: Event) -> None:
        told = event.detail
        row = {
            "id": told["recording"],
            "tenant": event.tenant,
            "sandbox_id": event.sandbox_id,
            "sandbox_name": told["sandbox_name"],
            "mode": told["mode"],
            "started_at": told["started_at"],
            "closed_at": told["closed_at"],
            "records": told["records"],
            "size_bytes": told["size"],
            "held": 0,
        }
        with self._database.begin() as connection:
            connection.execute(delete(table).where(table.c.id == row["id"]))
            connection.execute(insert(table), row)

    def list(
        self, principal: Principal, *, sandbox: str = "", limit: int = 100, cursor: str = ""
    ) -> tuple[list[RecordingInfo], str | None]:
        """Newest first: those being written, then closed ones."""
        before = _before(cursor)
        live = [one for one in self._live(principal) if one.started_at < before and sandbox in ("", one.sandbox_id)]
        query = select(table).where(table.c.tenant == principal.tenant, table.c.started_at < before)
        if sandbox:
            query = query.where(table.c.sandbox_id == sandbox)
        with self._database.begin() as connection:
            rows = connection.execute(query.order_by(table.c.started_at.desc()).limit(limit + 1)).mappings()
            found = sorted([*live, *(RecordingInfo(**row) for row in rows)], key=_start, reverse=True)
        page = found[:limit]
        return page, repr(page[-1].started_at) if len(found) > limit and page else None

    def get(self, principal: Principal, id: str) -> RecordingInfo:
        """Raises recording_not_found."""
        with self._database.begin() as connection:
            query = select(table).where(table.c.id == id, table.c.tenant == principal.tenant)
            row = connection.execute(query).mappings().first()
        if row is not None:
            return RecordingInfo(**row)
        for one in self._live(principal):
            if one.id == id:
                return one
        raise TalonError("recording_not_found", f"there is no recording {id!r}")

    async def verify(self, principal: Principal, id: str) -> tuple[Verification, Head | None, bool]:
        """Check the chain and the signature. Raises recording_not_found."""
        self.get(principal, id)
        return await asyncio.to_thread(self.files.verify, id)

    def hold(self, principal: Principal, id: str, *, held: bool) -> RecordingInfo:
        """Keep a recording whatever its age, or let it go. Raises recording_not_found."""
        self.get(principal, id)
        with self._database.begin() as connection:
            connection.execute(update(table).where(table.c.id == id).values(held=int(held)))
        return self.get(principal, id)

    async def delete(self, principal: Principal, id: str) -> None:
        """Remove a closed recording. Raises recording_not_found, recording_held."""
        known = self.get(principal, id)
        if known.held or known.closed_at is None:
            raise TalonError("recording_held", None if known.held else "the recording is still being written")
        await self._remove(id)

    async def _remove(self, id: str) -> None:
        with self._database.begin() as connection:
            connection.execute(delete(table).where(table.c.id == id))
        await asyncio.to_thread(self.files.delete, id)

    def _live(self, principal: Principal) -> Sequence[RecordingInfo]:
        found = []
        for sandbox in self._lifecycle.living(principal):
            id = self._worker.recording(sandbox.id)
            if id:
                found.append(_live_info(sandbox, id))
        return found

    async def _retain(self) -> None:
        while True:
            for id in (*self._too_old(), *self._too_many()):
                await self._remove(id)
            await asyncio.sleep(RETENTION_EVERY_S)

    def _too_old(self) -> Sequence[str]:
        if not self._retention.recordings_s:
            return []
        query = select(table.c.id).where(
            table.c.held == 0, table.c.closed_at < time.time() - self._retention.recordings_s
        )
        with self._database.begin() as connection:
            return [row[0] for row in connection.execute(query)]

    def _too_many(self) -> Sequence[str]:
        if not self._retention.recordings_bytes:
            return []
        with self._database.begin() as connection:
            total = connection.execute(select(func.sum(table.c.size_bytes))).scalar() or 0
            rows = connection.execute(
                select(table.c.id, table.c.size_bytes).where(table.c.held == 0).order_by(table.c.started_at)
            ).all()
        gone = []
        for id, size in rows:
            if total <= self._retention.recordings_bytes:
                break
            total -= size
            gone.append(id)
        return gone


def _live_info(sandbox: Sandbox, id: str) -> RecordingInfo:
    started = sandbox.started_at or sandbox.created_at
    return RecordingInfo(id, sandbox.tenant, sandbox.id, sandbox.name, sandbox.spec.recording.mode, started.timestamp())


def _start(info: RecordingInfo) -> float:
    return info.started_at


def _before(cursor: str) -> float:
    try:
        return float(cursor) if cursor else float("inf")
    except ValueError as error:
        raise TalonError("invalid_request", "the cursor is not one that this server gave") from error
