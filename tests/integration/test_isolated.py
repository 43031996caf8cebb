"""Isolated sessions and remembering shells, as OpenSandbox clients ask for them."""

import io
import json
import tarfile
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from tests.framework.platform import Platform

ISOLATION = {"bootstrap.execd.isolation": "enable"}


@pytest.fixture
def execd(platform: Platform) -> Iterator[httpx.Client]:
    """A client of a fresh sandbox's execd API."""
    with httpx.Client(base_url=platform.url, headers={"OPEN-SANDBOX-API-KEY": platform.key}, timeout=60) as client:
        body = {
            "image": {"uri": "base"},
            "timeout": 600,
            "entrypoint": ["tail", "-f", "/dev/null"],
            "resourceLimits": {"cpu": "1", "memory": "512Mi"},
        }
        sandbox = client.post("/v1/sandboxes", json={**body, "extensions": ISOLATION}).raise_for_status().json()["id"]
        try:
            endpoint = client.get(f"/v1/sandboxes/{sandbox}/endpoints/44772").raise_for_status().json()
            with httpx.Client(
                base_url=f"http://{endpoint['endpoint']}", headers=endpoint["headers"], timeout=60
            ) as inside:
                yield inside
        finally:
            client.delete(f"/v1/sandboxes/{sandbox}").raise_for_status()


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(frame) for frame in answer.raise_for_status().text.split("\n\n") if frame]


def stdout(answer: httpx.Response) -> list[str]:
    return [event["text"] for event in events(answer) if event["type"] == "stdout"]


def test_a_session_remembers(execd: httpx.Client) -> None:
    run = f"/session/{execd.post('/session').raise_for_status().json()['session_id']}/run"
    execd.post(run, json={"command": "f() { echo in f $X; }; alias ll='echo aliased'; X=5; cd /tmp; sleep 100 & :"})
    assert stdout(execd.post(run, json={"command": "f; ll; pwd; jobs | wc -l"})) == ["in f 5", "aliased", "/tmp", "1"]
    late = events(execd.post(run, json={"command": "sleep 100; echo no", "timeout": 200}))
    assert late[-1]["error"]["evalue"] == "130"
    assert events(execd.post(run, json={"command": "exit 7"}))[-1]["error"]["evalue"] == "7"
    assert stdout(execd.post(run, json={"command": "f; pwd"})) == ["in f 5", "/tmp"]


def test_changes_are_shown_and_committed(execd: httpx.Client) -> None:
    execd.post("/command", json={"command": "mkdir -p w/d && echo A > w/a && echo old > w/d/old"}).raise_for_status()
    created = execd.post("/v1/isolated/session", json={"workspace": {"path": "/workspace/w"}}).raise_for_status()
    session = f"/v1/isolated/session/{created.json()['session_id']}"
    code = "rm a; rm -r d; mkdir d; echo new > d/new; touch /etc/outside"
    assert events(execd.post(f"{session}/run", json={"code": code}))[-1]["type"] == "error"
    outside = "/files/info?" + urlencode({"path": "/workspace/w/a"})
    assert execd.get(outside).status_code == 200
    assert execd.get(session + outside).status_code == 404
    diff = execd.get(f"{session}/diff").raise_for_status()
    with tarfile.open(fileobj=io.BytesIO(diff.content)) as archive:
        assert archive.getnames() == [".wh.a", "d", "d/.wh..wh..opq", "d/new"]
    execd.post(f"{session}/commit").raise_for_status()
    assert execd.get(outside).status_code == 404
    assert stdout(execd.post("/command", json={"command": "ls -A w w/d"})) == ["w:", "d", "\n", "w/d:", "new"]
    execd.delete(session).raise_for_status()
    assert execd.get(session).status_code == 404
