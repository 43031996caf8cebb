"""The command line against scripted answers: what is shown, what is passed on, and which exit code comes back."""

from __future__ import annotations

import base64
import json
import tempfile
import threading
from pathlib import Path

import pytest

from replay import SANDBOX, SB, Asked, ReplayServer, Reply, as_events, as_json, as_lines, refusal
from talon_sandbox.cli.app import run

Captured = pytest.CaptureFixture[bytes]
PROCESS = {"id": "proc_1", "command": ["sleep", "9"], "state": "running", "pid": 7, "user": "sandbox"}


def ending(code: int, **fields: object) -> tuple[str, dict[str, object]]:
    return (
        "exit",
        {"exit_code": code, "signal": None, "duration_s": 0.1, "timed_out": False, "oom_killed": False, **fields},
    )


def piece(stream: str, data: bytes) -> tuple[str, dict[str, object]]:
    return (stream, {"data": base64.b64encode(data).decode()})


def test_run_in_fresh_sandbox_passes_everything_on(server: ReplayServer, capfdbinary: Captured) -> None:
    server.on("POST", f"{SB}/exec", as_events(piece("stdout", b"\xff1\n"), piece("stderr", b"e"), ending(3)))
    assert run(["run", "--resources", "cpu=1,memory=512MiB", "-e", "A=b=c", "--", "python3", "-c", "x"]) == 3
    assert capfdbinary.readouterr() == (b"\xff1\n", b"e")
    create, execute, delete = server.asked
    assert create.json()["resources"] == {"cpu": 1, "memory": "512MiB"}
    assert execute.json() == {"command": ["python3", "-c", "x"], "env": {"A": "b=c"}}
    assert (delete.method, delete.path) == ("DELETE", SB)


def test_fresh_sandbox_is_gone_after_a_failure(server: ReplayServer, capfdbinary: Captured) -> None:
    server.on("POST", f"{SB}/exec", refusal(500, "agent_lost"))
    assert run(["run", "--", "true"]) == 2
    assert server.asked[-1].method == "DELETE"
    assert b"agent_lost" in capfdbinary.readouterr().err


def test_run_in_existing_sandbox(server: ReplayServer, capfdbinary: Captured) -> None:
    server.on("POST", f"{SB}/exec", as_events(ending(137, timed_out=True)))
    assert run(["run", "--timeout", "1s", "demo", "uname -a"]) == 124
    assert server.asked[-1].json() == {"command": "uname -a", "timeout_s": 1.0}
    assert run(["run", "demo", "ls", "-l"]) == 124
    assert server.asked[-1].json() == {"command": ["ls", "-l"]}


def test_create_prints_the_id(server: ReplayServer, capfdbinary: Captured) -> None:
    line = ["create", "--image", "base", "--ttl", "10m", "--label", "team=a", "--wait", "running", "-o", "id"]
    assert run(line) == 0
    assert capfdbinary.readouterr().out.decode() == f"{SANDBOX['id']}\n"
    assert server.asked[0].json() == {"image": "base", "ttl": "10m", "labels": {"team": "a"}}


def test_lists_for_people_and_programs(server: ReplayServer, capfdbinary: Captured) -> None:
    server.on("GET", "/v2/sandboxes", as_json({"items": [SANDBOX], "next_cursor": None}))
    assert run(["ls"]) == 0
    header, row = capfdbinary.readouterr().out.decode().splitlines()
    assert header.split()[:3] == ["ID", "NAME", "STATE"] and "512MiB" in row
    assert run(["ls", "-o", "json"]) == 0
    assert json.loads(capfdbinary.readouterr().out) == [SANDBOX]
    assert run(["info", "demo"]) == 0
    assert "memory=512MiB" in capfdbinary.readouterr().out.decode()


def test_names_from_a_sandbox_cannot_steer_the_terminal(server: ReplayServer, capfdbinary: Captured) -> None:
    server.on("GET", f"{SB}/fs/list", as_json({"items": [{"path": "/w/\x1b[2J\udce9", "type": "file"}]}))
    assert run(["fs", "ls", "demo"]) == 0
    assert b"/w/\\x1b[2J\\udce9" in capfdbinary.readouterr().out


def test_rm_goes_on_after_a_missing_one(server: ReplayServer, capfdbinary: Captured) -> None:
    server.on("DELETE", "/v2/sandboxes/gone", refusal(404, "sandbox_not_found"))
    assert run(["rm", "gone", str(SANDBOX["id"])]) == 4
    assert run(["rm", "--force", "gone"]) == 0
    assert capfdbinary.readouterr().out.decode() == f"{SANDBOX['id']}\n"


def test_background_commands(server: ReplayServer, capfdbinary: Captured) -> None:
    server.on("POST", f"{SB}/processes", as_json(PROCESS, 201))
    server.on("GET", f"{SB}/processes", as_json({"items": [PROCESS]}))
    terminal = {"id": "term_1", "command": "top", "state": "running"}
    server.on("GET", f"{SB}/terminals", as_json({"items": [terminal]}))
    server.on("GET", f"{SB}/processes/proc_1", as_json(PROCESS))
    server.on("GET", f"{SB}/processes/proc_1/logs", as_events(piece("stdout", b"up\n"), ending(0)))
    server.on("DELETE", f"{SB}/processes/proc_1", Reply(204))
    assert run(["spawn", "demo", "python3 -m http.server 8000"]) == 0
    assert capfdbinary.readouterr().out == b"proc_1\n"
    assert run(["ps", "demo"]) == 0
    listed = capfdbinary.readouterr().out
    assert b"sleep 9" in listed and b"term_1" in listed
    assert run(["logs", "-f", "demo", "proc_1"]) == 0 and capfdbinary.readouterr().out == b"up\n"
    assert run(["kill", "demo", "proc_1"]) == 0


