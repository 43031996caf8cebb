"""T5: whoever holds a key or a token opens more with it than it is for."""

import stat
import subprocess

import httpx

from tests.conftest import Maker
from tests.framework.platform import Platform


def test_the_token_of_one_sandbox_opens_nothing_of_another(platform: Platform, make: Maker) -> None:
    mine, other = make(), make()
    doors = {
        sandbox.id: platform.http.get(f"/v1/sandboxes/{sandbox.id}/endpoints/44772").json() for sandbox in (mine, other)
    }
    tokens = {id: door["headers"] for id, door in doors.items()}
    assert tokens[mine.id] != tokens[other.id]
    for door, token, expected in (
        (mine.id, mine.id, 200),
        (other.id, other.id, 200),
        (other.id, mine.id, 401),
        (mine.id, other.id, 401),
    ):
        answer = httpx.get(f"http://{doors[door]['endpoint']}/ping", headers=tokens[token], timeout=60)
        assert answer.status_code == expected, (door == mine.id, token == mine.id)


def test_a_token_is_no_key(platform: Platform, make: Maker) -> None:
    sandbox = make()
    door = platform.http.get(f"/v1/sandboxes/{sandbox.id}/endpoints/44772").json()
    for token in door["headers"].values():
        for headers in ({"Authorization": f"Bearer {token}"}, {"OPEN-SANDBOX-API-KEY": token}):
            assert httpx.get(f"{platform.url}/v2/sandboxes", headers=headers, timeout=60).status_code == 401


def test_secrets_are_readable_by_their_owner_alone(platform: Platform, make: Maker) -> None:
    sandbox = make(env={"PASSWORD": "hunter2-unmistakable"})
    assert stat.S_IMODE((platform.home / "admin.key").stat().st_mode) == 0o600
    assert stat.S_IMODE((platform.home / "run" / "shells").stat().st_mode) == 0o700
    assert platform.key.encode() not in (platform.home / "talon.db").read_bytes()
    assert sandbox.run("echo $PASSWORD").stdout == "hunter2-unmistakable\n"


def test_secrets_are_not_on_command_lines_or_in_the_log(platform: Platform, make: Maker) -> None:
    make(env={"PASSWORD": "hunter3-unmistakable"}).run("echo $PASSWORD")
    lines = subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True, check=True).stdout
    assert "hunter3-unmistakable" not in lines
    assert "hunter3-unmistakable" not in platform.log.read_text(errors="replace")
    assert platform.key not in platform.log.read_text(errors="replace")
    for config in (platform.home / "run").rglob("config.json"):
        assert "hunter3-unmistakable" not in config.read_text()
