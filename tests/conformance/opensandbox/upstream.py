"""Runs upstream's Python suite from its own checkout and tells what passed: the work behind `run-upstream`.

It starts a server with the image names, host directory and named volume that the suite expects, gives the suite a
virtual environment of its own, and reads pytest's XML report.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import xml.etree.ElementTree as Xml
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.opensandbox.reasons import KNOWN
from tests.framework.platform import Platform, free_port, home
from tests.framework.world import World

NEEDS = ["opensandbox==1.1.1", "opensandbox-code-interpreter==1.1.1", "pytest>=9", "pytest-asyncio", "pytest-timeout"]
NEEDS += ["pytest-order", "redis>=5,<6"]
OLDER = "opensandbox==0.1.16"
"""The pool tests of the suite use arguments that the SDK dropped in 1.1; they run with the release they were written for."""
IMAGE = "opensandbox/code-interpreter:latest"
HOST_DIRECTORY = Path("/tmp/opensandbox-e2e")
VOLUME = "opensandbox-e2e-pvc-test"
CONFIG = """[images.aliases]
"{image}" = "base"

[volumes]
host_allow = ["{directory}"]

[network]
resolvers = ["{resolver}"]
"""
HARDENED = """
[volumes.everywhere]
"{directory}/workspace" = "/workspace"

[hardening]
capabilities = "none"
landlock = true

[execd]
loopback = true
"""
"""What upstream's tests of init and hardening have set on their server; they run with a server of their own."""
HARDENED_FILES = ("tests/test_execd_hardening_e2e.py", "tests/test_execd_init_e2e.py")
TRUST = "/etc/ssl/certs/ca-certificates.crt"
SEED = """mkdir -p /v/datasets/train
echo pvc-marker-data > /v/marker.txt
echo pvc-subpath-marker > /v/datasets/train/marker.txt"""


def main() -> int:
    arguments, rest = _arguments()
    suite = (Path(arguments.start) / arguments.directory).resolve() / "tests" / "python"
    if not (suite / "tests").is_dir():
        print(f"run-upstream: {suite} does not exist: give a checkout of OpenSandbox's repository", file=sys.stderr)
        return 2
    python = environment(home("upstream-python"))
    modes = ["direct", "proxy"] if arguments.mode == "both" else [arguments.mode]
    cases: dict[str, list[Path]] = {mode: [] for mode in modes}
    with World(home("upstream-world"), sites(suite)) as world:
        for hardened in (False, True):
            with server(world, hardened) as platform, redis() as url:
                for mode in modes:
                    cases[mode] += run(python, suite, platform, mode, url, rest, hardened)
    report = [table(mode, reports) for mode, reports in cases.items()]
    text = "\n".join(report)
    print(text)
    if arguments.write:
        write(Path(arguments.start, arguments.write), text)
    return 0


def write(target: Path, text: str) -> None:
    """Put the table into a page between its marks, or into a file of its own."""
    before, mark, rest = (target.read_text() if target.exists() else "").partition("<!-- table -->\n")
    _, end, after = rest.partition("<!-- /table -->")
    target.write_text(f"{before}{mark}{text}{end}{after}" if end else text)


def _arguments() -> tuple[argparse.Namespace, list[str]]:
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(prog="run-upstream", description="Run upstream's Python suite against Talon.")
    parser.add_argument("directory", help="a checkout of OpenSandbox's repository")
    parser.add_argument("--mode", choices=("direct", "proxy", "both"), default="both")
    parser.add_argument("--write", metavar="FILE", help="also write the table to a file")
    parser.add_argument("--from", dest="start", default=".", help=argparse.SUPPRESS)
    return parser.parse_args(words[:cut]), words[cut + 1 :]


def environment(place: Path) -> Path:
    """A virtual environment with the SDK of the release that we speak; kept between runs."""
    python = place / "bin" / "python"
    stamp = place / "needs"
    if not stamp.exists() or stamp.read_text() != "\n".join(NEEDS):
        venv.create(place, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *NEEDS], check=True)
        stamp.write_text("\n".join(NEEDS))
    return python


@contextmanager
def server(world: World, hardened: bool) -> Iterator[Platform]:
    """A server for the ordinary files of the suite, or for the hardened ones."""
    place = home("upstream")
    place.mkdir(parents=True, exist_ok=True)
    text = CONFIG + (HARDENED if hardened else "")
    told = text.format(image=IMAGE, directory=HOST_DIRECTORY, resolver=world.nameserver)
    (HOST_DIRECTORY / "workspace").mkdir(parents=True, exist_ok=True)
    (place / "config.toml").write_text(told)
    with Platform(place) as platform:
        platform.clear()
        platform.ensure_base()
        trust(platform, world.authority)
        prepare(platform)
        yield platform


def sites(suite: Path) -> tuple[str, ...]:
    """The names of the web sites that the suite's tests go to."""
    text = "".join(path.read_text() for path in sorted(suite.glob("tests/test_sandbox_e2e*.py")))
    return tuple(sorted(set(re.findall(r"curl -I https://([a-z0-9.-]+)", text))))


