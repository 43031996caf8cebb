"""The client of `talon-agent host`, the privileged helper that builds root file systems.

One request at a time per sequence number over a SEQPACKET socket; the helper answers in order. It is this server's
child and ends with it. Source of the messages: agent/src/host/.
"""

import asyncio
import json
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from talon_server.errors import TalonError

_MAX_MESSAGE = 1 << 18


class Helper:
    """A running helper. `open` starts it; `root` is the one thing it is for."""

    def __init__(self, process: subprocess.Popen[bytes], link: socket.socket) -> None:
        self._process = process
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._sequence = 0
        self._loop.add_reader(link, self._receive)

    @classmethod
    def open(cls, agent: Path, scratch: Path) -> "Helper":
        """Start the helper; it keeps its scratch mounts below `scratch`."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [str(agent), "place", str(theirs.fileno()), "--", str(agent), "host", str(scratch)]
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), cwd="/", start_new_session=True
            )
        ours.setblocking(False)
        return cls(process, ours)

    async def root(self, order: Mapping[str, Any]) -> float:
        """Give a shell its root (see agent/src/host/root.rs for the order); returns milliseconds taken."""
        reply = await self._ask("root", order)
        return float(reply["us"]) / 1000

    async def run(self, command: Sequence[str], descriptors: Sequence[int], owner: tuple[int, int] | None) -> int:
        """Run the OCI runtime from the small helper instead of this large process; see `runtimes.oci.Runner`."""
        order: dict[str, Any] = {"argv": list(command)}
        if owner is not None:
            order["userns"] = {"first": owner[0], "count": owner[1]}
        reply = await self._ask("run", order, descriptors)
        return int(reply["status"])

    async def ping(self) -> None:
        """Return once it answers."""
        await self._ask("ping", {})

    async def _ask(self, op: str, fields: Mapping[str, Any], descriptors: Sequence[int] = ()) -> Mapping[str, Any]:
        self._sequence += 1
        sequence = self._sequence
        future: asyncio.Future[Mapping[str, Any]] = self._loop.create_future()
        self._waiting[sequence] = future
        try:
            message = json.dumps({"seq": sequence, "op": op, **fields}).encode()
            socket.send_fds(self._link, [message], list(descriptors))
            reply = await future
        except OSError as error:
            raise TalonError("host_unsuitable", "the host's helper is gone", cause=str(error)) from error
        finally:
            self._waiting.pop(sequence, None)
        if not reply["ok"]:
            raise TalonError("create_failed", cause=f"{reply.get('step')}: {reply.get('error')}")
        return reply

    def _receive(self) -> None:
        try:
            data = self._link.recv(_MAX_MESSAGE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._gone()
            return
        reply = json.loads(data)
        future = self._waiting.get(reply["seq"])
        if future is not None and not future.done():
            future.set_result(reply)

    def _gone(self) -> None:
        self._loop.remove_reader(self._link)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(OSError("the helper ended"))

    def close(self) -> None:
        """End it."""
        self._loop.remove_reader(self._link)
        self._link.close()
        self._process.wait(timeout=10)
