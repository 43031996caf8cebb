"""Runs one command inside a sandbox for the server itself: start-up commands of pools, lifecycle hooks.

One plain HTTP request to the agent over its unix socket; clients' own commands go through the gateway instead.
"""

import asyncio
import json

from talon_server.errors import TalonError
from talon_server.worker.port import AgentAddress

_MAX_OUTPUT = 64 << 10
_SLACK_S = 10.0


async def run(address: AgentAddress, command: str, *, timeout_s: float) -> tuple[int, str]:
    """Exit code and output. Raises agent_unreachable."""
    body = json.dumps({"command": command, "timeout_s": timeout_s, "max_output_bytes": _MAX_OUTPUT}).encode()
    head = (
        "POST /v2/exec HTTP/1.1\r\nHost: agent\r\nContent-Type: application/json\r\nConnection: close\r\n"
        f"Authorization: Bearer {address.token}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    try:
        async with asyncio.timeout(timeout_s + _SLACK_S):
            reader, writer = await asyncio.open_unix_connection(str(address.socket))
            try:
                writer.write(head.encode() + body)
                answer = await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        raise TalonError("agent_unreachable", cause=str(error) or "no answer in time") from error
    status, _, rest = answer.partition(b"\r\n")
    try:
        told = json.loads(rest.partition(b"\r\n\r\n")[2])
    except ValueError as error:
        raise TalonError("agent_unreachable", cause="the agent's answer cannot be read") from error
    if b" 200 " not in status + b" ":
        raise TalonError("agent_unreachable", cause=str(told.get("message")))
    return int(told["exit_code"]), told["stdout"] + told["stderr"]
