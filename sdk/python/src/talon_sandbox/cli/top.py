"""`tsb top`: a table of what each sandbox uses, drawn again and again."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from .._sync.concurrency import gather, sleep
from ..errors import TalonError
from ..models import Metrics, SandboxInfo
from .app import Session
from .output import age, size, table

_HEADER = ("ID", "NAME", "STATE", "CPU%", "MEMORY", "LIMIT", "PIDS", "AGE", "IMAGE")
_CLEAR = "\x1b[H\x1b[2J"


def configure(name: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--interval", type=float, default=2.0, metavar="SECONDS")
    parser.add_argument("--once", action="store_true", help="draw it once and end")
    parser.add_argument("--limit", type=int, default=40, metavar="ROWS", help="the busiest ones; default 40")
    parser.set_defaults(act=_top)


def _top(session: Session) -> None:
    while True:
        text = _drawn(session)
        sys.stdout.write((_CLEAR if sys.stdout.isatty() and not session.options.once else "") + text + "\n")
        sys.stdout.flush()
        if session.options.once:
            return
        sleep(session.options.interval)


def _drawn(session: Session) -> str:
    found = [item for item in session.client.list() if item.state != "terminated"]
    running = [item for item in found if item.state == "running"]
    measured = gather([_measure(session, item) for item in running])
    usage = dict(zip((item.id for item in running), measured, strict=True))
    found.sort(key=lambda item: _cpu(usage.get(item.id)), reverse=True)
    rows = [_row(item, usage.get(item.id)) for item in found[: session.options.limit]]
    return f"{_host_line(session, found)}\n\n{table([_HEADER, *rows])}"


def _measure(session: Session, info: SandboxInfo) -> Callable[[], Metrics | None]:
    def measure() -> Metrics | None:
        """None for one that went away meanwhile."""
        try:
            return session.client.metrics(info.id)
        except TalonError:
            return None

    return measure


def _cpu(usage: Metrics | None) -> float:
    return usage.cpu_used_pct if usage else -1.0


def _row(info: SandboxInfo, usage: Metrics | None) -> tuple[object, ...]:
    head = (info.id, info.name, info.state)
    if usage is None:
        return (*head, None, None, None, None, age(info.created_at), info.image)
    cpu = f"{usage.cpu_used_pct:.1f}"
    limit = size(usage.memory_limit_bytes)
    return (*head, cpu, size(usage.memory_bytes), limit, usage.pids, age(info.created_at), info.image)


def _host_line(session: Session, found: list[SandboxInfo]) -> str:
    states = {state: sum(item.state == state for item in found) for state in sorted({item.state for item in found})}
    counts = ", ".join(f"{count} {state}" for state, count in states.items()) or "no sandboxes"
    return f"{session.client.server}: {counts}"
