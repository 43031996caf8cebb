"""The whole HTTP side on a real port, over a host in memory."""

import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from control.world import MemoryHost, control, until
from talon_server.api.services import Services
from talon_server.compose import application
from talon_server.gateway.upgrade import upgrades
from talon_server.lib.tasks import Tasks


@dataclass
class World:
    """A client with the administrator's key, and what lies behind it."""

    http: httpx.AsyncClient
    services: Services
    host: MemoryHost
    port: int
    key: str


@asynccontextmanager
async def world(home: Path, **settings: Any) -> AsyncIterator[World]:
    """A server, until the block ends."""
    host = MemoryHost()
    async with control(home, host, **settings) as services, Tasks("test") as tasks:
        app, gateway = application(services)
        options = {"http": "httptools", "lifespan": "off", "access_log": False, "log_config": None, "loop": "none"}
        protocol: Any = upgrades(gateway)
        server = uvicorn.Server(uvicorn.Config(app, ws=protocol, timeout_graceful_shutdown=1, **options))  # type: ignore[arg-type]
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as bound:
            port: int = bound.getsockname()[1]
            serving = tasks.start("server", server.serve(sockets=[bound]))
            await until(lambda: server.started, "the server listens")
            key = (home / "admin.key").read_text().strip()
            headers = {"Authorization": f"Bearer {key}"}
            try:
                async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30) as http:
                    yield World(http, services, host, port, key)
            finally:
                server.should_exit = True
                await serving
                gateway.pool.close()
