"""`tsb spawn`, `ps`, `logs` and `kill`: background commands of a sandbox."""

from __future__ import annotations

import argparse
import base64
import shlex
import sys

from ..models import ProcessInfo, TerminalInfo
from .app import Session, UsageError
from .arguments import add_command_options, chosen_command, each, environment, write_bytes
from .output import add_format, age, show

_HEADER = ("PROC", "STATE", "EXIT", "PID", "USER", "STARTED", "COMMAND")


def configure(name: str, parser: argparse.ArgumentParser) -> None:
    if name == "spawn":
        parser.usage = "tsb spawn [options] SB CMD…   |   tsb spawn [options] SB -- CMD…"
        parser.add_argument("words", nargs=argparse.REMAINDER, metavar="SB CMD…")
        parser.add_argument("--timeout", metavar="30s", help="end it after this time")
        parser.add_argument("--stdin", action="store_true", help="keep its standard input open")
        add_command_options(parser)
    else:
        parser.add_argument("sandbox", metavar="SB")
    {"spawn": _no_more, "ps": _for_ps, "logs": _for_logs, "kill": _for_kill}[name](parser)
    parser.set_defaults(act={"spawn": _spawn, "ps": _ps, "logs": _logs, "kill": _kill}[name])


def _no_more(parser: argparse.ArgumentParser) -> None:
    add_format(parser, ("id", "json"))


def _for_ps(parser: argparse.ArgumentParser) -> None:
    add_format(parser)


def _for_logs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("process", metavar="PROC")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until it ends")
    parser.add_argument("--stream", choices=("both", "stdout", "stderr"), default="both")
    parser.add_argument("--offset", type=int, default=0, metavar="BYTES", help="begin there")


def _for_kill(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("processes", nargs="+", metavar="PROC")
    parser.add_argument("-s", "--signal", default="KILL", help="default: KILL, for it and all it started")


def _spawn(session: Session) -> None:
    given = session.options
    if not given.words:
        raise UsageError("there is no sandbox", remedy='tsb spawn SB "CMD"')
    process = session.sandbox(given.words[0]).spawn(
        chosen_command(given.words[1:], session.argv),
        cwd=given.workdir,
        env=environment(given.env),
        user=given.user,
        timeout=given.timeout,
        stdin=given.stdin,
    )
    show(given.output, [_row(process.info)], _HEADER, process.info.raw)


def _ps(session: Session) -> None:
    sandbox = session.sandbox(session.options.sandbox)
    found: list[ProcessInfo | TerminalInfo] = [process.info for process in sandbox.processes()]
    found += sandbox.terminals()
    show(session.options.output, [_row(item) for item in found], _HEADER, [item.raw for item in found])


def _row(info: ProcessInfo | TerminalInfo) -> tuple[object, ...]:
    command = info.command if isinstance(info.command, str) else shlex.join(info.command)
    return (
        info.id,
        info.state,
        info.exit_code,
        info.pid,
        info.user,
        age(info.started_at),
        command.replace("\n", " ")[:80],
    )


def _logs(session: Session) -> None:
    given = session.options
    process = session.sandbox(given.sandbox).process(given.process)
    if not given.follow:
        for piece in process.read_logs(given.stream, offset=given.offset):
            write_bytes(piece)
        return
    for name, fields in process.events(stream=given.stream, offset=given.offset):
        if name in ("stdout", "stderr"):
            if dropped := fields.get("dropped_bytes"):
                print(f"tsb: {dropped} older bytes are gone", file=sys.stderr)
            write_bytes(base64.b64decode(fields["data"]), name)
        elif name == "exit" and sys.stderr.isatty():
            print(f"tsb: ended with exit code {fields['exit_code']}", file=sys.stderr)


def _kill(session: Session) -> int:
    given = session.options
    sandbox = session.sandbox(given.sandbox)
    return each(session, given.processes, lambda name: sandbox.process(name).kill(given.signal))
