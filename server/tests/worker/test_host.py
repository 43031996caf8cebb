"""The life of sandboxes on a real host: what a create gives, how each end goes, what is left."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from talon_server.errors import TalonError
from talon_server.lib.tasks import Tasks
from talon_server.model.sandbox import Resources, SandboxSpec, VolumeMount
from talon_server.worker.host import Host
from worker import world


@asynccontextmanager
async def started(home: Path, image: Path, **options: object) -> AsyncIterator[Host]:
    async with world.a_host(world.options(home, **options), image) as host:  # type: ignore[arg-type]
        await host.start()
        yield host


@pytest.mark.parametrize("runtime", ["crun", "runc"])
def test_a_sandbox_runs_commands_on_its_image_with_its_settings(home: Path, image: Path, runtime: str) -> None:
    async def scenario() -> None:
        async with started(home, image, runtime=runtime) as host:
            spec = SandboxSpec(image="base", env={"COLOR": "red"}, user="user", workdir="/tmp", hostname="box")
            agent = await world.start(host, "a", spec)
            result = await world.run(agent, "id -u; pwd; hostname; echo $COLOR; echo x > f; cat f; echo no >&2; exit 3")
            assert result.stdout.split() == ["1000", "/tmp", "box", "red", "x"]
            assert (result.stderr, result.exit_code) == ("no", 3)
            await host.destroy("a")

    asyncio.run(scenario())


def test_pooled_and_inline_shells_make_the_same_sandbox(home: Path, image: Path) -> None:
    """The capability sets, filters, namespaces' kinds and mounts of both paths are equal."""
    look = (
        "grep -E 'Cap|Seccomp|NoNewPrivs' /proc/self/status; sed 's/[0-9]*//g' /proc/mounts; ls /proc/self/ns /dev /sys"
    )

    async def scenario() -> None:
        async with started(home, image, pool=1) as host:
            await world.until(lambda: host.pool_level == 1, "a ready shell")
            pooled = await host.create("a", "t", SandboxSpec(image="base"), "base")
            inline = await host.create("b", "t", SandboxSpec(image="base"), "base")
            assert (pooled.pooled, inline.pooled) == (True, False)
            assert await world.run(pooled.agent, look) == await world.run(inline.agent, look)

    asyncio.run(scenario())


def test_limits_hold_and_a_memory_hog_is_told(home: Path, image: Path) -> None:
    async def scenario() -> None:
        async with started(home, image) as host:
            spec = SandboxSpec(image="base", resources=Resources(cpu=0.5, memory_bytes=64 << 20, pids=40))
            agent = await world.start(host, "a", spec)
            hog = await world.run(agent, "tail -c 200000000 /dev/zero")
            assert hog.exit_code == 137
            bomb = await world.run(agent, "for i in $(seq 100); do sleep 30 & done")
            assert "fork" in bomb.stderr
            assert (await world.run(agent, "kill -9 -1; true")) is not None
            assert (await world.run(agent, "echo alive")).stdout == "alive"

    asyncio.run(scenario())


def test_volumes_are_mounted_where_asked_and_stay_inside_their_directory(home: Path, image: Path) -> None:
    async def scenario() -> None:
        async with started(home, image) as host:
            shared = home / "shared"
            (shared / "sub").mkdir(parents=True)
            (shared / "sub/f").write_text("hello")
            (shared / "out").symlink_to("/etc")
            volumes = (
                VolumeMount("/data/deep", host=str(shared)),
                VolumeMount("/ro", host=str(shared), subpath="sub", read_only=True),
            )
            agent = await world.start(host, "a", SandboxSpec(image="base", volumes=volumes))
            result = await world.run(agent, "cat /ro/f /data/deep/sub/f; echo new > /data/deep/g; touch /ro/x")
            assert result.stdout == "hellohello"
            assert result.exit_code != 0
            assert (shared / "g").stat().st_uid == 0
            outside = SandboxSpec(image="base", volumes=(VolumeMount("/x", host=str(shared), subpath="out"),))
            with pytest.raises(TalonError) as refused:
                await world.start(host, "b", outside)
            assert refused.value.code == "create_failed"

    asyncio.run(scenario())


