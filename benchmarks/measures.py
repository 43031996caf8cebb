"""What is measured; each measure gives its figures, the peers' among them, taken in turns within one run."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync

from tests.framework.leftovers import assert_clean
from tests.framework.platform import Platform

from . import peers
from .figures import Figure, figure
from .peers import milliseconds
from .scale import SCALE


def _opensandbox(platform: Platform) -> SandboxSync:
    config = ConnectionConfigSync(domain=f"127.0.0.1:{platform.port}", api_key=platform.key)
    return SandboxSync.create("base", connection_config=config, timeout=timedelta(minutes=10))


def tti(platform: Platform, rounds: int, *, docker: bool = False) -> Iterator[Figure]:
    """From the create to the first output of a command, beside raw runtimes on the same files."""
    ours, theirs = [], []
    raw: dict[str, list[float]] = {"crun run": [], "runc run": [], "docker run": []}
    with_docker = docker and peers.prepare_docker(platform)
    with peers.bundles(platform) as bundle:
        for number in range(rounds):
            raw["crun run"].append(peers.oci("crun", bundle, number))
            raw["runc run"].append(peers.oci("runc", bundle, number))
            if with_docker:
                raw["docker run"].append(peers.docker(number))
            began = time.perf_counter()
            sandbox = platform.sandbox()
            assert sandbox.run("echo hi").stdout == "hi\n"
            ours.append(milliseconds(began))
            sandbox.destroy()
            began = time.perf_counter()
            box = _opensandbox(platform)
            box.commands.run("echo hi")
            theirs.append(milliseconds(began))
            box.kill()
            box.close()
    crun = figure("crun run", raw["crun run"])
    yield crun
    yield from (figure(name, samples, beside=crun) for name, samples in raw.items() if samples and name != "crun run")
    yield figure("create to output, our SDK", ours, beside=crun)
    yield figure("create to output, OpenSandbox SDK", theirs, beside=crun)


def execution(platform: Platform, rounds: int) -> Iterator[Figure]:
    """`true` in a running sandbox, beside starting it on the host."""
    floor, ours, theirs = [], [], []
    box = _opensandbox(platform)
    with platform.sandbox() as sandbox:
        for _ in range(rounds):
            floor.append(peers.fork_and_exec())
            began = time.perf_counter()
            sandbox.run(["true"])
            ours.append(milliseconds(began))
            began = time.perf_counter()
            box.commands.run("true")
            theirs.append(milliseconds(began))
    box.kill()
    box.close()
    bare = figure("fork and exec on the host", floor)
    yield bare
    yield figure('sb.run("true")', ours, beside=bare)
    yield figure("commands.run, OpenSandbox SDK", theirs, beside=bare)


def files(platform: Platform, rounds: int) -> Iterator[Figure]:
    """256 MiB up and down, and the server's memory meanwhile."""
    size = 256 << 20
    up, down, before = [], [], peers.resident(platform.pid)
    peak = before
    with tempfile.TemporaryDirectory() as here, platform.sandbox(resources={"memory": "1GiB"}) as sandbox:
        source, back = Path(here, "source"), Path(here, "back")
        source.write_bytes(os.urandom(1 << 20) * (size >> 20))
        for _ in range(max(3, rounds // 20)):
            began = time.perf_counter()
            sandbox.fs.upload(source, "/workspace/large")
            up.append(size / 1e6 / (time.perf_counter() - began))
            peak = max(peak, peers.resident(platform.pid))
            began = time.perf_counter()
            sandbox.fs.download("/workspace/large", back)
            down.append(size / 1e6 / (time.perf_counter() - began))
            peak = max(peak, peers.resident(platform.pid))
            back.unlink()
    yield figure("256 MiB up", up, "MB/s")
    yield figure("256 MiB down", down, "MB/s")
    yield figure("the server's growth meanwhile", [(peak - before) / 2**20], "MiB")


def density(platform: Platform, rounds: int) -> Iterator[Figure]:
    """Memory of idle sandboxes."""
    count = min(50, rounds)
    before = peers.resident(platform.pid)
    made = [platform.sandbox() for _ in range(count)]
    for sandbox in made:
        sandbox.run("true")
    grown = (peers.resident(platform.pid) - before) / 2**20 / count
    agents = [peers.resident(pid) / 2**20 for pid in peers.agents(platform)]
    for sandbox in made:
        sandbox.destroy()
    yield figure("agent of an idle sandbox", agents, "MiB")
    yield figure("server, per sandbox", [grown], "MiB")


def churn(platform: Platform, rounds: int) -> Iterator[Figure]:
    """Creates from eight clients at once, each with a command, and what is left of it all."""
    began = time.perf_counter()

    def one(_: int) -> float:
        start = time.perf_counter()
        with platform.sandbox() as sandbox:
            sandbox.run(["true"])
        return milliseconds(start)

    with ThreadPoolExecutor(8) as threads:
        taken = list(threads.map(one, range(rounds * 2)))
    rate = len(taken) / (time.perf_counter() - began)
    assert_clean(platform)
    yield figure("create, run, destroy; 8 at once", taken)
    yield figure("the same, per second", [rate], "1/s")


def growth(platform: Platform, rounds: int) -> Iterator[Figure]:
    """What the server holds more after many sandboxes came and went."""
    _come_and_go(platform, 20)
    memory, descriptors = peers.resident(platform.pid), _descriptors(platform.pid)
    _come_and_go(platform, rounds * 2)
    assert_clean(platform)
    yield figure("memory after many sandboxes", [(peers.resident(platform.pid) - memory) / 2**20], "MiB")
    yield figure("descriptors after them", [float(_descriptors(platform.pid) - descriptors)], "")


def _come_and_go(platform: Platform, count: int) -> None:
    for _ in range(count):
        platform.sandbox().destroy()


def _descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def client(platform: Platform, rounds: int) -> Iterator[Figure]:
    """How fast the client's programs start, beside Python itself."""
    tsb = str(Path(sys.executable).with_name("tsb"))
    commands = {
        "python3 -c pass": [sys.executable, "-c", "pass"],
        "tsb --version": [tsb, "--version"],
        "import talon_sandbox": [sys.executable, "-c", "from talon_sandbox import Sandbox"],
    }
    samples: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(max(5, rounds // 4)):
        for name, command in commands.items():
            began = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True, env=platform.environment)
            samples[name].append(milliseconds(began))
    bare = figure("python3 -c pass", samples["python3 -c pass"])
    yield bare
    yield figure("tsb --version", samples["tsb --version"], beside=bare)
    yield figure("import talon_sandbox", samples["import talon_sandbox"], beside=bare)


MEASURES: dict[str, Callable[[Platform, int], Iterator[Figure]]] = {
    "tti": tti,
    "exec": execution,
    "files": files,
    "density": density,
    "churn": churn,
    "growth": growth,
    "client": client,
    **SCALE,
}


def phases(platform: Platform) -> str:
    """Where the time of one create goes."""
    with platform.sandbox() as sandbox:
        return json.dumps(sandbox.timings)
