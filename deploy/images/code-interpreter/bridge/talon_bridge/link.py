"""What the agent says and hears: lines of JSON on a unix socket.

Requests are {seq, op, …} and get {seq, ok, …}; an execution's events are {x, event, data}. Invariant: a request is answered
once; `execute` is answered before its first event.
"""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from .cell import Cell
from .contexts import MAX_CONTEXTS, Context, Surroundings, language
from .kernel import Place, Refused
from .parents import Parents

_LINE_BYTES = 16 << 20
_IDLE_STEP_S = 1.0

Request = dict[str, Any]
Answer = dict[str, Any]


class Link:
    """All contexts of the sandbox, at the agent's service."""

    def __init__(self, tasks: asyncio.TaskGroup, parents: Parents) -> None:
        self._tasks = tasks
        self._contexts: dict[str, Context] = {}
        self._running: dict[str, tuple[Context, Cell]] = {}
        self._around = Surroundings(parents, tasks, self._room)
        self._writer: asyncio.StreamWriter

    async def serve(self, link: socket.socket) -> None:
        """Until the agent is gone."""
        reader, self._writer = await asyncio.open_unix_connection(sock=link, limit=_LINE_BYTES)
        self._tasks.create_task(self._stop_idle())
        while line := await reader.readline():
            request = json.loads(line)
            if request["op"] in ("hold", "release"):
                self._hold(request)
            else:
                self._tasks.create_task(self._answer(request))

    async def close(self) -> None:
        for context in self._contexts.values():
            await context.stop("the sandbox's kernels were ended")

    async def _room(self) -> None:
        await self._writer.drain()

    def _send(self, told: dict[str, Any]) -> None:
        self._writer.write(json.dumps(told, separators=(",", ":")).encode() + b"\n")

    async def _answer(self, request: Request) -> None:
        works: dict[str, Callable[[Request], Awaitable[Answer]]] = {
            "create": self._create,
            "get": self._get,
            "list": self._list,
            "delete": self._delete,
            "restart": self._restart,
            "interrupt": self._interrupt,
            "execute": self._execute,
            "input": self._input,
            "abandon": self._abandon,
        }
        try:
            told = await works[request["op"]](request)
        except Refused as error:
            self._send({"seq": request["seq"], "ok": False, **error.told})
        except Exception as error:
            words = {"status": 500, "code": "kernel_failed", "message": f"{type(error).__name__}: {error}"}
            self._send({"seq": request["seq"], "ok": False, **words, "remedy": "restart the context"})
        else:
            if told is not _SENT:
                self._send({"seq": request["seq"], "ok": True, **told})

    async def _create(self, request: Request) -> Answer:
        if len(self._contexts) >= MAX_CONTEXTS:
            raise Refused(429, "too_many_contexts", f"{MAX_CONTEXTS} contexts exist", "delete some")
        spoken = language(request["language"])
        place = Place(request["cwd"], request["env"])
        context = Context(request["id"], spoken, place, request.get("idle_timeout_s") or 0, self._around)
        self._contexts[context.id] = context
        try:
            await context.start()
        except BaseException:
            del self._contexts[context.id]
            raise
        return {"context": context.told()}

    async def _get(self, request: Request) -> Answer:
        return {"context": self._find(request).told()}

    async def _list(self, request: Request) -> Answer:
        wanted = request.get("language")
        spoken = language(wanted) if wanted else None
        found = [one.told() for one in self._contexts.values() if spoken in (None, one.language)]
        return {"items": found}

    async def _delete(self, request: Request) -> Answer:
        context = self._find(request)
        del self._contexts[context.id]
        await context.stop("the context was deleted")
        return {}

    async def _restart(self, request: Request) -> Answer:
        context = self._find(request)
        await context.restart()
        return {"context": context.told()}

    async def _interrupt(self, request: Request) -> Answer:
        return {"interrupted": self._find(request).interrupt()}

    async def _execute(self, request: Request) -> Answer:
        context, name = self._find(request), request["x"]
        if request.get("revive") and context.state in ("stopped", "dead"):
            await context.start()
        cell = context.begin(request["code"], bool(request.get("stdin")), lambda *told: self._event(name, *told))
        self._running[name] = (context, cell)
        self._send({"seq": request["seq"], "ok": True, "context": {"id": context.id, "language": context.language}})
        try:
            await context.execute(cell, request.get("timeout_s"))
        finally:
            del self._running[name]
        return _SENT

    def _event(self, name: str, event: str, data: dict[str, Any]) -> None:
        self._send({"x": name, "event": event, "data": data})

    async def _input(self, request: Request) -> Answer:
        cell = self._find(request).cell
        if cell is None or not cell.asking or cell.answers.full():
            raise Refused(409, "no_input_wanted", "the context asks for no input now", "wait for input_request")
        cell.answers.put_nowait(request["value"])
        return {}

    async def _abandon(self, request: Request) -> Answer:
        context, cell = self._running.get(request["x"], (None, None))
        if context is not None and cell is not None:
            await context.abandon(cell)
        return {}

    def _hold(self, request: Request) -> None:
        _, cell = self._running.get(request["x"], (None, None))
        if cell is not None:
            cell.open.clear() if request["op"] == "hold" else cell.open.set()

    def _find(self, request: Request) -> Context:
        context = self._contexts.get(request["id"])
        if context is None:
            words = f"no context '{request['id']}' in this sandbox"
            raise Refused(404, "context_not_found", words, "list the contexts, or create one")
        return context

    async def _stop_idle(self) -> None:
        while True:
            await asyncio.sleep(_IDLE_STEP_S)
            for context in self._contexts.values():
                if context.idles():
                    reason = f"it was idle for more than {context.idle_timeout_s:g} s"
                    context.state, context.reason = "stopped", reason
                    self._tasks.create_task(context.stop(reason))


_SENT: Answer = {}
