"""`tsb cp`: files and directories into a sandbox (cp PATH SB:PATH) or out (cp SB:PATH PATH); `-` is stdin or stdout."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from .._sync.files import Files
from ..models import Transfer
from .app import Session, UsageError
from .arguments import write_bytes
from .output import printable, size

_PIECE = 1 << 20
_SHOWN = 10


def configure(name: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SRC", help="PATH, SB:PATH or -")
    parser.add_argument("target", metavar="DST", help="PATH, SB:PATH or -")
    parser.add_argument("--mode", help='permissions of the file in the sandbox, "0755"; default: those of the source')
    parser.add_argument("-u", "--user", help="user of the sandbox; default: sandbox")
    parser.add_argument("-q", "--quiet", action="store_true")
    parser.set_defaults(act=_copy)


def _copy(session: Session) -> None:
    given = session.options
    source, target = _split(given.source), _split(given.target)
    if (source is None) == (target is None):
        raise UsageError("one side must be in a sandbox, and one here", remedy="tsb cp ./f SB:/workspace/f")
    if target is not None:
        moved = _into(_files(session, target[0]), given.source, target[1], given.mode)
    else:
        assert source is not None
        moved = _out(_files(session, source[0]), source[1], given.target)
    for entry in moved.skipped[:_SHOWN]:
        print(f"tsb: left out {printable(entry)}", file=sys.stderr)
    if len(moved.skipped) > _SHOWN:
        print(f"tsb: left out {len(moved.skipped) - _SHOWN} more", file=sys.stderr)
    if not given.quiet and sys.stderr.isatty():
        print(f"{moved.files} files, {size(moved.bytes)}", file=sys.stderr)


def _files(session: Session, name: str) -> Files:
    files = session.sandbox(name).fs
    return files.as_user(session.options.user) if session.options.user else files


def _split(text: str) -> tuple[str, str] | None:
    """SB and path of `SB:PATH`; None for a local path (which has a slash before any colon)."""
    name, colon, path = text.partition(":")
    return (name, path or ".") if colon and name and "/" not in name else None


def _into(files: Files, source: str, target: str, mode: str | None) -> Transfer:
    if source == "-":
        moved = 0

        def pieces() -> Iterator[bytes]:
            nonlocal moved
            while data := sys.stdin.buffer.read(_PIECE):
                moved += len(data)
                yield data

        files.write_bytes(target, pieces(), mode=mode)
        return Transfer(1, moved)
    name = Path(source).resolve().name
    if target.endswith("/") or target == "." or _is_directory(files, target):
        target = f"{target.rstrip('/')}/{name}"
    return files.upload(source, target, mode=mode)


def _is_directory(files: Files, path: str) -> bool:
    return files.exists(path) and files.stat(path).is_dir


def _out(files: Files, source: str, target: str) -> Transfer:
    if target == "-":
        moved = 0
        directory = files.stat(source).is_dir
        for piece in files.download_archive(source) if directory else files.read_stream(source):
            write_bytes(piece)
            moved += len(piece)
        return Transfer(1, moved)
    local = Path(target)
    if local.is_dir():
        local /= Path(source.rstrip("/")).name or "root"
    return files.download(source, local)
