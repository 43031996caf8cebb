"""One WebSocket to the server, over the `websockets` library, which is loaded when the first terminal is opened.

Hand-written here and, with the same names, in `_async`; used by `terminal.py` alone. A socket that ends, however it ends,
raises SocketEnded from then on; what was received before is given out first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.protocol import State
from websockets.sync.client import ClientConnection, connect

from ..errors import NetworkError, TalonError, from_answer

OPEN_S = 20.0


class SocketEnded(Exception):
    """The connection is over: `code` of the server's close frame, or 1006 when it broke."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code} {reason}".strip())
        self.code = code
        self.reason = reason


class Socket:
    """An open connection."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    @classmethod
    def open(cls, url: str, headers: Mapping[str, str]) -> Socket:
        """Connect. The server's refusal is raised as the error of the API that it carries."""
        try:
            connection = connect(
                url, additional_headers=headers, compression=None, max_size=None, open_timeout=OPEN_S, proxy=None
            ).__enter__()
        except InvalidStatus as error:
            answer = error.response
            names = {name.lower(): value for name, value in answer.headers.raw_items()}
            raise from_answer(answer.status_code, names, bytes(answer.body or b"")) from error
        except (OSError, InvalidHandshake, TimeoutError) as error:
            raise broken(error) from error
        return cls(connection)

    @property
    def live(self) -> bool:
        """Is it open, as far as this side knows?"""
        return self._connection.protocol.state is State.OPEN

    def send(self, message: bytes | Mapping[str, object]) -> None:
        """Send a binary frame, or an object as a text frame."""
        try:
            self._connection.send(message if isinstance(message, bytes) else json.dumps(message))
        except ConnectionClosed as error:
            raise ended(error) from error

    def receive(self, timeout_s: float | None) -> bytes | str:
        """The next frame. Raises TimeoutError."""
        try:
            return self._connection.recv(timeout_s)
        except ConnectionClosed as error:
            raise ended(error) from error

    def close(self) -> None:
        """Close it."""
        self._connection.close()


def ended(error: ConnectionClosed) -> SocketEnded:
    """What the library's exception says."""
    return SocketEnded(error.rcvd.code, error.rcvd.reason) if error.rcvd else SocketEnded(1006, "")


def broken(error: Exception) -> TalonError:
    """The SDK's error for a connection that could not be made."""
    cause = str(error) or type(error).__name__
    return NetworkError("cannot open a terminal's connection", code="connection_lost", cause=cause, retryable=True)
