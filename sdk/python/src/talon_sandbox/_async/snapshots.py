"""Snapshots (`client.snapshots`): kept file systems that new sandboxes can start from."""

from __future__ import annotations

import builtins

from ..models import Snapshot, parse
from .transport import AsyncTransport, Call, escape


class AsyncSnapshots:
    """Lists and removes snapshots; Sandbox.snapshot makes them."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> builtins.list[Snapshot]:
        """All of them."""
        answer = await self._transport.json(Call("GET", "/v2/snapshots"))
        return [parse(Snapshot, item) for item in answer["items"]]

    async def get(self, id_or_name: str) -> Snapshot:
        """One snapshot."""
        return parse(Snapshot, await self._transport.json(Call("GET", f"/v2/snapshots/{escape(id_or_name)}")))

    async def delete(self, id_or_name: str) -> None:
        """Remove a snapshot; sandboxes made from it keep what they need."""
        await self._transport.json(Call("DELETE", f"/v2/snapshots/{escape(id_or_name)}"))
