"""Peers that lie or dawdle: agents whose answers have no end, clients whose requests have none."""

import asyncio

import pytest

from gateway.test_relay import BASE, on_the_servers_loop
from gateway.world import BOUND_S, get, world


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"x-more: %b\r\n" % (b"a" * 4000)),
        (b"", b"HTTP/1.1 103 Early Hints\r\nx-more: %b\r\n\r\n" % (b"a" * 4000)),
        (b"HTTP/1.1 502 Bad Gateway\r\nx-talon-error: upstream_unavailable\r\n\r\n", b"a" * 4000),
    ],
)
def test_an_answer_without_end_is_cut_and_not_collected(begin: bytes, more: bytes) -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(begin)
        while not writer.is_closing():
            writer.write(more)
            try:
                await writer.drain()
            except OSError:
                return

    async def run() -> None:
        async with world(endless) as made:
            answer = await made.ask(get(f"{BASE}/8000/"))
            assert b"agent does not answer" in answer and len(answer) < 4096

    on_the_servers_loop(run())


async def never(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """An agent that says nothing."""
    await reader.read()


@pytest.mark.parametrize("more", [b"x-more: %b\r\n" % (b"a" * 4000), b"a" * 4000])
def test_a_request_whose_head_has_no_end_is_refused(more: bytes) -> None:
    async def run() -> None:
        async with world(never) as made:
            reader, writer = await made.connect()
            writer.write(b"GET / HTTP/1.1\r\nx-first: ")
            try:
                for _ in range(1000):
                    writer.write(more)
                    await writer.drain()
                answer = await asyncio.wait_for(reader.read(), BOUND_S)
            except OSError:
                answer = b""  # it was cut off before its answer was read
            writer.close()
            assert answer == b"" or answer.startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))

    on_the_servers_loop(run())


def test_a_connection_without_a_request_is_closed() -> None:
    async def run() -> None:
        async with world(never, head_s=0.1) as made:
            for begin in (b"", b"GET / HTTP/1.1\r\nx-first: "):
                reader, writer = await made.connect()
                writer.write(begin)
                assert await asyncio.wait_for(reader.read(), BOUND_S) == b""
                writer.close()

    on_the_servers_loop(run())
