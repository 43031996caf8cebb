"""Requests through the gateway: who gets in, what the agent sees, how bodies flow and how ends propagate."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest
import uvloop

from gateway.world import BOUND_S, ID, KEY, TOKEN, World, get, world
from talon_server.gateway.signing import make_token


def on_the_servers_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop, as the server does: its transports differ from asyncio's in small ways."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


BASE = f"/v1/sandboxes/{ID}/proxy"


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers every request with its own head, keeping the connection."""
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(head) + head)


def body_of(answer: bytes) -> bytes:
    return answer.split(b"\r\n\r\n", 1)[1]


def test_the_agent_sees_its_own_path_and_token() -> None:
    async def run() -> None:
        async with world(echo) as made:
            answer = await made.ask(get(f"{BASE}/8000/a%2Fb?q=1&q=2", "X-App: 1", "X-Request-ID: r-1"))
            assert answer.startswith(b"HTTP/1.1 200")
            assert b"x-request-id: r-1" in answer
            head = body_of(answer)
            assert head.startswith(b"GET /proxy/8000/a%2Fb?q=1&q=2 HTTP/1.1\r\nhost: localhost:8000\r\n")
            assert b"x-execd-access-token: " + TOKEN.encode() in head
            assert KEY.encode() not in head
            assert b"\r\nx-app: 1" in head

    on_the_servers_loop(run())


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ([], 401),
        (["OPEN-SANDBOX-API-KEY: wrong"], 401),
        (["X-EXECD-ACCESS-TOKEN: wrong"], 401),
        ([f"X-EXECD-ACCESS-TOKEN: {TOKEN}"], 200),
        ([f"OpenSandbox-Secure-Access: {TOKEN}"], 200),
        ([f"Authorization: Bearer {TOKEN}"], 200),
        ([f"Authorization: Bearer {KEY}"], 200),
        ([f"OPEN-SANDBOX-API-KEY: {KEY}"], 200),
    ],
)
def test_who_gets_in(fields: list[str], status: int) -> None:
    async def run() -> None:
        async with world(echo) as made:
            answer = await made.ask(get(f"{BASE}/44772/ping", *fields, key=None))
            assert answer.startswith(b"HTTP/1.1 %d" % status)

    on_the_servers_loop(run())


def test_without_a_credential_nothing_is_learnt() -> None:
    async def run() -> None:
        async with world(echo) as made:
            there = await made.ask(get(f"/v2/sandboxes/{ID}/exec", "X-Request-ID: r", key=None, method="POST"))
            nowhere = await made.ask(get("/v2/sandboxes/sbx_none/exec", "X-Request-ID: r", key=None, method="POST"))
            assert body_of(there) == body_of(nowhere)
            assert set(json.loads(body_of(there))) == {"code", "message", "cause", "remedy", "retryable", "request_id"}
            assert (await made.ask(get("/v2/sandboxes/sbx_none/metrics"))).startswith(b"HTTP/1.1 404")
            assert made.connections == 0

    on_the_servers_loop(run())


def test_signed_host_and_header_forms() -> None:
    async def run() -> None:
        async with world(echo) as made:
            token = make_token(ID, 8000, 2**33, TOKEN)
            assert b"GET /proxy/8000/x HTTP" in await made.ask(get(f"/signed/{token}/x", key=None))
            assert b"GET /proxy/8000/x HTTP" in await made.ask(get("/x", f"OpenSandbox-Ingress-To: {token}", key=None))
            by_host = get("/x", f"X-EXECD-ACCESS-TOKEN: {TOKEN}", key=None).replace(
                b"Host: box.test", b"Host: 8000-" + ID.encode() + b".box.test"
            )
            assert b"GET /proxy/8000/x HTTP" in await made.ask(by_host)
            late = make_token(ID, 8000, 1, TOKEN)
            assert (await made.ask(get(f"/signed/{late}/x", key=None))).startswith(b"HTTP/1.1 401")

    on_the_servers_loop(run())


