"""Slots: what a sandbox needs of the host's numbers and network, made once and used again.

A slot is a range of host ids, a network namespace with a veth pair to the host, an address, and a chain in the
walls. Making one takes ten milliseconds and deleting one twenty, so they are made in the background, handed out, and
taken back clean. After a restart the slots that the host still has are found again by their names.
"""

import asyncio
import tempfile
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from talon_server.errors import TalonError
from talon_server.runtimes.oci import ID_COUNT, Runner
from talon_server.worker.addresses import label, links

FIRST_ID = 1 << 20
NETNS = Path("/run/netns")


@dataclass(frozen=True, slots=True)
class Slot:
    """Number `number` of this server: `uid` is its first host id, `address` the sandbox's own."""

    number: int
    uid: int
    address: IPv4Address
    netns: Path
    veth: str


@dataclass(frozen=True, slots=True)
class Plan:
    """How slots are numbered: `instance` tells servers on one host apart, `network` holds all addresses.

    The network's first address is the host's own (gateway and resolver) for every sandbox.
    """

    instance: str
    network: IPv4Network
    first_id: int = FIRST_ID

    @property
    def gateway(self) -> IPv4Address:
        return self.network[1]

    @property
    def veth_prefix(self) -> str:
        return f"tl{self.instance[:5]}"

    def slot(self, number: int) -> Slot:
        """The slot of a number, from 0. Raises capacity_exhausted past the network's end."""
        if number + 2 >= self.network.num_addresses - 1:
            raise TalonError("capacity_exhausted", f"the network {self.network} has no address left")
        name = f"talon-{self.instance}-{number}"
        uid = self.first_id + number * ID_COUNT
        return Slot(number, uid, self.network[number + 2], NETNS / name, f"{self.veth_prefix}{number:x}")

    def number_of(self, netns: str) -> int | None:
        """The slot's number that a network namespace's name tells, when it is one of ours."""
        prefix = f"talon-{self.instance}-"
        rest = netns.removeprefix(prefix)
        return int(rest) if netns.startswith(prefix) and rest.isdigit() else None


class Slots:
    """The free slots, and how more are made."""

    def __init__(self, plan: Plan, limit: int, run: Runner) -> None:
        self.plan = plan
        self._run = run
        self._limit = limit
        self._free: deque[Slot] = deque()
        self._next = 0
        self._spare: set[int] = set()

    async def open(self, used: Iterable[int]) -> list[Slot]:
        """Add the gateway's address; take over what an earlier server left. Returns the slots found."""
        plan = self.plan
        await _ip([f"addr replace {plan.gateway}/32 dev lo label {label(plan.instance)}"])
        names = [entry.name for entry in NETNS.iterdir()] if NETNS.exists() else []
        numbers = sorted(number for name in names if (number := plan.number_of(name)) is not None)
        self._next = max(numbers, default=-1) + 1
        self._spare = set(range(self._next)) - set(numbers)
        taken = set(used)
        routes = await asyncio.to_thread(links)
        found = [slot for slot in map(plan.slot, numbers) if slot.number in taken or _is_whole(slot, routes)]
        broken = set(numbers) - {slot.number for slot in found}
        await self.remove(plan.slot(number) for number in broken)
        self._spare |= broken
        self._free.extend(slot for slot in found if slot.number not in taken)
        return found

    @property
    def free(self) -> int:
        """How many slots are ready to be taken."""
        return len(self._free)

    @property
    def exhausted(self) -> bool:
        """Can no more be made?"""
        return self._next >= self._limit and not self._spare

    def take(self) -> Slot | None:
        """A free slot, or None when one must be made first."""
        return self._free.popleft() if self._free else None

    def give(self, slot: Slot) -> None:
        """Hand a slot back; its walls are closed and nothing of a sandbox is left in it."""
        self._free.append(slot)

    async def discard(self, slot: Slot) -> None:
        """Take a slot away that did not work; its number is built anew."""
        await self.remove([slot])
        self._spare.add(slot.number)

    async def make(self) -> Slot:
        """A new slot's namespace, veth pair, address and routes. Raises capacity_exhausted."""
        if self.exhausted:
            raise TalonError("capacity_exhausted", f"all {self._limit} slots of this host are in use")
        number = self._spare.pop() if self._spare else self._next
        self._next = max(self._next, number + 1)
        slot = self.plan.slot(number)
        try:
            await self._build(slot)
        except BaseException:
            self._spare.add(number)
            raise
        return slot

    async def _build(self, slot: Slot) -> None:
        """One run of a shell from the small helper: starting programs from this process would hold it up."""
        values = {"name": slot.netns.name, "veth": slot.veth, "address": slot.address, "gateway": self.plan.gateway}
        with tempfile.TemporaryFile() as output:
            status = await self._run(["sh", "-ec", _BUILD.format_map(values)], (output.fileno(),), None)
            if status == 0:
                return
            output.seek(0)
            said = output.read().decode(errors="replace").strip()[-400:]
        raise TalonError("create_failed", "the sandbox's network could not be made", cause=said)

    async def remove(self, slots: Iterable[Slot]) -> None:
        """Delete slots for good; slow."""
        lines = [line for slot in slots for line in (f"link del {slot.veth}", f"netns del {slot.netns.name}")]
        if lines:
            await _ip(lines, lenient=True)

    async def close(self) -> None:
        """Remove every slot of this server and its address: for tests and uninstalling."""
        await self.remove(self.plan.slot(number) for number in range(self._next))
        await _ip([f"addr del {self.plan.gateway}/32 dev lo"], lenient=True)


_BUILD = """
ip netns add {name} 2>/dev/null || (ip netns del {name} && ip netns add {name})
ip link del {veth} 2>/dev/null || true
ip link add {veth} type veth peer name eth0 netns {name}
ip netns exec {name} sh -ec '
echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 || true
echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6 || true
echo 0 > /proc/sys/net/ipv4/ip_unprivileged_port_start
echo "0 2147483647" > /proc/sys/net/ipv4/ping_group_range
exec ip -batch -' << 'END'
link set lo up
addr add {address}/32 dev eth0
link set eth0 up
route add {gateway} dev eth0 scope link
route add default via {gateway}
END
ip -batch - << 'END'
link set {veth} up
route replace {address}/32 dev {veth}
END
"""


def _is_whole(slot: Slot, routes: set[tuple[str, str]]) -> bool:
    """Was it built to its end, for this network, and is its namespace more than an empty file? Its route comes last."""
    try:
        return (str(slot.address), slot.veth) in routes and slot.netns.stat().st_dev != NETNS.stat().st_dev
    except OSError:
        return False


async def _ip(lines: list[str], *, lenient: bool = False) -> None:
    force = ["-force"] if lenient else []
    await _run(["ip", *force, "-batch", "-"], "\n".join(lines), lenient=lenient)


async def _run(command: list[str], text: str, *, lenient: bool = False) -> None:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate((text + "\n").encode())
    if process.returncode and not lenient:
        raise TalonError(
            "create_failed", "the sandbox's network could not be made", cause=errors.decode().strip()[-400:]
        )
