"""What a sandbox can take of the host is bounded, and its neighbours feel nothing: memory, processes, disk, files, output."""

import json
import socket
from pathlib import Path

import pytest

from talon_sandbox import Sandbox
from tests.conftest import Maker
from tests.framework.platform import Platform
from tests.framework.waiting import until

HOG = "b = bytearray(1 << 20)\nkeep = []\nwhile True: keep.append(bytearray(b))"
BOMB = ":(){ :|:& };:"
MANY_FILES = """
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
files = []
try:
    while len(files) < 10_000:
        files.append(open("/dev/null"))
except OSError:
    pass
print(len(files))
"""


@pytest.fixture
def neighbour(make: Maker) -> Sandbox:
    """Another sandbox, which must go on as if nothing happened."""
    return make()


def healthy(platform: Platform, neighbour: Sandbox) -> None:
    assert platform.http.get("/healthz").status_code == 200
    assert neighbour.run("echo well", timeout=60).stdout == "well\n"


def test_memory(platform: Platform, make: Maker, neighbour: Sandbox) -> None:
    sandbox = make(resources={"memory": "128MiB"})
    result = sandbox.run(["python3", "-c", HOG], timeout=120)
    assert (result.exit_code, result.oom_killed) == (137, True)
    assert sandbox.run("echo alive").stdout == "alive\n"
    process = sandbox.spawn(["python3", "-c", HOG])
    ended = process.wait(timeout="120s")
    assert (ended.exit_code, ended.oom_killed) == (137, True)
    healthy(platform, neighbour)


def test_fork_bomb(platform: Platform, make: Maker, neighbour: Sandbox) -> None:
    sandbox = make(resources={"pids": 64, "cpu": 0.5})
    sandbox.run(["bash", "-c", BOMB], timeout=3)
    healthy(platform, neighbour)
    assert sandbox.metrics().pids <= 64


def test_disk(platform: Platform, make: Maker, neighbour: Sandbox) -> None:
    sandbox = make(resources={"disk": "64MiB"})
    result = sandbox.run("dd if=/dev/zero of=/workspace/full bs=1M count=1024", timeout=120)
    assert result.exit_code != 0
    assert "space" in result.stderr or "quota" in result.stderr.lower()
    size = int(sandbox.run("stat -c %s full").stdout)
    assert size < 80 << 20
    neighbour.fs.write_bytes("/workspace/mine", b"x" * (1 << 20))
    healthy(platform, neighbour)


def test_ten_thousand_open_files(platform: Platform, make: Maker, neighbour: Sandbox) -> None:
    opened = int(make().run(["python3", "-c", MANY_FILES], timeout=60, check=True).stdout)
    assert opened > 500
    healthy(platform, neighbour)


def test_cpu(make: Maker) -> None:
    """The quota is the kernel's; here it is only seen to be set."""
    sandbox = make(resources={"cpu": 0.5})
    assert sandbox.metrics().cpu_count == 0.5


def test_processes(make: Maker) -> None:
    sandbox = make(resources={"pids": 32})
    result = sandbox.run("for i in $(seq 100); do sleep 50 & done 2>&1; pkill sleep; echo over", timeout=60)
    assert "over" in result.stdout or "fork" in result.stdout + result.stderr
    assert sandbox.metrics().pids <= 32


def test_a_client_that_stops_reading(platform: Platform, make: Maker, neighbour: Sandbox) -> None:
    """A gibibyte of output that nobody takes is held back in the sandbox, not in the server."""
    sandbox = make(resources={"memory": "256MiB"})
    before = _resident(platform.pid)
    body = json.dumps({"command": "head -c 1073741824 /dev/zero | tr '\\0' x"}).encode()
    head = (
        f"POST /v2/sandboxes/{sandbox.id}/exec HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {platform.key}\r\n"
        f"Accept: text/event-stream\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", platform.port), timeout=60) as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        link.sendall(head.encode() + body)
        assert link.recv(1024).startswith(b"HTTP/1.1 200")
        calm = [-1.0]

        def blocked() -> bool:
            used = sandbox.metrics().cpu_usage_s
            calm.append(used)
            return len(calm) > 10 and calm[-1] - calm[-10] < 0.2

        until(blocked, "the command waits for its reader", step_s=0.1)
        assert _resident(platform.pid) - before < 96 << 20
        healthy(platform, neighbour)
    until(lambda: not sandbox.run("pgrep -x head").stdout, "the command ends when its client goes")


def test_output_that_is_too_long_is_cut_and_told(make: Maker) -> None:
    result = make().run("head -c 20000000 /dev/zero | tr '\\0' x; echo end >&2", timeout=120)
    assert result.stdout_truncated
    assert len(result.stdout) == 16 << 20
    assert (result.stderr, result.stderr_truncated, result.exit_code) == ("end\n", False, 0)


def _resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))
