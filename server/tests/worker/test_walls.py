"""Whom a sandbox reaches and whom not, tried from inside with real packets."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from talon_server.model.network import Action, Mode, NetworkPolicy, Rule
from talon_server.model.sandbox import SandboxSpec
from talon_server.worker.port import AgentAddress
from worker import internet, world

ALLOW, DENY = Action.ALLOW, Action.DENY


@pytest.fixture
def outside() -> Iterator[str]:
    """The test's Internet; gives the address of its name server."""
    with internet.an_internet(), internet.names() as server:
        yield server


async def reach(agent: AgentAddress, target: str, port: int = 7000) -> bool:
    """Does a TCP connection from inside get through? Closed doors drop packets, so half a second is an answer."""
    result = await world.run(agent, f"nc -w 1 {target} {port} </dev/null")
    return bool(result.stdout.strip())


def test_an_open_sandbox_reaches_the_internet_and_nothing_else(home: Path, image: Path, outside: str) -> None:
    async def scenario() -> None:
        with socket.create_server(("0.0.0.0", 0)) as host_port:
            port = host_port.getsockname()[1]
            async with world.a_host(world.options(home, pool=0, nameservers=(outside,)), image) as host:
                await host.start()
                a = await world.start(host, "a")
                b = await host.create("b", "t", SandboxSpec(image="base"), "base")
                await world.run(b.agent, "nc -lk -p 7000 -e echo neighbour", background=True)
                assert await reach(a, internet.PUBLIC)
                for address in (internet.PRIVATE, internet.METADATA, b.ip):
                    assert not await reach(a, address), address
                for address in (str(host.gateway), "11.98.0.1"):
                    assert not await reach(a, address, port), address
                forged = "ip addr add 11.1.2.3/32 dev eth0"
                assert (await world.run(a, forged)).exit_code != 0

    asyncio.run(scenario())


def test_a_policy_by_address_decides_in_order_and_a_change_holds_at_once(home: Path, image: Path, outside: str) -> None:
    narrow = NetworkPolicy(
        Mode.ALLOWLIST,
        (
            Rule(DENY, internet.OTHER),
            Rule(ALLOW, "11.99.0.0/24", ports=((7000, 7000),), protocol="tcp"),
            Rule(ALLOW, internet.PRIVATE),
        ),
        DENY,
    )

    async def scenario() -> None:
        async with world.a_host(world.options(home, nameservers=(outside,)), image) as host:
            await host.start()
            a = await world.start(host, "a", SandboxSpec(image="base", network=narrow))
            assert await reach(a, internet.PUBLIC)
            assert await reach(a, internet.PRIVATE)
            assert not await reach(a, internet.PUBLIC, 7001)
            assert not await reach(a, internet.OTHER)
            assert not await reach(a, internet.METADATA)
            await host.set_network("a", NetworkPolicy(Mode.SEALED, (), DENY))
            assert not await reach(a, internet.PUBLIC)
            await host.set_network("a", NetworkPolicy())
            assert await reach(a, internet.PUBLIC, 7001)

    asyncio.run(scenario())


def test_names_open_the_walls_for_their_addresses_alone(home: Path, image: Path, outside: str) -> None:
    named = NetworkPolicy(Mode.ALLOWLIST, (Rule(ALLOW, "good.test", ports=((7000, 7000),)),), DENY)

    async def scenario() -> None:
        async with world.a_host(world.options(home, nameservers=(outside,)), image) as host:
            await host.start()
            a = await world.start(host, "a", SandboxSpec(image="base", network=named))
            assert not await reach(a, internet.PUBLIC)
            assert await reach(a, "good.test")
            assert await reach(a, internet.PUBLIC)
            assert not await reach(a, internet.PUBLIC, 7001)
            assert not await reach(a, "other.test")
            reasons = [(one.name, one.allowed) for one in host.decisions.since("a")]
            assert ("good.test", True) in reasons
            assert ("other.test", False) in reasons

    asyncio.run(scenario())


def test_an_open_sandbox_resolves_public_names_but_not_into_private_networks(
    home: Path, image: Path, outside: str
) -> None:
    async def scenario() -> None:
        async with world.a_host(world.options(home, nameservers=(outside,)), image) as host:
            await host.start()
            a = await world.start(host, "a")
            assert internet.PUBLIC in (await world.run(a, "nslookup good.test")).stdout
            assert internet.PUBLIC in (await world.run(a, "nslookup good.test 9.9.9.9")).stdout
            for name in ("inside.test", "unknown.test"):
                assert "NXDOMAIN" in (await world.run(a, f"nslookup {name}")).stdout

    asyncio.run(scenario())


def test_a_slot_used_again_has_nothing_of_its_last_sandbox(home: Path, image: Path, outside: str) -> None:
    async def scenario() -> None:
        chosen = world.options(home, pool=0, nameservers=(outside,))
        async with world.a_host(chosen, image) as host:
            await host.start()
            first = await host.create("a", "t", SandboxSpec(image="base", network=NetworkPolicy(Mode.SEALED)), "base")
            await host.destroy("a")
            await world.until(lambda: not any((home / "run/shells").iterdir()), "the shell is swept")
            second = await host.create("b", "t", SandboxSpec(image="base"), "base")
            assert second.ip == first.ip
            assert await reach(second.agent, internet.PUBLIC)

    asyncio.run(scenario())
