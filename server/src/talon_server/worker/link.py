"""The worker's messages to a sandbox's agent over its control socket: JSON with descriptors, one reply each.

Source of the messages: agent/src/control.rs.
"""

import asyncio
import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from talon_server.errors import TalonError

_MAX_MESSAGE = 1 << 18


async def ask(
    path: Path, message: Mapping[str, Any], descriptors: Sequence[int] = (), *, timeout_s: float = 10.0
) -> Mapping[str, Any]:
    """Send one message and return the agent's reply. Raises agent_unreachable, or create_failed when it refuses."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
        link.setblocking(False)
        try:
            link.connect(str(path))
            socket.send_fds(link, [json.dumps(message).encode()], list(descriptors))
            async with asyncio.timeout(timeout_s):
                data = await loop.sock_recv(link, _MAX_MESSAGE)
        except (OSError, TimeoutError) as error:
            raise TalonError("agent_unreachable", cause=str(error) or "no answer in time") from error
    if not data:
        raise TalonError("agent_unreachable", cause="the agent ended")
    reply: Mapping[str, Any] = json.loads(data)
    if not reply.get("ok"):
        raise TalonError("create_failed", cause=f"{reply.get('code')}: {reply.get('message')}")
    return reply


def listen(path: Path, kind: socket.SocketKind) -> socket.socket:
    """A listening unix socket at `path` for an agent to inherit; only the host's root can reach it."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, kind)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(512)
    return listener
