"""Puts the parts of a worker together on a host: `open_host` is what the server calls, and what the tests call.

Invariant: whatever was opened is closed again when the block ends or the opening fails; running sandboxes stay.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from talon_server.lib.tasks import Tasks
from talon_server.runtimes.oci import ID_COUNT, select
from talon_server.worker.addresses import settle
from talon_server.worker.cgroups import Cgroup
from talon_server.worker.helper import Helper
from talon_server.worker.host import Host
from talon_server.worker.nft import Nft
from talon_server.worker.prepare import prepare
from talon_server.worker.recordings import Recordings
from talon_server.worker.shells import ShellPool, Shells, occupied
from talon_server.worker.slots import FIRST_ID, Plan, Slots
from talon_server.worker.stores import Disk, Images, Volumes
from talon_server.worker.upstream import host_resolvers
from talon_server.worker.walls import Walls

MOST_SLOTS = 4096
_ID_BLOCKS = 15


@dataclass(frozen=True, slots=True)
class HostOptions:
    """How a worker is set up. `network` None chooses a free /16; `pool_min`/`pool_max` bound the ready shells.

    `runtime` "" means crun, else runc; `slots` is the most sandboxes at once; `nameservers` empty: the host's own.
    """

    home: Path
    agent: Path
    runtime: str = ""
    network: IPv4Network | None = None
    pool_min: int = 4
    pool_max: int = 48
    slots: int = MOST_SLOTS
    nameservers: tuple[str, ...] = ()

    @property
    def instance(self) -> str:
        """Tells servers on one host apart: the same home is the same server."""
        return hashlib.sha256(str(self.home.resolve()).encode()).hexdigest()[:8]

    def plan(self) -> Plan:
        """Numbers and names; each server of a host has its own block of ids."""
        block = int(self.instance, 16) % _ID_BLOCKS
        network = settle(self.instance, self.network, occupied=occupied(self.home / "run" / "shells"))
        return Plan(self.instance, network, FIRST_ID + block * MOST_SLOTS * ID_COUNT)


@asynccontextmanager
async def open_host(
    options: HostOptions, images: Images, disk: Disk, volumes: Volumes, recordings: Recordings
) -> AsyncIterator[Host]:
    """The worker of this machine, ready for `start`. Raises host_unsuitable."""
    run = options.home / "run"
    run.mkdir(mode=0o711, parents=True, exist_ok=True)
    await asyncio.to_thread(prepare)
    runtime = select(run / "runtime", options.agent, options.runtime)
    plan = await asyncio.to_thread(options.plan)
    async with AsyncExitStack() as stack:
        nft = Nft()
        stack.callback(nft.close)
        helper = Helper.open(options.agent, run / "scratch")
        stack.callback(helper.close)
        slots = Slots(plan, min(options.slots, MOST_SLOTS), helper.run)
        walls = Walls(plan, nft, log_group(plan))
        tasks = await stack.enter_async_context(Tasks("worker"))
        shells = Shells(run, runtime, helper.run, slots, walls, tasks)
        shells.prepare()
        pool = ShellPool(shells, tasks, options.pool_min, options.pool_max)
        facts = {"runtime": runtime.name, "runtime_version": runtime.version, "network": str(plan.network)}
        host = Host(
            helper, shells, pool, slots, walls, images, disk, volumes, recordings, tasks,
            nameservers=options.nameservers or host_resolvers(), facts=facts,
        )  # fmt: skip
        stack.push_async_callback(host.close)
        yield host


async def erase(options: HostOptions) -> None:
    """Take away all that a server has on this host, its sandboxes too, but for its files: for uninstalling and tests."""
    run = options.home / "run"
    if not (run / "shells").exists():
        return
    plan = await asyncio.to_thread(options.plan)
    nft = Nft()
    try:
        slots, walls = Slots(plan, MOST_SLOTS, _nobody_runs), Walls(plan, nft, log_group(plan))
        runtime = select(run / "runtime", options.agent, options.runtime)
        shells = Shells(run, runtime, _nobody_runs, slots, walls, Tasks("erase"))
        for shell in shells.found():
            await shells.end(shell)
            shell.close()
        await shells.sweep_strays(set())
        await slots.open(())
        await slots.close()
        walls.close()
        Cgroup.of(shells.cgroup).remove()
    finally:
        nft.close()


async def _nobody_runs(command: Sequence[str], descriptors: Sequence[int], owner: tuple[int, int] | None) -> int:
    raise AssertionError("shells are only ended here")


def log_group(plan: Plan) -> int:
    """The NFLOG group of this server's denied packets; groups are numbers below 65536 for the whole host."""
    return 1024 + int(plan.instance[:4], 16) % 60000