def test_cp_in_and_out(server: ReplayServer, tmp_path: Path, capfdbinary: Captured) -> None:
    (tmp_path / "f").write_bytes(b"content")
    server.on("GET", f"{SB}/fs/stat", refusal(404, "file_not_found"), as_json({"path": "/workspace/f", "type": "file"}))
    server.on("PUT", f"{SB}/fs", as_json({"size": 7}))
    server.on("GET", f"{SB}/fs", Reply(200, b"content"))
    assert run(["cp", str(tmp_path / "f"), "demo:/workspace/f"]) == 0
    assert server.asked[-1].body == b"content" and server.asked[-1].query["path"] == "/workspace/f"
    assert run(["cp", "demo:/workspace/f", "-"]) == 0
    assert capfdbinary.readouterr().out == b"content"
    assert run(["cp", "demo:/workspace/f", str(tmp_path / "g")]) == 0
    assert (tmp_path / "g").read_bytes() == b"content"
    assert run(["cp", "a", "b"]) == 1


def test_image_pull_shows_steps(server: ReplayServer, capfdbinary: Captured) -> None:
    steps: list[dict[str, object]] = [{"stage": "fetch", "message": "fetching"}, {"image": {"name": "python:3.12"}}]
    server.on("POST", "/v2/images:pull", as_lines(*steps))
    assert run(["image", "pull", "python:3.12"]) == 0
    assert capfdbinary.readouterr() == (b"python:3.12\n", b"fetching\n")


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (refusal(401, "key_invalid"), 3),
        (refusal(404, "sandbox_not_found"), 4),
        (refusal(409, "state_conflict"), 1),
        (refusal(500, "internal"), 2),
    ],
)
def test_exit_codes(server: ReplayServer, capfdbinary: Captured, reply: Reply, code: int) -> None:
    server.on("GET", "/v2/sandboxes/demo", reply)
    assert run(["info", "demo"]) == code
    told = capfdbinary.readouterr().err.decode()
    assert "cause: because" in told and "try: do this" in told and "request: req_1" in told


@pytest.mark.parametrize("line", [["nonsense"], ["run"], ["run", "demo"], ["create", "--resources", "big"], ["rm"]])
def test_mistakes_of_the_user(server: ReplayServer, capfdbinary: Captured, line: list[str]) -> None:
    assert run(line) == 1
    assert b"tsb: " in capfdbinary.readouterr().err


def test_wrong_options_end_with_1(server: ReplayServer, capfdbinary: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["ls", "--no-such-option"])
    assert ended.value.code == 1


def test_login_remembers_a_tried_key(
    server: ReplayServer, capfdbinary: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on("GET", "/v2/sandboxes", as_json({"items": [], "next_cursor": None}))
    assert run(["login", "--server", server.url, "--api-key", "tln_mine", "--name", "work"]) == 0
    monkeypatch.delenv("TALON_SANDBOX_SERVER")
    monkeypatch.delenv("TALON_SANDBOX_API_KEY")
    assert run(["ls", "-o", "id"]) == 0
    assert server.asked[-1].headers["authorization"] == "Bearer tln_mine"
    assert run(["context", "ls", "-o", "json"]) == 0
    assert run(["logout"]) == 0


def test_interactive_run_carries_input_over(
    server: ReplayServer, capfdbinary: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = threading.Event()

    def take(asked: Asked) -> Reply:
        if asked.query.get("eof"):
            fed.set()
        return Reply(204)

    def follow(asked: Asked) -> Reply:
        assert fed.wait(30)
        return as_events(piece("stdout", b"TEXT"), ending(0))

    server.on("POST", f"{SB}/processes", as_json(PROCESS, 201))
    server.on("POST", f"{SB}/processes/proc_1/stdin", take)
    server.on("GET", f"{SB}/processes/proc_1/logs", follow)
    with tempfile.TemporaryFile() as text:
        text.write(b"text")
        text.seek(0)
        monkeypatch.setattr("talon_sandbox.cli.run.STDIN", text.fileno())
        assert run(["run", "-i", "demo", "tr a-z A-Z"]) == 0
    assert capfdbinary.readouterr().out == b"TEXT"
    assert b"".join(asked.body for asked in server.asked if asked.path.endswith("/stdin")) == b"text"


def test_top_shows_what_is_used(server: ReplayServer, capfdbinary: Captured) -> None:
    server.on("GET", "/v2/sandboxes", as_json({"items": [SANDBOX], "next_cursor": None}))
    server.on("GET", f"{SB}/metrics", as_json({"cpu_used_pct": 12.5, "memory_bytes": 1048576, "pids": 3}))
    assert run(["top", "--once"]) == 0
    shown = capfdbinary.readouterr().out.decode()
    assert "1 running" in shown and "12.5" in shown and "1MiB" in shown
