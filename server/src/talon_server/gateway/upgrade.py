"""WebSockets (and any upgrade uvicorn lets through) to sandboxes as a raw pipe: frames are never opened.

`compose` gives `upgrades(gateway)` to uvicorn as its WebSocket protocol. A sandbox's request is admitted like any other,
sent to the agent with its upgrade, and after the 101 both sides are spliced, so sub-protocols, extensions, pings
and close codes pass untouched. Upgrades that are not a sandbox's go on to uvicorn's own implementation.
"""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from talon_server.errors import TalonError
from talon_server.gateway.access import Refused
from talon_server.gateway.agent import AgentConnection, AgentGone, dial
from talon_server.gateway.heads import Ambiguous, Peer, first_values, response_fields
from talon_server.gateway.relay import Gateway, no_answer, not_there, request_id_of
from talon_server.gateway.routes import BadRoute, Route

_BODY_LIMIT = 1024 * 1024
Fields = list[tuple[bytes, bytes]]


def upgrades(gateway: Gateway) -> Callable[..., asyncio.Protocol]:
    """What uvicorn's `ws=` takes: a factory of one protocol per upgraded connection."""

    def make(config: Config, server_state: ServerState, app_state: dict[str, Any], **more: Any) -> asyncio.Protocol:
        def own() -> asyncio.Protocol:
            return WebSocketsSansIOProtocol(config=config, server_state=server_state, app_state=app_state, **more)

        return Tunnel(gateway, server_state, own)

    return make


