"""Recordings: what is in them, that a killed server loses nothing, that a change of one byte is found."""

import json

import pytest

from talon_sandbox import Sandbox
from talon_sandbox.chain import check
from tests.conftest import Maker
from tests.framework.platform import Platform
from tests.framework.waiting import until

BOUND = 120


def test_a_session_is_recorded_whole_though_the_server_is_killed_twice(platform: Platform) -> None:
    with platform.sandbox(recording="all") as sandbox:
        id = sandbox.id
        terminal = sandbox.terminal(command="i=0; while read x; do i=$((i+1)); echo round $i; done", env={"PS1": ""})
        for number in range(1, 4):
            terminal.write("\n")
            terminal.read_until(f"round {number}\r\n", timeout=BOUND)
            if number < 3:
                platform.restart()
        sandbox.run("echo from a command; exit 3")
        sandbox.fs.write_text("/workspace/note.txt", "kept")
        terminal.write("\x04")
        assert terminal.wait(timeout=BOUND) == 0
        terminal.close()
    recordings = platform.client.recordings
    _closed(platform, id)
    told = recordings.get(id)
    assert (told["verified"], told["terminals"]) == (True, [terminal.id])
    lines = list(recordings.lines(id))
    found = check(lines, told["head"]["hash"])
    assert (found.sound, found.records) == (True, told["head"]["records"])
    kinds = [json.loads(line)["kind"] for line in lines]
    assert {"term.open", "term.out", "term.exit", "cmd.start", "cmd.out", "cmd.exit", "file", "life"} <= set(kinds)
    assert "gap" not in kinds
    cast = [json.loads(line) for line in b"".join(recordings.cast(id)).splitlines()]
    assert cast[0]["version"] == 2
    shown = "".join(event[2] for event in cast[1:] if event[1] == "o")
    assert [f"round {number}" in shown for number in (1, 2, 3)] == [True] * 3
    assert platform.command("tsb", "recordings", "verify", id).returncode == 0
    assert "round 3" in platform.command("tsb", "recordings", "play", id, "--idle-limit", "0").stdout


def test_a_changed_byte_is_found(platform: Platform) -> None:
    with platform.sandbox() as sandbox:
        id = sandbox.id
        sandbox.run("echo the truth")
        place = platform.home / "recordings" / id / "timeline.jsonl"
        until(lambda: b"the truth" in place.read_bytes(), "the output is written")
        whole = place.read_bytes()
        place.write_bytes(whole.replace(b"the truth", b"the trutj"))
        number = next(n for n, line in enumerate(whole.splitlines()) if b'"cmd.start"' in line)
        done = platform.command("tsb", "recordings", "verify", id)
        assert done.returncode == 1
        assert f"ALTERED at record {number}" in done.stdout
        place.write_bytes(whole)


@pytest.mark.parametrize(
    ("mode", "kinds"), [("off", set()), ("terminals", {"term.out"}), ("all", {"term.out", "cmd.out"})]
)
def test_modes(make: Maker, platform: Platform, mode: str, kinds: set[str]) -> None:
    sandbox = make(recording=mode)
    sandbox.run("echo command")
    terminal = sandbox.terminal(command="echo terminal")
    assert terminal.wait(timeout=BOUND) == 0
    terminal.close()
    recorded = platform.client.recordings.list(sandbox.id)
    if mode == "off":
        assert recorded == []
        return

    def outputs() -> set[str]:
        records = platform.client.recordings.records(sandbox.id)
        return {record["kind"] for record in records if record["kind"].endswith(".out")}

    until(lambda: outputs() == kinds, f"{kinds} are recorded")


def test_the_sandbox_cannot_reach_its_recording(sb: Sandbox) -> None:
    found = sb.run(
        "find / -name 'timeline.jsonl*' 2>/dev/null; ls -l /proc/*/fd 2>/dev/null | grep timeline", user="root"
    )
    assert found.stdout == ""


def test_held_recordings_stay(platform: Platform) -> None:
    with platform.sandbox() as sandbox:
        id = sandbox.id
    _closed(platform, id)
    assert platform.command("tsb", "recordings", "hold", id).returncode == 0
    assert platform.command("tsb", "recordings", "rm", id).returncode == 1
    assert platform.command("tsb", "recordings", "hold", "--release", id).returncode == 0
    assert platform.command("tsb", "recordings", "rm", id).returncode == 0
    assert platform.command("tsb", "recordings", "get", id).returncode == 4


def test_audit_names_who_did_what(platform: Platform, sb: Sandbox) -> None:
    entries = platform.client.audit.list(target=sb.id)
    assert [entry["action"] for entry in entries][-1] == "sandbox.create"
    assert platform.command("tsb", "audit", "verify").returncode == 0
    assert sb.id in platform.command("tsb", "audit", "--limit", "200").stdout


def _closed(platform: Platform, id: str) -> None:
    """Wait until a destroyed sandbox's recording is signed and listed."""
    recordings = platform.client.recordings
    until(lambda: [one for one in recordings.list(id) if one["state"] == "closed"], "the recording is closed")
