"""`osb`, OpenSandbox's command line, unchanged: every command that has something to reach on our server."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.opensandbox.live import IMAGE, Live

BOUND_S = 120


class Osb:
    """Runs `osb` with an own home, so that no configuration of the user's is read or written."""

    def __init__(self, live: Live, home: Path) -> None:
        self._live = live
        self._env = {**os.environ, "HOME": str(home), "OPENSANDBOX_DISABLE_METRICS": "1", "COLUMNS": "200"}

    def __call__(self, *words: str, stdin: str | None = None, fails: bool = False) -> str:
        program = Path(sys.executable).with_name("osb")
        command = [str(program), "--domain", self._live.domain, "--api-key", self._live.key, "--no-color", *words]
        done = subprocess.run(command, input=stdin, env=self._env, capture_output=True, text=True, timeout=BOUND_S)
        assert (done.returncode != 0) is fails, (words, done.stdout, done.stderr)
        return done.stdout + (done.stderr if fails else "")

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "-o", "json"))


@pytest.fixture
def osb(live: Live, tmp_path: Path) -> Osb:
    return Osb(live, tmp_path)


@pytest.fixture
def box(osb: Osb) -> Iterator[str]:
    made = osb.json("sandbox", "create", "-i", IMAGE, "-t", "10m", "-m", "from=cli", "-e", "GREETING=hi")
    yield made["id"]
    osb("sandbox", "kill", made["id"])


def test_lifecycle(osb: Osb, box: str) -> None:
    assert osb.json("sandbox", "get", box)["status"]["state"] == "Running"
    listed = osb.json("sandbox", "list", "-s", "Running", "-m", "from=cli")
    assert box in json.dumps(listed)
    osb("sandbox", "health", box)
    osb("sandbox", "renew", box, "-t", "20m")
    assert osb.json("sandbox", "endpoint", box, "-p", "8000")["endpoint"]
    assert osb.json("sandbox", "metrics", box)
    osb("sandbox", "pause", box)
    assert osb.json("sandbox", "get", box)["status"]["state"] == "Paused"
    osb("sandbox", "resume", box)
    assert osb.json("sandbox", "get", box)["status"]["state"] == "Running"


def test_commands_and_sessions(osb: Osb, box: str) -> None:
    assert "hi" in osb("command", "run", box, "-o", "raw", "--", "sh", "-c", "echo $GREETING")
    assert "$HOME" in osb("command", "run", box, "--argv", "-o", "raw", "--", "echo", "$HOME")
    begun = json.loads(osb("command", "run", box, "-d", "-o", "json", "--", "sleep", "300"))
    number = begun.get("execution_id") or begun["id"]
    assert osb.json("command", "status", box, number)["running"] is True
    osb("command", "logs", box, number)
    osb("command", "interrupt", box, number)
    session = osb.json("command", "session", "create", box, "-w", "/tmp")
    name = session.get("session_id") or session["id"]
    osb("command", "session", "run", box, name, "-o", "raw", "--", "export", "X=5")
    assert "5 /tmp" in osb("command", "session", "run", box, name, "-o", "raw", "--", "sh", "-c", "echo $X $PWD")
    osb("command", "session", "delete", box, name)


def test_files(osb: Osb, box: str, tmp_path: Path) -> None:
    osb("file", "mkdir", box, "/tmp/d", "--mode", "755")
    osb("file", "write", box, "/tmp/d/a.txt", "-c", "old text", "--mode", "0644")
    assert osb("file", "cat", box, "/tmp/d/a.txt").strip() == "old text"
    osb("file", "replace", box, "/tmp/d/a.txt", "--old", "old", "--new", "new")
    osb("file", "chmod", box, "/tmp/d/a.txt", "--mode", "0600")
    osb("file", "mv", box, "/tmp/d/a.txt", "/tmp/d/b.txt")
    assert "/tmp/d/b.txt" in osb("file", "info", box, "/tmp/d/b.txt", "-o", "json")
    assert "/tmp/d/b.txt" in osb("file", "search", box, "/tmp/d", "-p", "*.txt", "-o", "json")
    local = tmp_path / "local.bin"
    local.write_bytes(bytes(range(256)) * 400)
    osb("file", "upload", box, str(local), "/tmp/d/up.bin")
    osb("file", "download", box, "/tmp/d/up.bin", str(tmp_path / "back.bin"))
    assert (tmp_path / "back.bin").read_bytes() == local.read_bytes()
    osb("file", "rm", box, "/tmp/d/b.txt")
    osb("file", "rmdir", box, "/tmp/d")
    assert "gone" in osb("command", "run", box, "-o", "raw", "--", "sh", "-c", "ls /tmp/d || echo gone")


def test_egress_and_diagnostics(osb: Osb, box: str) -> None:
    osb("egress", "patch", box, "--rule", "deny=bad.example")
    assert "bad.example" in osb("egress", "get", box, "-o", "json")
    osb("diagnostics", "logs", box, "-s", "container")
    osb("diagnostics", "events", box, "-s", "runtime")
    for word in ("logs", "inspect", "events", "summary"):
        osb("devops", word, box)


def test_snapshots(osb: Osb, box: str) -> None:
    taken = osb.json("snapshot", "create", box, "--name", "from-cli")["id"]
    assert osb.json("snapshot", "get", taken)["id"] == taken
    assert taken in osb("snapshot", "list", "--sandbox-id", box, "-o", "json")
    copy = osb.json("sandbox", "create", "--snapshot-id", taken, "-t", "10m")["id"]
    osb("sandbox", "kill", copy)
    osb("snapshot", "delete", taken)


def test_templates_say_that_they_are_not_offered(osb: Osb) -> None:
    assert "not supported" in osb("template", "list", fails=True).lower()