def test_the_egress_port_is_the_servers_own_and_other_paths_are_not_taken() -> None:
    async def run() -> None:
        async with world(echo) as made:
            assert body_of(await made.ask(get(f"{BASE}/18080/policy"))) == b"egress /policy"
            assert (await made.ask(get("/v1/sandboxes"))).startswith(b"HTTP/1.1 418")
            assert made.connections == 0

    on_the_servers_loop(run())


def test_connections_to_the_agent_are_reused_and_renewed_when_stale() -> None:
    answered = 0

    async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answered
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n")
            answered += 1
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await reader.readuntil(b"\r\n\r\n")  # the third request finds the connection closing

    async def run() -> None:
        async with world(twice) as made:
            for _ in range(5):
                assert body_of(await made.ask(get(f"{BASE}/44772/ping"))) == b"ok"
            assert answered == 5
            assert made.connections == 3

    on_the_servers_loop(run())


def test_access_renews_only_where_asked_for() -> None:
    async def run() -> None:
        async with world(echo) as made:
            await made.ask(get(f"{BASE}/8000/"))
            made.renews = True
            await made.ask(get(f"{BASE}/8000/"))
            await made.ask(get(f"{BASE}/8000/", "OpenSandbox-Access-Renew: skip"))
            assert made.accessed == [ID]

    on_the_servers_loop(run())


