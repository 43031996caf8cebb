"""Recordings of sandboxes, and the audit log of the API, as seen through the server.

Used as `client.recordings` and `client.audit`; `tsb recordings` and `tsb audit` stand on it. Both outlive sandboxes.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import AsyncIterator
from typing import Any

from ..sse import SSEDecoder
from .transport import AsyncTransport, Call, escape

_EVENTS = {"Accept": "text/event-stream"}


class AsyncRecordings:
    """All recordings of the tenant."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, sandbox: str | None = None, *, limit: int = 100) -> builtins.list[dict[str, Any]]:
        """The newest `limit` recordings, of one sandbox's id or of all."""
        found: builtins.list[dict[str, Any]] = []
        query: dict[str, Any] = {"sandbox": sandbox, "limit": min(limit, 1000), "cursor": None}
        while True:
            answer = await self._transport.json(Call("GET", "/v2/recordings", query))
            found += answer["items"]
            query["cursor"] = answer.get("next_cursor")
            if not query["cursor"] or len(found) >= limit:
                return found[:limit]

    async def get(self, id: str) -> dict[str, Any]:
        """One recording with its terminals, its head, and what the server's check of the chain and signature found."""
        answer: dict[str, Any] = await self._transport.json(Call("GET", _path(id), read_timeout_s=600.0))
        return answer

    async def records(self, id: str, *, since: int = 0) -> AsyncIterator[dict[str, Any]]:
        """Its records from number `since` on, in order."""
        async for line in self.lines(id, since=since):
            yield json.loads(line)

    async def lines(self, id: str, *, since: int = 0) -> AsyncIterator[bytes]:
        """The lines of its timeline, byte for byte as they are chained."""
        rest = b""
        async with self._transport.stream(Call("GET", f"{_path(id)}/timeline", {"since": since or None})) as answer:
            async for piece in answer:
                *whole, rest = (rest + piece).split(b"\n")
                for line in whole:
                    yield line + b"\n"
        if rest:
            yield rest

    async def follow(self, id: str, *, since: int = 0) -> AsyncIterator[dict[str, Any]]:
        """Its records, then those to come until it is closed."""
        call = Call("GET", f"{_path(id)}/timeline", {"since": since}, headers=_EVENTS, read_timeout_s=None)
        decoder = SSEDecoder()
        async with self._transport.stream(call) as answer:
            async for piece in answer:
                for event in decoder.feed(piece):
                    yield json.loads(event.data)

    async def cast(self, id: str, terminal: str | None = None) -> AsyncIterator[bytes]:
        """One terminal (without a name: the first) as an asciicast v2 file, in pieces."""
        async with self._transport.stream(Call("GET", f"{_path(id)}/cast", {"terminal": terminal})) as answer:
            async for piece in answer:
                yield piece

    async def export(self, id: str) -> AsyncIterator[bytes]:
        """A page in one file that replays it without a server, in pieces."""
        async with self._transport.stream(Call("GET", f"{_path(id)}/export", read_timeout_s=600.0)) as answer:
            async for piece in answer:
                yield piece

    async def hold(self, id: str, held: bool = True) -> dict[str, Any]:
        """Keep it whatever its age, or let it go again."""
        answer: dict[str, Any] = await self._transport.json(Call("PATCH", _path(id), json={"held": held}))
        return answer

    async def delete(self, id: str) -> None:
        """Remove it for good. ConflictError while it is held or still written."""
        await self._transport.json(Call("DELETE", _path(id)))


class AsyncAudit:
    """Who did what through the API; for administrators."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(
        self, *, action: str | None = None, target: str | None = None, key: str | None = None, limit: int = 100
    ) -> builtins.list[dict[str, Any]]:
        """The newest `limit` entries that fit."""
        query = {"action": action, "target": target, "key": key, "limit": limit}
        answer = await self._transport.json(Call("GET", "/v2/audit", query))
        entries: builtins.list[dict[str, Any]] = answer["items"]
        return entries

    async def follow(self, *, action: str | None = None) -> AsyncIterator[dict[str, Any]]:
        """Entries as they are made, from now on."""
        decoder = SSEDecoder()
        async with self._transport.stream(Call("GET", "/v2/audit", headers=_EVENTS, read_timeout_s=None)) as answer:
            async for piece in answer:
                for event in decoder.feed(piece):
                    entry = json.loads(event.data)
                    if action in (None, entry["action"]):
                        yield entry

    async def verify(self) -> dict[str, Any]:
        """What a check of the log's chain finds."""
        answer: dict[str, Any] = await self._transport.json(Call("GET", "/v2/audit:verify", read_timeout_s=600.0))
        return answer


def _path(id: str) -> str:
    return f"/v2/recordings/{escape(id)}"
