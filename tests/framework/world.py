"""A small Internet of our own: a network namespace with a name server and web sites at addresses that look public.

For tests of what sandboxes may reach, on machines that reach nothing. The addresses are routed into the namespace only;
the server under test gets `World.nameserver` as its resolver (`network.resolvers`), and programs in sandboxes trust
`World.authority`. `world_sites` is what runs inside. Needs root.
"""

import subprocess
import sys
from pathlib import Path
from types import TracebackType

from .world_sites import Authority

ROOT = Path(__file__).resolve().parent.parent.parent
START_S = 30


class World:
    """`names` are the sites' names; each has an address of its own. `number` tells worlds on one machine apart (1-255)."""

    def __init__(self, place: Path, names: tuple[str, ...], number: int = 94) -> None:
        self._place = place
        self._space = f"talon-world-{number}"
        self._link = f"tworld{number}"
        self._prefix = f"11.94.{number}"
        self._sites: subprocess.Popen[bytes] | None = None
        self.names = {name: f"{self._prefix}.{80 + at}" for at, name in enumerate(names)}
        self.nameserver = f"{self._prefix}.53"
        self._authority = Authority()

    @property
    def authority(self) -> str:
        """The certificate that signs the sites', as PEM."""
        return self._authority.certificate

    def __enter__(self) -> "World":
        self._remove()
        _ip("netns", "add", self._space)
        try:
            self._connect()
            self._serve()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the sites and take the namespace away."""
        if self._sites is not None:
            self._sites.terminate()
            self._sites.wait(timeout=START_S)
            assert self._sites.stdout is not None
            self._sites.stdout.close()
        self._sites = None
        self._remove()

    def _connect(self) -> None:
        inside = ("-n", self._space)
        _ip("link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", self._space)
        _ip("addr", "add", f"{self._prefix}.1/24", "dev", self._link)
        _ip("link", "set", self._link, "up")
        for address in (self.nameserver, *self.names.values()):
            _ip(*inside, "addr", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip(*inside, "link", "set", device, "up")
        _ip(*inside, "route", "add", "default", "via", f"{self._prefix}.1")

    def _serve(self) -> None:
        self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        certificate = self._place / "sites.pem"
        certificate.write_text(self._authority.issue(tuple(self.names)))
        told = [f"{name}={address}" for name, address in self.names.items()]
        words = ["ip", "netns", "exec", self._space, sys.executable, "-m", "tests.framework.world_sites"]
        words += [self.nameserver, str(certificate), *told]
        self._sites = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert self._sites.stdout is not None
        said = self._sites.stdout.readline()
        assert said == b"ready\n", f"the sites of the test's own Internet did not start: {said!r}"

    def _remove(self) -> None:
        for words in (("link", "del", self._link), ("netns", "del", self._space)):
            subprocess.run(["ip", *words], check=False, capture_output=True)  # nothing of it may be there


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=START_S)
