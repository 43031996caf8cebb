"""Fixtures of the SDK's tests: a scripted server and an environment without the developer's own configuration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from replay import SANDBOX, SB, ReplayServer, Reply, as_json


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReplayServer]:
    """A server that knows one sandbox, and the environment that leads to it."""
    with ReplayServer() as replay:
        for name in ("TALON_SANDBOX_CONTEXT", "TALON_HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("TALON_SANDBOX_SERVER", replay.url)
        monkeypatch.setenv("TALON_SANDBOX_API_KEY", "tln_test")
        monkeypatch.setenv("TALON_SANDBOX_CONFIG", str(tmp_path / "config.toml"))
        replay.on("POST", "/v2/sandboxes", as_json(SANDBOX, 201))
        replay.on("GET", "/v2/sandboxes/demo", as_json(SANDBOX))
        replay.on("GET", SB, as_json(SANDBOX))
        replay.on("DELETE", SB, Reply(204))
        yield replay