def test_stop_keeps_the_files_and_destroy_removes_all(home: Path, image: Path) -> None:
    async def scenario() -> None:
        async with started(home, image) as host:
            agent = await world.start(host, "a")
            await world.run(agent, "echo kept > /root/f")
            await host.stop("a", grace_s=5)
            with pytest.raises(TalonError):
                host.agent("a")
            agent = await world.start(host, "a")
            assert (await world.run(agent, "cat /root/f")).stdout == "kept"
            await host.destroy("a")
            await host.destroy("a")
            await world.until(lambda: not (home / "disk/a").exists(), "the files are gone")

    asyncio.run(scenario())


def test_pause_stops_the_clock_and_resume_goes_on(home: Path, image: Path) -> None:
    async def scenario() -> None:
        async with started(home, image) as host, Tasks("test") as tasks:
            agent = await world.start(host, "a")
            await world.run(agent, "while :; do echo x >> /tmp/n; sleep 0.01; done", background=True)
            count = home / "disk/a/upper/tmp/n"
            await world.until(count.exists, "the loop runs")
            await host.pause("a")
            before = count.stat().st_size
            asked = tasks.start("question", world.run(agent, "wc -c < /tmp/n"))
            done, _ = await asyncio.wait([asked], timeout=0.3)
            assert not done
            assert count.stat().st_size == before
            await host.resume("a")
            assert int((await asked).stdout) >= before
            await host.pause("a")
            await host.destroy("a")

    asyncio.run(scenario())


def test_the_end_of_the_agent_is_told_once_and_its_slot_is_free_again(home: Path, image: Path) -> None:
    async def scenario() -> None:
        async with started(home, image, pool=0) as host:
            await world.start(host, "a")
            os.kill(host.pid("a"), signal.SIGKILL)
            event = await anext(host.events())
            assert (event.id, event.kind) == ("a", "exited")
            assert event.detail["exit_code"] in (None, -signal.SIGKILL)
            with pytest.raises(TalonError):
                host.agent("a")
            agent = await world.start(host, "a")
            assert (await world.run(agent, "echo again")).stdout == "again"

    asyncio.run(scenario())


def test_a_sandbox_ends_with_its_entrypoint(home: Path, image: Path) -> None:
    async def scenario() -> None:
        async with started(home, image) as host:
            await world.start(host, "a", SandboxSpec(image="base", entrypoint=("sh", "-c", "exit 7")))
            event = await anext(host.events())
            assert (event.id, event.kind) == ("a", "exited")
            assert event.detail["exit_code"] in (None, 7)

    asyncio.run(scenario())


def test_the_helper_is_started_again_when_it_ends(home: Path, image: Path) -> None:
    async def scenario() -> None:
        async with started(home, image, pool=0) as host:
            before = host.helper.pid
            os.kill(before, signal.SIGKILL)
            await world.until(lambda: host.helper.pid != before, "its end is noticed")
            agent = await world.start(host, "a")
            assert (await world.run(agent, "echo fine")).stdout == "fine"

    asyncio.run(scenario())


def test_a_create_that_fails_or_is_cancelled_leaves_nothing(home: Path, image: Path) -> None:
    async def scenario() -> None:
        async with started(home, image) as host, Tasks("test") as tasks:
            bad = SandboxSpec(image="base", volumes=(VolumeMount("/x", host="/does/not/exist"),))
            with pytest.raises(TalonError):
                await world.start(host, "a", bad)
            for delay_s in (0, 0.001, 0.003, 0.006):
                create = tasks.start("create", world.start(host, "b"))
                await asyncio.wait([create], timeout=delay_s)
                if create.cancel():
                    with pytest.raises(asyncio.CancelledError):
                        await create
                await host.destroy("b")
        groups = [
            path for path in Path("/sys/fs/cgroup").glob(f"*/talon-{world.options(home).instance}/*") if path.is_dir()
        ]
        assert groups == []
        assert list((home / "run/shells").iterdir()) == []
        assert list((home / "disk").iterdir()) == []

    asyncio.run(scenario())
