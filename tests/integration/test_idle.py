"""Sandboxes that nobody uses freeze, and wake with the next request."""

from tests.conftest import Maker
from tests.framework.waiting import until


def test_an_idle_sandbox_freezes_and_a_request_wakes_it(make: Maker) -> None:
    sandbox = make(idle_timeout="1s")
    counter = "i=0; while true; do i=$((i+1)); echo $i > /tmp/count; sleep 0.05; done"
    sandbox.spawn(counter)
    until(lambda: sandbox.info().state == "paused", "it freezes")
    assert sandbox.info().reason == "nobody uses it"
    assert sandbox.run("cat /tmp/count").stdout.strip().isdigit()
    assert sandbox.info().state == "running"


def test_a_long_request_keeps_it_awake(make: Maker) -> None:
    sandbox = make(idle_timeout="1s")
    assert sandbox.run("sleep 3; echo through").stdout == "through\n"


def test_without_an_idle_time_it_stays_awake(make: Maker) -> None:
    idler, other = make(idle_timeout="1s"), make()
    until(lambda: idler.info().state == "paused", "the idle one freezes")
    assert other.info().state == "running"
