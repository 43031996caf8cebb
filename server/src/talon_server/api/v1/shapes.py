"""The platform's records as OpenSandbox shows them. Pure."""

import json
from datetime import UTC, datetime
from typing import Any

from talon_server.api.v1.http import without_nulls
from talon_server.api.v1.states import status_of
from talon_server.api.v1.translate import kept, shown
from talon_server.model.sandbox import Sandbox


def timestamp(at: datetime) -> str:
    """RFC 3339 in UTC."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def created(sandbox: Sandbox) -> dict[str, Any]:
    """CreateSandboxResponse."""
    spec = sandbox.spec
    since = sandbox.changed_at or sandbox.started_at or sandbox.created_at
    return without_nulls(
        {
            "id": sandbox.id,
            "status": status_of(sandbox.state, sandbox.reason, timestamp(since)),
            "metadata": dict(sandbox.labels) or None,
            "extensions": shown(spec.extensions) or None,
            "platform": _platform(kept(spec.extensions, "platform")),
            "expiresAt": timestamp(sandbox.expires_at) if sandbox.expires_at else None,
            "createdAt": timestamp(sandbox.created_at),
            "entrypoint": _entrypoint(sandbox),
        }
    )


def sandbox(record: Sandbox) -> dict[str, Any]:
    """Sandbox: the create response plus where it came from."""
    spec = record.spec
    image = None if spec.snapshot else {"uri": kept(spec.extensions, "image") or spec.image}
    pool = kept(spec.extensions, "pool")
    allocation = {"mode": "pool", "poolRef": pool, "state": "allocated"} if pool else None
    source = {"image": image, "snapshotId": spec.snapshot, "allocation": allocation}
    return without_nulls({**created(record), **source})


def _entrypoint(record: Sandbox) -> list[str]:
    told = kept(record.spec.extensions, "entrypoint")
    return json.loads(told) if told else list(record.spec.entrypoint or ())


def _platform(text: str | None) -> dict[str, str] | None:
    if text is None:
        return None
    os, _, arch = text.partition("/")
    return {"os": os, "arch": arch}
