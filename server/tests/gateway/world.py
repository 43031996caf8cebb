"""A gateway served by a real uvicorn before a scripted agent on a unix socket, and a raw client for it."""

import asyncio
import contextlib
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from talon_server.errors import TalonError
from talon_server.gateway.access import Located
from talon_server.gateway.listener import HEAD_S, bounded
from talon_server.gateway.relay import Gateway
from talon_server.gateway.upgrade import upgrades

ID = "sbx_" + "0a" * 12
TOKEN = "the-sandbox-token"
KEY = "tln_the-key"
BOUND_S = 30

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class World:
    """`port` of the server; what the directory was told; connections the agent saw."""

    port: int
    gateway: Gateway
    accessed: list[str] = field(default_factory=list)
    connections: int = 0
    renews: bool = False

    async def ask(self, request: bytes) -> bytes:
        """Send bytes, read until the server closes (requests should say `connection: close`)."""
        reader, writer = await self.connect()
        writer.write(request)
        answer = await asyncio.wait_for(reader.read(), BOUND_S)
        writer.close()
        await writer.wait_closed()
        return answer

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)


class _Directory:
    def __init__(self, socket_path: Path) -> None:
        self.socket = socket_path
        self.world: World

    def locate(self, ref: str, tenant: str | None) -> Located:
        if ref != ID:
            raise TalonError("sandbox_not_found")
        return Located(ID, self.socket, TOKEN, "default", self.world.renews)

    def tenant(self, key: str) -> str | None:
        return "default" if key == KEY else None

    def accessed(self, id: str) -> None:
        self.world.accessed.append(id)


@contextlib.asynccontextmanager
async def world(script: Script, *, head_s: float = HEAD_S) -> AsyncIterator[World]:
    """`script` plays the agent, once for each connection; `head_s` bounds the time of a request's head."""
    with tempfile.TemporaryDirectory() as home:
        directory = _Directory(Path(home) / "agent.sock")
        gateway = Gateway(directory, egress=_egress, words=lambda error: (error.status, error.code), domain="box.test")
        listener = socket.create_server(("127.0.0.1", 0))
        made = directory.world = World(listener.getsockname()[1], gateway)
        agent = await asyncio.start_unix_server(_counted(script, made), directory.socket)
        server = uvicorn.Server(_config(gateway, head_s))
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(server.serve(sockets=[listener]))
            try:
                while not server.started:
                    await asyncio.sleep(0.005)
                yield made
            finally:
                server.should_exit = server.force_exit = True
                gateway.pool.close()
                await serving
                agent.close()
        listener.close()


def _config(gateway: Gateway, head_s: float) -> uvicorn.Config:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and not await gateway(scope, receive, send):
            await send({"type": "http.response.start", "status": 418, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})

    return uvicorn.Config(
        app,
        http=bounded(head_s),  # type: ignore[arg-type]  # a protocol class serves too
        ws=upgrades(gateway),
        lifespan="off",
        log_level="critical",  # type: ignore[arg-type]
    )


async def _egress(located: Located, path: str, scope: Any, receive: Any, send: Any) -> None:
    body = f"egress {path}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


def _counted(script: Script, made: World) -> Script:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.connections += 1
        try:
            await script(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    return serve


def get(path: str, *fields: str, key: str | None = KEY, method: str = "GET") -> bytes:
    """A request that asks the server to close afterwards."""
    auth = [f"OPEN-SANDBOX-API-KEY: {key}"] if key else []
    return "\r\n".join(
        [f"{method} {path} HTTP/1.1", "Host: box.test", "Connection: close", *auth, *fields, "", ""]
    ).encode()
