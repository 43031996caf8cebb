"""`tsb fs`: list, show, write, make and remove files of a sandbox."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from .._sync.files import Files
from ..models import FileInfo
from .app import Session
from .arguments import write_bytes
from .output import add_format, show, size

_PIECE = 1 << 20


def configure(name: str, parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    for verb, act, text in (
        ("ls", _ls, "list a directory"),
        ("cat", _cat, "show a file"),
        ("write", _write, "write standard input to a file"),
        ("rm", _rm, "remove a file or directory"),
        ("mkdir", _mkdir, "make a directory"),
    ):
        one = verbs.add_parser(verb, help=text)
        one.add_argument("sandbox", metavar="SB")
        one.add_argument("-u", "--user", help="user of the sandbox; default: sandbox")
        one.add_argument("path", metavar="PATH", **({"nargs": "?", "default": "."} if verb == "ls" else {}))  # type: ignore[arg-type]
        if verb == "ls":
            one.add_argument("--depth", type=int, default=1)
            add_format(one)
        if verb in ("write", "mkdir"):
            one.add_argument("--mode", help='permissions, "0644"')
        if verb == "rm":
            one.add_argument("-r", "--recursive", action="store_true")
        one.set_defaults(act=act)


def _files(session: Session) -> Files:
    files = session.sandbox(session.options.sandbox).fs
    return files.as_user(session.options.user) if session.options.user else files


def _ls(session: Session) -> None:
    given = session.options
    found = _files(session).list(given.path, depth=given.depth)
    rows = [_row(item) for item in found]
    show(given.output, rows, ("PATH", "TYPE", "MODE", "OWNER", "SIZE", "MODIFIED"), [item.raw for item in found])


def _row(info: FileInfo) -> tuple[object, ...]:
    moment = info.modified_at.strftime("%Y-%m-%d %H:%M") if info.modified_at else None
    path = f"{info.path} -> {info.target}" if info.target else info.path
    return (path, info.type, info.mode, info.owner, size(info.size), moment)


def _cat(session: Session) -> None:
    for piece in _files(session).read_stream(session.options.path):
        write_bytes(piece)


def _write(session: Session) -> None:
    def pieces() -> Iterator[bytes]:
        while data := sys.stdin.buffer.read(_PIECE):
            yield data

    _files(session).write_bytes(session.options.path, pieces(), mode=session.options.mode)


def _rm(session: Session) -> None:
    _files(session).remove(session.options.path, recursive=session.options.recursive)


def _mkdir(session: Session) -> None:
    _files(session).mkdir(session.options.path, mode=session.options.mode)
