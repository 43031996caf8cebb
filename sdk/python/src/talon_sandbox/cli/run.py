"""`tsb run`: a command in a fresh sandbox or one that exists; its output and exit code are passed on."""

from __future__ import annotations

import argparse
import base64
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from .._sync.process import Process
from .._sync.sandbox import Sandbox
from ..errors import TalonError
from ..spec import Command
from .app import Session, UsageError
from .arguments import (
    add_command_options,
    add_sandbox_options,
    chosen_command,
    create_options,
    environment,
    write_bytes,
)

STDIN = 0
_STDIN_PIECE = 65536


def configure(name: str, parser: argparse.ArgumentParser) -> None:
    parser.usage = "tsb run [options] -- CMD…   |   tsb run [options] SB CMD…"
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="SB CMD…")
    parser.add_argument("-i", "--interactive", action="store_true", help="pass standard input on")
    parser.add_argument("--timeout", metavar="30s", help="end the command after this time (exit code 124)")
    parser.add_argument("--keep", action="store_true", help="leave the fresh sandbox; its id is told on stderr")
    add_command_options(parser)
    add_sandbox_options(parser.add_argument_group("fresh sandbox"))  # type: ignore[arg-type]
    parser.set_defaults(act=_run)


def _run(session: Session) -> int:
    words = session.options.words
    with _termination_as_interrupt():
        if not words:
            return _in_fresh(session, chosen_command([], session.argv))
        if len(words) > 1 and session.argv:
            raise UsageError("a command stands both before and after --", remedy="tsb run SB -- CMD…")
        sandbox = session.sandbox(words[0])
        return _execute(session, sandbox, chosen_command(words[1:], session.argv))


def _in_fresh(session: Session, command: Command) -> int:
    sandbox = session.client.create(**create_options(session.options))
    try:
        return _execute(session, sandbox, command)
    finally:
        if session.options.keep:
            print(sandbox.id, file=sys.stderr)
        else:
            sandbox.destroy()


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP end the run as Ctrl-C does, so that a fresh sandbox is not left behind."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    old = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _execute(session: Session, sandbox: Sandbox, command: Command) -> int:
    options = session.options
    given: dict[str, Any] = {
        "cwd": options.workdir,
        "env": environment(options.env),
        "user": options.user,
        "timeout": options.timeout,
    }
    if options.interactive:
        return _with_input(sandbox, sandbox.spawn(command, stdin=True, **given))
    end: dict[str, Any] = {}
    for name, fields in sandbox.exec_events(command, **given):
        end = _pass_on(name, fields) or end
    return _code(end)


def _with_input(sandbox: Sandbox, process: Process) -> int:
    threading.Thread(target=_feed, args=(process,), daemon=True).start()
    end: dict[str, Any] = {}
    try:
        for name, fields in process.events():
            end = _pass_on(name, fields) or end
    except KeyboardInterrupt:
        process.kill()
        raise
    return _code(end)


def _feed(process: Process) -> None:
    """Carry standard input over; the command may end before it does."""
    try:
        while data := os.read(STDIN, _STDIN_PIECE):
            process.write(data)
        process.close_stdin()
    except (TalonError, OSError):
        return


def _pass_on(name: str, fields: dict[str, Any]) -> dict[str, Any] | None:
    if name in ("stdout", "stderr"):
        write_bytes(base64.b64decode(fields["data"]), name)
    return fields if name == "exit" else None


def _code(end: dict[str, Any]) -> int:
    if end.get("timed_out"):
        print("tsb: the command's time was over", file=sys.stderr)
        return 124
    if end.get("oom_killed"):
        print("tsb: the command was killed: out of memory; give it more with --resources memory=…", file=sys.stderr)
    return int(end["exit_code"])
