"""`opensandbox-mcp`, unchanged: every tool, over stdio and over streamable HTTP."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.conformance.opensandbox.live import IMAGE, Live

BOUND_S = 60
PROGRAM = str(Path(sys.executable).with_name("opensandbox-mcp"))


def flags(live: Live) -> list[str]:
    return ["--domain", live.domain, "--api-key", live.key, "--protocol", "http"]


@contextlib.asynccontextmanager
async def over_stdio(live: Live) -> AsyncIterator[ClientSession]:
    server = StdioServerParameters(command=PROGRAM, args=[*flags(live), "--transport", "stdio"])
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        yield session


@contextlib.asynccontextmanager
async def over_http(live: Live) -> AsyncIterator[ClientSession]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [PROGRAM, *flags(live), "--transport", "streamable-http", "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ) as server:
        try:
            await listening(port)
            url = f"http://127.0.0.1:{port}/mcp"
            async with streamable_http_client(url) as streams, ClientSession(streams[0], streams[1]) as session:
                await session.initialize()
                yield session
        finally:
            server.terminate()


async def listening(port: int) -> None:
    deadline = time.monotonic() + BOUND_S
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        else:
            writer.close()
            await writer.wait_closed()
            return


async def call(session: ClientSession, tool: str, **arguments: Any) -> Any:
    result = await session.call_tool(tool, arguments)
    said = "".join(getattr(part, "text", "") for part in result.content)
    failed = getattr(result, "is_error", None) or getattr(result, "isError", False)
    assert not failed, (tool, said)
    with contextlib.suppress(ValueError):
        return json.loads(said)
    return said


@pytest.mark.parametrize("transport", [over_stdio, over_http], ids=["stdio", "streamable-http"])
def test_every_tool(live: Live, transport: Any) -> None:
    async def run() -> None:
        async with transport(live) as session:
            tools = {tool.name for tool in (await session.list_tools()).tools}
            used = await use_all(session)
            assert tools == used

    asyncio.run(run())


async def use_all(session: ClientSession) -> set[str]:
    """Calls each tool once at least; returns the names called."""
    used: set[str] = set()

    async def tool(name: str, **arguments: Any) -> Any:
        used.add(name)
        return await call(session, name, **arguments)

    made = await tool("sandbox_create", image=IMAGE, timeout_seconds=600, metadata={"from": "mcp"})
    box = {"sandbox_id": made["sandbox_id"] if "sandbox_id" in made else made["id"]}
    await tool("sandbox_connect", **box)
    assert "Running" in json.dumps(await tool("sandbox_get_info", **box))
    assert box["sandbox_id"] in json.dumps(await tool("sandbox_list"))
    await tool("sandbox_renew", **box, timeout_seconds=900)
    await tool("sandbox_get_metrics", **box)
    await tool("sandbox_healthcheck", **box)
    await tool("sandbox_get_endpoint", **box, port=8000)
    assert "hello" in json.dumps(await tool("command_run", **box, command="echo hello"))
    begun = await tool("command_run", **box, command="sleep 300", background=True)
    await tool("command_interrupt", **box, execution_id=begun.get("execution_id") or begun["id"])
    await tool("file_create_directories", **box, entries=[{"path": "/tmp/d", "mode": 755}])
    await tool("file_write", **box, path="/tmp/d/a.txt", content="old text", encoding="utf-8")
    replacement = {"path": "/tmp/d/a.txt", "old_content": "old", "new_content": "new"}
    await tool("file_replace_contents", **box, entries=[replacement])
    assert "new text" in json.dumps(await tool("file_read", **box, path="/tmp/d/a.txt", encoding="utf-8"))
    await tool("file_move", **box, entries=[{"src": "/tmp/d/a.txt", "dest": "/tmp/d/b.txt"}])
    assert "/tmp/d/b.txt" in json.dumps(await tool("file_search", **box, path="/tmp/d", pattern="*.txt"))
    await tool("file_delete", **box, paths=["/tmp/d/b.txt"])
    await tool("file_delete_directories", **box, paths=["/tmp/d"])
    await tool("sandbox_kill", **box)
    return used
