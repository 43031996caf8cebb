"""Snapshots: the files of a sandbox at one moment, from which others can start."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import delete, insert, select, update

from talon_server.control.lifecycle import Lifecycle
from talon_server.control.principals import Principal
from talon_server.errors import TalonError
from talon_server.model import ids
from talon_server.model.sandbox import State
from talon_server.store.database import Database
from talon_server.store.tables import snapshots as table
from talon_server.worker.port import WorkerPort


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`state` is creating, ready or failed; `created_at` Unix seconds."""

    id: str
    tenant: str
    name: str
    sandbox_id: str
    state: str
    reason: str
    size_bytes: int
    created_at: float


class LayerBook(Protocol):
    """Where snapshots are known as images."""

    def add_snapshot(self, snapshot_id: str, of_image: str) -> None: ...

    def remove_snapshot(self, snapshot_id: str) -> None: ...

    def snapshots_over(self, snapshot_id: str) -> Sequence[str]: ...


class Snapshots:
    """All snapshots."""

    def __init__(self, database: Database, lifecycle: Lifecycle, worker: WorkerPort, layers: LayerBook) -> None:
        self._database = database
        self._lifecycle = lifecycle
        self._worker = worker
        self._layers = layers

    async def create(self, principal: Principal, ref: str, name: str = "") -> Snapshot:
        """Freeze a sandbox's files. Raises sandbox_not_found, sandbox_not_running, snapshot_failed."""
        sandbox = self._lifecycle.get(principal, ref)
        if sandbox.state not in (State.RUNNING, State.PAUSED, State.STOPPED):
            raise TalonError("sandbox_not_running", f"a sandbox that is {sandbox.state} has no files to keep")
        id = ids.new(ids.SNAPSHOT)
        row = {
            "id": id,
            "tenant": principal.tenant,
            "name": name,
            "sandbox_id": sandbox.id,
            "state": "creating",
            "reason": "",
            "size_bytes": 0,
            "created_at": time.time(),
        }
        with self._database.begin() as connection:
            connection.execute(insert(table), row)
        try:
            size = await self._worker.snapshot(sandbox.id, id)
            self._layers.add_snapshot(id, sandbox.image_id)
        except TalonError as error:
            self._change(id, state="failed", reason=str(error))
            raise
        return self._change(id, state="ready", size_bytes=size)

    def list(self, principal: Principal) -> list[Snapshot]:
        """Newest first."""
        query = select(table).where(table.c.tenant == principal.tenant).order_by(table.c.created_at.desc())
        with self._database.begin() as connection:
            return [Snapshot(**row) for row in connection.execute(query).mappings()]

    def get(self, principal: Principal, ref: str) -> Snapshot:
        """By id or name. Raises snapshot_not_found."""
        query = select(table).where(table.c.tenant == principal.tenant)
        query = query.where((table.c.id == ref) | (table.c.name == ref)).order_by(table.c.created_at.desc())
        with self._database.begin() as connection:
            row = connection.execute(query).mappings().first()
        if row is None:
            raise TalonError("snapshot_not_found", f"there is no snapshot {ref!r}")
        return Snapshot(**row)

    async def delete(self, principal: Principal, ref: str) -> None:
        """Remove a snapshot. Raises snapshot_not_found, snapshot_in_use."""
        snapshot = self.get(principal, ref)
        if self._lifecycle.uses_image(snapshot.id):
            raise TalonError("snapshot_in_use", f"sandboxes run from snapshot {snapshot.id}")
        if over := self._layers.snapshots_over(snapshot.id):
            raise TalonError("snapshot_in_use", f"snapshot {snapshot.id} has others over it: {', '.join(over)}")
        with self._database.begin() as connection:
            connection.execute(delete(table).where(table.c.id == snapshot.id))
        self._layers.remove_snapshot(snapshot.id)
        await self._worker.delete_snapshot(snapshot.id)

    def _change(self, id: str, **fields: Any) -> Snapshot:
        with self._database.begin() as connection:
            connection.execute(update(table).where(table.c.id == id).values(**fields))
            row = connection.execute(select(table).where(table.c.id == id)).mappings().one()
        return Snapshot(**row)
