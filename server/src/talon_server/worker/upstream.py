"""Asks the host's own resolvers on behalf of sandboxes: DNS over UDP, over TCP when an answer is cut short.

Called by `worker.dns`. Each question has a socket of its own, so that its port is random and only the server asked can
answer (RFC 5452). Source of the framing: RFC 1035 §4.2, RFC 7766.
"""

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path

import dns.exception
import dns.flags
import dns.message

PORT = 53
TRIES = 2
TRY_S = 2.0


def host_resolvers(file: Path = Path("/etc/resolv.conf")) -> tuple[str, ...]:
    """The name servers that the host itself asks."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return ()
    words = [line.split() for line in lines]
    return tuple(line[1] for line in words if len(line) > 1 and line[0] == "nameserver")


async def ask(servers: Sequence[str], query: dns.message.Message) -> dns.message.Message | None:
    """The answer to a question, or None when no server (`address` or `address#port`) gave one in time."""
    wire = query.to_wire()
    for server in [server for _ in range(TRIES) for server in servers]:
        try:
            async with asyncio.timeout(TRY_S):
                answer = await _ask_udp(server, wire, query)
                if answer.flags & dns.flags.TC:
                    answer = await _ask_tcp(server, wire)
        except (OSError, TimeoutError, EOFError, dns.exception.DNSException):
            continue
        if query.is_response(answer):
            return answer
    return None


async def _ask_udp(server: str, wire: bytes, query: dns.message.Message) -> dns.message.Message:
    address, port = _place(server)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    loop = asyncio.get_running_loop()
    with socket.socket(family, socket.SOCK_DGRAM) as link:
        link.setblocking(False)
        link.connect((address, port))
        link.send(wire)
        while True:
            answer = dns.message.from_wire(await loop.sock_recv(link, 65535), ignore_trailing=True)
            if query.is_response(answer):
                return answer


async def _ask_tcp(server: str, wire: bytes) -> dns.message.Message:
    reader, writer = await asyncio.open_connection(*_place(server))
    try:
        writer.write(frame(wire))
        return dns.message.from_wire(await read_frame(reader), ignore_trailing=True)
    finally:
        writer.close()


def _place(server: str) -> tuple[str, int]:
    address, _, port = server.partition("#")
    return address, int(port or PORT)


def frame(wire: bytes) -> bytes:
    """A message as it travels over TCP: its length first."""
    return len(wire).to_bytes(2, "big") + wire


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """The next message of a TCP connection. Raises IncompleteReadError (an EOFError) at its end."""
    length = int.from_bytes(await reader.readexactly(2), "big")
    return await reader.readexactly(length)
