"""Figures: what was measured, how often, and beside what; pure data and how it is shown."""

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TOLERANCE = 0.25


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. `ratio` is p50 beside the peer named `beside`, None where there is none."""

    name: str
    unit: str
    count: int
    p50: float
    p95: float
    beside: str = ""
    ratio: float | None = None


def figure(name: str, samples: Sequence[float], unit: str = "ms", beside: Figure | None = None) -> Figure:
    """A figure of samples."""
    p50 = statistics.median(samples)
    p95 = sorted(samples)[min(len(samples) - 1, int(len(samples) * 0.95))]
    ratio = round(p50 / beside.p50, 3) if beside else None
    return Figure(name, unit, len(samples), round(p50, 3), round(p95, 3), beside.name if beside else "", ratio)


def table(figures: Iterable[Figure]) -> str:
    """The figures as a table."""
    lines = [f"{'':34} {'n':>5} {'p50':>10} {'p95':>10}  {'':4} {'ratio':>7}"]
    for one in figures:
        ratio = f"{one.ratio:7.2f} × {one.beside}" if one.ratio is not None else ""
        lines.append(f"{one.name:34} {one.count:5} {one.p50:10.2f} {one.p95:10.2f}  {one.unit:4} {ratio}")
    return "\n".join(lines)


def host() -> dict[str, Any]:
    """The machine the figures hold for."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "crun": _version("crun"),
        "runc": _version("runc"),
    }


def _version(program: str) -> str:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return "none"
    return done.stdout.splitlines()[0] if done.stdout else "none"


def save(figures: Iterable[Figure], place: Path) -> None:
    """Write figures with the host's description."""
    told = {"host": host(), "figures": [asdict(one) for one in figures]}
    place.write_text(json.dumps(told, indent=1) + "\n")


def worse(figures: Iterable[Figure], baseline: Path) -> list[str]:
    """The ratios that are more than a quarter worse than those of the baseline."""
    known = {one["name"]: one["ratio"] for one in json.loads(baseline.read_text())["figures"] if one["ratio"]}
    return [
        f"{one.name}: {one.ratio:.2f} × {one.beside}, was {known[one.name]:.2f}"
        for one in figures
        if one.ratio is not None and one.name in known and one.ratio > known[one.name] * (1 + TOLERANCE)
    ]
