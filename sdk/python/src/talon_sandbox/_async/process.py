"""A command running in the background of a sandbox: its state, output, input and end.

Made by Sandbox.spawn, Sandbox.process and Sandbox.processes. The process lives in the sandbox: it goes on when this
object, the client or the server goes away.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from ..errors import NetworkError, TalonTimeoutError
from ..models import LogChunk, ProcessInfo, parse
from ..spec import Duration, seconds
from .output import output_events
from .transport import AsyncTransport, Call, escape

_POLL_S = 60.0


class AsyncProcess:
    """A handle of one background command."""

    def __init__(self, transport: AsyncTransport, base: str, info: ProcessInfo) -> None:
        self._transport = transport
        self._path = f"{base}/processes/{escape(info.id)}"
        self._info = info

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self._info.state}>"

    @property
    def info(self) -> ProcessInfo:
        """All that the server last said about it."""
        return self._info

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def pid(self) -> int:
        """The process id inside the sandbox."""
        return self._info.pid

    @property
    def command(self) -> str | list[str]:
        return self._info.command

    @property
    def exit_code(self) -> int | None:
        """As last seen; None while it runs."""
        return self._info.exit_code

    async def status(self) -> ProcessInfo:
        """Ask how it is now."""
        self._info = parse(ProcessInfo, await self._transport.json(Call("GET", self._path)))
        return self._info

    async def wait(self, timeout: Duration | None = None) -> ProcessInfo:
        """Wait for its end. TalonTimeoutError when it still runs after `timeout`; it goes on then."""
        left = None if timeout is None else seconds(timeout)
        while True:
            step = _POLL_S if left is None else min(left, _POLL_S)
            call = Call("GET", f"{self._path}/wait", {"timeout_s": step}, read_timeout_s=step + 30)
            self._info = parse(ProcessInfo, await self._transport.json(call))
            if self._info.state != "running":
                return self._info
            left = None if left is None else left - step
            if left is not None and left <= 0:
                raise TalonTimeoutError(
                    f"process {self.id} still runs", code="timeout", remedy="wait longer, or kill() it"
                )

    async def logs(
        self, *, follow: bool = False, stream: str = "both", offset: int = 0, limit: int | None = None
    ) -> AsyncIterator[LogChunk]:
        """Its output from `offset` on, as text with the attribute `stream`; `follow`: until it ends.

        A followed log survives broken connections: it is taken up again where it stopped.
        """
        if not follow:
            query = {"stream": stream, "offset": offset, "limit": limit}
            async with self._transport.stream(Call("GET", f"{self._path}/logs", query)) as answer:
                text = (await answer.read()).decode("utf-8", "replace")
                told = answer.headers.get("x-talon-next-offset")
                dropped = int(answer.headers.get("x-talon-dropped-bytes", 0))
            if text or dropped:
                yield LogChunk(text, stream, int(told) if told else None, dropped)
            return
        position, failures = offset, 0
        while True:
            query = {"stream": stream, "offset": position, "follow": True}
            call = Call("GET", f"{self._path}/logs", query)
            try:
                async for name, fields in output_events(self._transport, call):
                    if name not in ("stdout", "stderr"):
                        continue
                    position, failures = fields.get("next_offset", -1), 0
                    dropped = fields.get("dropped_bytes", 0)
                    yield LogChunk(fields["data"], name, None if position < 0 else position, dropped)
                return
            except NetworkError:
                failures += 1
                if position < 0 or failures > 3:
                    raise

    async def output(self, stream: str = "both") -> str:
        """All its output so far."""
        return "".join([chunk async for chunk in self.logs(stream=stream)])

    async def read_logs(
        self, stream: str = "both", *, offset: int = 0, limit: int | None = None
    ) -> AsyncIterator[bytes]:
        """Its output so far, unchanged, in pieces."""
        query = {"stream": stream, "offset": offset, "limit": limit}
        async with self._transport.stream(Call("GET", f"{self._path}/logs", query)) as answer:
            async for piece in answer:
                yield piece

    async def events(self, *, stream: str = "both", offset: int = 0) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Its output from `offset` until its end as events (stdout, stderr, exit); the data of output is base64."""
        query = {"stream": stream, "offset": offset, "follow": True, "encoding": "base64"}
        async for event in output_events(self._transport, Call("GET", f"{self._path}/logs", query)):
            yield event

    async def write(self, data: bytes | str) -> None:
        """Write to its standard input."""
        content = data.encode() if isinstance(data, str) else data
        await self._transport.json(Call("POST", f"{self._path}/stdin", content=content))

    async def close_stdin(self) -> None:
        """End its standard input."""
        await self._transport.json(Call("POST", f"{self._path}/stdin", {"eof": True}, content=b""))

    async def kill(self, signal: str = "KILL") -> None:
        """End it and everything it started; one that has ended already is fine."""
        await self._transport.json(Call("DELETE", self._path, {"signal": signal}))

    async def signal(self, name: str) -> None:
        """Send a signal such as "INT" or "HUP"."""
        await self._transport.json(Call("POST", f"{self._path}/signal", json={"signal": name}))


def process(transport: AsyncTransport, base: str, answer: dict[str, Any]) -> AsyncProcess:
    """The handle for an answer of the API."""
    return AsyncProcess(transport, base, parse(ProcessInfo, answer))
