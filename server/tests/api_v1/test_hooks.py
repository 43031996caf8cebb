"""Lifecycle hooks, run by a real shell."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from talon_server.api.v1.hooks import _MATCHES, entrypoint
from talon_server.api.v1.schemas import Hooks


def run(hooks: dict[str, object], *asked: str) -> subprocess.CompletedProcess[str]:
    words = entrypoint(Hooks.model_validate(hooks), asked)
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def test_without_hooks_the_entry_process_is_as_asked() -> None:
    assert entrypoint(None, ["a", "b c"]) == ("a", "b c")
    assert entrypoint(Hooks(), ["a"]) == ("a",)


def test_pre_start_comes_first_and_its_words_stay_whole(tmp_path: Path) -> None:
    mark = tmp_path / "it's here"
    done = run({"preStart": {"command": ["touch", str(mark)]}}, "sh", "-c", 'ls "$0"; exit 3', str(mark))
    assert (done.stdout, done.returncode) == (f"{mark}\n", 3)


@pytest.mark.parametrize("command", [["false"], ["sleep", "60"]])
def test_a_pre_start_that_fails_or_lasts_too_long_ends_it(command: list[str]) -> None:
    done = run({"preStart": {"command": command, "timeoutSeconds": 1}}, "echo", "started")
    assert (done.stdout, done.returncode) == ("", 126)
    assert "preStart" in done.stderr


def test_a_periodic_hook_runs_beside_the_entry_process(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    hook = {"name": "tick", "schedule": "@every 1s", "command": ["touch", str(mark)]}
    wait = f"until test -e {mark}; do sleep 0.05; done; echo seen"
    words = entrypoint(Hooks.model_validate({"periodic": [hook]}), ["sh", "-c", wait])
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, process_group=0) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "seen\n"
        finally:
            assert process.pid > 1
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("field", "value", "least", "holds"),
    [
        ("*", 7, 0, True),
        ("7", 7, 0, True),
        ("7", 8, 0, False),
        ("*/5", 10, 0, True),
        ("*/5", 11, 0, False),
        ("1-5", 5, 0, True),
        ("1-5", 6, 0, False),
        ("10-20/5", 15, 0, True),
        ("10-20/5", 16, 0, False),
        ("3/10", 23, 0, True),
        ("1,15,30", 15, 1, True),
        ("1,15,30", 16, 1, False),
        ("*/2", 2, 1, False),
    ],
)
def test_cron_fields(field: str, value: int, least: int, holds: bool) -> None:
    script = f"{_MATCHES}matches '{field}' {value} {least}"
    assert (subprocess.run(["sh", "-c", script], check=False).returncode == 0) is holds


def test_every_minute_is_due_now() -> None:
    assert subprocess.run(["sh", "-c", f"{_MATCHES}due '*' '*' '*' '*' '0-7'"], check=False).returncode == 0
