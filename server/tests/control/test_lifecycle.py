"""The life of sandboxes: what succeeds is whole, what fails leaves nothing, and a restart finishes what was begun."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from control.world import ME, OTHER, MemoryHost, asked, code_of, control, fresh, run, states, until
from talon_server.errors import TalonError
from talon_server.model.sandbox import SandboxSpec, State


@pytest.fixture
def host() -> MemoryHost:
    return MemoryHost()


def test_a_create_runs_with_the_operators_defaults(tmp_path: Path, host: MemoryHost) -> None:
    async def work() -> None:
        defaults = {"cpu": 2.0, "network": "sealed", "recording": "terminals"}
        async with control(tmp_path, host, defaults=defaults) as services:
            request = asked(name="n", labels={"a": "b"}, unasked=frozenset({"network", "recording"}))
            made = await services.lifecycle.create(ME, request)
            assert (made.state, made.name, made.labels) == (State.RUNNING, "n", {"a": "b"})
            assert made.spec.resources.cpu == 2.0
            assert (made.spec.network.mode, made.spec.network.default) == ("sealed", "deny")
            assert made.spec.recording.mode == "terminals"
            assert made.timings_ms["total_ms"] > 0
            assert services.lifecycle.get(ME, "n") == made
            assert await code_of(services.lifecycle.delete(OTHER, made.id)) == "sandbox_not_found"

    run(work())


def test_what_fails_or_is_cancelled_leaves_nothing(tmp_path: Path, host: MemoryHost) -> None:
    async def work() -> None:
        async with control(tmp_path, host) as services:
            host.refuse["create"] = 1
            assert await code_of(services.lifecycle.create(ME, asked(name="n"))) == "runtime_failed"
            host.hold("create")
            create = asyncio.gather(services.lifecycle.create(ME, asked(name="n")))
            await until(lambda: host.calls["create"] == 2, "it is being made")
            assert await code_of(services.lifecycle.create(ME, asked(name="n"))) == "name_taken"
            create.cancel()
            with pytest.raises(asyncio.CancelledError):
                await create
            assert states(services) == {}
            assert host.files == set()
            assert services.lifecycle.list(ME, states=tuple(State))[0] == []
            del host.gates["create"]
            assert (await services.lifecycle.create(ME, asked(name="n"))).state is State.RUNNING

    run(work())


def test_a_repeated_key_gives_the_same_sandbox_once_it_runs(tmp_path: Path, host: MemoryHost) -> None:
    async def work() -> None:
        async with control(tmp_path, host) as services:
            gate = host.hold("create")
            request = asked(idempotency="k", fingerprint="f")
            first = asyncio.gather(services.lifecycle.create(ME, request))
            await until(lambda: host.calls["create"] == 1, "it is being made")
            second = asyncio.gather(services.lifecycle.create(ME, request))
            first.cancel()
            gate.set()
            (made,) = await second
            assert made.state is State.RUNNING
            assert (await services.lifecycle.create(ME, request)).id == made.id
            other = replace(request, fingerprint="another body")
            assert await code_of(services.lifecycle.create(ME, other)) == "idempotency_conflict"
            assert host.calls["create"] == 1

    run(work())


def test_a_failed_create_may_be_repeated_with_its_key(tmp_path: Path, host: MemoryHost) -> None:
    async def work() -> None:
        async with control(tmp_path, host) as services:
            host.refuse["create"] = 1
            request = asked(idempotency="k", fingerprint="f")
            assert await code_of(services.lifecycle.create(ME, request)) == "runtime_failed"
            assert (await services.lifecycle.create(ME, request)).state is State.RUNNING

    run(work())


def test_without_waiting_it_is_pending_first(tmp_path: Path, host: MemoryHost) -> None:
    async def work() -> None:
        async with control(tmp_path, host) as services:
            host.refuse["create"] = 1
            fails = await services.lifecycle.create(ME, asked(wait=False))
            assert fails.state is State.PENDING
            await until(lambda: fresh(services, fails).state is State.FAILED, "it has failed")
            assert "refused" in fresh(services, fails).reason
            comes = await services.lifecycle.create(ME, asked(wait=False))
            await until(lambda: fresh(services, comes).state is State.RUNNING, "it runs")
            gate = host.hold("create")
            deleted = await services.lifecycle.create(ME, asked(wait=False))
            await until(lambda: host.calls["create"] == 3, "it is being made")
            await services.lifecycle.delete(ME, deleted.id)
            gate.set()
            await until(
                lambda: deleted.id not in host.running and deleted.id not in host.files, "nothing is left of it"
            )
            assert fresh(services, deleted).state is State.TERMINATED

    run(work())


def test_stop_keeps_files_and_a_failed_start_does_too(tmp_path: Path, host: MemoryHost) -> None:
    async def work() -> None:
        async with control(tmp_path, host) as services:
            made = await services.lifecycle.create(ME, asked())
            assert (await services.lifecycle.stop(ME, made.id)).state is State.STOPPED
            assert await code_of(services.lifecycle.stop(ME, made.id)) == "invalid_transition"
            host.refuse["create"] = 1
            assert await code_of(services.lifecycle.start(ME, made.id)) == "runtime_failed"
            assert fresh(services, made).state is State.STOPPED
            assert made.id in host.files
            assert (await services.lifecycle.start(ME, made.id)).state is State.RUNNING
            await services.lifecycle.pause(ME, made.id)
            assert (await services.lifecycle.stop(ME, made.id)).state is State.STOPPED

    run(work())


def test_only_one_change_at_a_time(tmp_path: Path, host: MemoryHost) -> None:
    async def work() -> None:
        async with control(tmp_path, host) as services:
            made = await services.lifecycle.create(ME, asked())
            gate = host.hold("pause")
            pause = asyncio.gather(services.lifecycle.pause(ME, made.id))
            await until(lambda: fresh(services, made).state is State.PAUSING, "it is being paused")
            assert await code_of(services.lifecycle.stop(ME, made.id)) == "invalid_transition"
            assert await code_of(services.lifecycle.resume(ME, made.id)) == "invalid_transition"
            gate.set()
            await pause
            host.refuse["resume"] = 1
            assert await code_of(services.lifecycle.resume(ME, made.id)) == "runtime_failed"
            assert fresh(services, made).state is State.PAUSED
            assert (await services.lifecycle.resume(ME, made.id)).state is State.RUNNING

    run(work())


def test_a_host_that_refuses_to_remove_is_asked_again(tmp_path: Path, host: MemoryHost) -> None:
    async def work() -> None:
        async with control(tmp_path, host) as services:
            made = await services.lifecycle.create(ME, asked())
            host.refuse["destroy"] = 1
            await services.lifecycle.delete(ME, made.id)
            assert fresh(services, made).state is State.TERMINATED
            await until(lambda: made.id not in host.running, "it is removed in the end")
            await services.lifecycle.delete(ME, made.id)

    run(work())


def test_ends_by_time_and_by_itself(tmp_path: Path, host: MemoryHost) -> None:
    async def work() -> None:
        async with control(tmp_path, host) as services:
            brief = await services.lifecycle.create(ME, asked(ttl_s=0.05))
            await until(lambda: fresh(services, brief).state is State.TERMINATED, "its time is up")
            await until(lambda: brief.id not in host.running, "it is removed")
            made = await services.lifecycle.create(ME, asked(name="n"))
            host.dies(made.id)
            await until(lambda: fresh(services, made).state is State.FAILED, "its end is seen")
            assert fresh(services, made).reason == "its first process was killed"
            await until(lambda: not host.files, "its files are removed")
            await services.lifecycle.create(ME, asked(name="n"))

    run(work())


def test_a_full_host_makes_wait_rather_than_fail(tmp_path: Path, host: MemoryHost) -> None:
    async def work() -> None:
        async with control(tmp_path, host, limits={"sandboxes": 1}) as services:
            first = await services.lifecycle.create(ME, asked())
            with pytest.raises(TalonError) as caught:
                await services.lifecycle.create(ME, asked(queue_timeout_s=0))
            assert (caught.value.code, caught.value.retry_after_s) == ("capacity_exhausted", 10)
            waits = asyncio.gather(services.lifecycle.create(ME, asked()))
            await until(lambda: services.lifecycle.waiting == 1, "it stands in line")
            await services.lifecycle.delete(ME, first.id)
            assert (await waits)[0].state is State.RUNNING

    run(work())


def test_pages_of_ended_sandboxes_are_whole(tmp_path: Path, host: MemoryHost) -> None:
    async def work() -> None:
        async with control(tmp_path, host) as services:
            lifecycle = services.lifecycle
            for number in range(12):
                made = await lifecycle.create(ME, asked(labels={"odd": str(number % 2)}))
                if number < 10:
                    await lifecycle.delete(ME, made.id)
            wanted = {"labels": {"odd": "1"}, "states": (State.RUNNING, State.TERMINATED), "limit": 4}
            page, cursor = lifecycle.list(ME, **wanted)
            rest, end = lifecycle.list(ME, **wanted, cursor=cursor or "")
            assert [len(page), len(rest), end] == [4, 2, None]
            times = [one.created_at for one in page + rest]
            assert times == sorted(times, reverse=True)
            assert len(lifecycle.list(ME)[0]) == 2
            with pytest.raises(TalonError):
                lifecycle.list(ME, cursor="nan:x")

    run(work())


def test_a_restart_adopts_finishes_and_removes(tmp_path: Path, host: MemoryHost) -> None:
    async def before() -> list[str]:
        async with control(tmp_path, host) as services:
            lifecycle = services.lifecycle
            runs, paused, stopped, gone, brief, stopping = [
                (await lifecycle.create(ME, asked(name=name, ttl_s=0.3 if name == "brief" else None))).id
                for name in ("runs", "paused", "stopped", "gone", "brief", "stopping")
            ]
            await lifecycle.pause(ME, paused)
            await lifecycle.stop(ME, stopped)
            host.hold("stop")
            host.hold("create")
            stop = asyncio.gather(lifecycle.stop(ME, stopping), return_exceptions=True)
            await lifecycle.create(ME, asked(name="pending", wait=False))
            await until(lambda: host.calls["create"] == 7 and host.calls["stop"] == 2, "both are under way")
        await stop
        host.gates.clear()
        return [runs, paused, stopped, gone, brief, stopping]

    async def after(ids: list[str]) -> None:
        runs, paused, stopped, gone, brief, stopping = ids
        async with control(tmp_path, host) as services:
            lifecycle = services.lifecycle
            assert lifecycle.get(ME, "runs").state is State.RUNNING
            assert lifecycle.get(ME, "paused").state is State.PAUSED
            assert lifecycle.get(ME, "stopped").state is State.STOPPED
            assert lifecycle.get(ME, "stopping").state is State.STOPPED
            assert lifecycle.get(ME, gone).state is State.FAILED
            assert [one.name for one in lifecycle.list(ME, states=(State.FAILED,))[0]] == ["pending", "gone"]
            assert lifecycle.list(ME, states=(State.FAILED,))[0][0].reason
            await until(lambda: lifecycle.get(ME, brief).state is State.TERMINATED, "its time was up meanwhile")
            await until(lambda: set(host.running) == {runs, paused}, "strays are removed, the stop is finished")
            await until(lambda: host.files == {runs, paused, stopped, stopping}, "only files of the living are left")
            assert (await lifecycle.start(ME, "stopping")).state is State.RUNNING

    ids = run(before())
    del host.running[ids[3]]
    host.running["sbx_stray"] = "running"
    host.files |= {"sbx_stray", "sbx_half_made"}
    host.told = asyncio.Queue()
    run(after(ids))


def test_an_idle_sandbox_is_woken_even_in_the_moment_of_freezing(tmp_path: Path, host: MemoryHost) -> None:
    async def work() -> None:
        async with control(tmp_path, host) as services:
            lifecycle = services.lifecycle
            made = await lifecycle.create(ME, asked())
            gate = host.hold("pause")
            freeze = asyncio.gather(lifecycle.freeze_idle(made.id))
            await until(lambda: host.calls["pause"] == 1, "it is being frozen")
            lifecycle.located(made.id, None)
            gate.set()
            await freeze
            assert (fresh(services, made).state, host.running[made.id]) == (State.RUNNING, "running")
            await lifecycle.freeze_idle(made.id)
            assert (fresh(services, made).state, host.running[made.id]) == (State.PAUSED, "paused")
            assert lifecycle.located(made.id, None).state is State.RUNNING

    run(work())


def test_more_than_may_be_asked_is_refused(tmp_path: Path, host: MemoryHost) -> None:
    async def work() -> None:
        async with control(tmp_path, host, limits={"cpu": 2.0, "ttl_s": 60.0}) as services:
            lifecycle = services.lifecycle
            too_much = SandboxSpec(image="base", resources=replace(SandboxSpec(image="").resources, cpu=3.0))
            for request in (
                asked(spec=too_much, ttl_s=10),
                asked(),
                asked(ttl_s=61),
                asked(ttl_s=10, name="sbx_looks_like_an_id"),
            ):
                assert await code_of(lifecycle.create(ME, request)) == "invalid_request"
            made = await lifecycle.create(ME, asked(ttl_s=10))
            with pytest.raises(TalonError):
                lifecycle.renew(ME, made.id, None)
            assert await code_of(lifecycle.create(ME, asked(spec=SandboxSpec(image="x"), ttl_s=1))) == "image_not_found"

    run(work())
