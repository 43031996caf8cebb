"""The parts without I/O: event streams, retries, durations, volumes, and the choice of server and key."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import httpcore
import pytest

from talon_sandbox import ConfigError, InvalidRequestError, RetryPolicy, config
from talon_sandbox.config import Config
from talon_sandbox.spec import create_body, seconds, volumes
from talon_sandbox.sse import Event, NDJSONDecoder, SSEDecoder

STREAM = ': ping\r\n\r\nevent: stdout\r\ndata: {"data": "grün"}\r\n\r\ndata: a\ndata: b\nid: 7\n\n'.encode()


@pytest.mark.parametrize("step", range(1, 12))
def test_events_in_any_pieces(step: int) -> None:
    decoder, events = SSEDecoder(), []
    for start in range(0, len(STREAM), step):
        events += decoder.feed(STREAM[start : start + step])
    assert events == [Event("stdout", '{"data": "grün"}'), Event("message", "a\nb", "7")]


def test_lines_of_json() -> None:
    decoder = NDJSONDecoder()
    assert decoder.feed(b'{"a":') == []
    assert decoder.feed(b'1}\n\n{"b":2}') == [{"a": 1}]
    assert decoder.flush() == [{"b": 2}]


def test_what_may_be_sent_again() -> None:
    policy = RetryPolicy()
    broken, unreachable = httpcore.ReadError(), httpcore.ConnectError()
    assert policy.after_failure(0, broken, idempotent=True) is not None
    assert policy.after_failure(0, broken, idempotent=False) is None
    assert policy.after_failure(0, unreachable, idempotent=False) is not None
    assert policy.after_failure(2, broken, idempotent=True) is None
    assert policy.after_answer(9, 0.0, 503, {"retry-after": "2"}, idempotent=False) == 2.0
    assert policy.after_answer(0, 29.0, 503, {"retry-after": "2"}, idempotent=False) is None
    assert policy.after_answer(0, 0.0, 503, {}, idempotent=False) is None
    assert policy.after_answer(0, 0.0, 429, {"retry-after": "1"}, idempotent=True) == 1.0
    assert policy.after_answer(0, 0.0, 404, {}, idempotent=True) is None


@pytest.mark.parametrize(
    ("value", "expected"), [("10m", 600.0), ("1.5 h", 5400.0), ("250ms", 0.25), (3, 3.0), (timedelta(days=1), 86400.0)]
)
def test_durations(value: str | float | timedelta, expected: float) -> None:
    assert seconds(value) == expected


@pytest.mark.parametrize("value", ["-1", "soon", "1y", ""])
def test_wrong_durations(value: str) -> None:
    with pytest.raises(InvalidRequestError, match="not a duration"):
        seconds(value)


def test_volume_forms_are_equal() -> None:
    assert volumes({"/data": "d"}) == volumes(["d:/data"]) == [{"name": "d", "path": "/data"}]
    assert volumes(["/srv/x:/x:ro"]) == [{"host": "/srv/x", "path": "/x", "read_only": True}]
    with pytest.raises(InvalidRequestError):
        volumes(["nowhere"])


def test_body_keeps_only_what_was_given() -> None:
    assert create_body({"wait": False, "ttl": None, "recording": "all"}) == {"ttl": None, "recording": {"mode": "all"}}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("SERVER", "API_KEY", "CONTEXT"):
        monkeypatch.delenv(f"TALON_SANDBOX_{name}", raising=False)
    monkeypatch.setenv("TALON_SANDBOX_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("TALON_HOME", str(tmp_path))
    (tmp_path / "admin.key").write_text("tln_admin\n")
    return tmp_path


def test_local_server_needs_no_configuration(home: Path) -> None:
    assert config.resolve() == Config("http://127.0.0.1:8080", "tln_admin")
    assert config.resolve("https://sandbox.example.com").api_key == ""


def test_context_is_used_and_its_key_stays_with_its_server(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = config.load_file()
    file.contexts = {"a b": Config("https://a.example", 'k"1'), "c": Config("https://c.example", "k2")}
    file.current = "a b"
    file.save()
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert config.resolve() == Config("https://a.example", 'k"1')
    assert config.resolve(context="c").api_key == "k2"
    assert config.resolve("https://other.example").api_key == ""
    monkeypatch.setenv("TALON_SANDBOX_API_KEY", "env")
    assert config.resolve() == Config("https://a.example", "env")
    with pytest.raises(ConfigError, match="no context"):
        config.resolve(context="d")


def test_readable_configuration_is_refused(home: Path) -> None:
    (home / "config.toml").touch(mode=0o644)
    with pytest.raises(ConfigError, match="other users") as caught:
        config.resolve()
    assert caught.value.remedy.startswith("chmod 600")


def test_package_loads_nothing_until_used() -> None:
    code = "import sys, talon_sandbox.cli; print('httpcore' in sys.modules, 'argparse' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
