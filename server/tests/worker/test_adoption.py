"""A server that is killed: what ran goes on running and is found again, everything else is gone."""

import asyncio
import os
import signal
import subprocess
import sys
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from talon_server.model.network import Mode, NetworkPolicy
from talon_server.model.sandbox import SandboxSpec
from worker import world

_SERVER = """
import asyncio, sys
from pathlib import Path
from talon_server.model.network import Mode, NetworkPolicy
from talon_server.model.sandbox import SandboxSpec
from worker import world

async def main(home, image):
    async with world.a_host(world.options(home, pool=2), image) as host:
        await host.start()
        sealed = SandboxSpec(image="base", network=NetworkPolicy(Mode.SEALED))
        await host.create("kept", "token", sealed, "base")
        await host.create("frozen", "token", SandboxSpec(image="base"), "base")
        await host.pause("frozen")
        await world.until(lambda: host.pool_level == 2, "ready shells")
        print("ready", flush=True)
        number = 0
        while True:
            await host.create(f"churn{number}", "token", SandboxSpec(image="base"), "base")
            await host.destroy(f"churn{number}")
            number += 1

asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
"""


def _server_killed(home: Path, image: Path) -> None:
    """Run a server until it is busy with creates, and kill it without warning."""
    paths = os.pathsep.join((str(Path(__file__).parents[1]), *filter(None, sys.path)))
    command = [sys.executable, "-c", _SERVER, str(home), str(image)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths}
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        try:
            server.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            server.send_signal(signal.SIGKILL)


def test_sandboxes_outlive_a_killed_server_and_nothing_else_does(home: Path, image: Path) -> None:
    _server_killed(home, image)

    async def scenario() -> None:
        async with world.a_host(world.options(home, pool=0), image) as host:
            found = {one.id: one.state for one in await host.start()}
            assert found["kept"] == "running"
            assert found["frozen"] == "paused"
            assert (await world.run(host.agent("kept"), "echo here")).stdout == "here"
            await host.resume("frozen")
            assert (await world.run(host.agent("frozen"), "echo here")).stdout == "here"
            kept = len(list((home / "run/shells").iterdir()))
            assert kept == len(found)
            for id in found:
                await host.destroy(id)

    asyncio.run(scenario())
    assert list((home / "run/shells").iterdir()) == []


def test_a_policy_holds_across_servers_and_slots_are_used_again(home: Path, image: Path) -> None:
    async def first() -> None:
        async with world.a_host(world.options(home), image) as host:
            await host.start()
            await world.start(host, "a", SandboxSpec(image="base"))
            await host.set_network("a", NetworkPolicy(Mode.SEALED))

    async def second() -> None:
        async with world.a_host(world.options(home), image) as host:
            await host.start()
            assert "sealed" in world.walls_of(host)
            agent = await world.start(host, "b")
            assert (await world.run(agent, "echo new")).stdout == "new"

    asyncio.run(first())
    asyncio.run(second())


def test_a_changed_network_waits_for_the_sandboxes_in_the_old_one(home: Path, image: Path) -> None:
    async def addresses(network: str, *, keep: bool) -> tuple[str, str]:
        chosen = world.options(home, network=IPv4Network(network))
        async with world.a_host(chosen, image) as host:
            for one in await host.start():
                assert (await world.run(host.agent(one.id), "echo here")).stdout == "here"
                await host.destroy(one.id)
            made = await host.create("a", "t", SandboxSpec(image="base"), "base")
            shown = (await world.run(made.agent, "ip -4 addr show eth0")).stdout
            if not keep:
                await host.destroy("a")
            return made.ip, shown

    async def scenario() -> None:
        first, second = "10.231.0.0/16", "10.232.0.0/16"
        for network, keep, expected in ((first, True, first), (second, False, first), (second, False, second)):
            ip, shown = await addresses(network, keep=keep)
            assert IPv4Address(ip) in IPv4Network(expected)
            assert ip in shown

    asyncio.run(scenario())
