"""The data plane as an ASGI app: a client's request becomes a request to the sandbox's agent, streamed both ways.

`compose` puts it before the API: `Gateway.wants(scope)` says whether a request is a sandbox's. Bytes are never
collected; a client that leaves ends its request at the agent at once. WebSockets go through `upgrade`.
"""

import json
import uuid
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from talon_server.errors import TalonError
from talon_server.gateway.access import Directory, Located, Refused, admit
from talon_server.gateway.agent import AgentConnection, AgentGone
from talon_server.gateway.heads import (
    Ambiguous,
    Framing,
    Peer,
    first_values,
    framing,
    request_head,
    response_fields,
)
from talon_server.gateway.pool import ConnectionPool
from talon_server.gateway.presence import Presence
from talon_server.gateway.routes import BadRoute, Route, find
from talon_server.lib.companion import Companion

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
EgressApp = Callable[[Located, str, Scope, Receive, Send], Awaitable[None]]
Words = Callable[[TalonError], tuple[int, str]]
"""An error's HTTP status and code for OpenSandbox's clients."""

ERROR_FIELD = b"x-talon-error"
"""Set by the agent on its own errors, so that they are told from the answers of a user's program."""
WAITING_PAGE = b"""<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="1">
<title>Waiting for the server</title><style>body{font:16px system-ui;display:grid;place-items:center;height:90vh;color:#555}
</style><p>Nothing listens on this port yet. This page tries again every second.</p></html>
"""
_MOST_WORDS = 1 << 16
"""Bytes of an error of the agent: programs in the sandbox can pretend to be it, so none is taken on trust."""
_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})


