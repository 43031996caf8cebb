"""The connection to one server: sandboxes, images, volumes, snapshots, pools, keys, and the server itself.

Sandbox.create and its sisters make a client when none is given. Invariant: connections are open as long as somebody
holds the client: its creator until `close`, each sandbox until it is closed or destroyed.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Unpack

from .. import config as configuration
from ..errors import TalonError, from_fields
from ..models import Metrics, SandboxInfo, parse
from ..retry import RetryPolicy
from ..spec import CreateOptions, create_body, create_query
from ..sse import Event, NDJSONDecoder, SSEDecoder
from .concurrency import Defaults, gather, pending
from .images import AsyncImages
from .keys import AsyncKeys
from .pools import AsyncPools
from .recordings import AsyncAudit, AsyncRecordings
from .sandbox import AsyncSandbox
from .snapshots import AsyncSnapshots
from .transport import AsyncTransport, Call, escape
from .volumes import AsyncVolumes

_WAIT_S = 60.0


class AsyncClient:
    """A client of one Talon server."""

    def __init__(
        self,
        server: str | None = None,
        api_key: str | None = None,
        *,
        context: str | None = None,
        config_file: str | None = None,
        connect_timeout: float = 10.0,
        retry: RetryPolicy | None = None,
    ) -> None:
        """Server and key not given come from the environment, the configuration file, or a server on this machine."""
        chosen = configuration.resolve(server, api_key, context, config_file)
        self.transport = AsyncTransport(chosen, connect_timeout_s=connect_timeout, retry=retry)
        self.images = AsyncImages(self.transport)
        self.volumes = AsyncVolumes(self.transport)
        self.snapshots = AsyncSnapshots(self.transport)
        self.pools = AsyncPools(self.transport)
        self.keys = AsyncKeys(self.transport)
        self.recordings = AsyncRecordings(self.transport)
        self.audit = AsyncAudit(self.transport)
        self._holders = 1

    @property
    def server(self) -> str:
        """The base URL of the server."""
        return self.transport.server

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self.transport.close()

    def retain(self) -> None:
        """Count one more holder."""
        self._holders += 1

    async def release(self) -> None:
        """Count one holder less; the last one closes."""
        self._holders -= 1
        if self._holders <= 0:
            await self.close()

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[AsyncClient]:
        """Hold the client for the time of a block."""
        self.retain()
        try:
            yield self
        finally:
            await self.release()

    @pending
    async def create(self, **options: Unpack[CreateOptions]) -> AsyncSandbox:
        """Make a sandbox; see CreateOptions. Sent again safely when the connection breaks (Idempotency-Key)."""
        limit = options.get("wait_timeout", _WAIT_S) + options.get("queue_timeout", 0.0) + 60.0
        call = Call(
            "POST",
            "/v2/sandboxes",
            create_query(options),
            json=create_body(options),
            headers={"Idempotency-Key": os.urandom(16).hex()},
            read_timeout_s=limit,
            idempotent=True,
        )
        async with self.lease():
            return AsyncSandbox(self, parse(SandboxInfo, await self.transport.json(call)))

    async def create_many(self, count: int, **options: Unpack[CreateOptions]) -> builtins.list[AsyncSandbox]:
        """Make several equal sandboxes; if one fails, those made are destroyed and its error is raised."""
        made: builtins.list[AsyncSandbox] = []
        failure: TalonError | None = None
        async with self.lease():
            async for outcome in self.create_batch(count, **options):
                if isinstance(outcome, TalonError):
                    failure = failure or outcome
                else:
                    made.append(outcome)
            if failure is not None:
                await gather([sandbox.destroy for sandbox in made])
                raise failure
        return made

    async def create_batch(
        self, count: int, **options: Unpack[CreateOptions]
    ) -> AsyncIterator[AsyncSandbox | TalonError]:
        """Make several equal sandboxes and give each, or its error, as soon as it is known."""
        query = {"queue_timeout_s": options.get("queue_timeout")}
        body = {"count": count, "spec": create_body(options)}
        call = Call("POST", "/v2/sandboxes:batch", query, json=body, read_timeout_s=600.0)
        async for line in self._lines(call):
            if "sandbox" in line:
                yield AsyncSandbox(self, parse(SandboxInfo, line["sandbox"]))
            elif "error" in line:
                yield from_fields(line["error"], 0, {})

    async def _lines(self, call: Call) -> AsyncIterator[Any]:
        decoder = NDJSONDecoder()
        async with self.transport.stream(call) as answer:
            async for piece in answer:
                for line in decoder.feed(piece):
                    yield line
        for line in decoder.flush():
            yield line

    @pending
    async def connect(self, id_or_name: str) -> AsyncSandbox:
        """The sandbox with this id or name. NotFoundError if there is none."""
        async with self.lease():
            return AsyncSandbox(self, await self.get(id_or_name))

    async def get(self, id_or_name: str) -> SandboxInfo:
        """What the server knows about one sandbox."""
        return parse(SandboxInfo, await self.transport.json(Call("GET", f"/v2/sandboxes/{escape(id_or_name)}")))

    async def list(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        state: str | None = None,
        name: str | None = None,
    ) -> builtins.list[SandboxInfo]:
        """All sandboxes that have these labels, state and name; without a state, those that have not ended."""
        query: dict[str, Any] = {
            "label": label_query(labels),
            "state": state,
            "name": name,
            "limit": 1000,
            "cursor": None,
        }
        found: builtins.list[SandboxInfo] = []
        while True:
            answer = await self.transport.json(Call("GET", "/v2/sandboxes", query))
            found += [parse(SandboxInfo, item) for item in answer["items"]]
            query["cursor"] = answer.get("next_cursor")
            if not query["cursor"]:
                return found

    async def delete(self, id_or_name: str) -> None:
        """Destroy a sandbox. NotFoundError if there is none."""
        await self.transport.json(Call("DELETE", f"/v2/sandboxes/{escape(id_or_name)}"))

    async def delete_many(self, labels: Mapping[str, str]) -> Any:
        """Destroy all sandboxes with these labels; the server's account of it."""
        return await self._by_labels("delete", labels)

    async def stop_many(self, labels: Mapping[str, str]) -> Any:
        """Stop all sandboxes with these labels; the server's account of it."""
        return await self._by_labels("stop", labels)

    async def _by_labels(self, verb: str, labels: Mapping[str, str]) -> Any:
        return await self.transport.json(Call("POST", f"/v2/sandboxes:{verb}", json={"labels": dict(labels)}))

    async def events(self, sandbox: str | None = None) -> AsyncIterator[Event]:
        """Events of all sandboxes, or of one, as they happen."""
        path = f"/v2/sandboxes/{escape(sandbox)}/events" if sandbox else "/v2/events"
        decoder = SSEDecoder()
        call = Call("GET", path, headers={"Accept": "text/event-stream"}, read_timeout_s=None)
        async with self.transport.stream(call) as answer:
            async for piece in answer:
                for event in decoder.feed(piece):
                    yield event

    async def host(self) -> dict[str, Any]:
        """Capacity, pool level and versions of the server's machine."""
        answer: dict[str, Any] = await self.transport.json(Call("GET", "/v2/host"))
        return answer

    async def metrics(self, sandbox: str) -> Metrics:
        """What one sandbox uses now."""
        return parse(Metrics, await self.transport.json(Call("GET", f"/v2/sandboxes/{escape(sandbox)}/metrics")))

    async def check(self) -> None:
        """Return if the server answers and takes the key."""
        await self.transport.json(Call("GET", "/v2/sandboxes", {"limit": 1}))

    async def version(self) -> dict[str, Any]:
        """The server's version; needs no key."""
        answer: dict[str, Any] = await self.transport.json(Call("GET", "/version"))
        return answer


def label_query(labels: Mapping[str, str] | None) -> builtins.list[str]:
    """Label filters as the query wants them."""
    return [f"{key}:{value}" for key, value in (labels or {}).items()]


def _make_default(server: str, api_key: str) -> AsyncClient:
    client = AsyncClient(server, api_key)
    client._holders = 0
    return client


_DEFAULTS: Defaults[AsyncClient] = Defaults(_make_default)


def default_client(server: str | None = None, api_key: str | None = None) -> AsyncClient:
    """The client for a call that names none; nobody holds it yet."""
    chosen = configuration.resolve(server, api_key)
    return _DEFAULTS.get(chosen.server, chosen.api_key)
