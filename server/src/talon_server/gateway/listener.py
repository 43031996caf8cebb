"""uvicorn's HTTP protocol with bounds on what a stranger may do before a request is known: its head's size and time.

`compose` gives `bounded()` to uvicorn as its `http=`. Without it a head without end would be collected in memory, at a
cost that grows with its square, and connections that say nothing would be kept until no descriptor is left.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD = 128 * 1024
HEAD_S = 30.0
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def bounded(head_s: float = HEAD_S) -> type[asyncio.Protocol]:
    """The protocol; a connection has `head_s` seconds for its first request, and each request for its head."""

    class Bounded(HttpToolsProtocol):
        _head_bytes = 0
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._await_head()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            if self._deadline is None:
                self._await_head()

        def on_headers_complete(self) -> None:
            self._wait_no_more()
            super().on_headers_complete()

        def data_received(self, data: bytes) -> None:
            before = self._deadline
            super().data_received(data)
            if self._deadline is None or self._deadline is not before:
                return  # these bytes ended a head: not all of them were of one
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD and not self.transport.is_closing():
                self.transport.write(_TOO_LARGE)
                self.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            self._wait_no_more()
            super().connection_lost(exc)

        def _await_head(self) -> None:
            self._head_bytes = 0
            self._deadline = self.loop.call_later(head_s, self.transport.abort)

        def _wait_no_more(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    return Bounded
