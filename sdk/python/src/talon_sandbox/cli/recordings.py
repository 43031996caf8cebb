"""`tsb recordings`: list, fetch, replay, check, export, hold and remove what sandboxes recorded."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from ..chain import check
from .app import Session, UsageError
from .arguments import each, write_bytes
from .output import add_format, printable, show, size

_HEADER = ("RECORDING", "SANDBOX", "MODE", "STATE", "STARTED", "RECORDS", "SIZE", "HELD")


def configure(name: str, parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    ls = verbs.add_parser("ls", help="list recordings, newest first")
    ls.add_argument("--sandbox", help="only this sandbox's")
    ls.add_argument("--limit", type=int, default=100)
    add_format(ls)
    ls.set_defaults(act=_ls)
    get = _one(verbs, "get", "write the timeline (JSON lines), or a terminal as asciicast", _get)
    get.add_argument("--cast", action="store_true", help="a terminal as asciicast v2, for asciinema")
    get.add_argument("--terminal", metavar="TERM", help="which; default: the first")
    get.add_argument("-f", "--follow", action="store_true", help="go on until it is closed")
    play = _one(verbs, "play", "replay a terminal in this one", _play)
    play.add_argument("--terminal", metavar="TERM", help="which; default: the first")
    play.add_argument("--speed", type=float, default=1.0, help="2 is twice as fast")
    play.add_argument("--idle-limit", type=float, metavar="SECONDS", help="shorten pauses to this")
    play.add_argument("--jump", type=float, default=0.0, metavar="SECONDS", help="begin there")
    _one(verbs, "verify", "check the chain here and ask the server for the signature", _verify)
    export = _one(verbs, "export", "write a page that replays it without a server", _export)
    export.add_argument("-o", "--output", metavar="FILE", help="default: RECORDING.html")
    hold = _one(verbs, "hold", "keep it whatever its age", _hold)
    hold.add_argument("--release", action="store_true", help="let it go again")
    rm = verbs.add_parser("rm", help="remove recordings for good")
    rm.add_argument("recordings", nargs="+", metavar="RECORDING")
    rm.set_defaults(act=_rm)


def _one(verbs: Any, name: str, text: str, act: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=text)
    parser.add_argument("recording", metavar="RECORDING", help="its id, which is its sandbox's")
    parser.set_defaults(act=act)
    return parser


def _ls(session: Session) -> None:
    given = session.options
    found = session.client.recordings.list(given.sandbox, limit=given.limit)
    show(given.output, [_row(item) for item in found], _HEADER, found)


def _row(item: Mapping[str, Any]) -> tuple[object, ...]:
    held = "held" if item.get("held") else None
    name = item.get("sandbox_name") or item["sandbox_id"]
    records, started = item.get("records") or None, str(item["started_at"])[:19]
    return item["id"], name, item["mode"], item["state"], started, records, size(item.get("size_bytes") or None), held


def _get(session: Session) -> None:
    given = session.options
    recordings = session.client.recordings
    if given.cast or given.terminal:
        for piece in recordings.cast(given.recording, given.terminal):
            write_bytes(piece)
    elif given.follow:
        for record in recordings.follow(given.recording):
            print(json.dumps(record, ensure_ascii=False), flush=True)
    else:
        for line in recordings.lines(given.recording):
            sys.stdout.buffer.write(line)


def _play(session: Session) -> None:
    given = session.options
    if given.speed <= 0:
        raise UsageError("--speed must be more than 0")
    wait = threading.Event().wait
    try:
        for pause, text in steps(_cast_lines(session), given.speed, given.idle_limit, given.jump):
            if pause > 0:
                sys.stdout.flush()
                wait(pause)
            sys.stdout.write(text)
    finally:
        if sys.stdout.isatty():
            sys.stdout.write("\x1b[0m\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()


def _cast_lines(session: Session) -> Iterator[bytes]:
    rest = b""
    for piece in session.client.recordings.cast(session.options.recording, session.options.terminal):
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole


def steps(lines: Iterator[bytes], speed: float, idle_limit: float | None, jump: float) -> Iterator[tuple[float, str]]:
    """What to show, and how long to wait before it; what lies before `jump` comes at once."""
    at = 0.0
    for line in lines:
        event = json.loads(line) if line else None
        if not isinstance(event, list) or event[1] != "o":
            continue
        pause = max(0.0, event[0] - max(at, jump))
        at = max(at, event[0])
        if idle_limit is not None:
            pause = min(pause, idle_limit)
        yield pause / speed, str(event[2])


def _verify(session: Session) -> int:
    recordings, id = session.client.recordings, session.options.recording
    told = recordings.get(id)
    head = told.get("head")
    found = check(recordings.lines(id), head["hash"] if head else None)
    if not found.sound:
        print(f"ALTERED at record {found.bad_record} (byte {found.bad_offset}): {found.reason}")
        return 1
    if not told.get("verified"):
        print(f"ALTERED, says the server: {printable(str(told.get('reason') or 'no reason given'))}")
        return 1
    signed = "signed by the server" if head else "still being written, not signed yet"
    print(f"sound: {found.records} records, {found.size} bytes, head {found.head}, {signed}")
    return 0


def _export(session: Session) -> None:
    given = session.options
    if given.output == "-":
        for piece in session.client.recordings.export(given.recording):
            write_bytes(piece)
        return
    target = given.output or f"{given.recording}.html"
    pieces = session.client.recordings.export(given.recording)
    first = next(iter(pieces), b"")
    with open(target + ".part", "wb") as file:
        file.write(first)
        file.writelines(pieces)
    os.replace(target + ".part", target)
    print(target)


def _hold(session: Session) -> None:
    given = session.options
    info = session.client.recordings.hold(given.recording, not given.release)
    print("held" if info["held"] else "not held")


def _rm(session: Session) -> int:
    return each(session, session.options.recordings, session.client.recordings.delete)