async def upload(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reads bodies, chunked or counted, and answers their size, chunked."""
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        size = 0
        if b"transfer-encoding: chunked" in head:
            while length := int(await reader.readline(), 16):
                size += len(await reader.readexactly(length))
                await reader.readexactly(2)
            await reader.readexactly(2)
        else:
            length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
            size = len(await reader.readexactly(length))
        text = b"%d" % size
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(text), text))


def test_bodies_stream_up_whole_by_length_and_by_chunks() -> None:
    async def run() -> None:
        async with world(upload) as made:
            big = b"x" * 3_000_000
            counted = get(f"{BASE}/8000/", f"Content-Length: {len(big)}", method="POST") + big
            assert body_of(await made.ask(counted)) == b"7\r\n3000000\r\n0\r\n\r\n"
            chunks = b"".join(b"%x\r\n%b\r\n" % (len(big) // 3, big[: len(big) // 3]) for _ in range(3)) + b"0\r\n\r\n"
            chunked = get(f"{BASE}/8000/", "Transfer-Encoding: chunked", method="POST") + chunks
            assert body_of(await made.ask(chunked)) == b"7\r\n3000000\r\n0\r\n\r\n"

    on_the_servers_loop(run())


@pytest.mark.parametrize(
    "fields",
    [
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Content-Length: 5", "Content-Length: 6"],
        ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding: chunked, identity"],
    ],
)
def test_ambiguous_requests_never_reach_the_agent(fields: list[str]) -> None:
    async def run() -> None:
        async with world(echo) as made:
            answer = await made.ask(get(f"{BASE}/8000/", *fields, method="POST") + b"0\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 400")
            assert made.connections == 0

    on_the_servers_loop(run())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nab",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
        b"",
    ],
)
def test_broken_answers_become_502(answer: bytes) -> None:
    async def broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)

    async def run() -> None:
        async with world(broken) as made:
            got = await made.ask(get(f"{BASE}/8000/", method="POST"))
            assert got.startswith(b"HTTP/1.1 502")
            assert json.loads(body_of(got))["code"] == "BACKEND_RESPONSE_FAILED"

    on_the_servers_loop(run())


def test_a_port_without_a_server_is_waited_for() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(
                b"HTTP/1.1 502 Bad Gateway\r\nX-Talon-Error: upstream_unavailable\r\nContent-Length: 2\r\n\r\n{}"
            )

    async def run() -> None:
        async with world(refuse) as made:
            program = await made.ask(get(f"{BASE}/8000/"))
            assert program.startswith(b"HTTP/1.1 503")
            assert b"retry-after: 1" in program
            assert body_of(program) == b"{}"
            browser = await made.ask(get(f"{BASE}/8000/", "Accept: text/html,*/*"))
            assert b"<!doctype html>" in browser
            assert (await made.ask(get(f"{BASE}/44772/ping"))).startswith(b"HTTP/1.1 502")

    on_the_servers_loop(run())


def test_head_answers_keep_their_length_and_the_connection() -> None:
    async def heads(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n")

    async def run() -> None:
        async with world(heads) as made:
            for _ in range(2):
                answer = await made.ask(get(f"{BASE}/8000/", method="HEAD"))
                assert b"content-length: 12345" in answer.lower()
                assert body_of(answer) == b""
            assert made.connections == 1

    on_the_servers_loop(run())


def test_events_arrive_one_by_one_and_leaving_ends_the_request_at_the_agent() -> None:
    left = asyncio.Event()
    go_on = asyncio.Event()

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"3\r\none\r\n")
        await go_on.wait()
        writer.write(b"3\r\ntwo\r\n")
        await reader.read()
        left.set()

    async def run() -> None:
        async with world(stream) as made:
            reader, writer = await made.connect()
            writer.write(get(f"{BASE}/44772/command"))
            await asyncio.wait_for(reader.readuntil(b"one\r\n"), BOUND_S)
            go_on.set()
            await asyncio.wait_for(reader.readuntil(b"two\r\n"), BOUND_S)
            writer.close()
            await asyncio.wait_for(left.wait(), BOUND_S)

    on_the_servers_loop(run())


def test_a_slow_reader_slows_the_agent() -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (64 << 20))
        for _ in range(64):
            writer.write(b"x" * (1 << 20))
            await writer.drain()
            sent += 1

    async def run() -> None:
        async with world(flood) as made:
            reader, writer = await made.connect()
            writer.write(get(f"{BASE}/8000/big"))
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), BOUND_S)
            before = -1
            while before != sent:  # until nothing moves any more
                before = sent
                await asyncio.sleep(0.2)
            assert sent < 48
            body = await asyncio.wait_for(reader.readexactly(64 << 20), BOUND_S)
            assert len(body) == 64 << 20
            writer.close()
            await writer.wait_closed()

    on_the_servers_loop(run())


def test_a_cut_answer_is_seen_as_cut() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")

    async def run() -> None:
        async with world(cut) as made:
            answer = await made.ask(get(f"{BASE}/8000/"))
            assert answer.endswith(b"3\r\none\r\n")

    on_the_servers_loop(run())


async def _socket(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    assert b"upgrade: websocket" in head
    protocol = b"sec-websocket-protocol: chat\r\n" if b"chat" in head else b""
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + protocol)
    writer.write(b"\r\nhello")
    while data := await reader.read(65536):
        writer.write(data)


WS = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)


def upgrade(made: World, *fields: str, key: str | None = KEY) -> bytes:
    return get(f"{BASE}/8000/ws", *WS, *fields, key=key).replace(b"Connection: close\r\n", b"")


def test_an_upgrade_is_a_pipe() -> None:
    async def run() -> None:
        async with world(_socket) as made:
            reader, writer = await made.connect()
            writer.write(upgrade(made, "Sec-WebSocket-Protocol: chat, other"))
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), BOUND_S)
            assert head.startswith(b"HTTP/1.1 101")
            assert b"sec-websocket-protocol: chat" in head
            assert await reader.readexactly(5) == b"hello"
            payload = bytes(range(256)) * 4096
            writer.write(payload)
            assert await asyncio.wait_for(reader.readexactly(len(payload)), BOUND_S) == payload
            writer.close()
            await writer.wait_closed()

    on_the_servers_loop(run())


def test_an_upgrade_needs_a_credential_and_a_refusal_is_an_answer() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 409 Conflict\r\nContent-Length: 4\r\n\r\nbusy")

    async def run() -> None:
        async with world(refuse) as made:
            assert (await made.ask(upgrade(made, key=None))).startswith(b"HTTP/1.1 401")
            assert made.connections == 0
            answer = await made.ask(upgrade(made))
            assert answer.startswith(b"HTTP/1.1 409")
            assert body_of(answer) == b"busy"

    on_the_servers_loop(run())