def trust(platform: Platform, authority: str) -> None:
    """Let the image of this run's own server trust the sites of its Internet, in place of those of former runs."""
    layer = next(path for path in (platform.home / "images" / "layers").glob(f"*{TRUST}"))
    kept = layer.with_suffix(".kept")
    if not kept.exists():
        kept.write_text(layer.read_text())
    layer.write_text(kept.read_text() + authority)


def prepare(platform: Platform) -> None:
    """The marker files and the named volume that the suite looks for."""
    for name in ("host-volume-test", "logs"):
        (HOST_DIRECTORY / name).mkdir(parents=True, exist_ok=True)
    (HOST_DIRECTORY / "host-volume-test" / "marker.txt").write_text("opensandbox-e2e-marker\n")
    (HOST_DIRECTORY / "logs" / "execd.log").touch()
    platform.http.post("/v2/volumes", json={"name": VOLUME})
    with platform.sandbox(volumes=[{"name": VOLUME, "path": "/v"}], user="root") as sandbox:
        sandbox.run(SEED, check=True)


@contextmanager
def redis() -> Iterator[str]:
    """A Redis for the pool tests that want one, where it is installed; else an empty address, and they skip."""
    program = shutil.which("redis-server")
    if program is None:
        yield ""
        return
    port = free_port()
    words = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        try:
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.terminate()


def run(
    python: Path, suite: Path, platform: Platform, mode: str, redis_url: str, rest: list[str], hardened: bool
) -> list[Path]:
    """The suite in one mode; its XML reports. The suite is copied, so that nothing is written beside it."""
    work = Path(tempfile.mkdtemp(prefix="opensandbox-suite-"))
    shutil.copytree(suite, work / "suite")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TALON_")}
    told = {
        **inherited,
        "OPENSANDBOX_TEST_DOMAIN": platform.url.removeprefix("http://"),
        "OPENSANDBOX_TEST_PROTOCOL": "http",
        "OPENSANDBOX_TEST_API_KEY": platform.key,
        "OPENSANDBOX_TEST_USE_SERVER_PROXY": "true" if mode == "proxy" else "false",
        "OPENSANDBOX_SANDBOX_DEFAULT_IMAGE": IMAGE,
        "OPENSANDBOX_E2E_SANDBOX_MEMORY": "512Mi",
    }
    if redis_url:
        told["OPENSANDBOX_TEST_REDIS_URL"] = redis_url
    if mode == "direct":  # the SDK cannot ask for a signed address through the server
        told["OPENSANDBOX_TEST_SECURE_ACCESS_VERIFIABLE"] = "true"
    older = home("upstream-older-sdk")
    reports = []
    about = "hardened" if hardened else "ordinary"
    with (platform.home / "log" / f"upstream-{mode}-{about}.log").open("wb") as log:
        pools = sorted(path.relative_to(suite).as_posix() for path in suite.glob("tests/test_*pool*.py"))
        others = ["tests", "--ignore-glob=*pool*", *(f"--ignore={file}" for file in HARDENED_FILES)]
        parts = [("hardened", list(HARDENED_FILES))] if hardened else [("newest", others), ("pools", pools)]
        for part, choice in parts:
            xml = platform.home / "log" / f"upstream-{mode}-{part}.xml"
            words = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=short"]
            words += ["-o", "addopts=--asyncio-mode=auto --order-scope=class", "-o", "log_cli=false"]
            if part == "pools":
                told["PYTHONPATH"] = str(_unpacked(python, older))
            words += [f"--junitxml={xml}", *choice, *rest]
            subprocess.run(words, cwd=work / "suite", env=told, stdout=log, stderr=log, check=False)
            reports.append(xml)
    shutil.rmtree(work, ignore_errors=True)
    return reports


def _unpacked(python: Path, place: Path) -> Path:
    if not (place / "opensandbox").is_dir():
        command = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(place), OLDER]
        subprocess.run(command, check=True)
    return place


def table(mode: str, reports: list[Path]) -> str:
    """The reports as a Markdown table, with the reasons of what did not pass below it."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    reasons: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    cases = [case for xml in reports if xml.exists() for case in Xml.parse(xml).getroot().iter("testcase")]
    for case in cases:
        file, name = case.get("classname", "").removeprefix("tests.").split(".")[0], case.get("name", "")
        verdict, reason = _verdict(case)
        counts[file][verdict] += 1
        if reason:
            reasons[file, verdict, KNOWN.get(name, reason)].append(f"`{name}`")
    lines = [f"\n### {'Through the server' if mode == 'proxy' else 'Direct'}\n"]
    lines += ["| file | passed | failed | skipped |", "|---|---|---|---|"]
    total: Counter[str] = sum(counts.values(), Counter())
    for file, count in [*sorted(counts.items()), ("total", total)]:
        lines.append(f"| {file} | {count['passed']} | {count['failed']} | {count['skipped']} |")
    lines.append("")
    for (file, verdict, reason), names in sorted(reasons.items()):
        lines.append(f"- {file}, {verdict}: {', '.join(names)}: {reason}")
    return "\n".join(lines) + "\n"


def _verdict(case: Xml.Element) -> tuple[str, str]:
    for tag, verdict in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        found = case.find(tag)
        if found is not None:
            said = (found.get("message") or "").strip().splitlines()
            return verdict, said[0][:160].replace("|", "/") if said else tag
    return "passed", ""


if __name__ == "__main__":
    sys.exit(main())
