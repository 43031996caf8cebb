"""A real server in a process of its own, on a home of its own, that tests may kill and start again.

The home lives on between runs, so that the image `base` is built once for a checkout; whatever else a former run left is
removed at the start. Servers on one machine do not meet: names, addresses and ports follow from the home.
"""

import hashlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType

import httpx

from talon_sandbox import Client, Sandbox

from .waiting import until

ROOT = Path(__file__).resolve().parent.parent.parent
START_S = 120.0


def home(name: str) -> Path:
    """The home of a test server: below TALON_TEST_HOME, which scripts/test sets."""
    base = Path(os.environ.get("TALON_TEST_HOME") or f"/var/lib/talon-test/{_digest(str(ROOT))}")
    base.mkdir(parents=True, exist_ok=True)
    (base / "checkout").write_text(f"{ROOT}\n")
    return base / name


def instance(place: Path) -> str:
    """What the names of a home's network namespaces, tables and groups contain."""
    return _digest(str(place.resolve()))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def free_port() -> int:
    """A TCP port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


class Platform:
    """One server. `settings` become TALON_* variables of its environment."""

    def __init__(self, place: Path, settings: dict[str, str] | None = None) -> None:
        self.home = place
        self.port = free_port()
        self._settings = settings or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._started = False
        self._http: httpx.Client | None = None
        self._client: Client | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def key(self) -> str:
        return (self.home / "admin.key").read_text().strip()

    @property
    def instance(self) -> str:
        return instance(self.home)

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def log(self) -> Path:
        return self.home / "log" / "test-server.log"

    @property
    def environment(self) -> dict[str, str]:
        """For programs that shall find this server: tsb and the SDK."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TALON_")}
        program = str(Path(sys.executable).parent)
        return {
            **inherited,
            "PATH": f"{program}:{inherited['PATH']}",
            "TALON_HOME": str(self.home),
            "TALON_SANDBOX_SERVER": self.url,
            "TALON_SANDBOX_API_KEY": self.key,
            "TALON_SANDBOX_CONFIG": str(self.home / "no-config.toml"),
        }

    def __enter__(self) -> "Platform":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> "Platform":
        """Start the server and wait until it answers."""
        self._end_former()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        program = str(Path(sys.executable).with_name("talon-server"))
        words = [program, "all", "--home", str(self.home), "--host", "127.0.0.1", "--port", str(self.port)]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TALON_")}
        with self.log.open("ab" if self._started else "wb") as log:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**inherited, **self._settings},
                start_new_session=True,
            )
        self._started = True
        (self.home / "test-server.pid").write_text(str(self._process.pid))
        until(self._answers, f"the server answers; its log ends:\n{self.log_end()}", bound_s=START_S)
        return self

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the server ended with {self._process.returncode}:\n{self.log_end()}")
        try:
            return httpx.get(f"{self.url}/healthz", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def _end_former(self) -> None:
        """End the server that an aborted run left on this home."""
        try:
            pid = int((self.home / "test-server.pid").read_text())
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return
        if str(self.home).encode() in words:
            os.kill(pid, signal.SIGKILL)
            until(lambda: not Path(f"/proc/{pid}").exists(), f"the end of process {pid}")

    def log_end(self, lines: int = 60) -> str:
        """The last lines of the server's log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def kill(self) -> None:
        """End the server as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the server as an operator would."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        assert process is not None, "the server is not running"
        process.send_signal(number)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"the server does not end:\n{self.log_end()}") from None

    @property
    def running(self) -> bool:
        return self._process is not None

    def restart(self, *, crash: bool = True) -> None:
        """End the server (`crash`: without a word) and start it again on the same home and port."""
        if self._process is not None:
            self.kill() if crash else self.stop()
        self.start()

    @property
    def http(self) -> httpx.Client:
        """An HTTP client with the key, for what the SDK would not send."""
        if self._http is None:
            headers = {"Authorization": f"Bearer {self.key}"}
            self._http = httpx.Client(base_url=self.url, headers=headers, timeout=120)
        return self._http

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = Client(self.url, self.key)
        return self._client

    def sandbox(self, **options: object) -> Sandbox:
        """A sandbox of `base` that ends by itself should the test be killed."""
        made: Sandbox = self.client.create(**{"image": "base", "ttl": "20m", **options})  # type: ignore[arg-type]
        return made

    def command(self, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a program that finds this server, with its output."""
        return subprocess.run(
            words, env=self.environment, input=stdin or "", capture_output=True, text=True, timeout=300, check=False
        )

    def ensure_base(self) -> None:
        """Build the image `base`, unless an earlier run with the same recipe did."""
        stamp = self.home / "base.recipe"
        recipe = _digest("".join(path.read_text() for path in _recipes()))
        there = any(image.name == "base" for image in self.client.images.list())
        if there and stamp.exists() and stamp.read_text() == recipe:
            return
        for _ in self.client.images.build_base_progress():
            pass
        stamp.write_text(recipe)

    def clear(self) -> None:
        """Destroy every sandbox."""
        for info in self.client.list():
            self.http.delete(f"/v2/sandboxes/{info.id}")

    def close(self) -> None:
        """Destroy the sandboxes and end the server."""
        try:
            if self._process is not None:
                self.clear()
        finally:
            for open_client in (self._http, self._client):
                if open_client is not None:
                    open_client.close()
            self._http = self._client = None
            if self._process is not None:
                self.stop()


def _recipes() -> list[Path]:
    source = ROOT / "server" / "src" / "talon_server"
    return sorted(
        path for path in source.rglob("*") if path.is_file() and "base" in path.stem and path.suffix != ".pyc"
    )
