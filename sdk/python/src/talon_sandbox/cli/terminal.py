"""`tsb pty` and `tsb attach`: a sandbox's terminal on this one. Detach with ctrl-p ctrl-q.

Keys go to the sandbox as they are (this terminal is in raw mode), changes of the window's size too; the exit code of the
program is passed on. Invariant: this terminal gets its modes back whatever way the command ends.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from .._sync.terminal import Terminal
from ..errors import TalonError
from ..spec import Command
from .app import Session, UsageError
from .arguments import add_command_options, environment

STDIN, STDOUT = 0, 1
DETACH = b"\x10\x11"
_PIECE = 65536
# Out of the alternate screen, mouse reports and bracketed paste, with a visible cursor and plain colours.
_PLAIN = b"\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?25h\x1b[0m"


def configure(name: str, parser: argparse.ArgumentParser) -> None:
    if name == "pty":
        parser.usage = "tsb pty [options] SB [CMD…]   |   tsb pty [options] SB -- CMD…"
        parser.add_argument("words", nargs=argparse.REMAINDER, metavar="SB CMD…")
        add_command_options(parser)
        parser.set_defaults(act=_pty)
        return
    parser.add_argument("sandbox", metavar="SB")
    parser.add_argument("terminal", metavar="TERM", help="see tsb ps SB")
    parser.add_argument("--view", action="store_true", help="look on without typing")
    parser.add_argument("--takeover", action="store_true", help="take it from the client that holds it")
    parser.set_defaults(act=_attach)


def _pty(session: Session) -> int:
    given = session.options
    if not given.words:
        raise UsageError("there is no sandbox", remedy="tsb pty SB, or tsb pty SB CMD…")
    _need_terminal("tsb run -i SB CMD passes plain input on")
    words = list(given.words[1:]) + session.argv
    command: Command | None = None if not words else words[0] if len(words) == 1 else words
    cols, rows = os.get_terminal_size(STDIN)
    sandbox = session.sandbox(given.words[0])
    env = environment(given.env)
    if "TERM" in os.environ:
        env = {"TERM": os.environ["TERM"], **env}
    terminal = sandbox.terminal(cols, rows, command, cwd=given.workdir, env=env, user=given.user)
    code = _converse(terminal)
    if code is None:
        print(f"tsb: left {terminal.id}; go on with: tsb attach {given.words[0]} {terminal.id}", file=sys.stderr)
        return 0
    terminal.kill()
    return code


def _attach(session: Session) -> int:
    given = session.options
    _need_terminal("tsb recordings shows what a terminal printed")
    sandbox = session.sandbox(given.sandbox)
    terminal = sandbox.attach(given.terminal, viewer=given.view, takeover=given.takeover)
    if not given.view and terminal.exit_code is None:
        terminal.resize(*os.get_terminal_size(STDIN))
    code = _converse(terminal, typing=not given.view)
    if code is None:
        print(f"tsb: left {given.terminal}", file=sys.stderr)
    return code or 0


def _need_terminal(instead: str) -> None:
    if not os.isatty(STDIN):
        raise UsageError("standard input is not a terminal", remedy=instead)


def _converse(terminal: Terminal, *, typing: bool = True) -> int | None:
    """Carry keys and output until the program ends (its exit code) or the user leaves (None)."""
    outcome: list[int | TalonError] = []
    over_read, over_write = os.pipe()
    size_read, size_write = os.pipe()
    os.set_blocking(size_write, False)
    showing = threading.Thread(target=_show, args=(terminal, outcome, over_write), daemon=True)
    try:
        with _raw(), _window_changes(size_write):
            showing.start()
            _type(terminal, over_read, size_read, typing=typing)
        terminal.close()
        showing.join(timeout=10)
    finally:
        for end in (over_read, size_read, size_write):
            os.close(end)
    for said in outcome:
        if isinstance(said, TalonError):
            raise said
        return said
    return None


def _show(terminal: Terminal, outcome: list[int | TalonError], over: int) -> None:
    try:
        for data in terminal:
            _write_all(data)
        if terminal.exit_code is not None:
            outcome.append(terminal.exit_code)
    except TalonError as error:
        outcome.append(error)
    finally:
        os.close(over)


def _write_all(data: bytes) -> None:
    while data:
        try:
            data = data[os.write(STDOUT, data) :]
        except BlockingIOError:
            select.select([], [STDOUT], [])


def _type(terminal: Terminal, over: int, resized: int, *, typing: bool) -> None:
    """Pass keys and sizes on until the output is over or the detach keys come."""
    held = b""
    while True:
        ready, _, _ = select.select([STDIN, over, resized], [], [])
        if over in ready:
            return
        with suppress(TalonError):  # the reader meets what is wrong with the connection, and tells
            if resized in ready:
                os.read(resized, _PIECE)
                if typing:
                    terminal.resize(*os.get_terminal_size(STDIN))
            if STDIN in ready:
                keys = os.read(STDIN, _PIECE)
                if not keys:
                    return
                before, held, leaving = keys_to_send(held + keys)
                if before and typing:
                    terminal.write(before)
                if leaving or (not typing and b"\x03" in keys):
                    return


def keys_to_send(keys: bytes) -> tuple[bytes, bytes, bool]:
    """What to send now, what to hold until the next key tells, and whether the detach keys came."""
    before, mark, _ = keys.partition(DETACH)
    if mark:
        return before, b"", True
    if keys.endswith(DETACH[:1]):
        return keys[:-1], DETACH[:1], False
    return keys, b"", False


@contextmanager
def _raw() -> Iterator[None]:
    modes = termios.tcgetattr(STDIN)
    tty.setraw(STDIN)
    try:
        yield
    finally:
        termios.tcsetattr(STDIN, termios.TCSADRAIN, modes)
        if os.isatty(STDOUT):
            _write_all(_PLAIN)


@contextmanager
def _window_changes(told: int) -> Iterator[None]:
    def changed(_number: int, _frame: object) -> None:
        with suppress(BlockingIOError):
            os.write(told, b"w")

    former = signal.signal(signal.SIGWINCH, changed)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, former)
