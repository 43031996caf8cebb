"""Sandboxes in the database: written at each change, read at start and for those that ended.

Rows are `model.sandbox.Sandbox` to the outside. Called by `control` alone.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import bindparam, delete, insert, select, update

from talon_server.model.sandbox import Sandbox, SandboxSpec, State
from talon_server.store.database import Database
from talon_server.store.tables import sandboxes as table

_SPEC = TypeAdapter(SandboxSpec)
_INSERT = insert(table)
_UPDATE = (
    update(table)
    .where(table.c.id == bindparam("row_id"))
    .values({column.name: bindparam(column.name) for column in table.c if column.name != "id"})
)


class SandboxStore:
    """The table of sandboxes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, sandbox: Sandbox) -> None:
        """A new row."""
        with self._database.begin() as connection:
            connection.execute(_INSERT, _row(sandbox))

    def put(self, sandbox: Sandbox) -> None:
        """Write the whole row again."""
        row = _row(sandbox)
        row["row_id"] = row.pop("id")
        with self._database.begin() as connection:
            connection.execute(_UPDATE, row)

    def living(self) -> list[Sandbox]:
        """All that are neither failed nor terminated."""
        with self._database.begin() as connection:
            rows = connection.execute(select(table).where(table.c.ended_at.is_(None))).mappings()
            return [_sandbox(row) for row in rows]

    def ended(self, *, tenant: str, states: Sequence[State], before: float, id: str, limit: int) -> list[Sandbox]:
        """Ended ones in these states, newest creation first, after (`before`, `id`) in that order."""
        query = (
            select(table)
            .where(table.c.tenant == tenant, table.c.ended_at.is_not(None))
            .where(table.c.state.in_([str(state) for state in states]))
            .where((table.c.created_at < before) | ((table.c.created_at == before) & (table.c.id < id)))
            .order_by(table.c.created_at.desc(), table.c.id.desc())
            .limit(limit)
        )
        with self._database.begin() as connection:
            return [_sandbox(row) for row in connection.execute(query).mappings()]

    def get(self, id: str) -> Sandbox | None:
        """One by its id, ended or not."""
        with self._database.begin() as connection:
            row = connection.execute(select(table).where(table.c.id == id)).mappings().first()
            return _sandbox(row) if row is not None else None

    def by_idempotency(self, tenant: str, key: str) -> Sandbox | None:
        """The newest that was made with this key."""
        query = select(table).where(table.c.tenant == tenant, table.c.idempotency == key)
        with self._database.begin() as connection:
            row = connection.execute(query.order_by(table.c.created_at.desc()).limit(1)).mappings().first()
            return _sandbox(row) if row is not None else None

    def forget(self, ended_before: float) -> int:
        """Remove the rows of those that ended before a time; returns how many."""
        with self._database.begin() as connection:
            return connection.execute(delete(table).where(table.c.ended_at < ended_before)).rowcount


def _row(sandbox: Sandbox) -> dict[str, Any]:
    return {
        "id": sandbox.id,
        "tenant": sandbox.tenant,
        "name": sandbox.name,
        "state": str(sandbox.state),
        "reason": sandbox.reason,
        "spec": _SPEC.dump_json(sandbox.spec).decode(),
        "image_id": sandbox.image_id,
        "token": sandbox.token,
        "labels": json.dumps(dict(sandbox.labels)),
        "created_at": sandbox.created_at.timestamp(),
        "started_at": _seconds(sandbox.started_at),
        "expires_at": _seconds(sandbox.expires_at),
        "ended_at": _seconds(sandbox.ended_at),
        "changed_at": _seconds(sandbox.changed_at),
        "ttl_s": sandbox.ttl_s,
        "ip": sandbox.ip,
        "pooled": int(sandbox.pooled),
        "timings_ms": json.dumps(dict(sandbox.timings_ms)),
        "key_id": sandbox.key_id,
        "idempotency": sandbox.idempotency,
    }


def _sandbox(row: Any) -> Sandbox:
    return Sandbox(
        id=row["id"],
        name=row["name"],
        tenant=row["tenant"],
        spec=_SPEC.validate_json(row["spec"]),
        state=State(row["state"]),
        token=row["token"],
        created_at=datetime.fromtimestamp(row["created_at"], UTC),
        image_id=row["image_id"],
        reason=row["reason"],
        labels=json.loads(row["labels"]),
        started_at=_time(row["started_at"]),
        expires_at=_time(row["expires_at"]),
        ended_at=_time(row["ended_at"]),
        changed_at=_time(row["changed_at"]),
        ttl_s=row["ttl_s"],
        ip=row["ip"],
        pooled=bool(row["pooled"]),
        timings_ms=json.loads(row["timings_ms"]),
        key_id=row["key_id"],
        idempotency=row["idempotency"],
    )


def _seconds(time: datetime | None) -> float | None:
    return time.timestamp() if time is not None else None


def _time(seconds: float | None) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds is not None else None
