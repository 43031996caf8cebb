"""What a shell is made of, seen from the host: namespaces, their owner, and descriptors."""

import asyncio
import os
from pathlib import Path

from worker import world

_KINDS = ("user", "pid", "mnt", "net", "ipc", "uts", "cgroup")


def test_every_namespace_is_the_sandboxs_own_and_its_ids_are_nobodys(home: Path, image: Path) -> None:
    async def scenario() -> None:
        async with world.a_host(world.options(home), image) as host:
            await host.start()
            await world.start(host, "a")
            await world.start(host, "b")
            a, b = host.pid("a"), host.pid("b")
            for kind in _KINDS:
                kinds = {os.readlink(f"/proc/{pid}/ns/{kind}") for pid in (a, b, os.getpid())}
                assert len(kinds) == 3, kind
            maps = [Path(f"/proc/{pid}/uid_map").read_text().split() for pid in (a, b)]
            assert maps[0][0] == "0" and maps[0][2] == "65536" and maps[0][1] != maps[1][1]
            assert Path(f"/proc/{a}/status").read_text().count(f"Uid:\t{maps[0][1]}\t") == 1

    asyncio.run(scenario())


def test_the_agent_holds_no_descriptor_of_the_host_but_its_sockets_and_log(home: Path, image: Path) -> None:
    async def scenario() -> None:
        async with world.a_host(world.options(home, pool=0), image) as host:
            await host.start()
            await world.start(host, "a")
            targets = {os.readlink(entry.path) for entry in os.scandir(f"/proc/{host.pid('a')}/fd")}
            on_disk = {target for target in targets if target.startswith("/")}
            groups = {target for target in on_disk if target.startswith("/sys/fs/cgroup/")}
            expected = {f"{next((home / 'run/shells').iterdir())}/agent.log", f"{home}/recordings/a/timeline.jsonl"}
            assert on_disk - groups == expected
            assert not {target for target in targets if target.startswith("user:")}

    asyncio.run(scenario())
