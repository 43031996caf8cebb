"""Requests and answers over one keep-alive connection pool (httpcore); used by every part of the client.

Errors of the API become errors of `errors.py`, those of the network NetworkError or TalonTimeoutError, with the
original chained. Invariant: what `retry.py` forbids is sent once; a body that is a stream is always sent once.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import httpcore

from .._version import __version__
from ..config import Config
from ..errors import NetworkError, TalonError, TalonTimeoutError, from_answer
from ..retry import IDEMPOTENT_METHODS, RetryPolicy
from .concurrency import sleep

Content = bytes | AsyncIterable[bytes]
Query = Mapping[str, Any]
_TIMEOUTS = (httpcore.ConnectTimeout, httpcore.ReadTimeout, httpcore.WriteTimeout, httpcore.PoolTimeout)
_NODELAY = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]


def escape(segment: str) -> str:
    """One path segment of a URL."""
    return quote(segment, safe="")


@dataclass(slots=True)
class Call:
    """One request; `read_timeout_s` None waits as long as the connection lives."""

    method: str
    path: str
    query: Query | None = None
    json: Any = None
    content: Content | None = None
    headers: Mapping[str, str] | None = None
    read_timeout_s: float | None = 60.0
    idempotent: bool | None = None

    @property
    def repeatable(self) -> bool:
        return self.content is None or isinstance(self.content, bytes)

    @property
    def safe_to_repeat(self) -> bool:
        known = self.method in IDEMPOTENT_METHODS if self.idempotent is None else self.idempotent
        return known and self.repeatable


class AsyncAnswer:
    """An answer being read: status and headers are there, the body comes by iterating over it."""

    def __init__(self, response: httpcore.Response, where: str) -> None:
        self._response = response
        self._where = where
        self.status = response.status
        self.headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._response.aiter_stream():
                yield piece
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            raise network_error(error, self._where) from error

    async def read(self) -> bytes:
        """The whole body."""
        try:
            return await self._response.aread()
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            raise network_error(error, self._where) from error

    async def close(self) -> None:
        await self._response.aclose()


class AsyncTransport:
    """Sends calls to one server."""

    def __init__(self, config: Config, *, connect_timeout_s: float = 10.0, retry: RetryPolicy | None = None) -> None:
        url = urlsplit(config.server)
        secure = url.scheme == "https"
        self.server = config.server
        self._scheme = url.scheme.encode()
        self._host = (url.hostname or "").encode("idna")
        self._port = url.port
        self._prefix = url.path.rstrip("/")
        self._connect_timeout_s = connect_timeout_s
        self._retry = retry or RetryPolicy()
        self._headers = [(b"Host", url.netloc.rpartition("@")[2].encode()), (b"Accept", b"application/json")]
        self._headers.append((b"User-Agent", f"talon-sandbox-sdk-python/{__version__}".encode()))
        if config.api_key:
            self._headers.append((b"Authorization", b"Bearer " + config.api_key.encode()))
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=ssl.create_default_context() if secure else None,
            max_connections=512,
            max_keepalive_connections=128,
            keepalive_expiry=60.0,
            socket_options=_NODELAY,
        )

    async def close(self) -> None:
        """Close all connections; a later call opens new ones."""
        await self._pool.aclose()

    def socket_address(self, path: str, query: Query) -> tuple[str, dict[str, str]]:
        """URL and headers of a WebSocket at this path."""
        headers = {name.decode(): value.decode() for name, value in self._headers if name == b"Authorization"}
        server = self.server.replace("http", "ws", 1).rstrip("/")
        return f"{server}{path}{_query(query)}", headers

    async def json(self, call: Call) -> Any:
        """Send a call and give the JSON of its answer (None for an empty one)."""
        answer = await self._send(call)
        try:
            body = await answer.read()
        finally:
            await answer.close()
        return json.loads(body) if body else None

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[AsyncAnswer]:
        """Send a call and give its answer to be read piece by piece; leaving the block early breaks the connection."""
        answer = await self._send(call)
        try:
            yield answer
        finally:
            await answer.close()

    async def _send(self, call: Call) -> AsyncAnswer:
        attempt, waited_s = 0, 0.0
        while True:
            delay, outcome = await self._attempt(call, attempt, waited_s)
            if isinstance(outcome, AsyncAnswer):
                return outcome
            if delay is None:
                raise outcome
            await sleep(delay)
            attempt, waited_s = attempt + 1, waited_s + delay

    async def _attempt(
        self, call: Call, attempt: int, waited_s: float
    ) -> tuple[float | None, AsyncAnswer | TalonError]:
        """One try: the answer, or the error and after how long to try again."""
        try:
            answer = AsyncAnswer(await self._pool.handle_async_request(self._request(call)), self.server)
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            failure = network_error(error, self.server)
            failure.__cause__ = error
            return self._retry.after_failure(attempt, error, idempotent=call.safe_to_repeat), failure
        if answer.status < 400:
            return None, answer
        try:
            refusal = from_answer(answer.status, answer.headers, await answer.read())
        finally:
            await answer.close()
        if not call.repeatable or refusal.code == "queue_timeout":
            return None, refusal
        delay = self._retry.after_answer(
            attempt, waited_s, answer.status, answer.headers, idempotent=call.safe_to_repeat
        )
        return delay, refusal

    def _request(self, call: Call) -> httpcore.Request:
        headers = list(self._headers)
        content: Content = b"" if call.content is None else call.content
        if call.json is not None:
            content = json.dumps(call.json, separators=(",", ":")).encode()
            headers.append((b"Content-Type", b"application/json"))
        for name, value in (call.headers or {}).items():
            if name == "Accept":
                headers[1] = (b"Accept", value.encode())
            else:
                headers.append((name.encode(), value.encode()))
        if isinstance(content, bytes):
            if content or call.method not in ("GET", "HEAD", "DELETE"):
                headers.append((b"Content-Length", str(len(content)).encode()))
        elif not call.headers or "Content-Length" not in call.headers:
            headers.append((b"Transfer-Encoding", b"chunked"))
        target = self._prefix + call.path + _query(call.query)
        url = httpcore.URL(scheme=self._scheme, host=self._host, port=self._port, target=target.encode("ascii"))
        return httpcore.Request(call.method, url, headers=headers, content=content, extensions=self._extensions(call))

    def _extensions(self, call: Call) -> dict[str, Any]:
        connect = self._connect_timeout_s
        return {"timeout": {"connect": connect, "pool": None, "write": 60.0, "read": call.read_timeout_s}}


def _query(query: Query | None) -> str:
    """The query string; None values are left out, lists repeat their name, booleans are true and false."""
    pairs = []
    for name, value in (query or {}).items():
        for item in value if isinstance(value, list | tuple) else [value]:
            if item is not None:
                pairs.append((name, str(item).lower() if isinstance(item, bool) else str(item)))
    return f"?{urlencode(pairs, quote_via=quote)}" if pairs else ""


def network_error(error: Exception, server: str) -> TalonError:
    """The SDK's error for one of the HTTP library."""
    cause = str(error) or type(error).__name__
    if isinstance(error, _TIMEOUTS):
        return TalonTimeoutError(f"{server} did not answer in time", code="timeout", cause=cause, remedy="try again")
    if isinstance(error, httpcore.ConnectError):
        return NetworkError(
            f"cannot reach the server at {server}",
            code="server_unreachable",
            cause=cause,
            remedy="start it (talon-server all), or name another with --server or TALON_SANDBOX_SERVER",
            retryable=True,
        )
    return NetworkError(
        f"the connection to {server} broke", code="connection_lost", cause=cause, remedy="try again", retryable=True
    )
