"""Warm pools: claims get a ready sandbox with all they asked for, and the pool stays full."""

from dataclasses import replace
from pathlib import Path

import pytest

from control.world import ME, MemoryHost, asked, code_of, control, fresh, run, until
from talon_server.api.services import Services
from talon_server.control.pools import Pool
from talon_server.errors import TalonError
from talon_server.model.network import Action, Mode, NetworkPolicy
from talon_server.model.sandbox import Resources, SandboxSpec, State

SPEC = SandboxSpec(image="base", env={"A": "pool", "B": "pool"})
UNASKED = frozenset({"network", "recording"})


@pytest.fixture
def host() -> MemoryHost:
    return MemoryHost()


async def filled(services: Services, *, minimum: int = 2, **more: str) -> Pool:
    pool = await services.pools.create(ME, "p", SPEC, minimum=minimum, maximum=minimum, **more)
    await until(lambda: services.pools.ready(pool) == minimum, "the pool is full")
    return pool


def test_a_claim_gets_a_ready_one_with_all_it_asked(tmp_path: Path, host: MemoryHost) -> None:
    async def work() -> None:
        async with control(tmp_path, host) as services:
            pool = await filled(services, warm_command="warm up")
            assert [command for _, command in host.ran] == ["warm up"] * 2
            sealed = NetworkPolicy(Mode.SEALED, (), Action.DENY)
            spec = SandboxSpec(image="", env={"B": "mine"}, resources=Resources(memory_bytes=1 << 28), network=sealed)
            made = await services.pools.claim(ME, asked(pool="p", name="n", labels={"x": "y"}, ttl_s=60, spec=spec))
            assert (made.name, made.labels, made.state) == ("n", {"x": "y"}, State.RUNNING)
            assert made.expires_at is not None
            given = host.applied[made.id]
            assert given["env"] == {"A": "pool", "B": "mine"}
            assert given["resources"].memory_bytes == 1 << 28
            assert given["network"] == sealed == fresh(services, made).spec.network
            await until(lambda: services.pools.ready(pool) == 2, "another takes its place")
            assert host.calls["create"] == 3

    run(work())


def test_a_taken_name_costs_the_pool_nothing(tmp_path: Path, host: MemoryHost) -> None:
    async def work() -> None:
        async with control(tmp_path, host) as services:
            pool = await filled(services)
            await services.lifecycle.create(ME, asked(name="n"))
            request = asked(pool="p", name="n", unasked=UNASKED)
            assert await code_of(services.pools.claim(ME, request)) == "name_taken"
            assert (services.pools.ready(pool), host.calls["create"]) == (2, 3)

    run(work())


def test_a_claim_with_a_key_is_one_claim(tmp_path: Path, host: MemoryHost) -> None:
    async def work() -> None:
        async with control(tmp_path, host) as services:
            await filled(services)
            request = asked(pool="p", idempotency="k", fingerprint="f", unasked=UNASKED)
            first = await services.pools.claim(ME, request)
            assert (await services.pools.claim(ME, request)).id == first.id
            other = replace(request, fingerprint="g")
            assert await code_of(services.pools.claim(ME, other)) == "idempotency_conflict"

    run(work())


def test_what_a_ready_one_cannot_be_is_made_new(tmp_path: Path, host: MemoryHost) -> None:
    async def work() -> None:
        async with control(tmp_path, host) as services:
            pool = await filled(services, minimum=1)
            snapshot = replace(SPEC, image="", snapshot="snp_1")
            made = await services.pools.claim(ME, asked(pool="p", spec=snapshot, unasked=UNASKED))
            assert made.spec.snapshot == "snp_1"
            assert services.pools.ready(pool) == 1
            with pytest.raises(TalonError):
                services.pools.get(ME, "q")

    run(work())


def test_one_that_ends_while_it_waits_is_replaced(tmp_path: Path, host: MemoryHost) -> None:
    async def work() -> None:
        async with control(tmp_path, host) as services:
            pool = await filled(services)
            first = next(iter(host.running))
            host.dies(first)
            await until(lambda: host.calls["create"] == 3, "another is made")
            await until(lambda: services.pools.ready(pool) == 2, "the pool is full again")
            made = await services.pools.claim(ME, asked(pool="p", unasked=UNASKED))
            assert made.id != first

    run(work())


def test_a_pool_that_cannot_be_filled_is_tried_again(tmp_path: Path, host: MemoryHost) -> None:
    async def work() -> None:
        async with control(tmp_path, host) as services:
            host.refuse["create"] = 1
            await filled(services)

    run(work())


def test_it_shrinks_goes_and_outlives_the_server(tmp_path: Path, host: MemoryHost) -> None:
    async def before() -> None:
        async with control(tmp_path, host) as services:
            await filled(services, minimum=3)

    async def after() -> None:
        async with control(tmp_path, host) as services:
            pool = services.pools.get(ME, "p")
            assert services.pools.ready(pool) == 3
            assert host.calls["create"] == 3, "the ready ones of the earlier server were taken over"
            services.pools.resize(ME, "p", minimum=1, maximum=1)
            await until(lambda: len(host.running) == 1, "two are removed")
            await services.pools.delete(ME, "p")
            assert host.running == {}
            assert services.pools.list(ME) == []

    run(before())
    run(after())
