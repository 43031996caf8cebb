"""The client of `talon-agent host`, the privileged helper that builds root file systems.

One request at a time per sequence number over a SEQPACKET socket; the helper answers in order. It is this server's
child and ends with it. Source of the messages: agent/src/host/.
"""

import asyncio
import json
import logging
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from talon_server.errors import TalonError

log = logging.getLogger(__name__)

_MAX_MESSAGE = 1 << 18


class Helper:
    """The helper, started again when it has ended: requests that it had then fail, later ones do not."""

    def __init__(self, agent: Path, scratch: Path) -> None:
        self._command = (str(agent), "host", str(scratch))
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._sequence = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None

    @classmethod
    def open(cls, agent: Path, scratch: Path) -> "Helper":
        """Start the helper; it keeps its scratch mounts below `scratch`."""
        helper = cls(agent, scratch)
        helper._linked()
        return helper

    @property
    def pid(self) -> int:
        """Its process, 0 when there is none."""
        return self._process.pid if self._process else 0

    def _linked(self) -> socket.socket:
        if self._link is not None:
            return self._link
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            number = theirs.fileno()
            command = (self._command[0], "place", str(number), "--", *self._command)
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=(number,), cwd="/", start_new_session=True
            )
        ours.setblocking(False)
        self._loop.add_reader(ours, self._receive)
        self._link = ours
        return ours

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
            socket.send_fds(self._linked(), [message], list(descriptors))
            reply = await future
        except OSError as error:
            raise TalonError("host_unsuitable", "the host's helper failed", cause=str(error)) from error
        finally:
            self._waiting.pop(sequence, None)
        if not reply["ok"]:
            raise TalonError("create_failed", cause=f"{reply.get('step')}: {reply.get('error')}")
        return reply

    def _receive(self) -> None:
        try:
            data = self._link.recv(_MAX_MESSAGE) if self._link else b""
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            log.error("the host's helper ended; it is started again with the next request")
            self.close()
            return
        reply = json.loads(data)
        if reply["seq"] == 0:
            self._fail(
                OSError(f"the helper does not understand this server: build the agent anew ({reply.get('error')})")
            )
        future = self._waiting.get(reply["seq"])
        if future is not None and not future.done():
            future.set_result(reply)

    def close(self) -> None:
        """End it, and fail what waits for it."""
        if self._link is not None:
            self._loop.remove_reader(self._link)
            self._link.close()
            self._link = None
        if self._process is not None:
            self._process.wait(timeout=10)
            self._process = None
        self._fail(OSError("the helper ended"))

    def _fail(self, error: OSError) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
