"""Named pools (`client.pools`): sandboxes of one kind that are already up, their start-up command done."""

from __future__ import annotations

import builtins
from typing import Any

from ..models import Pool, parse
from .transport import AsyncTransport, Call, escape


class AsyncPools:
    """Makes, changes, lists and removes pools."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> builtins.list[Pool]:
        """All of them."""
        answer = await self._transport.json(Call("GET", "/v2/pools"))
        return [parse(Pool, item) for item in answer["items"]]

    async def create(self, name: str, **options: Any) -> Pool:
        """Make a pool. Options: minimum, maximum, warm_command, spec (as create_body of `spec.py` gives)."""
        return parse(Pool, await self._transport.json(Call("POST", "/v2/pools", json={"name": name, **options})))

    async def get(self, name: str) -> Pool:
        """One pool."""
        return parse(Pool, await self._transport.json(Call("GET", f"/v2/pools/{escape(name)}")))

    async def update(self, name: str, **changes: Any) -> Pool:
        """Change a pool, its minimum and maximum."""
        return parse(Pool, await self._transport.json(Call("PATCH", f"/v2/pools/{escape(name)}", json=changes)))

    async def delete(self, name: str) -> None:
        """Remove a pool and the sandboxes waiting in it."""
        await self._transport.json(Call("DELETE", f"/v2/pools/{escape(name)}"))
