"""The server dies in the middle of everything and comes back: each sandbox is wholly there or wholly gone."""

import contextlib
import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from talon_sandbox import Client, Sandbox, TalonError
from talon_sandbox.retry import RetryPolicy
from tests.conftest import Maker
from tests.framework.leftovers import assert_clean, shells
from tests.framework.platform import Platform
from tests.framework.waiting import until

COUNT = 'i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo "line $i"; sleep 0.02; done'


def test_background_commands_and_their_logs_survive(platform: Platform, make: Maker) -> None:
    sandbox = make(env={"KEPT": "yes"})
    process = sandbox.spawn(COUNT)
    until(lambda: "line 3" in process.output(), "it has begun")
    platform.restart(crash=True)
    again = Sandbox.connect(sandbox.id, client=platform.client)
    assert again.info().state == "running"
    after = again.process(process.id)
    assert after.wait(timeout="120s").exit_code == 0
    assert after.output().splitlines() == [f"line {number}" for number in range(1, 201)]
    assert again.run("echo $KEPT").stdout == "yes\n"


def test_an_orderly_restart_keeps_sandboxes_too(platform: Platform, make: Maker) -> None:
    sandbox = make()
    sandbox.fs.write_text("/workspace/a", "1")
    platform.restart(crash=False)
    assert sandbox.fs.read_text("/workspace/a") == "1"


def test_killed_in_the_middle_of_creates_runs_and_writes(platform: Platform, make: Maker) -> None:
    standing = [make() for _ in range(3)]
    begun = threading.Barrier(7)
    with ThreadPoolExecutor(6) as threads:
        jobs = [threads.submit(_create_many, platform, begun) for _ in range(2)]
        jobs += [threads.submit(_run_many, platform, sandbox, begun) for sandbox in standing[:2]]
        jobs += [threads.submit(_write_many, platform, standing[2], name, begun) for name in ("x", "y")]
        begun.wait(60)
        until(lambda: len(platform.client.list()) > 4, "some creates have come through")
        platform.kill()
        for job in jobs:
            job.result(timeout=120)
    platform.start()
    for info in platform.client.list():
        assert info.state == "running", f"{info.id} is {info.state}: {info.reason}"
        assert Sandbox.connect(info.id, client=platform.client).run("echo whole").stdout == "whole\n"
    for name in ("x", "y"):
        content = standing[2].fs.read_text(f"/workspace/{name}") if standing[2].fs.exists(f"/workspace/{name}") else ""
        assert content in ("", *(str(number) * 1000 for number in range(400))), "a write is there wholly or not at all"
    platform.clear()
    assert_clean(platform)


def _hasty(platform: Platform) -> Client:
    return Client(platform.url, platform.key, retry=RetryPolicy(attempts=1, budget_s=0))


def _create_many(platform: Platform, begun: threading.Barrier) -> None:
    with _hasty(platform) as client, contextlib.suppress(TalonError):
        begun.wait(60)
        for _ in range(200):
            client.create(image="base", ttl="20m").close()


def _run_many(platform: Platform, sandbox: Sandbox, begun: threading.Barrier) -> None:
    with _hasty(platform) as client, contextlib.suppress(TalonError):
        connected = Sandbox.connect(sandbox.id, client=client)
        begun.wait(60)
        for _ in range(2000):
            connected.run("echo x")


def _write_many(platform: Platform, sandbox: Sandbox, name: str, begun: threading.Barrier) -> None:
    with _hasty(platform) as client, contextlib.suppress(TalonError):
        connected = Sandbox.connect(sandbox.id, client=client)
        begun.wait(60)
        for number in range(400):
            connected.fs.write_text(f"/workspace/{name}", str(number) * 1000)


def test_time_to_live_goes_on_while_the_server_is_down(platform: Platform) -> None:
    sandbox = platform.sandbox(ttl=2)
    platform.restart(crash=True)

    def over() -> bool:
        answer = platform.http.get(f"/v2/sandboxes/{sandbox.id}")
        return answer.status_code == 404 or answer.json()["state"] == "terminated"

    until(over, "it ends though the server was down")
    sandbox.close()


def test_a_killed_agent_means_failed_with_a_reason(platform: Platform, make: Maker) -> None:
    sandbox = make()
    os.kill(_first_process(platform, sandbox), signal.SIGKILL)
    until(lambda: sandbox.info().state == "failed", "the failure is seen")
    assert sandbox.info().reason
    with pytest.raises(TalonError) as caught:
        sandbox.run("true")
    assert caught.value.code == "sandbox_not_running"
    sandbox.destroy()
    assert_clean(platform)


def _first_process(platform: Platform, sandbox: Sandbox) -> int:
    places = [platform.home / "run" / "shells" / name for name in shells(platform)]
    mine = [
        place
        for place in places
        if (place / "claim.json").exists() and sandbox.id in (place / "claim.json").read_text()
    ]
    assert len(mine) == 1
    return int((mine[0] / "pid").read_text())


def test_the_server_notices_what_ended_while_it_was_down(platform: Platform, make: Maker) -> None:
    sandbox = make()
    pid = _first_process(platform, sandbox)
    platform.kill()
    os.kill(pid, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}").exists(), "it is gone")
    platform.start()
    until(lambda: sandbox.info().state == "failed", "the failure is seen")


def test_a_cancelled_create_leaves_nothing(platform: Platform) -> None:
    """The client hangs up while its sandbox is being made; what became of it is listed or gone, and can be removed."""
    body = b'{"image": "base", "ttl": "1m"}'
    head = (
        f"POST /v2/sandboxes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {platform.key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", platform.port)) as link:
            link.sendall(head + body)
    platform.clear()
    until(lambda: _empty(platform), "no sandbox is listed")
    assert_clean(platform)


def _empty(platform: Platform) -> bool:
    platform.clear()
    return not [info for info in platform.client.list() if info.state != "terminated"]
