"""Idle connections to agents, kept for the next request.

Used by the relay only. Bounded per sandbox and in all; a connection the agent closes leaves by itself.
"""

from collections import OrderedDict
from pathlib import Path

from talon_server.gateway.agent import AgentConnection, dial

_PER_SANDBOX = 4
_IN_ALL = 512


class ConnectionPool:
    """`take` gives a connection and whether it was used before; `give` keeps a clean one, closes any other."""

    def __init__(self, *, per_sandbox: int = _PER_SANDBOX, in_all: int = _IN_ALL) -> None:
        self._idle: OrderedDict[Path, list[AgentConnection]] = OrderedDict()
        self._count = 0
        self._per_sandbox = per_sandbox
        self._in_all = in_all

    async def take(self, socket: Path) -> tuple[AgentConnection, bool]:
        while idle := self._idle.get(socket):
            connection = self._pop(socket, idle)
            if not connection.closed:
                return connection, True
        return await dial(socket), False

    def give(self, socket: Path, connection: AgentConnection) -> None:
        if not connection.reusable:
            connection.abort()
            return
        idle = self._idle.setdefault(socket, [])
        idle[:] = [kept for kept in idle if not kept.closed] if len(idle) >= self._per_sandbox else idle
        if len(idle) >= self._per_sandbox:
            connection.close()
            return
        idle.append(connection)
        self._idle.move_to_end(socket)
        self._count = sum(map(len, self._idle.values())) if self._count >= self._in_all else self._count + 1
        while self._count > self._in_all:
            oldest = next(iter(self._idle))
            self._pop(oldest, self._idle[oldest]).close()

    def forget(self, socket: Path) -> None:
        """Close what is kept for a sandbox that ended."""
        for connection in self._idle.pop(socket, ()):
            self._count -= 1
            connection.close()

    def close(self) -> None:
        for socket in list(self._idle):
            self.forget(socket)

    def _pop(self, socket: Path, idle: list[AgentConnection]) -> AgentConnection:
        connection = idle.pop()
        self._count -= 1
        if not idle:
            del self._idle[socket]
        return connection
