"""Followers get every event once and in order, or are told that some were dropped."""

import asyncio

from control.world import run
from talon_server.control.events import MISSED, Event, Events


async def take(
    events: Events, count: int, *, since: int, tenant: str = "t", sandbox_id: str | None = None
) -> list[Event]:
    found: list[Event] = []
    async for event in events.follow(since, tenant=tenant, sandbox_id=sandbox_id):
        found.append(event)
        if len(found) == count:
            break
    return found


def test_from_a_sequence_number_on() -> None:
    async def work() -> None:
        events = Events()
        first = events.emit("state", "a", "t")
        events.emit("state", "b", "t")
        events.emit("state", "a", "other")
        assert [one.sandbox_id for one in await take(events, 2, since=0)] == ["a", "b"]
        follower = asyncio.gather(take(events, 2, since=first.sequence))
        await asyncio.sleep(0)
        events.emit("state", "c", "t")
        assert [one.sandbox_id for one in (await follower)[0]] == ["b", "c"]
        assert [one.sandbox_id for one in await take(events, 1, since=0, sandbox_id="c")] == ["c"]

    run(work())


def test_one_who_comes_too_late_is_told() -> None:
    async def work() -> None:
        events = Events(kept=3)
        first = events.emit("state", "0", "t")
        for number in range(1, 6):
            events.emit("state", str(number), "t")
        found = await take(events, 4, since=first.sequence)
        assert [one.kind for one in found] == [MISSED, "state", "state", "state"]
        assert [one.sandbox_id for one in found[1:]] == ["3", "4", "5"]

    run(work())


def test_numbers_grow_over_restarts() -> None:
    before = Events().emit("state", "a", "t").sequence
    after = Events().emit("state", "a", "t").sequence
    assert before < after < 1 << 53, "and JSON can carry them"


def test_a_failing_listener_disturbs_nobody() -> None:
    events, heard = Events(), []

    def fails(_event: Event) -> None:
        raise ValueError

    events.listen(fails)
    stop = events.listen(heard.append)
    events.emit("state", "a", "t")
    stop()
    events.emit("state", "b", "t")
    assert [event.sandbox_id for event in heard] == ["a"]
