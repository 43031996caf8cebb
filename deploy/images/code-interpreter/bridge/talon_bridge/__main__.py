"""Starts the warmed parents, listens for OpenSandbox's readiness probe, serves the agent on descriptor 0 until it is gone."""

import asyncio
import os
import socket

from . import parents, warm  # noqa: F401 - warm is imported once, for all that are forked
from .link import Link

_PROBE_PORT = 44771


def main() -> None:
    agent = socket.socket(fileno=os.dup(0))
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    preload = os.environ.get("TALON_CODE_PRELOAD", "numpy pandas matplotlib.pyplot").split()
    sockets = parents.make(preload)
    asyncio.run(_serve(agent, sockets))


async def _serve(agent: socket.socket, sockets: list[socket.socket]) -> None:
    async with asyncio.TaskGroup() as tasks:
        probe = await _listen()
        link = Link(tasks, parents.Parents(sockets, tasks))
        await link.serve(agent)
        await link.close()
        if probe is not None:
            probe.close()
        os._exit(0)


async def _listen() -> asyncio.Server | None:
    """The code interpreter's clients take an open port as readiness; a program that has it is left alone."""
    port = int(os.environ.get("JUPYTER_PORT") or _PROBE_PORT)
    try:
        return await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port)
    except OSError:
        return None


if __name__ == "__main__":
    main()
