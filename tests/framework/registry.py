"""A real registry (Debian's docker-registry) on a free port, open or behind a password, for tests of pulling."""

import subprocess
from pathlib import Path
from types import TracebackType

import httpx

from .platform import free_port
from .waiting import until

PASSWORD_FILE = "tester:{hash}\n"


class Registry:
    """`address` is HOST:PORT as references name it."""

    def __init__(self, place: Path, password_hash: str | None = None) -> None:
        self._place = place
        self._hash = password_hash
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> "Registry":
        self._place.mkdir(parents=True, exist_ok=True)
        settings = self._place / "config.yml"
        settings.write_text(self._configuration())
        with (self._place / "registry.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["docker-registry", "serve", str(settings)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until(self._answers, "the registry answers")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _configuration(self) -> str:
        lines = [
            "version: 0.1",
            "log: {level: warn, accesslog: {disabled: true}}",
            f"storage: {{filesystem: {{rootdirectory: {self._place / 'data'}}}}}",
            f"http: {{addr: '{self.address}'}}",
        ]
        if self._hash is not None:
            users = self._place / "users"
            users.write_text(PASSWORD_FILE.format(hash=self._hash))
            lines.append(f"auth: {{htpasswd: {{realm: tests, path: {users}}}}}")
        return "\n".join(lines) + "\n"

    def _answers(self) -> bool:
        try:
            return httpx.get(f"http://{self.address}/v2/", timeout=5).status_code in (200, 401)
        except httpx.TransportError:
            return False
