"""Many at once: creates, runs, and what is left when all are gone."""

from concurrent.futures import ThreadPoolExecutor

from talon_sandbox import Sandbox
from tests.framework.leftovers import assert_clean
from tests.framework.platform import Platform


def test_fifty_creates_at_once(platform: Platform) -> None:
    def one(number: int) -> tuple[Sandbox, str]:
        sandbox = platform.sandbox(labels={"many": "yes"})
        return sandbox, sandbox.run(["echo", str(number)], check=True).stdout

    with ThreadPoolExecutor(50) as threads:
        done = list(threads.map(one, range(50)))
    assert [output for _, output in done] == [f"{number}\n" for number in range(50)]
    assert len({sandbox.id for sandbox, _ in done}) == 50
    with ThreadPoolExecutor(10) as threads:
        list(threads.map(Sandbox.destroy, [sandbox for sandbox, _ in done]))
    assert_clean(platform)


def test_a_batch(platform: Platform) -> None:
    made = platform.client.create_many(5, image="base", ttl="10m", labels={"batch": "yes"})
    assert len({sandbox.id for sandbox in made}) == 5
    assert all(sandbox.run("echo ok").stdout == "ok\n" for sandbox in made)
    platform.client.delete_many(labels={"batch": "yes"})
    assert [info for info in platform.client.list(labels={"batch": "yes"}) if info.state == "running"] == []
    for sandbox in made:
        sandbox.close()


def test_many_commands_in_one_sandbox(platform: Platform) -> None:
    with platform.sandbox() as sandbox, ThreadPoolExecutor(16) as threads:
        outputs = list(threads.map(lambda number: sandbox.run(["echo", str(number)]).stdout, range(100)))
    assert outputs == [f"{number}\n" for number in range(100)]
