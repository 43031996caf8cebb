"""Kernels that speak the Jupyter messaging protocol: Python, forked from the warmed parent, and any that is installed.

A kernel's sockets lie in a directory of its own, readable by its user only. Source: Jupyter messaging protocol 5.4.
"""

import asyncio
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq
import zmq.asyncio

from . import wire
from .cell import MAX_RESULT_BYTES, Cell, Outcome, failure, too_large
from .kernel import Kernel, Place, Refused, make_expendable
from .parents import Parents
from .pipes import Room

_START_S = 60.0
_QUIET_S = 2.0
#: Ports of the ipc transport are suffixes of the socket's path.
_CHANNELS = {"shell": (1, zmq.DEALER), "iopub": (2, zmq.SUB), "stdin": (3, zmq.DEALER), "control": (4, zmq.DEALER)}
_SHOWN = ("execute_result", "display_data", "update_display_data")


@dataclass
class _Run:
    """What is known of the running cell."""

    cell: Cell
    head: dict[str, Any]
    count: int | None = None
    error: dict[str, Any] | None = None
    idle: asyncio.Event = field(default_factory=asyncio.Event)


class JupyterKernel(Kernel):
    """One kernel and its four sockets."""

    def __init__(self, place: Place, room: Room, tasks: asyncio.TaskGroup) -> None:
        super().__init__(place, room, tasks)
        self._key = secrets.token_hex(16).encode()
        self._directory = Path(tempfile.mkdtemp(prefix="talon-kernel-"))
        self._sockets: dict[str, zmq.asyncio.Socket] = {}

    async def start(self) -> None:
        connection = self._directory / "connection.json"
        connection.write_text(json.dumps(self._connection()))
        await self.launch(connection)
        context = zmq.asyncio.Context.instance()
        for name, (port, kind) in _CHANNELS.items():
            socket = context.socket(kind)
            socket.setsockopt(zmq.LINGER, 0)
            if kind == zmq.SUB:
                socket.setsockopt(zmq.SUBSCRIBE, b"")
                socket.setsockopt(zmq.RCVHWM, 0)
            else:
                # The same identity: a kernel sends input requests to the asker of the execution.
                socket.setsockopt(zmq.ROUTING_ID, b"talon")
            socket.connect(f"ipc://{self._directory}/kernel-{port}")
            self._sockets[name] = socket
        ready = asyncio.get_running_loop().create_task(self._ready())
        done, _ = await asyncio.wait([ready, self.ended], timeout=_START_S, return_when=asyncio.FIRST_COMPLETED)
        if ready not in done:
            ready.cancel()
            said = " ".join(pipe.idle_text() for pipe in self.pipes.both).strip()[-2000:]
            raise Refused(500, "kernel_failed", f"the kernel did not start: {said or 'it said nothing'}", "try again")

    async def launch(self, connection: Path) -> None:
        raise NotImplementedError

    def _connection(self) -> dict[str, Any]:
        ports = {f"{name}_port": port for name, (port, _) in _CHANNELS.items()}
        return {
            "transport": "ipc",
            "ip": f"{self._directory}/kernel",
            "hb_port": 5,
            **ports,
            "key": self._key.decode(),
            "signature_scheme": "hmac-sha256",
        }

    async def _ready(self) -> None:
        """Answers come, and so does what it publishes: a subscription takes effect some time after connect."""
        while True:
            await self._send("shell", wire.header("kernel_info_request"), {})
            if await self._sockets["iopub"].poll(50):
                await self._sockets["shell"].recv_multipart()
                while await self._sockets["iopub"].poll(0):
                    await self._sockets["iopub"].recv_multipart()
                return

    async def _send(self, channel: str, head: dict[str, Any], content: dict[str, Any], parent: Any = None) -> None:
        await self._sockets[channel].send_multipart(wire.pack(self._key, head, content, parent))

    async def _receive(self, channel: str) -> wire.Message:
        while True:
            frames = await self._sockets[channel].recv_multipart()
            message = wire.unpack(self._key, frames, MAX_RESULT_BYTES)
            if message is not None:
                return message

    async def run(self, cell: Cell) -> Outcome:
        run = _Run(cell, wire.header("execute_request"))
        self.pipes.begin(cell)
        asked = {"code": cell.code, "silent": False, "store_history": True, "user_expressions": {}}
        loop = asyncio.get_running_loop()
        followers = [loop.create_task(work) for work in (self._follow(run), self._answer(run))]
        try:
            await self._send("shell", run.head, {**asked, "allow_stdin": cell.stdin, "stop_on_error": True})
            reply = await self._reply(run)
            await asyncio.wait(followers[:1], timeout=_QUIET_S)
            await self.pipes.drain()
        finally:
            for follower in followers:
                follower.cancel()
            await asyncio.wait(followers)
            self.pipes.finish()
        if reply.get("status") != "ok" and run.error is None:
            name, value = reply.get("ename", "Aborted"), reply.get("evalue", "the kernel did not run it")
            run.error = failure(name, value, reply.get("traceback", []))
        return Outcome(reply.get("execution_count", run.count), run.error)

    async def _reply(self, run: _Run) -> dict[str, Any]:
        while True:
            message = await self._receive("shell")
            if message.parent == run.head["msg_id"] and message.kind == "execute_reply":
                return message.content

    async def _follow(self, run: _Run) -> None:
        """What it publishes while the cell runs."""
        while not run.idle.is_set():
            await run.cell.open.wait()
            message = await self._receive("iopub")
            if message.parent == run.head["msg_id"]:
                await self._take(run, message)

    async def _take(self, run: _Run, message: wire.Message) -> None:
        content = message.content
        if message.kind == "status":
            if content.get("execution_state") == "idle":
                run.idle.set()
        elif message.kind == "stream":
            run.cell.emit(content.get("name", "stdout"), {"data": content.get("text", "")})
            if message.size > MAX_RESULT_BYTES:
                run.error = too_large(message.size)
        elif message.kind in _SHOWN:
            await self.pipes.drain()
            if message.size > MAX_RESULT_BYTES:
                run.error = too_large(message.size)
            else:
                run.cell.emit("result", result(message))
        elif message.kind == "execute_input":
            run.count = content.get("execution_count")
        elif message.kind == "error":
            value = failure(content.get("ename", ""), content.get("evalue", ""), content.get("traceback", []))
            run.error = run.error or value

    async def _answer(self, run: _Run) -> None:
        """What it asks of the client."""
        while True:
            message = await self._receive("stdin")
            if message.kind == "input_request":
                await self.pipes.drain()
                value = await run.cell.ask(message.content.get("prompt", ""), message.content.get("password", False))
                await self._send("stdin", wire.header("input_reply"), {"value": value}, message.header)

    async def close(self) -> None:
        await super().close()
        for socket in self._sockets.values():
            socket.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def result(message: wire.Message) -> dict[str, Any]:
    """A display as the API tells it: `kind` is result, display or update; updates name the display they change."""
    kinds = {"execute_result": "result", "display_data": "display", "update_display_data": "update"}
    told: dict[str, Any] = {"kind": kinds[message.kind], "data": message.content.get("data", {})}
    display = message.content.get("transient", {}).get("display_id")
    if display:
        told["display_id"] = display
    if message.kind == "execute_result":
        told["execution_count"] = message.content.get("execution_count")
    return told


