"""One host's sandboxes: the worker port, composed of shells, roots, walls, disk, images and recordings.

`control` calls it through `port.WorkerPort`. The create path is: shell from the pool → limits → root by the helper →
claim by the agent. Invariant: a create that fails or is cancelled leaves nothing behind; what was claimed is written
down before the agent is told, so a restarted server adopts it or ends it, whole.
"""

import asyncio
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from talon_server.egress.decisions import Decision, Decisions
from talon_server.errors import TalonError
from talon_server.lib.tasks import Tasks
from talon_server.model.network import NetworkPolicy
from talon_server.model.sandbox import Resources, SandboxSpec
from talon_server.worker import inside
from talon_server.worker.claims import Claim
from talon_server.worker.dns import Client, Listener, Resolver
from talon_server.worker.exits import awaited_exit_code
from talon_server.worker.helper import Helper
from talon_server.worker.link import ask
from talon_server.worker.packets import PacketLog
from talon_server.worker.port import AgentAddress, Observed, Started, WorkerEvent
from talon_server.worker.recorder import Recorder
from talon_server.worker.recordings import Recordings
from talon_server.worker.room import measure
from talon_server.worker.settings import HouseRules, claim_settings, limits
from talon_server.worker.shells import Shell, ShellPool, Shells
from talon_server.worker.slots import Slots
from talon_server.worker.stores import Disk, Images, Volumes
from talon_server.worker.walls import DEFAULT, Walls

log = logging.getLogger(__name__)

STOP_SLACK_S = 5.0
"""How long after the grace a sandbox may take to end before it is killed."""


