"""Named volumes (`client.volumes`): storage that outlives sandboxes."""

from __future__ import annotations

import builtins
from typing import Any

from ..models import Volume, parse
from .transport import AsyncTransport, Call, escape


class AsyncVolumes:
    """Makes, lists and removes volumes."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> builtins.list[Volume]:
        """All of them."""
        answer = await self._transport.json(Call("GET", "/v2/volumes"))
        return [parse(Volume, item) for item in answer["items"]]

    async def create(self, name: str, **options: Any) -> Volume:
        """Make a volume. Options: size ("10GiB")."""
        return parse(Volume, await self._transport.json(Call("POST", "/v2/volumes", json={"name": name, **options})))

    async def get(self, name: str) -> Volume:
        """One volume."""
        return parse(Volume, await self._transport.json(Call("GET", f"/v2/volumes/{escape(name)}")))

    async def delete(self, name: str) -> None:
        """Remove a volume and what is in it. ConflictError while a sandbox uses it."""
        await self._transport.json(Call("DELETE", f"/v2/volumes/{escape(name)}"))
