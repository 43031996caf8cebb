"""API keys (`client.keys`); the server keeps only their hashes."""

from __future__ import annotations

import builtins
from typing import Any

from ..models import ApiKey, parse
from .transport import AsyncTransport, Call, escape


class AsyncKeys:
    """Makes, lists and revokes keys."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> builtins.list[ApiKey]:
        """All of them."""
        answer = await self._transport.json(Call("GET", "/v2/keys"))
        return [parse(ApiKey, item) for item in answer["items"]]

    async def create(self, name: str, **options: Any) -> ApiKey:
        """Make a key; the answer is the only place where the key itself stands."""
        return parse(ApiKey, await self._transport.json(Call("POST", "/v2/keys", json={"name": name, **options})))

    async def delete(self, key_id: str) -> None:
        """Revoke a key at once."""
        await self._transport.json(Call("DELETE", f"/v2/keys/{escape(key_id)}"))
