"""A terminal in a sandbox: a program on a pseudo terminal, with its input, output, size and end.

Made by Sandbox.terminal and Sandbox.attach. The terminal lives in the sandbox: it goes on when this object, the client
or the server goes away. Invariant: `offset` counts the output given out so far; after a broken connection reading goes
on exactly there, so nothing is lost and nothing comes twice (`dropped` counts what the sandbox no longer had).
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from ..errors import ConflictError, NetworkError, NotFoundError, ServerError, TalonError, TalonTimeoutError
from ..frames import Output, control, output
from ..models import TerminalInfo, parse
from ..spec import Duration, seconds
from .concurrency import Lock, now, sleep
from .transport import AsyncTransport, Call, escape

if TYPE_CHECKING:
    from .websocket import AsyncSocket

RECONNECT_S = 60.0
_POLL_S = 60.0
_TAKEN_OVER, _READ_ONLY, _NORMAL = 4001, 4003, 1000


class AsyncTerminal:
    """One client at a terminal: the holder, who may type, or a viewer."""

    def __init__(self, transport: AsyncTransport, base: str, info: TerminalInfo) -> None:
        self._transport = transport
        self._path = f"{base}/terminals/{escape(info.id)}"
        self._info = info
        self._viewer = False
        self._socket: AsyncSocket | None = None
        self._lock = Lock()
        self._ended = False
        self._closed = False
        self.offset = 0
        self.dropped = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self._info.state}>"

    async def __aenter__(self) -> AsyncTerminal:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def info(self) -> TerminalInfo:
        """All that the server last said about it."""
        return self._info

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def exit_code(self) -> int | None:
        """As last seen; None while it runs."""
        return self._info.exit_code

    async def attach(self, *, since: int = 0, viewer: bool = False, takeover: bool = False) -> None:
        """Connect, to read from byte `since` on. ConflictError if another client holds it and `takeover` is not asked."""
        self.offset, self._viewer, self._ended, self._closed = since, viewer, False, False
        await self._connect(takeover=takeover)

    async def _connect(self, *, takeover: bool = False) -> AsyncSocket:
        from .websocket import AsyncSocket

        query = {"since": self.offset, "mode": "viewer" if self._viewer else None, "takeover": takeover or None}
        url, headers = self._transport.socket_address(f"{self._path}/attach", query)
        self._socket = await AsyncSocket.open(url, headers)
        return self._socket

    async def _current(self) -> AsyncSocket:
        """The connection; a new one when the last broke, as soon as the server is back."""
        async with self._lock:
            if self._closed:
                raise NetworkError("this client has left the terminal", code="connection_lost", remedy="attach() again")
            if self._socket is not None and self._socket.live:
                return self._socket
            deadline, pause = now() + RECONNECT_S, 0.05
            while True:
                try:
                    return await self._connect()
                except (NetworkError, ServerError, ConflictError):
                    # The sandbox may take a moment to notice that this client's former connection is gone.
                    if now() > deadline or self._closed:
                        raise
                await sleep(pause)
                pause = min(1.0, pause * 2)

    async def read(self, timeout: Duration | None = None) -> bytes:
        """The next output, as it comes; b"" once the program has ended. TalonTimeoutError after `timeout`."""
        deadline = None if timeout is None else now() + seconds(timeout)
        while not self._ended:
            frame = await self._frame(None if deadline is None else max(0.0, deadline - now()))
            if frame is None:
                continue
            if isinstance(frame, str):
                self._told(control(frame))
            elif fresh := self._new(output(frame)):
                return fresh
        return b""

    async def _frame(self, left_s: float | None) -> bytes | str | None:
        """The next frame; None when the connection had to be made anew or is over."""
        from .websocket import SocketEnded

        # What came before the connection broke is still to be had from the old socket.
        socket = self._socket or await self._current()
        try:
            return await socket.receive(left_s)
        except TimeoutError as error:
            raise TalonTimeoutError(
                f"terminal {self.id} was quiet", code="timeout", remedy="wait longer, or read without a timeout"
            ) from error
        except SocketEnded as end:
            await self._over(socket, end.code)
        return None

    async def _over(self, socket: AsyncSocket, code: int) -> None:
        if code == _TAKEN_OVER:
            self._closed = True
            raise ConflictError("another client took the terminal over", code="terminal_held", remedy="attach() again")
        if code == _READ_ONLY:
            self._closed = True
            raise ConflictError("a viewer cannot type", code="terminal_read_only", remedy="attach without viewer")
        if self._closed or self._ended:
            self._ended = True
            return
        await socket.close()
        await self._current()

    def _new(self, piece: Output) -> bytes:
        """The bytes of a frame that have not been given out."""
        at = self.offset if piece.offset is None else piece.offset
        if at > self.offset:
            self.dropped += at - self.offset
            self.offset = at
        fresh = piece.data[self.offset - at :]
        self.offset += len(fresh)
        return fresh

    def _told(self, message: dict[str, Any]) -> None:
        if message.get("type") == "exit":
            self._ended = True
            self._info = parse(TerminalInfo, {**self._info.raw, "state": "exited", "exit_code": message["exit_code"]})
        elif message.get("type") == "error":
            code = str(message.get("code", ""))
            raise ConflictError(str(message.get("message", code)), code=code.lower())

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self.read():
            yield data

    async def read_until(self, text: str | bytes, timeout: Duration | None = None) -> bytes:
        """Output up to the first that ends a read with `text` in it; less when the program ends before."""
        wanted = text.encode() if isinstance(text, str) else text
        deadline = None if timeout is None else now() + seconds(timeout)
        seen = b""
        while wanted not in seen:
            data = await self.read(None if deadline is None else max(0.0, deadline - now()))
            if not data:
                break
            seen += data
        return seen

    async def write(self, data: bytes | str) -> None:
        """Type. Input that is on its way when the connection breaks may be lost; it never arrives twice."""
        await self._send(b"\0" + (data.encode() if isinstance(data, str) else data))

    async def resize(self, cols: int, rows: int) -> None:
        """Give the terminal another size; the program gets SIGWINCH."""
        await self._send({"type": "resize", "cols": cols, "rows": rows})

    async def signal(self, name: str) -> None:
        """Send a signal such as "INT" to what runs in the foreground."""
        await self._transport.json(Call("POST", f"{self._path}/signal", json={"signal": name}))

    async def _send(self, message: bytes | dict[str, object]) -> None:
        from .websocket import SocketEnded

        if self._ended:
            raise ConflictError("the terminal's program has ended", code="terminal_ended")
        socket = await self._current()
        try:
            await socket.send(message)
        except SocketEnded as error:
            if error.code == _NORMAL:
                raise ConflictError("the terminal's program has ended", code="terminal_ended") from error
            raise NetworkError(
                "the connection broke while input was sent", code="connection_lost", remedy="look at the output first"
            ) from error

    async def status(self) -> TerminalInfo:
        """Ask how it is now."""
        self._info = parse(TerminalInfo, await self._transport.json(Call("GET", self._path)))
        return self._info

    async def wait(self, timeout: Duration | None = None) -> int:
        """Wait for the program's end and give its exit code. TalonTimeoutError when it still runs after `timeout`."""
        deadline = None if timeout is None else now() + seconds(timeout)
        while True:
            step = _POLL_S if deadline is None else min(_POLL_S, max(0.0, deadline - now()))
            call = Call("GET", f"{self._path}/wait", {"timeout_s": step}, read_timeout_s=step + 30)
            self._info = parse(TerminalInfo, await self._transport.json(call))
            if self._info.exit_code is not None:
                return self._info.exit_code
            if deadline is not None and now() >= deadline:
                raise TalonTimeoutError(f"terminal {self.id} still runs", code="timeout", remedy="wait longer")

    async def close(self) -> None:
        """Leave; the program goes on."""
        self._closed = True
        if self._socket is not None:
            await self._socket.close()

    async def kill(self) -> None:
        """End the program and all it started, and forget the terminal; one that is gone already is fine."""
        await self.close()
        try:
            await self._transport.json(Call("DELETE", self._path))
        except NotFoundError:
            return


async def list_terminals(transport: AsyncTransport, base: str) -> builtins.list[TerminalInfo]:
    """All terminals of a sandbox."""
    answer = await transport.json(Call("GET", f"{base}/terminals"))
    return [parse(TerminalInfo, item) for item in answer["items"]]


async def open_terminal(transport: AsyncTransport, base: str, body: dict[str, Any]) -> AsyncTerminal:
    """Start a program on a new terminal and attach to it."""
    info = parse(TerminalInfo, await transport.json(Call("POST", f"{base}/terminals", json=body)))
    terminal = AsyncTerminal(transport, base, info)
    try:
        await terminal.attach()
    except TalonError:
        await terminal.kill()
        raise
    return terminal
