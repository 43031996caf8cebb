"""Single requests of the server's own to an agent, answered whole: for diagnostics and hooks.

Used by the API's dialects. Bounded in time and size; the data plane proper goes through `relay`.
"""

import asyncio
import json
from typing import Any

from talon_server.errors import TalonError
from talon_server.gateway.agent import AgentConnection, dial
from talon_server.worker.port import AgentAddress

_MOST_BYTES = 8 << 20


async def ask(
    address: AgentAddress, method: str, target: str, body: Any = None, *, timeout_s: float = 10.0
) -> tuple[int, bytes]:
    """Status and body of the agent's answer. Raises agent_unreachable."""
    connection: AgentConnection | None = None
    try:
        async with asyncio.timeout(timeout_s):
            connection = await dial(address.socket)
            connection.begin(bodiless=method == "HEAD")
            connection.write(_request(address, method, target, body))
            status = (await connection.head()).status
            return status, await _whole(connection)
    except (OSError, TimeoutError) as error:
        raise TalonError("agent_unreachable", cause=str(error) or "it did not answer in time") from error
    finally:
        if connection is not None:
            connection.abort()


def _request(address: AgentAddress, method: str, target: str, body: Any) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {target} HTTP/1.1\r\nhost: agent\r\nx-execd-access-token: {address.token}\r\n"
    if body is not None:
        head += f"content-type: application/json\r\ncontent-length: {len(data)}\r\n"
    return head.encode() + b"\r\n" + data


async def _whole(connection: AgentConnection) -> bytes:
    parts, size = [], 0
    while data := await connection.chunk():
        parts.append(data)
        size += len(data)
        if size > _MOST_BYTES:
            raise TalonError("agent_unreachable", cause=f"its answer is larger than {_MOST_BYTES} bytes")
    return b"".join(parts)
