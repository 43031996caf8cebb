"""The queue of creates: bounded, fair between tenants, and no place is ever lost."""

import asyncio
import contextlib
from collections.abc import Callable

from control.world import BOUND_S, code_of, run, until
from talon_server.control.admission import Admission
from talon_server.errors import TalonError


async def use(admission: Admission, tenant: str, log: list[str], *, timeout_s: float = 30.0) -> None:
    async with admission.place(tenant, timeout_s):
        log.append(tenant)


def test_tenants_take_turns() -> None:
    async def work() -> list[str]:
        admission, log = Admission(1, 100), []
        async with asyncio.TaskGroup() as group:
            async with admission.place("first", 30):
                for tenant in ("a", "a", "a", "b", "c"):
                    group.create_task(use(admission, tenant, log))
                await until(lambda: admission.waiting == 5, "five wait")
        return log

    assert run(work()) == ["a", "b", "c", "a", "a"]


def test_who_waits_too_long_is_told_when_to_come_again() -> None:
    async def work() -> None:
        admission = Admission(1, 1)
        async with admission.place("t", 30):
            assert await code_of(use(admission, "t", [], timeout_s=0)) == "queue_timeout"
            async with asyncio.TaskGroup() as group:
                waits = group.create_task(use(admission, "t", []))
                await until(lambda: admission.waiting == 1, "one waits")
                assert await code_of(use(admission, "t", [])) == "queue_timeout", "the queue is full"
                waits.cancel()
        assert admission.waiting == 0
        await use(admission, "t", [], timeout_s=0)

    run(work())


def test_a_place_given_in_the_moment_of_being_cancelled_goes_to_the_next() -> None:
    async def work() -> None:
        admission = Admission(1, 10)
        async with asyncio.TaskGroup() as group:
            async with admission.place("t", 30):
                gives_up = group.create_task(use(admission, "t", []))
                await until(lambda: admission.waiting == 1, "one waits")
            gives_up.cancel()
        async with asyncio.timeout(BOUND_S):
            await use(admission, "t", [])

    run(work())


def test_no_place_is_lost_when_times_run_out_while_places_come_free() -> None:
    async def hold(admission: Admission, seconds: float) -> None:
        with contextlib.suppress(TalonError):
            async with admission.place("t", 0.002):
                await asyncio.sleep(seconds)

    async def work() -> None:
        admission = Admission(2, 1000)
        async with asyncio.TaskGroup() as group:
            for number in range(300):
                group.create_task(hold(admission, number % 3 / 1000))
                await asyncio.sleep(0)
        assert admission.waiting == 0
        async with asyncio.timeout(BOUND_S), admission.place("t", 0), admission.place("t", 0):
            assert await code_of(use(admission, "t", [], timeout_s=0)) == "queue_timeout"

    run(work())


def test_a_full_host_lets_the_next_in_when_one_has_ended() -> None:
    async def work() -> None:
        living = 2
        room: Callable[[int], bool] = lambda waiting: living - waiting <= 1  # noqa: E731
        admission, log = Admission(8, 10, room), []
        assert await code_of(use(admission, "t", log, timeout_s=0)) == "capacity_exhausted"
        async with asyncio.TaskGroup() as group:
            group.create_task(use(admission, "t", log))
            await until(lambda: admission.waiting == 1, "it waits")
            living = 1
            admission.freed()
        assert log == ["t"]

    run(work())