class PythonKernel(JupyterKernel):
    """ipykernel in a fork of the warmed parent."""

    def __init__(self, place: Place, room: Room, tasks: asyncio.TaskGroup, parents: Parents) -> None:
        super().__init__(place, room, tasks)
        self._parents = parents

    async def launch(self, connection: Path) -> None:
        order = {"connection": str(connection), "cwd": self.place.cwd, "env": dict(self.place.env)}
        self.pid = await self._parents.fork(order, self.pipes.theirs, self.note_end)
        make_expendable(self.pid)
        self.watch()


class InstalledKernel(JupyterKernel):
    """A kernel that the image or the user has installed for Jupyter."""

    def __init__(self, place: Place, room: Room, tasks: asyncio.TaskGroup, spec: Mapping[str, Any]) -> None:
        super().__init__(place, room, tasks)
        self._spec = spec

    async def launch(self, connection: Path) -> None:
        argv = [word.replace("{connection_file}", str(connection)) for word in self._spec["argv"]]
        self.spawn(argv)

    def interrupt(self) -> None:
        if self._spec.get("interrupt_mode") != "message":
            super().interrupt()
            return
        frames = wire.pack(self._key, wire.header("interrupt_request"), {})
        self._tasks.create_task(self._sockets["control"].send_multipart(frames))


def installed(language: str) -> Mapping[str, Any] | None:
    """The specification of an installed kernel for a language."""
    home = Path(os.environ.get("HOME", "/")) / ".local/share/jupyter"
    for place in (home, Path("/usr/local/share/jupyter"), Path("/usr/share/jupyter")):
        for file in sorted(place.glob("kernels/*/kernel.json")):
            spec: Mapping[str, Any] = json.loads(file.read_text())
            if str(spec.get("language", "")).lower() == language:
                return spec
    return None