class Tunnel(asyncio.Protocol):
    """The client's side. The first bytes are the request's head, as uvicorn wrote it again from its parsed form."""

    def __init__(self, gateway: Gateway, state: ServerState, make_own: Callable[[], asyncio.Protocol]) -> None:
        self._gateway = gateway
        self._state = state
        self._make_own = make_own
        self._own: asyncio.Protocol | None = None
        self._transport: asyncio.Transport = None  # type: ignore[assignment]  # set by connection_made
        self._agent: AgentConnection | None = None
        self._early = bytearray()
        self._writable: asyncio.Event = asyncio.Event()
        self._writable.set()
        self._task: asyncio.Task[None] | None = None
        self._begun = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are transports without inheriting

    def data_received(self, data: bytes) -> None:
        if self._own is not None:
            self._own.data_received(data)
        elif not self._begun:
            self._begun = True
            self._start(data)
        elif self._agent is not None:
            self._forward(data)
        else:
            self._early += data
            self._transport.pause_reading()

    def _start(self, data: bytes) -> None:
        method, target, fields = _parse(data)
        path, _, query = target.partition(b"?")
        headers = first_values(fields)
        request_id = request_id_of(headers)
        route, refusal = None, None
        try:
            route = self._gateway.route(path, headers)
        except BadRoute as error:
            refusal = error
        if route is None and refusal is None:
            self._give_away(data)
            return
        self._state.connections.add(self)  # type: ignore[arg-type]  # uvicorn asks only for shutdown()
        work = self._serve(route, refusal, method, query, fields, request_id)
        self._task = asyncio.get_running_loop().create_task(work)
        self._state.tasks.add(self._task)
        self._task.add_done_callback(self._state.tasks.discard)

    def _give_away(self, data: bytes) -> None:
        self._own = self._make_own()
        self._own.connection_made(self._transport)
        self._own.data_received(data)

    async def _serve(
        self, route: Route | None, refusal: Exception | None, method: bytes, query: bytes, fields: Fields, id: bytes
    ) -> None:
        native = route is not None and route.native
        try:
            if route is None:
                assert refusal is not None
                raise refusal
            await self._splice(route, method, query, fields, id)
        except AgentGone as gone:
            self._answer(no_answer(gone), native, id)
        except (Refused, BadRoute, Ambiguous, TalonError) as error:
            self._answer(error, native, id)
        finally:
            if self._agent is not None:
                self._agent.close()
            self._transport.close()

    async def _splice(self, route: Route, method: bytes, query: bytes, fields: Fields, request_id: bytes) -> None:
        located = self._gateway.enter(route, first_values(fields))
        if route.to_egress:
            raise BadRoute("the egress API has no WebSocket; use plain HTTP")
        peername = self._transport.get_extra_info("peername")
        secure = self._transport.get_extra_info("sslcontext") is not None
        client = peername[0] if isinstance(peername, tuple) else ""
        peer = Peer(client, "https" if secure else "http", first_values(fields).get(b"host", b""), request_id)
        head = self._gateway.head_for(route, located, method, query, peer, fields)
        upgrade = first_values(fields).get(b"upgrade", b"websocket")
        try:
            agent = await dial(located.socket)
        except OSError as error:
            raise not_there(error) from error
        if self._transport.is_closing():
            agent.abort()
            return
        agent.begin()
        agent.write(head + b"\r\nconnection: Upgrade\r\nupgrade: " + upgrade + b"\r\n\r\n")
        self._agent = agent
        if self._early:
            agent.write(bytes(self._early))
            self._early.clear()
            self._transport.resume_reading()
        with self._gateway.presence.using(located.id):
            await self._relay(agent, route)

    async def _relay(self, agent: AgentConnection, route: Route) -> None:
        head = await agent.head()
        fields = response_fields(head.fields, prefix=route.prefix, to_user=route.to_user)
        if head.status != 101:
            await self._plain(agent, head.status, fields)
            return
        upgrade = first_values(head.fields).get(b"upgrade", b"websocket")
        fields += [(b"connection", b"Upgrade"), (b"upgrade", upgrade)]
        self._transport.write(_head(101, fields))
        while data := await agent.chunk():
            if self._transport.is_closing():
                return
            self._transport.write(data)
            await self._writable.wait()

    async def _plain(self, agent: AgentConnection, status: int, fields: Fields) -> None:
        """The agent (or the program) refused the upgrade: its answer, then the connection ends."""
        body = bytearray()
        while len(body) < _BODY_LIMIT and (data := await agent.chunk()):
            body += data
        fields = [(name, value) for name, value in fields if name != b"content-length"]
        fields += [(b"content-length", b"%d" % len(body)), (b"connection", b"close")]
        self._transport.write(_head(status, fields) + body)

    def _answer(self, error: Exception, native: bool, request_id: bytes) -> None:
        status, fields, body = self._gateway.problem(error, native, request_id)
        if not self._transport.is_closing():
            self._transport.write(_head(status, [*fields, (b"connection", b"close")]) + body)

    def _forward(self, data: bytes) -> None:
        agent = self._agent
        assert agent is not None
        agent.write(data)
        if agent.congested and self._task is not None:
            self._transport.pause_reading()
            agent.when_writable(self._transport.resume_reading)

    # the rest of asyncio.Protocol, and uvicorn's wish to stop

    def connection_lost(self, exc: Exception | None) -> None:
        self._state.connections.discard(self)
        self._writable.set()
        if self._own is not None:
            self._own.connection_lost(exc)
        elif self._agent is not None:
            self._agent.abort()

    def eof_received(self) -> bool | None:
        return self._own.eof_received() if self._own is not None else None

    def pause_writing(self) -> None:
        if self._own is not None:
            self._own.pause_writing()
        else:
            self._writable.clear()

    def resume_writing(self) -> None:
        if self._own is not None:
            self._own.resume_writing()
        else:
            self._writable.set()

    def shutdown(self) -> None:
        """The server stops: tunnels have no natural end, so they end now."""
        if self._agent is not None:
            self._agent.abort()
        self._transport.close()


def _parse(data: bytes) -> tuple[bytes, bytes, Fields]:
    """uvicorn wrote this head from parsed parts, one field a line, so splitting is exact."""
    lines = data.split(b"\r\n\r\n", 1)[0].split(b"\r\n")
    method, target, _ = lines[0].split(b" ", 2)
    fields = []
    for line in lines[1:]:
        name, _, value = line.partition(b": ")
        fields.append((name.lower(), value))
    return method, target, fields


def _head(status: int, fields: Fields) -> bytes:
    reason = b"Switching Protocols" if status == 101 else b"Status"
    lines = [b"HTTP/1.1 %d " % status, reason]
    for name, value in fields:
        lines += (b"\r\n", name, b": ", value)
    lines.append(b"\r\n\r\n")
    return b"".join(lines)
