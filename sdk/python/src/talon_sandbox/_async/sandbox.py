"""One sandbox: make or find it, run commands in it, reach its files, steer its life.

The class most users need. It is a context manager that destroys the sandbox at the end. Invariant: the object holds no
state but the id and what the server last said; several objects, also in other programs, may stand for one sandbox.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack

from ..errors import CommandError, NotFoundError
from ..models import Metrics, Port, Result, SandboxInfo, Snapshot, TerminalInfo, parse
from ..spec import Command, CreateOptions, Duration, command, duration, exec_body, network, seconds
from .concurrency import pending
from .files import AsyncFiles
from .output import AsyncCollector, output_events, whole_result
from .process import AsyncProcess, process
from .terminal import AsyncTerminal, list_terminals, open_terminal
from .transport import Call, escape

if TYPE_CHECKING:
    from .client import AsyncClient

Callback = Callable[[str], Any]


class AsyncSandbox:
    """A sandbox on a Talon server."""

    def __init__(self, client: AsyncClient, info: SandboxInfo) -> None:
        """Made by `create` and `connect`. It holds on to its client until `close` or the end of the context."""
        self._client = client
        self._transport = client.transport
        self._data = info
        self._path = f"/v2/sandboxes/{escape(info.id)}"
        self._held = True
        client.retain()
        self.fs = AsyncFiles(self._transport, self._path)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.state}>"

    @classmethod
    @pending
    async def create(
        cls,
        *,
        client: AsyncClient | None = None,
        server: str | None = None,
        api_key: str | None = None,
        **options: Unpack[CreateOptions],
    ) -> AsyncSandbox:
        """Make a sandbox (options: see CreateOptions) and wait until it runs."""
        from .client import default_client

        return await (client or default_client(server, api_key)).create(**options)

    @classmethod
    @pending
    async def connect(
        cls,
        id_or_name: str,
        *,
        client: AsyncClient | None = None,
        server: str | None = None,
        api_key: str | None = None,
    ) -> AsyncSandbox:
        """The sandbox with this id or name. NotFoundError if there is none."""
        from .client import default_client

        return await (client or default_client(server, api_key)).connect(id_or_name)

    @classmethod
    async def list(
        cls,
        *,
        labels: Mapping[str, str] | None = None,
        state: str | None = None,
        name: str | None = None,
        client: AsyncClient | None = None,
        server: str | None = None,
        api_key: str | None = None,
    ) -> builtins.list[SandboxInfo]:
        """All sandboxes that have these labels, state and name."""
        from .client import default_client

        async with (client or default_client(server, api_key)).lease() as source:
            return await source.list(labels=labels, state=state, name=name)

    @classmethod
    async def create_many(
        cls,
        count: int,
        *,
        client: AsyncClient | None = None,
        server: str | None = None,
        api_key: str | None = None,
        **options: Unpack[CreateOptions],
    ) -> builtins.list[AsyncSandbox]:
        """Make several equal sandboxes at once; if one fails, those made are destroyed and its error is raised."""
        from .client import default_client

        return await (client or default_client(server, api_key)).create_many(count, **options)

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.destroy()

    @property
    def data(self) -> SandboxInfo:
        """All that the server last said about it."""
        return self._data

    @property
    def id(self) -> str:
        return self._data.id

    @property
    def name(self) -> str | None:
        return self._data.name

    @property
    def state(self) -> str:
        """As last seen; `info()` asks."""
        return self._data.state

    @property
    def image(self) -> str | None:
        return self._data.image

    @property
    def labels(self) -> dict[str, str]:
        return self._data.labels

    @property
    def created_at(self) -> datetime | None:
        return self._data.created_at

    @property
    def expires_at(self) -> datetime | None:
        """When it ends by itself, as last seen."""
        return self._data.expires_at

    @property
    def timings(self) -> dict[str, Any]:
        """How long each phase of its creation took, in milliseconds."""
        return self._data.timings

    async def info(self) -> SandboxInfo:
        """Ask how it is now."""
        return self._seen(await self._transport.json(Call("GET", self._path)))

    def _seen(self, answer: dict[str, Any] | None) -> SandboxInfo:
        if answer and "id" in answer:
            self._data = parse(SandboxInfo, answer)
        return self._data

    async def run(
        self,
        cmd: Command,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout: Duration | None = None,
        stdin: str | bytes | None = None,
        check: bool = False,
        on_stdout: Callback | None = None,
        on_stderr: Callback | None = None,
        binary: bool = False,
    ) -> Result:
        """Run a command and wait for its end.

        `cmd` is text for the shell or argv. `timeout` ends the command and all it started; its output so far is kept.
        With callbacks, output is passed on as it comes. `binary` keeps bytes that are not UTF-8 in `stdout_bytes`.
        With `check`, CommandError is raised unless the exit code is 0.
        """
        body = exec_body(cmd, cwd=cwd, env=env, user=user, timeout=timeout, stdin=stdin)
        call = Call("POST", f"{self._path}/exec", json=body, read_timeout_s=None)
        if timeout is not None:
            call.read_timeout_s = seconds(timeout) + 60
        if on_stdout or on_stderr:
            result = await self._run_telling(call, AsyncCollector(on_stdout, on_stderr))
        else:
            call.query = {"encoding": "base64"} if binary else None
            result = whole_result(await self._transport.json(call), binary=binary)
        if check and not result.ok:
            raise CommandError(command(cmd), result)
        return result

    async def _run_telling(self, call: Call, collector: AsyncCollector) -> Result:
        result = Result()
        async for name, fields in output_events(self._transport, call):
            result = await collector.take(name, fields) or result
        return result

    async def exec_events(
        self,
        cmd: Command,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout: Duration | None = None,
        stdin: str | bytes | None = None,
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Run a command and give its events (started, stdout, stderr, exit); the data of output is base64."""
        body = exec_body(cmd, cwd=cwd, env=env, user=user, timeout=timeout, stdin=stdin)
        call = Call("POST", f"{self._path}/exec", {"encoding": "base64"}, json=body, read_timeout_s=None)
        async for event in output_events(self._transport, call):
            yield event

    async def spawn(
        self,
        cmd: Command,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout: Duration | None = None,
        stdin: bool = True,
        name: str | None = None,
    ) -> AsyncProcess:
        """Start a command in the background; it goes on when the client goes. `stdin`: keep its input open."""
        body = exec_body(cmd, cwd=cwd, env=env, user=user, timeout=timeout)
        body |= {"stdin": stdin} | ({"name": name} if name else {})
        answer = await self._transport.json(Call("POST", f"{self._path}/processes", json=body))
        return process(self._transport, self._path, answer)

    async def process(self, process_id: str) -> AsyncProcess:
        """The background command with this id."""
        answer = await self._transport.json(Call("GET", f"{self._path}/processes/{escape(process_id)}"))
        return process(self._transport, self._path, answer)

    async def processes(self) -> builtins.list[AsyncProcess]:
        """All background commands, ended ones too."""
        answer = await self._transport.json(Call("GET", f"{self._path}/processes"))
        return [process(self._transport, self._path, item) for item in answer["items"]]

    async def terminal(
        self,
        cols: int = 80,
        rows: int = 24,
        command: Command | None = None,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> AsyncTerminal:
        """Start a program (a shell, if none is named) on a new terminal and attach to it."""
        body: dict[str, Any] = {"cols": cols, "rows": rows, "cwd": cwd, "env": dict(env) if env else None, "user": user}
        if command is not None:
            body["command"] = command if isinstance(command, str) else builtins.list(command)
        given = {name: value for name, value in body.items() if value is not None}
        return await open_terminal(self._transport, self._path, given)

    async def attach(
        self, terminal_id: str, *, since: int = 0, viewer: bool = False, takeover: bool = False
    ) -> AsyncTerminal:
        """Attach to a terminal: its output from byte `since` on (of the last MiB), then what comes.

        One client holds a terminal and may type: ConflictError if there is one, unless `takeover` or `viewer`.
        """
        call = Call("GET", f"{self._path}/terminals/{escape(terminal_id)}")
        terminal = AsyncTerminal(self._transport, self._path, parse(TerminalInfo, await self._transport.json(call)))
        await terminal.attach(since=since, viewer=viewer, takeover=takeover)
        return terminal

    async def terminals(self) -> builtins.list[TerminalInfo]:
        """All terminals, ended ones too."""
        return await list_terminals(self._transport, self._path)

    async def metrics(self) -> Metrics:
        """What it uses now."""
        return parse(Metrics, await self._transport.json(Call("GET", f"{self._path}/metrics")))

    async def ports(self) -> builtins.list[Port]:
        """Ports on which something in it listens."""
        answer = await self._transport.json(Call("GET", f"{self._path}/ports"))
        return [parse(Port, item) for item in answer["items"]]

    async def start(self) -> SandboxInfo:
        """Start it again after `stop`: same files, new processes."""
        return await self._turn("start")

    async def stop(self) -> SandboxInfo:
        """End its processes and keep its files."""
        return await self._turn("stop")

    async def pause(self) -> SandboxInfo:
        """Freeze its processes with their memory."""
        return await self._turn("pause")

    async def resume(self) -> SandboxInfo:
        """Go on after `pause`."""
        return await self._turn("resume")

    async def _turn(self, verb: str) -> SandboxInfo:
        return self._seen(await self._transport.json(Call("POST", f"{self._path}/{verb}")))

    async def renew(self, ttl: Duration) -> SandboxInfo:
        """Let it live `ttl` from now on."""
        call = Call("POST", f"{self._path}/renew", json={"ttl": duration(ttl)}, idempotent=True)
        return self._seen(await self._transport.json(call))

    async def update(self, **changes: Any) -> SandboxInfo:
        """Change `labels` or `ttl`."""
        if "ttl" in changes:
            changes["ttl"] = duration(changes["ttl"])
        return self._seen(await self._transport.json(Call("PATCH", self._path, json=changes)))

    async def get_network(self) -> dict[str, Any]:
        """Its network policy."""
        answer: dict[str, Any] = await self._transport.json(Call("GET", f"{self._path}/network"))
        return answer

    async def set_network(self, policy: str | Mapping[str, Any] | builtins.list[str]) -> dict[str, Any]:
        """Change its network policy at once, also for open connections; see CreateOptions.network."""
        call = Call("PUT", f"{self._path}/network", json=network(policy))
        answer: dict[str, Any] = await self._transport.json(call)
        return answer

    async def network_log(self, *, since: int | None = None, limit: int | None = None) -> builtins.list[dict[str, Any]]:
        """What the network layer allowed and refused; `since`: after this sequence number."""
        answer = await self._transport.json(Call("GET", f"{self._path}/network/log", {"since": since, "limit": limit}))
        decisions: builtins.list[dict[str, Any]] = answer["items"]
        return decisions

    async def snapshot(self, name: str | None = None) -> Snapshot:
        """Keep its file system as a snapshot that new sandboxes can start from."""
        call = Call("POST", f"{self._path}/snapshots", json={"name": name} if name else {}, read_timeout_s=600.0)
        return parse(Snapshot, await self._transport.json(call))

    async def destroy(self) -> None:
        """End it for good; one that is gone already is fine. Lets go of the client too."""
        try:
            await self._transport.json(Call("DELETE", self._path))
        except NotFoundError:
            pass
        finally:
            await self.close()

    async def close(self) -> None:
        """Let go of the client without destroying the sandbox."""
        if self._held:
            self._held = False
            await self._client.release()
