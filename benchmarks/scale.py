"""Many at once: bursts, commands in parallel, a thousand idle sandboxes; and what pausing and ending cost."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from talon_sandbox import AsyncClient, AsyncSandbox
from tests.framework.platform import Platform

from . import peers
from .figures import Figure, figure
from .peers import milliseconds

_BURST = 100
_IDLE = 1000


def policy(platform: Platform, rounds: int) -> Iterator[Figure]:
    """A create with everything asked for: environment, a volume, a policy by name; to its first output."""
    platform.http.post("/v2/volumes", json={"name": "benchmark"})
    asked = {
        "env": {"A": "1"},
        "volumes": {"/data": "benchmark"},
        "network": ["example.com", "*.example.org"],
        "labels": {"a": "b"},
    }
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        sandbox = platform.sandbox(**asked)
        sandbox.run("echo hi")
        taken.append(milliseconds(began))
        sandbox.destroy()
    platform.http.delete("/v2/volumes/benchmark")
    yield figure("the same with env, volume and policy", taken)


def burst(platform: Platform, rounds: int) -> Iterator[Figure]:
    """A hundred creates at once, each to its first output; the last counts."""
    lasts: list[float] = []
    for _ in range(max(1, rounds // 30)):
        lasts.append(asyncio.run(_burst(platform)))
    yield figure(f"burst of {_BURST}: the last output", lasts)


async def _burst(platform: Platform) -> float:
    async with AsyncClient(platform.url, platform.key) as client:

        async def one() -> AsyncSandbox:
            sandbox = await client.create(image="base")
            assert (await sandbox.run("echo hi")).stdout == "hi\n"
            return sandbox

        began = time.perf_counter()
        made = await asyncio.gather(*(one() for _ in range(_BURST)))
        taken = milliseconds(began)
        await asyncio.gather(*(sandbox.destroy() for sandbox in made))
    return taken


def parallel(platform: Platform, rounds: int) -> Iterator[Figure]:
    """Commands a second in one sandbox, by 1, 8 and 64 clients at once."""
    for width in (1, 8, 64):
        yield figure(f'run("true"), {width} at once', [asyncio.run(_parallel(platform, width, rounds))], "1/s")


async def _parallel(platform: Platform, width: int, rounds: int) -> float:
    async with AsyncClient(platform.url, platform.key) as client:
        sandbox = await client.create(image="base", resources={"cpu": 2, "pids": 4096})

        async def work() -> None:
            for _ in range(max(2, rounds * 4 // width)):
                await sandbox.run(["true"])

        await sandbox.run(["true"])
        began = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(width)))
        rate = width * max(2, rounds * 4 // width) / (time.perf_counter() - began)
        await sandbox.destroy()
    return rate


def states(platform: Platform, rounds: int) -> Iterator[Figure]:
    """Pausing, resuming and ending one sandbox."""
    pauses: list[float] = []
    resumes: list[float] = []
    ends: list[float] = []
    for _ in range(rounds):
        sandbox = platform.sandbox()
        for act, taken in ((sandbox.pause, pauses), (sandbox.resume, resumes), (sandbox.destroy, ends)):
            began = time.perf_counter()
            act()
            taken.append(milliseconds(began))
    yield figure("pause", pauses)
    yield figure("resume", resumes)
    yield figure("destroy", ends)


def thousand(platform: Platform, rounds: int) -> Iterator[Figure]:
    """A thousand idle sandboxes: their memory all told, their CPU, and a create beside them."""
    empty = _creates(platform, min(rounds, 40))
    used, count = _memory_used(), _IDLE if rounds >= 100 else 100
    made = asyncio.run(_many(platform, count))
    each = (_memory_used() - used) / 2**20 / count
    idle = _cpu_used(platform, 10.0)
    full = _creates(platform, min(rounds, 40))
    asyncio.run(_end(platform, made))
    yield figure(f"{count} idle: memory of each, all told", [each], "MiB")
    yield figure(f"{count} idle: CPU of the whole", [idle * 100], "% core")
    bare = figure("create beside none", empty)
    yield bare
    yield figure(f"create beside {count}", full, beside=bare)


async def _many(platform: Platform, count: int) -> list[str]:
    small = {"cpu": 0.1, "memory": "64MiB", "disk": "64MiB", "pids": 64}
    async with AsyncClient(platform.url, platform.key) as client:
        made: list[str] = []
        while len(made) < count:
            batch = await asyncio.gather(*(client.create(image="base", resources=small) for _ in range(20)))
            made += [sandbox.id for sandbox in batch]
    return made


async def _end(platform: Platform, made: list[str]) -> None:
    async with AsyncClient(platform.url, platform.key) as client:
        for start in range(0, len(made), 20):
            await asyncio.gather(*(client.delete(id) for id in made[start : start + 20]))


def _creates(platform: Platform, rounds: int) -> list[float]:
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        sandbox = platform.sandbox()
        taken.append(milliseconds(began))
        sandbox.destroy()
    return taken


def _memory_used() -> int:
    told = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    kilobytes = {name: int(told[name].split()[0]) for name in ("MemTotal", "MemAvailable")}
    return (kilobytes["MemTotal"] - kilobytes["MemAvailable"]) * 1024


def _cpu_used(platform: Platform, seconds: float) -> float:
    """Cores used by the server and all agents over some seconds."""
    pids = [platform.pid, *peers.agents(platform)]
    before = sum(map(_ticks, pids))
    time.sleep(seconds)
    return (sum(map(_ticks, pids)) - before) / os.sysconf("SC_CLK_TCK") / seconds


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def endurance(platform: Platform, minutes: float) -> Iterator[Figure]:
    """Create, run, destroy at full speed for minutes: the rate, and what the server holds more afterwards."""
    memory, descriptors = peers.resident(platform.pid), len(os.listdir(f"/proc/{platform.pid}/fd"))
    rate = asyncio.run(_endure(platform, minutes * 60))
    grown = (peers.resident(platform.pid) - memory) / 2**20
    more = len(os.listdir(f"/proc/{platform.pid}/fd")) - descriptors
    yield figure(f"create, run, destroy for {minutes:g} min", [rate], "1/s")
    yield figure("the server's memory afterwards", [grown], "MiB")
    yield figure("its descriptors afterwards", [float(more)], "")


async def _endure(platform: Platform, seconds: float) -> float:
    done = 0
    until = time.perf_counter() + seconds
    async with AsyncClient(platform.url, platform.key) as client:

        async def work() -> None:
            nonlocal done
            while time.perf_counter() < until:
                sandbox = await client.create(image="base")
                await sandbox.run(["true"])
                await sandbox.destroy()
                done += 1

        began = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(8)))
        return done / (time.perf_counter() - began)


SCALE: dict[str, Callable[[Platform, int], Iterator[Figure]]] = {
    "policy": policy,
    "burst": burst,
    "parallel": parallel,
    "states": states,
    "thousand": thousand,
}
