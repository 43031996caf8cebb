"""/v2/audit: who did what; queried, followed, exported and checked."""

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from talon_server.api.services import Services
from talon_server.api.v2.http import Call, endpoint, reply, server_sent
from talon_server.api.v2.shapes import time
from talon_server.errors import TalonError

_COLUMNS = (
    "sequence", "at", "action", "target", "outcome", "status", "key_id", "tenant", "address", "request_id", "hash",
)  # fmt: skip
_BACKLOG = 1000


async def query(call: Call) -> Response:
    if "text/event-stream" in call.request.headers.get("accept", ""):
        return server_sent(_follow(call))
    limit = max(1, call.number("limit", 100, most=100000))
    cursor = call.query("cursor")
    entries = await asyncio.to_thread(
        call.services.audit.query,
        tenant=call.principal.tenant,
        action=call.query("action"),
        target=call.query("target"),
        key_id=call.query("key"),
        before=call.number("cursor", 0, most=1 << 53) if cursor else None,
        limit=limit,
    )
    items = [_shape(entry) for entry in entries]
    kind = call.query("format", "json")
    if kind == "jsonl":
        return Response("".join(json.dumps(item) + "\n" for item in items), media_type="application/x-ndjson")
    if kind == "csv":
        return Response(_csv(items), media_type="text/csv")
    if kind != "json":
        raise TalonError("invalid_request", f"format {kind!r} must be json, jsonl or csv")
    return reply({"items": items, "next_cursor": str(items[-1]["sequence"]) if len(items) == limit else None})


async def check(call: Call) -> Response:
    found = await asyncio.to_thread(call.services.audit.check)
    told = {"sound": found.sound, "records": found.records, "bad_record": found.bad_record}
    return reply({**told, "reason": found.reason or None, "head": found.head})


async def _follow(call: Call) -> AsyncIterator[tuple[str, int, Mapping[str, Any]]]:
    queue: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue(_BACKLOG)

    def put(entry: Mapping[str, Any]) -> None:
        if entry.get("tenant") == call.principal.tenant and not queue.full():
            queue.put_nowait(entry)

    stop = call.services.audit.listen(put)
    try:
        while True:
            entry = await queue.get()
            yield "audit", int(entry["n"]), _shape(entry)
    finally:
        stop()


def _shape(entry: Mapping[str, Any]) -> dict[str, Any]:
    named = {key: entry.get(key, "") for key in ("tenant", "key_id", "target", "outcome", "address", "request_id")}
    return {
        "sequence": entry["n"],
        "at": time(datetime.fromtimestamp(entry["at"], UTC)),
        "action": entry["kind"],
        "status": entry.get("status", 0),
        "hash": entry.get("h", ""),
        **named,
    }


def _csv(items: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS)
    writer.writeheader()
    writer.writerows(items)
    return text.getvalue()


def routes(services: Services) -> list[Route]:
    """The routes of this module; the administrator's."""
    return [
        Route("/v2/audit", endpoint(services, query, admin=True), methods=["GET"]),
        Route("/v2/audit:verify", endpoint(services, check, admin=True), methods=["GET"]),
    ]
