"""One timer ends what is due, whatever was renewed, forgotten or failed meanwhile."""

from datetime import UTC, datetime, timedelta

from control.world import run, until
from talon_server.control.expiry import Expiry
from talon_server.lib.tasks import Tasks


def soon(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def test_due_in_order_and_never_what_was_renewed_or_forgotten() -> None:
    async def work() -> list[str]:
        ended: list[str] = []
        expiry = Expiry(ended.append)
        async with Tasks("test") as tasks:
            tasks.start("expiry", expiry.run())
            expiry.watch("late", soon(0.2))
            expiry.watch("early", soon(0.05))
            expiry.watch("renewed", soon(0.01))
            expiry.watch("renewed", soon(3600))
            expiry.watch("forgotten", soon(0.01))
            expiry.forget("forgotten")
            expiry.watch("never", soon(0.01))
            expiry.watch("never", None)
            await until(lambda: "late" in ended, "the last is due")
        return ended

    assert run(work()) == ["early", "late"]


def test_renewing_keeps_one_entry() -> None:
    expiry = Expiry(lambda _id: None)
    for number in range(1000):
        expiry.watch("a", soon(3600 + number))
    assert len(expiry) == 1
    expiry.watch("a", soon(1))
    assert len(expiry) == 2, "a nearer time needs an entry of its own"


def test_one_failure_does_not_end_the_timer() -> None:
    async def work() -> None:
        tries: list[str] = []

        def due(id: str) -> None:
            tries.append(id)
            if tries == ["a"]:
                raise OSError("the database is locked")

        expiry = Expiry(due)
        async with Tasks("test") as tasks:
            tasks.start("expiry", expiry.run())
            expiry.watch("a", soon(0))
            expiry.watch("b", soon(0.01))
            await until(lambda: tries.count("a") == 2 and "b" in tries, "a is tried again, b is due")

    run(work())
