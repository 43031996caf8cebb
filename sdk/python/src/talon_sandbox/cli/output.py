"""How the CLI shows things: tables for people, JSON for programs, ids for shells, and steps of long work."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any


def add_format(parser: argparse.ArgumentParser, choices: Sequence[str] = ("table", "json", "id")) -> None:
    """The option -o."""
    parser.add_argument("-o", "--output", choices=choices, default=choices[0], help="how to show the result")


def show(form: str, rows: Sequence[Sequence[object]], header: Sequence[str], raw: Any) -> None:
    """Show a list: a table with a header, the API's JSON, or the first column."""
    if form == "json":
        show_json(raw)
    elif form == "id":
        print("".join(f"{row[0]}\n" for row in rows), end="")
    else:
        print(table([header, *rows]))


def show_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def table(rows: Sequence[Sequence[object]]) -> str:
    """Rows in aligned columns; None is shown as a dash."""
    texts = [["-" if cell is None or cell == "" else printable(str(cell)) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in texts) for column in range(len(texts[0]))]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in texts
    )


def fields(pairs: Mapping[str, object]) -> None:
    """Show one thing: its fields below each other, without the empty ones."""
    shown = {name: value for name, value in pairs.items() if value not in (None, "", {}, [])}
    width = max((len(name) for name in shown), default=0)
    for name, value in shown.items():
        text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
        print(f"{name:<{width}}  {printable(text)}")


def printable(text: str) -> str:
    """Text from a sandbox made safe for a terminal: no control sequences, no half characters."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def size(count: float | None) -> str | None:
    """Bytes for people: "1.5GiB"."""
    if count is None:
        return None
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f}{unit}" if count == int(count) or count >= 100 else f"{count:.1f}{unit}"
        count /= 1024
    return f"{count:.1f}TiB"


def span(seconds: float) -> str:
    """A time span for people: "42s", "5m", "3h", "2d"."""
    for length, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * length or (unit == "m" and seconds >= 60):
            return f"{seconds / length:.0f}{unit}"
    return f"{max(0, seconds):.0f}s"


def age(moment: datetime | None) -> str | None:
    """How long ago."""
    return None if moment is None else span((datetime.now(UTC) - moment).total_seconds())


def left(moment: datetime | None) -> str | None:
    """How long until then."""
    return None if moment is None else span((moment - datetime.now(UTC)).total_seconds())


def progress(steps: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Show steps of long work on stderr (one line that changes on a terminal) and give the last."""
    live, last, said = sys.stderr.isatty(), {}, ""
    for step in steps:
        last = dict(step)
        text = _step_text(step)
        if text and text != said:
            print(f"\r\x1b[K{text[:118]}" if live else text, end="" if live else "\n", file=sys.stderr, flush=True)
            said = text
    if live and said:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return last


def _step_text(step: Mapping[str, Any]) -> str:
    text = str(step.get("message") or step.get("stage") or step.get("status") or "")
    done, total = step.get("done_bytes"), step.get("total_bytes")
    if isinstance(done, int) and isinstance(total, int) and total:
        text += f" {size(done)} of {size(total)}"
    return text