class Gateway:
    """`egress` answers port 18080 (it is the server's own), `words` names errors for OpenSandbox's clients."""

    def __init__(
        self, directory: Directory, *, egress: EgressApp, words: Words, domain: str = "", via_tls: bool = False
    ) -> None:
        self.directory = directory
        self.domain = domain
        self.pool = ConnectionPool()
        self.presence = Presence()
        self._egress = egress
        self._words = words
        self._scheme = "https" if via_tls else ""

    def route(self, raw_path: bytes, headers: Mapping[bytes, bytes]) -> Route | None:
        """The route of a request, None when it is not for a sandbox. Raises `BadRoute`."""
        return find(raw_path.decode("latin-1"), headers, self.domain)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Answer an HTTP request if it is a sandbox's; False (nothing done) when it is not."""
        headers = first_values(scope["headers"])
        request_id = request_id_of(headers)
        native = False
        try:
            route = self.route(scope["raw_path"], headers)
            if route is None:
                return False
            native = route.native
            located = self.enter(route, headers)
            with self.presence.using(located.id):
                if route.to_egress:
                    await self._egress(located, route.path, scope, receive, send)
                else:
                    await self._exchange(route, located, scope, receive, send, request_id)
        except (Refused, BadRoute, Ambiguous, TalonError) as error:
            await self._refuse(error, native, request_id, send)
        return True

    def enter(self, route: Route, headers: Mapping[bytes, bytes]) -> Located:
        """Check the caller, and count the access for sandboxes that renew by it."""
        located = admit(route, headers, self.directory)
        if located.renews and headers.get(b"opensandbox-access-renew", b"").lower() != b"skip":
            self.directory.accessed(located.id)
        return located

    def head_for(self, route: Route, located: Located, method: bytes, query: bytes, peer: Peer, fields: Any) -> bytes:
        """The request's head to the agent, without framing and final blank line."""
        target = route.path.encode("latin-1") + (b"?" + query if query else b"")
        host = b"localhost:%d" % route.port if route.port else b"agent"
        prefix, user = route.prefix if route.to_user else "", route.to_user
        return request_head(method, target, fields, peer, token=located.token, host=host, prefix=prefix, to_user=user)

    async def _exchange(
        self, route: Route, located: Located, scope: Scope, receive: Receive, send: Send, request_id: bytes
    ) -> None:
        framed = framing(scope["headers"])
        peer = peer_of(scope, request_id, self._scheme)
        method: str = scope["method"]
        head = self.head_for(route, located, method.encode(), scope["query_string"], peer, scope["headers"])
        answer = _Answer(route, request_id, send, wants_page=_wants_page(method, scope["headers"]))
        for attempt in (1, 2):
            connection, reused = await self._connect(located)
            exchange = _Exchange(connection, framed, receive)
            try:
                await exchange.run(head, method, answer)
                return
            except AgentGone as gone:
                fresh_try = reused and not gone.answered and not exchange.body_begun
                if exchange.client_gone:
                    return
                if attempt == 1 and fresh_try and method in _REPEATABLE:
                    continue
                if answer.begun:
                    return  # the server closes the connection: the client sees that its answer was cut
                raise no_answer(gone) from gone
            finally:
                exchange.release(self.pool, located)

    async def _connect(self, located: Located) -> tuple[AgentConnection, bool]:
        try:
            return await self.pool.take(located.socket)
        except OSError as error:
            raise not_there(error) from error

    async def _refuse(self, error: Exception, native: bool, request_id: bytes, send: Send) -> None:
        status, fields, body = self.problem(error, native, request_id)
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": body})

    def problem(
        self, error: Exception, native: bool, request_id: bytes
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """An error as status, header fields and body; under /v2 with cause and remedy, else `{code, message}`."""
        if isinstance(error, Refused):
            own, code = error.error, error.opensandbox_code
            status = own.status
        else:
            own = error if isinstance(error, TalonError) else TalonError("invalid_request", str(error))
            status, code = self._words(own)
        shape: dict[str, Any] = {"code": code, "message": f"{str(own).rstrip('.')}. {own.remedy}"}
        if native:
            status, shape = own.status, {"code": own.code, "message": own.message, "cause": own.cause}
            shape |= {"remedy": own.remedy, "retryable": own.retryable, "request_id": request_id.decode()}
        body = json.dumps(shape, separators=(",", ":")).encode()
        fields = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        fields.append((b"x-request-id", request_id))
        if own.retry_after_s is not None:
            fields.append((b"retry-after", b"%d" % max(1, round(own.retry_after_s))))
        return status, fields, body


class _Exchange:
    """One request on one connection: a feeder carries the body and watches the client while the answer streams."""

    def __init__(self, connection: AgentConnection, framed: Framing, receive: Receive) -> None:
        self._connection = connection
        self._framed = framed
        self._receive = receive
        self._sent = False
        self._done = False
        self.body_begun = False
        self.client_gone = False

    async def run(self, head: bytes, method: str, answer: "_Answer") -> None:
        connection = self._connection
        connection.begin(bodiless=method == "HEAD")
        more = await self._open(head)
        async with Companion(self._feed(more)):
            await answer.relay(connection)
            self._done = True

    def release(self, pool: ConnectionPool, located: Located) -> None:
        if self._done and self._sent:
            pool.give(located.socket, self._connection)
        else:
            self._connection.abort()

    async def _open(self, head: bytes) -> bool:
        """Send the head together with the first of the body; True when more of the body is to come."""
        framed = self._framed
        if not framed.has_body:
            self._connection.write(head + (b"\r\ncontent-length: 0\r\n\r\n" if framed.length == 0 else b"\r\n\r\n"))
            self._sent = True
            return False
        message = await self._receive()
        if message["type"] != "http.request":
            self._gone()
            return False
        self.body_begun = True
        body: bytes = message.get("body", b"")
        more: bool = message.get("more_body", False)
        if framed.chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            end = b"" if more else b"0\r\n\r\n"
            self._connection.write(head + b"\r\ntransfer-encoding: chunked\r\n\r\n" + chunk + end)
        else:
            self._connection.write(head + b"\r\ncontent-length: %d\r\n\r\n" % (framed.length or 0) + body)
        self._sent = not more
        return more

    async def _feed(self, more: bool) -> None:
        """Carry the rest of the body, then wait for the client to leave; leaving ends the agent's work at once."""
        connection = self._connection
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._gone()
                return
            if not more:
                continue
            body: bytes = message.get("body", b"")
            more = message.get("more_body", False)
            if self._framed.chunked:
                connection.write_chunk(body)
            elif body:
                connection.write(body)
            if not more:
                if self._framed.chunked:
                    connection.write(b"0\r\n\r\n")
                self._sent = True
            await connection.drain()

    def _gone(self) -> None:
        self.client_gone = True
        self._connection.abort()


class _Answer:
    """The response on its way to the client."""

    def __init__(self, route: Route, request_id: bytes, send: Send, *, wants_page: bool) -> None:
        self._wants_page = wants_page
        self._prefix = route.prefix
        self._to_user = route.to_user
        self._request_id = request_id
        self._send = send
        self.begun = False

    async def relay(self, connection: AgentConnection) -> None:
        head = await connection.head()
        if head.status == 101:
            raise no_answer("it switched protocols unasked")
        if self._to_user and head.status == 502 and (ERROR_FIELD, b"upstream_unavailable") in head.fields:
            await self._not_listening(connection)
            return
        fields = response_fields(head.fields, prefix=self._prefix, to_user=self._to_user)
        if not any(name == b"x-request-id" for name, _ in fields):
            fields.append((b"x-request-id", self._request_id))
        start = {"type": "http.response.start", "status": head.status, "headers": fields}
        if connection.ended or head.status in (204, 304):
            self.begun = True
            await self._send(start)
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        self.begun = True
        await self._send(start)
        while True:
            data = await connection.chunk()
            last = connection.ended
            await self._send({"type": "http.response.body", "body": data, "more_body": not last})
            if last:
                return

    async def _not_listening(self, connection: AgentConnection) -> None:
        """Nothing listens on the port yet: a page that tries again for browsers, 503 with when to retry for the rest."""
        body = b""
        while data := await connection.chunk():
            body += data
            if len(body) > _MOST_WORDS:
                raise no_answer("its error has no end")
        content = b"text/html; charset=utf-8" if self._wants_page else b"application/json"
        body = WAITING_PAGE if self._wants_page else body
        fields = [(b"content-type", content), (b"content-length", b"%d" % len(body)), (b"retry-after", b"1")]
        fields += [(b"cache-control", b"no-store"), (b"x-request-id", self._request_id)]
        self.begun = True
        await self._send({"type": "http.response.start", "status": 503, "headers": fields})
        await self._send({"type": "http.response.body", "body": body})


def _wants_page(method: str, fields: list[tuple[bytes, bytes]]) -> bool:
    return method == "GET" and any(name == b"accept" and b"text/html" in value for name, value in fields)


def no_answer(why: object) -> Refused:
    """The sandbox was reached but gave no usable answer."""
    return Refused("BACKEND_RESPONSE_FAILED", TalonError("agent_unreachable", cause=str(why)))


def not_there(error: OSError) -> Refused:
    """Nothing listens on the sandbox's socket."""
    return Refused("BACKEND_CONNECTION_FAILED", TalonError("agent_unreachable", cause=str(error), retry_after_s=1))


def request_id_of(headers: Mapping[bytes, bytes]) -> bytes:
    """The caller's X-Request-ID when it is short and plain, else a new one."""
    given = headers.get(b"x-request-id", b"")
    return given if 0 < len(given) <= 128 and given.isascii() else uuid.uuid4().hex.encode()


def peer_of(scope: Scope, request_id: bytes, scheme: str = "") -> Peer:
    client = scope.get("client")
    host = first_values(scope["headers"]).get(b"host", b"")
    return Peer(client[0] if client else "", scheme or scope.get("scheme", "http"), host, request_id)
