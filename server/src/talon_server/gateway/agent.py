"""One HTTP/1.1 connection to a sandbox's agent, over its unix socket.

Used by the relay (through `pool`) and by the upgrade tunnel. One request at a time; bodies stream in both
directions under back-pressure; after an upgrade the connection is a plain pipe. Single-task: one reader, one writer.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import httptools

from talon_server.gateway.heads import Ambiguous, framing

_HIGH = 256 * 1024
_LOW = 64 * 1024
_MOST_HEAD = 512 * 1024
"""Bytes of a response before its body, interim ones included: the agent's own bound for a program's head is a quarter."""


class AgentGone(ConnectionError):
    """The agent closed or broke the connection; `answered` tells whether any of a response had come."""

    def __init__(self, message: str, *, answered: bool) -> None:
        super().__init__(message)
        self.answered = answered


@dataclass(frozen=True, slots=True)
class ResponseHead:
    status: int
    fields: list[tuple[bytes, bytes]]


class AgentConnection(asyncio.Protocol):
    """`write`/`drain` for the request, `head`/`chunk` for the response, `reusable` when both ended cleanly."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport = None  # type: ignore[assignment]  # set before any use, by connection_made
        self._parser: httptools.HttpResponseParser | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._reading_paused = False
        self._bodiless = False
        self._fields: list[tuple[bytes, bytes]] = []
        self._head: ResponseHead | None = None
        self._until_close = False
        self._keep_alive = False
        self._complete = False
        self._broken: str | None = None
        self._raw = False
        self._head_bytes = 0
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are transports without inheriting

    def begin(self, *, bodiless: bool = False) -> None:
        """Ready for the next exchange; `bodiless` for HEAD, whose response announces a length but has no body."""
        self._parser = httptools.HttpResponseParser(self)
        self._bodiless = bodiless
        self._fields, self._head, self._head_bytes = [], None, 0
        self._until_close = self._complete = self._keep_alive = False

    @property
    def reusable(self) -> bool:
        ended = self._complete and self._keep_alive and self._broken is None
        return ended and not self._until_close and not self.closed and not self._chunks

    # the request

    def write(self, data: bytes) -> None:
        if not self.closed:
            self._transport.write(data)

    def write_chunk(self, data: bytes) -> None:
        """One chunk of a chunked body; empty data is not a chunk (it would end the body)."""
        if data and not self.closed:
            self._transport.writelines([b"%x\r\n" % len(data), data, b"\r\n"])

    async def drain(self) -> None:
        """Waits while the agent reads slower than the client sends."""
        if self._writable is not None:
            await asyncio.shield(self._writable)

    @property
    def congested(self) -> bool:
        return self._writable is not None

    def when_writable(self, resume: Callable[[], None]) -> None:
        """Call `resume` once the agent has taken what was written (or is gone)."""
        if self._writable is None:
            resume()
        else:
            self._writable.add_done_callback(lambda _: resume())

    # the response

    async def head(self) -> ResponseHead:
        """The final response's head (1xx are skipped, except 101). Raises `AgentGone`."""
        while self._head is None:
            self._check()
            await self._wait()
        return self._head

    async def chunk(self) -> bytes:
        """The next piece of the body, empty at its end. Raises `AgentGone` when it was cut short."""
        while not self._chunks:
            if self._complete:
                return b""
            self._check()
            await self._wait()
        return self._take()

    @property
    def ended(self) -> bool:
        """True when the whole response has been handed out, so its last piece can be sent as the last."""
        return self._complete and not self._chunks

    def become_raw(self) -> None:
        """After 101: what arrives is passed on as it is, by `chunk`, until the agent closes."""
        self._raw = True
        self._parser = None
        self._complete = self.closed

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def end_writing(self) -> None:
        if not self.closed and self._transport.can_write_eof():
            self._transport.write_eof()

    def _take(self) -> bytes:
        chunks = self._chunks
        data = chunks.popleft()
        if chunks and len(data) + len(chunks[0]) <= _LOW:
            parts, size = [data], len(data)
            while chunks and size + len(chunks[0]) <= _LOW:
                parts.append(chunks.popleft())
                size += len(parts[-1])
            data = b"".join(parts)
        self._buffered -= len(data)
        if self._reading_paused and self._buffered < _LOW and not self.closed:
            self._reading_paused = False
            self._transport.resume_reading()
        return data

    def _check(self) -> None:
        if self._broken is not None:
            raise AgentGone(self._broken, answered=self._head is not None or bool(self._fields))

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        if self._raw:
            self._keep(data)
        elif self._parser is None or self._complete:
            self._break("the agent sent bytes nobody asked for")
        else:
            self._parse(data)
        self._wake()

    def _parse(self, data: bytes) -> None:
        assert self._parser is not None
        if self._head is None and self._head_bytes > _MOST_HEAD:
            self._break("the agent's answer has no end of its head")
            return
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._head is not None and self._head.status == 101:
                self.become_raw()
                if rest := data[upgrade.args[0] :]:
                    self._keep(rest)
            else:
                self._break("the agent switched protocols unasked")
        except (httptools.HttpParserError, Ambiguous) as error:
            self._break(f"the agent's answer is not HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._raw or (self._until_close and exc is None):
            self._complete = True
        if not self._complete and self._broken is None:
            self._broken = "the agent closed the connection"
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._wake()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def _break(self, reason: str) -> None:
        if not self._complete:
            self._broken = self._broken or reason
        else:
            self._until_close = True
        self._transport.abort()

    def _keep(self, data: bytes) -> None:
        self._chunks.append(data)
        self._buffered += len(data)
        if self._buffered > _HIGH and not self._reading_paused and not self.closed:
            self._reading_paused = True
            self._transport.pause_reading()

    # httptools callbacks

    def on_message_begin(self) -> None:
        self._fields = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head is None:
            self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            return
        framed = framing(self._fields)
        self._head = ResponseHead(status, self._fields)
        self._keep_alive = bool(self._parser.should_keep_alive())
        unframed = framed.length is None and not framed.chunked and status not in (101, 204, 304)
        self._until_close = unframed and not self._bodiless
        self._complete = self._bodiless

    def on_body(self, data: bytes) -> None:
        if self._bodiless:
            self._until_close = True
            return
        self._keep(data)

    def on_message_complete(self) -> None:
        if self._head is not None:
            self._complete = True


async def dial(socket: Path) -> AgentConnection:
    """Connect to an agent; OSError when nothing listens there."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_unix_connection(AgentConnection, str(socket))
    return connection
