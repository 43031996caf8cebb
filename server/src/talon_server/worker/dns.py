"""The sandboxes' resolver: listens on the gateway's address, knows each sandbox by its own, obeys its policy.

A question is judged, passed to the host's resolvers, and the answer judged again; what a rule allows by name is opened
in the walls before the sandbox hears the address. Opened by `worker.host`. Everything is bounded: questions in flight,
connections, message sizes, and what may be said through names (`egress.budget`).
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address

import dns.exception
import dns.flags
import dns.message

from talon_server.egress import answers
from talon_server.egress.budget import DnsBudget
from talon_server.egress.decisions import Decision, Decisions
from talon_server.lib.tasks import Tasks
from talon_server.worker import upstream
from talon_server.worker.slots import Slot
from talon_server.worker.walls import Walls

IN_FLIGHT = 64
"""Questions of one sandbox at once; more are dropped, and its programs ask again."""
CONNECTIONS = 256
CONNECTIONS_EACH = 16
"""Connections of all sandboxes, and of one."""
IDLE_S = 10.0
PLAIN_UDP_BYTES = 512


@dataclass(frozen=True, slots=True)
class Client:
    """The sandbox behind an address."""

    id: str
    slot: Slot


Who = Callable[[IPv4Address], Client | None]


@dataclass(slots=True)
class _Talk:
    budget: DnsBudget = field(default_factory=DnsBudget)
    in_flight: int = 0


class Resolver:
    """Answers questions of sandboxes; `who` tells which one has an address."""

    def __init__(self, servers: Sequence[str], walls: Walls, decisions: Decisions, who: Who) -> None:
        self._servers = tuple(servers)
        self._walls = walls
        self._decisions = decisions
        self._who = who
        self._talks: dict[str, _Talk] = {}

    async def answer(self, wire: bytes, source: str) -> dns.message.Message | None:
        """The answer to one question, None when it deserves none (not a question, nobody's, too many at once)."""
        client = self._who(IPv4Address(source))
        try:
            query = dns.message.from_wire(wire)
        except dns.exception.DNSException:
            return None
        if client is None or query.flags & dns.flags.QR:
            return None
        talk = self._talks.setdefault(client.id, _Talk())
        if talk.in_flight >= IN_FLIGHT:
            return None
        talk.in_flight += 1
        try:
            return await self._judged(client, talk, query)
        finally:
            talk.in_flight -= 1

    async def _judged(self, client: Client, talk: _Talk, query: dns.message.Message) -> dns.message.Message:
        name = answers.question_name(query)
        refused = talk.budget.refuse(name, time.monotonic())
        if refused:
            self._note(client, name, denied=refused)
            return answers.refusal(query)
        policy = self._walls.compiled(client.slot)
        verdict, ruling = answers.judge_question(policy, query)
        if verdict is None or ruling is not None:
            assert ruling is not None
            self._note(client, name, denied=ruling.denied, rule=ruling.rule)
            return ruling.response
        if (empty := answers.without_ipv6(query)) is not None:
            return empty
        answer = await upstream.ask(self._servers, query)
        if answer is None:
            return answers.failure(query)
        if self._who(client.slot.address) != client:
            return answers.failure(query)
        policy = self._walls.compiled(client.slot)
        ruling = answers.judge_answer(policy, policy.name(name), query, answer)
        if ruling.grants:
            self._walls.grant(client.slot, ruling.grants)
        self._note(client, name, denied=ruling.denied, rule=ruling.rule)
        return ruling.response

    def _note(self, client: Client, name: str, *, denied: str | None, rule: int | None = None) -> None:
        self._decisions.note(
            Decision(0, time.time(), client.id, denied is None, "dns", name=name, rule=rule, reason=denied or "")
        )

    def forget(self, id: str) -> None:
        """A sandbox is gone."""
        self._talks.pop(id, None)


class Listener:
    """The resolver's sockets."""

    def __init__(self, resolver: Resolver, tasks: Tasks) -> None:
        self._resolver = resolver
        self._tasks = tasks
        self._transport: asyncio.DatagramTransport | None = None
        self._server: asyncio.Server | None = None
        self._connections: Counter[str] = Counter()

    async def open(self, address: str, port: int = upstream.PORT) -> None:
        """Listen on UDP and TCP. Raises OSError when the address is taken."""
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(
            lambda: _Datagrams(self._on_datagram), local_addr=(address, port)
        )
        self._server = await asyncio.start_server(self._on_connection, address, port)

    async def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        if self._server is not None:
            self._server.close()

    def _on_datagram(self, wire: bytes, source: tuple[str, int]) -> None:
        self._tasks.start("dns question", self._reply(wire, source))

    async def _reply(self, wire: bytes, source: tuple[str, int]) -> None:
        answer = await self._resolver.answer(wire, source[0])
        if answer is None or self._transport is None or self._transport.is_closing():
            return
        self._transport.sendto(fitted(answer, most_bytes(wire)), source)

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source: str = writer.get_extra_info("peername")[0]
        self._connections[source] += 1
        try:
            if self._connections.total() <= CONNECTIONS and self._connections[source] <= CONNECTIONS_EACH:
                await self._converse(reader, writer, source)
        except (OSError, TimeoutError, EOFError):
            pass
        finally:
            self._connections[source] -= 1
            if not self._connections[source]:
                del self._connections[source]
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: str) -> None:
        while True:
            async with asyncio.timeout(IDLE_S):
                wire = await upstream.read_frame(reader)
                answer = await self._resolver.answer(wire, source)
                if answer is None:
                    return
                writer.write(upstream.frame(answer.to_wire(max_size=65535)))
                await writer.drain()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, on_datagram: Callable[[bytes, tuple[str, int]], None]) -> None:
        self._on_datagram = on_datagram

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._on_datagram(data, addr)


def most_bytes(wire: bytes) -> int:
    """How large an answer the asker takes over UDP: what its EDNS says (RFC 6891), else 512."""
    query = dns.message.from_wire(wire)
    return max(PLAIN_UDP_BYTES, query.payload) if query.edns >= 0 else PLAIN_UDP_BYTES


def fitted(answer: dns.message.Message, most: int) -> bytes:
    """The answer's bytes; cut to its question, and marked so, when they are too many."""
    try:
        return answer.to_wire(max_size=most)
    except dns.exception.TooBig:
        short = dns.message.Message(answer.id)
        short.flags = answer.flags | dns.flags.TC
        short.question = answer.question
        return short.to_wire()
