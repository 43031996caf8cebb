"""The synchronous and the asynchronous client against scripted answers: what is sent, what is made of the answers."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator

import pytest

from replay import SANDBOX, SB, ReplayServer, Reply, as_events, as_json, as_lines, refusal
from talon_sandbox import (
    AsyncSandbox,
    Client,
    CommandError,
    ConflictError,
    NetworkError,
    NotFoundError,
    RetryPolicy,
    Sandbox,
    ServerError,
    TalonTimeoutError,
)

RESULT = {"process_id": "proc_1", "exit_code": 3, "stdout": "hi\n", "stderr": "", "duration_s": 0.1, "timed_out": False}
PROCESS = {"id": "proc_1", "command": "serve", "state": "running", "pid": 7, "started_at": "2026-01-02T03:04:05Z"}
FAST = RetryPolicy(first_delay_s=0.001)


@pytest.fixture
def client(server: ReplayServer) -> Iterator[Client]:
    with Client(retry=FAST) as made:
        yield made


@pytest.fixture
def sandbox(client: Client) -> Sandbox:
    return client.connect("demo")


def test_create_run_and_destroy_use_one_connection(server: ReplayServer) -> None:
    server.on("POST", f"{SB}/exec", as_json(RESULT))
    with Client() as client:
        with Sandbox.create(client=client, image="base", ttl="10m", env={"A": "1"}, network=["api.example.com"]) as sb:
            result = sb.run("echo hi; exit 3", timeout="2s", cwd="/tmp")
        assert (result.stdout, result.exit_code, result.ok, sb.labels) == ("hi\n", 3, False, {"team": "a"})
    create, run, delete = server.asked
    assert create.json()["network"] == {
        "mode": "allowlist",
        "rules": [{"action": "allow", "target": "api.example.com"}],
    }
    assert create.json()["ttl"] == "10m" and create.query == {"wait": "running"}
    assert create.headers["authorization"] == "Bearer tln_test" and create.headers["idempotency-key"]
    assert run.json() == {"command": "echo hi; exit 3", "cwd": "/tmp", "timeout_s": 2.0}
    assert (delete.method, server.connections) == ("DELETE", 1)


def test_default_client_serves_several_sandboxes(server: ReplayServer) -> None:
    for _ in range(2):
        with Sandbox.create() as sb:
            assert sb.id == SANDBOX["id"]
    assert server.connections == 1


def test_async_create_can_be_entered_or_awaited(server: ReplayServer) -> None:
    server.on("POST", f"{SB}/exec", as_json(RESULT))

    async def use() -> None:
        async with AsyncSandbox.create(ttl=60) as entered:
            assert (await entered.run(["echo", "hi"])).stdout == "hi\n"
        awaited = await AsyncSandbox.create()
        assert (await awaited.info()).state == "running"
        await awaited.destroy()

    asyncio.run(use())
    assert [asked.method for asked in server.asked] == ["POST", "POST", "DELETE", "POST", "GET", "DELETE"]


def test_failing_command_raises_when_checked(server: ReplayServer, sandbox: Sandbox) -> None:
    server.on("POST", f"{SB}/exec", as_json(RESULT))
    with pytest.raises(CommandError, match="exit code 3") as caught:
        sandbox.run("false", check=True)
    assert caught.value.result.stdout == "hi\n"


def test_output_reaches_callbacks_as_it_comes(server: ReplayServer, sandbox: Sandbox) -> None:
    server.on(
        "POST",
        f"{SB}/exec",
        as_events(
            ("started", {"process_id": "proc_1", "pid": 7}),
            ("stdout", {"data": "grüß"}),
            ("stderr", {"data": "!"}),
            ("stdout", {"data": "e\n"}),
            ("exit", {"exit_code": 0, "signal": None, "duration_s": 0.2, "timed_out": False, "oom_killed": False}),
        ),
    )
    seen: list[str] = []
    result = sandbox.run("greet", on_stdout=seen.append, on_stderr=seen.append)
    assert seen == ["grüß", "!", "e\n"]
    assert (result.stdout, result.stderr, result.ok) == ("grüße\n", "!", True)


def test_binary_output_is_kept(server: ReplayServer, sandbox: Sandbox) -> None:
    server.on("POST", f"{SB}/exec", as_json({**RESULT, "stdout": base64.b64encode(b"\xff\x00").decode()}))
    assert sandbox.run("cat x", binary=True).stdout_bytes == b"\xff\x00"
    assert server.asked[-1].query == {"encoding": "base64"}


def test_cut_off_output_is_an_error(server: ReplayServer, sandbox: Sandbox) -> None:
    server.on("POST", f"{SB}/exec", as_events(("stdout", {"data": "par"}), cut=True))
    with pytest.raises(NetworkError):
        sandbox.run("long", on_stdout=print)
    assert sum(asked.path == f"{SB}/exec" for asked in server.asked) == 1


def test_errors_carry_what_the_server_said(server: ReplayServer, client: Client) -> None:
    server.on("GET", "/v2/sandboxes/gone", refusal(404, "sandbox_not_found", "no sandbox 'gone'"))
    server.on("POST", "/v2/sandboxes", refusal(409, "name_taken"))
    server.on("GET", "/version", Reply(502, b"<html>bad gateway</html>"))
    with pytest.raises(NotFoundError) as missing:
        client.connect("gone")
    assert (missing.value.code, missing.value.remedy, missing.value.request_id) == (
        "sandbox_not_found",
        "do this",
        "req_1",
    )
    with pytest.raises(ConflictError):
        client.create(name="demo")
    with pytest.raises(ServerError, match="bad gateway"):
        client.version()


def test_full_machine_is_asked_again(server: ReplayServer, client: Client) -> None:
    full = refusal(503, "no_capacity", Retry_After="0.01")
    server.on("POST", "/v2/sandboxes", full, full, as_json(SANDBOX, 201))
    assert client.create().state == "running"
    keys = {asked.headers["idempotency-key"] for asked in server.asked}
    assert (len(server.asked), len(keys)) == (3, 1)


def test_command_is_never_sent_twice(server: ReplayServer, sandbox: Sandbox) -> None:
    server.on("POST", f"{SB}/exec", Reply(502))
    with pytest.raises(ServerError):
        sandbox.run("pay")
    assert sum(asked.path == f"{SB}/exec" for asked in server.asked) == 1


def test_server_that_is_not_there() -> None:
    with Client("http://127.0.0.1:1", "k", retry=FAST) as client, pytest.raises(NetworkError) as caught:
        client.version()
    assert caught.value.code == "server_unreachable" and "--server" in caught.value.remedy


def test_list_follows_pages(server: ReplayServer) -> None:
    server.on(
        "GET",
        "/v2/sandboxes",
        as_json({"items": [SANDBOX], "next_cursor": "c2"}),
        as_json({"items": [SANDBOX], "next_cursor": None}),
    )
    assert len(Sandbox.list(labels={"team": "a"})) == 2
    assert server.asked[0].query["label"] == "team:a" and server.asked[1].query["cursor"] == "c2"


def test_create_many_gives_all_or_none(server: ReplayServer, client: Client) -> None:
    error = {"code": "no_capacity", "message": "full"}
    server.on(
        "POST",
        "/v2/sandboxes:batch",
        as_lines({"index": 0, "sandbox": SANDBOX}, {"index": 1, "sandbox": SANDBOX}),
        as_lines({"index": 0, "sandbox": SANDBOX}, {"index": 1, "error": error, "status": 503}),
    )
    assert len(client.create_many(2, image="base")) == 2
    with pytest.raises(ServerError, match="full"):
        client.create_many(2)
    assert server.asked[-1].method == "DELETE"


def test_process_is_written_to_followed_and_awaited(server: ReplayServer, sandbox: Sandbox) -> None:
    ended = {**PROCESS, "state": "exited", "exit_code": 0, "finished_at": "2026-01-02T03:04:06Z"}
    server.on("POST", f"{SB}/processes", as_json(PROCESS, 201))
    server.on("POST", f"{SB}/processes/proc_1/stdin", Reply(204))
    server.on("GET", f"{SB}/processes/proc_1/wait", as_json(PROCESS), as_json(ended))
    server.on("DELETE", f"{SB}/processes/proc_1", Reply(204))
    server.on(
        "GET",
        f"{SB}/processes/proc_1/logs",
        as_events(("stdout", {"data": "a"}), ("stderr", {"data": "b"}), ("exit", {"exit_code": 0})),
    )
    process = sandbox.spawn("serve")
    process.write(b"\x00in")
    process.close_stdin()
    assert [(chunk, chunk.stream) for chunk in process.logs(follow=True)] == [("a", "stdout"), ("b", "stderr")]
    with pytest.raises(TalonTimeoutError):
        process.wait(timeout=0)
    assert process.wait().exit_code == 0 and process.exit_code == 0
    process.kill()
    stdin = [(asked.body, asked.query) for asked in server.asked if asked.path.endswith("/stdin")]
    assert stdin == [(b"\x00in", {}), (b"", {"eof": "true"})]


def test_image_progress_ends_in_image_or_error(server: ReplayServer, client: Client) -> None:
    failed = {"error": {"code": "image_pull_failed", "message": "no such tag", "remedy": "check the name"}}
    done = {"image": {"name": "python:3.12", "size_bytes": 5}}
    server.on("POST", "/v2/images:pull", as_lines({"stage": "fetch"}, done), as_lines({"stage": "fetch"}, failed))
    assert client.images.pull("python:3.12").name == "python:3.12"
    with pytest.raises(ServerError, match="no such tag"):
        client.images.pull("python:none", username="u", password="p")
    assert server.asked[-1].json() == {"ref": "python:none", "username": "u", "password": "p"}


def test_followed_log_survives_a_broken_connection(server: ReplayServer, sandbox: Sandbox) -> None:
    server.on("GET", f"{SB}/processes/proc_1", as_json(PROCESS))
    server.on(
        "GET",
        f"{SB}/processes/proc_1/logs",
        as_events(("stdout", {"data": "one ", "next_offset": 4}), cut=True),
        as_events(("stdout", {"data": "two", "next_offset": 7, "dropped_bytes": 1}), ("exit", {"exit_code": 0})),
    )
    chunks = list(sandbox.process("proc_1").logs(follow=True))
    assert "".join(chunks) == "one two"
    assert [(chunk.offset, chunk.dropped) for chunk in chunks] == [(4, 0), (7, 1)]
    assert server.asked[-1].query == {"stream": "both", "offset": "4", "follow": "true"}
