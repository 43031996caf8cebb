"""The peers: the same root file system started by crun, runc and docker without a platform, and the bare machine."""

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.framework.platform import Platform


def milliseconds(began: float) -> float:
    return (time.perf_counter() - began) * 1000


def layer(platform: Platform) -> Path:
    """The files of `base`; its only layer."""
    index = json.loads((platform.home / "images" / "index.json").read_text())
    digest = next(image["layers"][0] for image in index["images"] if image["name"] == "base")
    return platform.home / "images" / "layers" / str(digest)


@contextmanager
def bundles(platform: Platform) -> Iterator[Path]:
    """A bundle whose root is an overlay over `base`, as a container engine would make it."""
    place = Path(tempfile.mkdtemp(prefix="talon-benchmark-"))
    for name in ("rootfs", "upper", "work"):
        (place / name).mkdir()
    options = f"lowerdir={layer(platform)},upperdir={place}/upper,workdir={place}/work"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, place / "rootfs"], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place / "rootfs"], check=False)
        shutil.rmtree(place, ignore_errors=True)


def oci(program: str, bundle: Path, number: int) -> float:
    """Milliseconds from the start of `program run` to the first output."""
    config = bundle / "config.json"
    config.unlink(missing_ok=True)
    subprocess.run([program, "spec"], cwd=bundle, check=True, capture_output=True)
    told = json.loads(config.read_text())
    told["process"] |= {"terminal": False, "args": ["sh", "-c", "echo hi"]}
    told["root"]["readonly"] = False
    config.write_text(json.dumps(told))
    return first_line([program, "run", "--bundle", str(bundle), f"talon-benchmark-{number}"])


def docker(number: int) -> float:
    return first_line(["docker", "run", "--rm", "talon-benchmark-base", "sh", "-c", "echo hi"])


def prepare_docker(platform: Platform) -> bool:
    """Import the files of `base`; False when no docker engine answers."""
    archive = subprocess.Popen(["tar", "--numeric-owner", "-C", layer(platform), "-c", "."], stdout=subprocess.PIPE)
    with archive:
        command = ["docker", "import", "-", "talon-benchmark-base"]
        done = subprocess.run(command, stdin=archive.stdout, capture_output=True, check=False)
    return done.returncode == 0


def first_line(command: list[str]) -> float:
    began = time.perf_counter()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        taken = milliseconds(began)
    assert line == b"hi\n", f"{command[0]} printed {line!r}"
    return taken


def fork_and_exec() -> float:
    """The floor under every command: start a small program and wait for its end."""
    began = time.perf_counter()
    subprocess.run(["/bin/true"], check=True)
    return milliseconds(began)


def resident(pid: int) -> int:
    """Bytes of memory that a process holds; 0 when it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) << 10
    return 0


def agents(platform: Platform) -> list[int]:
    """The agents of the sandboxes that run, in the host's numbering."""
    claimed = (platform.home / "run" / "shells").glob("*/claim.json")
    return [int((claim.parent / "pid").read_text()) for claim in claimed]
