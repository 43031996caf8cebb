"""The life of a sandbox: create, list, names, time to live, stop and start, pause, and a thing's end."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from talon_sandbox import ConflictError, NotFoundError, Sandbox
from tests.conftest import Maker
from tests.framework.leftovers import assert_clean
from tests.framework.platform import Platform
from tests.framework.waiting import until


def test_create_tells_what_it_made(platform: Platform, make: Maker) -> None:
    sandbox = make(name="told", labels={"team": "a"}, resources={"cpu": 1.5, "memory": "300MiB"}, env={"A": "1"})
    info = sandbox.info()
    assert (info.name, info.state, info.labels) == ("told", "running", {"team": "a"})
    assert info.resources["cpu"] == 1.5
    assert info.resources["memory_bytes"] == 300 << 20
    assert sandbox.timings["total_ms"] > 0
    assert sandbox.run("echo $A; hostname; nproc >/dev/null").stdout.startswith("1\n")
    assert Sandbox.connect("told", client=platform.client).id == sandbox.id


def test_list_by_label_and_state(platform: Platform, make: Maker) -> None:
    ids = {make(labels={"list": "yes"}).id for _ in range(3)}
    make(labels={"list": "no"})
    assert {info.id for info in platform.client.list(labels={"list": "yes"})} == ids
    assert ids <= {info.id for info in platform.client.list(state="running")}
    page = platform.http.get("/v2/sandboxes", params={"label": "list:yes", "limit": 2}).json()
    assert len(page["items"]) == 2
    rest = platform.http.get("/v2/sandboxes", params={"label": "list:yes", "limit": 2, "cursor": page["next_cursor"]})
    assert {item["id"] for item in page["items"] + rest.json()["items"]} == ids


def test_a_name_is_taken_once_and_free_again(platform: Platform, make: Maker) -> None:
    first = make(name="only-one")
    with pytest.raises(ConflictError) as caught:
        make(name="only-one")
    assert caught.value.code == "name_taken"
    first.destroy()
    with platform.sandbox(name="only-one") as second:
        assert second.id != first.id


def test_the_same_create_sent_twice_is_one(platform: Platform) -> None:
    body = {"image": "base", "ttl": "10m", "labels": {"twice": "yes"}}
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    answers = [platform.http.post("/v2/sandboxes", json=body, headers=headers).json() for _ in range(2)]
    assert answers[0]["id"] == answers[1]["id"]
    assert len(platform.client.list(labels={"twice": "yes"})) == 1
    platform.http.delete(f"/v2/sandboxes/{answers[0]['id']}")


def test_time_to_live(platform: Platform) -> None:
    sandbox = platform.sandbox(ttl=3)
    until(lambda: gone(platform, sandbox.id), "the sandbox ends by itself")
    sandbox.close()


def test_renew(make: Maker) -> None:
    sandbox = make(ttl="5m")
    before = sandbox.expires_at
    after = sandbox.renew("30m").expires_at
    assert before is not None
    assert after is not None
    assert after > before + timedelta(minutes=20)
    assert after < datetime.now(UTC) + timedelta(minutes=31)


def test_stop_keeps_files_and_start_goes_on(make: Maker) -> None:
    sandbox = make()
    sandbox.fs.write_text("/workspace/kept", "still here")
    sandbox.spawn("sleep 1000")
    assert sandbox.stop().state == "stopped"
    assert sandbox.start().state == "running"
    assert sandbox.fs.read_text("/workspace/kept") == "still here"
    assert sandbox.run("pgrep -x sleep").stdout == ""


def test_pause_and_resume(make: Maker) -> None:
    sandbox = make()
    process = sandbox.spawn("i=0; while true; do i=$((i+1)); echo $i; sleep 0.05; done")
    until(lambda: process.output(), "it counts")
    assert sandbox.pause().state == "paused"
    assert sandbox.resume().state == "running"
    count = len(process.output())
    until(lambda: len(process.output()) > count, "it goes on counting")


def test_destroy_is_final_and_may_be_repeated(platform: Platform) -> None:
    sandbox = platform.sandbox()
    sandbox.destroy()
    sandbox.destroy()
    assert gone(platform, sandbox.id)
    with pytest.raises((NotFoundError, ConflictError)):
        sandbox.run("true")
    assert_clean(platform)


def test_an_entrypoint_runs(make: Maker) -> None:
    sandbox = make(entrypoint=["sh", "-c", "echo started > /tmp/entry; exec sleep 1000"])
    until(lambda: sandbox.fs.exists("/tmp/entry"), "the entrypoint has begun")
    assert sandbox.run("cat /tmp/entry").stdout == "started\n"


def gone(platform: Platform, id: str) -> bool:
    """An ended sandbox stays listed for a while, as terminated."""
    answer = platform.http.get(f"/v2/sandboxes/{id}")
    return answer.status_code == 404 or answer.json()["state"] == "terminated"
