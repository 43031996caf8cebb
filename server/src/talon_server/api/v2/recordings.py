"""/v2/recordings: list, look and check, hold, delete, read as JSON lines or as asciicast, follow."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from talon_server.api.services import Services
from talon_server.api.v2 import models_gen as models
from talon_server.api.v2.http import Call, endpoint, reply, server_sent
from talon_server.api.v2.shapes import time
from talon_server.control.principals import Principal
from talon_server.control.recordings import RecordingInfo, RecordingService
from talon_server.errors import TalonError
from talon_server.model.recording import cast

FOLLOW_EVERY_S = 0.1


async def list_all(call: Call) -> Response:
    limit = max(1, call.number("limit", 100, most=1000))
    items, cursor = call.services.recordings.list(
        call.principal, sandbox=call.query("sandbox"), limit=limit, cursor=call.query("cursor")
    )
    return reply({"items": [_shape(one) for one in items], "next_cursor": cursor})


async def get(call: Call) -> Response:
    recordings = call.services.recordings
    info = recordings.get(call.principal, call.path("id"))
    return reply(await described(recordings, call.principal, info))


async def described(recordings: RecordingService, principal: Principal, info: RecordingInfo) -> dict[str, Any]:
    """A recording as JSON, with what a check of it finds and its terminals."""
    found, head, signed = await recordings.verify(principal, info.id)
    sound = found.sound and (info.closed_at is None or signed)
    reason = found.reason or (None if sound else "the signature does not hold")
    bad = {"bad_record": found.bad_record, "bad_offset": found.bad_offset}
    told = {name: getattr(head, name) for name in head.__slots__} if head is not None else None
    terminals = await asyncio.to_thread(_terminals, recordings.files.records(info.id))
    shape = _shape(info) | {"records": found.records, "verified": sound, "reason": reason, "head": told, **bad}
    return {**shape, "terminals": terminals}


async def patch(call: Call) -> Response:
    body = await call.read(models.RecordingPatch)
    return reply(_shape(call.services.recordings.hold(call.principal, call.path("id"), held=body.held)))


async def delete(call: Call) -> Response:
    await call.services.recordings.delete(call.principal, call.path("id"))
    return Response(status_code=204)


async def timeline(call: Call) -> Response:
    recordings = call.services.recordings
    info = recordings.get(call.principal, call.path("id"))
    since = call.number("since", 0, most=1 << 53)
    if "text/event-stream" in call.request.headers.get("accept", ""):
        return server_sent(_follow(call, info, since))
    lines = (line for line in recordings.files.lines(info.id) if line.endswith(b"}\n"))
    wanted = lines if since == 0 else (line for number, line in enumerate(lines) if number >= since)
    return StreamingResponse(_chunks(wanted), media_type="application/x-ndjson")


async def terminal_cast(call: Call) -> Response:
    recordings = call.services.recordings
    info = recordings.get(call.principal, call.path("id"))
    terminal = call.query("terminal")
    if not terminal:
        known = await asyncio.to_thread(_terminals, recordings.files.records(info.id))
        if not known:
            raise TalonError("recording_not_found", "no terminal was opened in this recording")
        terminal = known[0]
    lines = (line.encode() + b"\n" for line in cast(recordings.files.records(info.id), terminal))
    name = f'attachment; filename="{info.id}-{terminal}.cast"'
    headers = {"Content-Disposition": name}
    return StreamingResponse(_chunks(lines), media_type="application/x-asciicast", headers=headers)


async def _follow(call: Call, info: RecordingInfo, since: int) -> AsyncIterator[tuple[str, int, Mapping[str, Any]]]:
    files = call.services.recordings.files
    number = since
    while True:
        live = files.is_open(info.id)
        for record in await asyncio.to_thread(_from, files.records(info.id), number):
            number = int(record["n"]) + 1
            yield str(record["kind"]), int(record["n"]), record
        if not live:
            return
        size = files.size(info.id)
        while files.is_open(info.id) and files.size(info.id) == size:
            await asyncio.sleep(FOLLOW_EVERY_S)


def _from(records: Iterator[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    return [record for record in records if record["n"] >= number]


def _terminals(records: Iterator[dict[str, Any]]) -> list[str]:
    return [str(record["id"]) for record in records if record["kind"] == "term.open"]


async def _chunks(lines: Iterator[bytes]) -> AsyncIterator[bytes]:
    gathered = bytearray()
    for line in lines:
        gathered += line
        if len(gathered) > 1 << 16:
            yield bytes(gathered)
            gathered.clear()
            await asyncio.sleep(0)
    yield bytes(gathered)


def _shape(info: RecordingInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "sandbox_id": info.sandbox_id,
        "sandbox_name": info.sandbox_name or None,
        "mode": info.mode,
        "state": "live" if info.closed_at is None else "closed",
        "started_at": time(datetime.fromtimestamp(info.started_at, UTC)),
        "closed_at": time(datetime.fromtimestamp(info.closed_at, UTC)) if info.closed_at is not None else None,
        "records": info.records,
        "size_bytes": info.size_bytes,
        "held": bool(info.held),
    }


def routes(services: Services) -> list[Route]:
    """The routes of this module."""

    def route(path: str, method: str, handler: Callable[[Call], Awaitable[Response]]) -> Route:
        return Route(path, endpoint(services, handler), methods=[method])

    one = "/v2/recordings/{id}"
    return [
        route("/v2/recordings", "GET", list_all),
        route(one, "GET", get),
        route(one, "PATCH", patch),
        route(one, "DELETE", delete),
        route(f"{one}/timeline", "GET", timeline),
        route(f"{one}/cast", "GET", terminal_cast),
    ]
