"""The images of the server (`client.images`): what sandboxes start from."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

from ..errors import NetworkError, from_fields
from ..models import Image, parse
from ..sse import NDJSONDecoder
from .transport import AsyncTransport, Call, escape

_PULL_TIMEOUT_S = 1800.0


class AsyncImages:
    """Lists, fetches, builds and removes images."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> builtins.list[Image]:
        """All images."""
        answer = await self._transport.json(Call("GET", "/v2/images"))
        return [parse(Image, item) for item in answer["items"]]

    async def get(self, name: str) -> Image:
        """One image by name or alias."""
        return parse(Image, await self._transport.json(Call("GET", _path(name))))

    async def delete(self, name: str) -> None:
        """Remove an image; sandboxes made from it keep what they need."""
        await self._transport.json(Call("DELETE", _path(name)))

    async def alias(self, name: str, alias: str) -> None:
        """Let an image go by one more name."""
        await self._transport.json(Call("PUT", f"{_path(name)}/aliases/{escape(alias)}"))

    async def pull(self, ref: str, **options: Any) -> Image:
        """Fetch an image from a registry. Options: name, username, password, insecure."""
        return await self._last(self.pull_progress(ref, **options))

    async def pull_progress(self, ref: str, **options: Any) -> AsyncIterator[dict[str, Any]]:
        """Fetch an image and give each step; the last one has the `image`."""
        body = {"ref": ref} | {key: value for key, value in options.items() if value is not None}
        async for step in self._steps(Call("POST", "/v2/images:pull", json=body)):
            yield step

    async def push_progress(self, name: str, ref: str, **options: Any) -> AsyncIterator[dict[str, Any]]:
        """Send an image to a registry and give each step. Options: username, password, insecure."""
        body = {"name": name, "ref": ref} | {key: value for key, value in options.items() if value is not None}
        async for step in self._steps(Call("POST", "/v2/images:push", json=body)):
            yield step

    async def import_progress(
        self, content: bytes | AsyncIterable[bytes], name: str | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """Load an OCI or docker archive, or a root file system as tar, and give each step."""
        headers = {"Content-Type": "application/x-tar"}
        async for step in self._steps(
            Call("POST", "/v2/images:import", {"name": name}, content=content, headers=headers)
        ):
            yield step

    async def build_base_progress(self) -> AsyncIterator[dict[str, Any]]:
        """Build the image `base` on the server and give each step."""
        async for step in self._steps(Call("POST", "/v2/images:build-base")):
            yield step

    async def build_progress(
        self, context: bytes | AsyncIterable[bytes], name: str, **options: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """Build an image from a directory with a Dockerfile, sent as tar, and give each step. Options: dockerfile."""
        query = {"name": name, **options}
        headers = {"Content-Type": "application/x-tar"}
        async for step in self._steps(Call("POST", "/v2/images:build", query, content=context, headers=headers)):
            yield step

    async def _steps(self, call: Call) -> AsyncIterator[dict[str, Any]]:
        """The lines of a progress stream; one with an error raises, and so does an end without result."""
        decoder = NDJSONDecoder()
        call.read_timeout_s = _PULL_TIMEOUT_S
        async with self._transport.stream(call) as answer:
            async for piece in answer:
                for step in decoder.feed(piece):
                    if "error" in step:
                        raise from_fields(step["error"], 0, answer.headers)
                    yield step
                    if "image" in step:
                        return
        raise NetworkError("the server stopped before the image was done", code="connection_lost", remedy="try again")

    async def _last(self, steps: AsyncIterator[dict[str, Any]]) -> Image:
        result: dict[str, Any] = {}
        async for step in steps:
            result = step.get("image", result)
        return parse(Image, result)


def _path(name: str) -> str:
    return f"/v2/images/{escape(name)}"