class Host:
    """The worker of this machine."""

    def __init__(
        self,
        helper: Helper,
        shells: Shells,
        pool: ShellPool,
        slots: Slots,
        walls: Walls,
        images: Images,
        disk: Disk,
        volumes: Volumes,
        recordings: Recordings,
        tasks: Tasks,
        *,
        nameservers: Sequence[str],
        facts: Mapping[str, Any],
    ) -> None:
        self.helper = helper
        self._shells = shells
        self._pool = pool
        self._slots = slots
        self._walls = walls
        self._images = images
        self._disk = disk
        self._volumes = volumes
        self._recorder = Recorder(recordings, tasks, self._recorded)
        self._tasks = tasks
        self.instance = slots.plan.instance
        self.gateway = slots.plan.gateway
        self.decisions = Decisions()
        self._resolver = Resolver(nameservers, walls, self.decisions, self._who)
        self._listener = Listener(self._resolver, tasks)
        self._packets = PacketLog(walls.log_group, self.decisions, self._sandbox_at, self._name_of)
        self.decisions.subscribe(self._decided)
        self._by_address: dict[IPv4Address, Client] = {}
        self._facts = facts
        self.rules = HouseRules()
        self._running: dict[str, Shell] = {}
        self._removing: dict[str, asyncio.Task[None]] = {}
        self._events: asyncio.Queue[WorkerEvent] = asyncio.Queue()

    async def start(self) -> list[Observed]:
        """Adopt the sandboxes that run, end the shells nobody claimed, sweep the rest, fill the pool."""
        found = list(self._shells.found())
        claimed = {shell: await self._is_claimed(shell) for shell in found}
        slots = await self._slots.open(shell.slot.number for shell in found)
        policies = {shell.slot: shell.claim.network for shell in found if shell.claim and claimed[shell]}
        self._walls.open({slot: policies.get(slot, DEFAULT) for slot in slots})
        for shell in found:
            if shell.claim and claimed[shell]:
                self._watch(shell.claim.id, shell)
            else:
                await self._shells.end(shell)
                await self._shells.sweep(shell)
        await self._shells.sweep_strays({shell.id for shell in found})
        self._recorder.close_strays({shell.claim.recording for shell in self._running.values() if shell.claim})
        await self._listener.open(str(self.gateway))
        self._packets.open()
        self._pool.open()
        return [
            Observed(id, "paused" if shell.cgroup.frozen() else "running", self.agent(id))
            for id, shell in self._running.items()
        ]

    async def _is_claimed(self, shell: Shell) -> bool:
        """Did the claim that an earlier server wrote down happen? A frozen agent cannot say, and was claimed."""
        if shell.claim is None:
            return False
        if shell.cgroup.frozen():
            return True
        try:
            return bool((await ask(shell.control_socket, {"op": "ping"})).get("claimed"))
        except TalonError as error:
            log.warning("the agent of shell %s does not answer, it is ended: %s", shell.id, error)
            return False

    async def close(self) -> None:
        """Let go of the running sandboxes, end the shells nobody claimed, finish what is being removed."""
        await self._listener.close()
        self._packets.close()
        await self._pool.drain()
        await self._tasks.drain()
        for shell in self._running.values():
            shell.close()

    async def create(self, id: str, token: str, spec: SandboxSpec, image_id: str) -> Started:
        clock = _Clock()
        spec = replace(spec, volumes=(*self.rules.mounts, *spec.volumes))
        layers, config = self._images.layers(image_id), self._images.config(image_id)
        if (removing := self._removing.get(id)) is not None:
            await asyncio.wait([removing])
        known = self._disk.has(id)
        async with AsyncExitStack() as undo:
            if not known:
                undo.push_async_callback(self._disk.remove, id)
            shell, pooled = await self._pool.take()
            undo.push_async_callback(self._abandon, shell)
            clock.lap("shell_ms")
            upper = await self._disk.upper(id, spec.resources.disk_bytes)
            shell.cgroup.limit(spec.resources)
            self._walls.apply(shell.slot, spec.network)
            clock.lap("limits_ms")
            await self.helper.root(await self._order(shell, spec, layers, upper))
            clock.lap("root_ms")
            recording, descriptor = self._recorder.begin(id, spec.recording)
            undo.callback(self._recorder.cancel, recording)
            shell.save(Claim(id, token, spec.network, recording))
            settings = claim_settings(id, token, spec, config, str(self.gateway), self.rules)
            await self._claim(shell, settings, descriptor)
            clock.lap("claim_ms")
            undo.pop_all()
        self._watch(id, shell)
        return Started(AgentAddress(shell.agent_socket, token), str(shell.slot.address), pooled, clock.laps)

    async def _order(self, shell: Shell, spec: SandboxSpec, layers: list[Path], upper: Path) -> dict[str, Any]:
        volumes = [
            {
                "source": str(await self._volumes.source(mount)),
                "subpath": mount.subpath,
                "target": mount.path,
                "read_only": mount.read_only,
            }
            for mount in spec.volumes
        ]
        return {
            "pid": shell.pid,
            "uid": shell.slot.uid,
            "gid": shell.slot.uid,
            "layers": [str(layer) for layer in layers],
            "upper": str(upper),
            "volumes": volumes,
        }

    async def _claim(self, shell: Shell, settings: dict[str, Any], recording: int) -> None:
        descriptors = {"recording": recording} if recording >= 0 else {}
        try:
            descriptors |= shell.cgroup.descriptors()
            settings = {**settings, "fds": list(descriptors)}
            await ask(shell.control_socket, {"op": "claim", "settings": settings}, list(descriptors.values()))
        finally:
            for number in descriptors.values():
                os.close(number)

    async def _abandon(self, shell: Shell) -> None:
        await self._shells.end(shell)
        self._tasks.start(f"sweep {shell.id}", self._shells.sweep(shell))

    def _watch(self, id: str, shell: Shell) -> None:
        self._running[id] = shell
        self._by_address[shell.slot.address] = Client(id, shell.slot)
        shell.on_end = partial(self._ended, id, shell)
        if shell.ended.is_set():
            shell.on_end()

    def _ended(self, id: str, shell: Shell) -> None:
        """A sandbox ended of itself: free what it held, but for its disk, and tell."""
        self._forget(id, shell)
        self._tasks.start(f"end of {id}", self._tell_end(id, shell))

    async def _tell_end(self, id: str, shell: Shell) -> None:
        said = shell.last_words()
        code = await awaited_exit_code(shell.pidfd)
        starved = shell.cgroup.killed_for_memory() and code in (None, -signal.SIGKILL)
        how = "" if code is None else f" by signal {-code}" if code < 0 else f" with exit code {code}"
        ended = said or f"the sandbox's first process ended{how}"
        reason = "the sandbox's first process was killed for lack of memory" if starved else ended
        self._events.put_nowait(WorkerEvent(id, "exited", {"reason": reason, "exit_code": code, "oom": starved}))
        self._end_recording(id, shell, reason)
        await self._shells.sweep(shell)

    def _end_recording(self, id: str, shell: Shell, reason: str) -> None:
        if shell.claim is not None:
            self._recorder.end(id, shell.claim.recording, reason)

    def _recorded(self, id: str, recording: str, head: Mapping[str, Any]) -> None:
        self._events.put_nowait(WorkerEvent(id, "recorded", {"recording": recording, **head}))

    def recording(self, id: str) -> str:
        shell = self._running.get(id)
        return shell.claim.recording if shell is not None and shell.claim is not None else ""

    async def record(self, id: str, kind: str, fields: Mapping[str, Any]) -> None:
        shell = self._running.get(id)
        if shell is not None:
            await self._recorder.note(shell, kind, fields)

    def _forget(self, id: str, shell: Shell) -> None:
        shell.on_end = None
        self._by_address.pop(shell.slot.address, None)
        self._resolver.forget(id)
        if self._running.get(id) is shell:
            del self._running[id]

    def _who(self, address: IPv4Address) -> Client | None:
        return self._by_address.get(address)

    def _sandbox_at(self, address: IPv4Address) -> str | None:
        client = self._by_address.get(address)
        return client.id if client is not None else None

    def _name_of(self, source: IPv4Address, address: IPv4Address) -> str:
        client = self._by_address.get(source)
        names = self._walls.book(client.slot).names(address) if client is not None else []
        return names[-1] if names else ""

    def _decided(self, decision: Decision) -> None:
        shell = self._running.get(decision.sandbox)
        if shell is not None:
            told = {name: value for name, value in decision.as_json().items() if name not in ("sequence", "sandbox")}
            self._tasks.start("record a decision", self._recorder.note(shell, "net", told))

    async def stop(self, id: str, *, grace_s: float) -> None:
        shell = self._running.get(id)
        if shell is None:
            return
        self._forget(id, shell)
        try:
            if shell.cgroup.frozen():
                await shell.cgroup.freeze(False)
            await ask(shell.control_socket, {"op": "stop", "grace_ms": int(grace_s * 1000)})
            async with asyncio.timeout(grace_s + STOP_SLACK_S):
                await shell.ended.wait()
        except (TalonError, TimeoutError):
            log.warning("sandbox %s did not stop in time, it is killed", id)
        finally:
            await self._abandon(shell)
            self._end_recording(id, shell, "stopped")

    async def destroy(self, id: str) -> None:
        shell = self._running.get(id)
        if shell is not None:
            self._forget(id, shell)
            await self._recorder.flush(shell)
            await self._abandon(shell)
            self._end_recording(id, shell, "destroyed")
        if id not in self._removing:
            self._removing[id] = self._tasks.start(f"remove {id}", self._disk.remove(id))
            self._removing[id].add_done_callback(lambda _: self._removing.pop(id, None))

    async def sweep(self, keep: Collection[str]) -> None:
        for id in set(self._disk.known()) - {*keep, *self._running}:
            self._tasks.start(f"sweep the files of {id}", self._disk.remove(id))

    async def pause(self, id: str) -> None:
        await self._shell(id).cgroup.freeze(True)

    async def resume(self, id: str) -> None:
        await self._shell(id).cgroup.freeze(False)

    def wake(self, id: str) -> None:
        self._shell(id).cgroup.thaw()

    async def resize(self, id: str, resources: Resources) -> None:
        shell = self._shell(id)
        shell.cgroup.limit(resources)
        await ask(shell.control_socket, {"op": "settings", "limits": limits(resources)})

    async def set_environment(self, id: str, env: Mapping[str, str], image_id: str) -> None:
        whole = {**self._images.config(image_id).env, **env}
        await ask(self._shell(id).control_socket, {"op": "settings", "env": whole})

    async def set_network(self, id: str, policy: NetworkPolicy) -> None:
        shell = self._shell(id)
        self._walls.apply(shell.slot, policy)
        if shell.claim is not None:
            shell.save(replace(shell.claim, network=policy))

    async def snapshot(self, id: str, snapshot_id: str) -> int:
        return await self._disk.snapshot(id, snapshot_id)

    async def delete_snapshot(self, snapshot_id: str) -> None:
        await self._disk.delete_snapshot(snapshot_id)

    def agent(self, id: str) -> AgentAddress:
        shell = self._shell(id)
        assert shell.claim is not None
        return AgentAddress(shell.agent_socket, shell.claim.token)

    async def run(self, id: str, command: str, *, timeout_s: float) -> tuple[int, str]:
        return await inside.run(self.agent(id), command, timeout_s=timeout_s)

    async def events(self) -> AsyncIterator[WorkerEvent]:
        while True:
            yield await self._events.get()

    async def capacity(self) -> Mapping[str, Any]:
        pool = {"level": self._pool.level, "target": self._pool.target, "misses": self._pool.misses}
        room = measure(self._shells.directory)
        return {**self._facts, **room, "sandboxes": len(self._running), "pool": pool}

    @property
    def pool_level(self) -> int:
        """How many shells are ready."""
        return self._pool.level

    def pid(self, id: str) -> int:
        """The first process of a sandbox, in the host's numbering. Raises sandbox_not_running."""
        return self._shell(id).pid

    def _shell(self, id: str) -> Shell:
        shell = self._running.get(id)
        if shell is None:
            raise TalonError("sandbox_not_running")
        return shell


def _state(shell: Shell) -> str:
    return "paused" if shell.cgroup.frozen() else "running"


class _Clock:
    """Milliseconds between laps."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._at = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = round((now - self._at) * 1000, 3)
        self._at = now
