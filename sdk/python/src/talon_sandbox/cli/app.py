"""From arguments to a command's function, and from errors to messages and exit codes.

Each command lives in a module of this package with `configure(name, parser)`; only that of the command given is loaded.
Exit codes: 0 ok, 1 user, 2 server or network, 3 key, 4 not found, 130 interrupted; `run` passes on the command's own.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from ..errors import AuthError, NetworkError, NotFoundError, ServerError, TalonError, TalonTimeoutError

if TYPE_CHECKING:
    from .._sync.client import Client
    from .._sync.sandbox import Sandbox

COMMANDS = {
    "run": ("run", "run a command in a fresh sandbox (tsb run -- CMD…) or in one that exists (tsb run SB CMD)"),
    "create": ("sandboxes", "make a sandbox"),
    "ls": ("sandboxes", "list sandboxes"),
    "info": ("sandboxes", "show one sandbox"),
    "rm": ("sandboxes", "destroy sandboxes"),
    "start": ("lifecycle", "start a stopped sandbox"),
    "stop": ("lifecycle", "end a sandbox's processes, keep its files"),
    "pause": ("lifecycle", "freeze a sandbox"),
    "resume": ("lifecycle", "go on after pause"),
    "renew": ("lifecycle", "give a sandbox more time to live"),
    "spawn": ("processes", "start a command in the background"),
    "ps": ("processes", "list a sandbox's background commands and terminals"),
    "logs": ("processes", "show a background command's output"),
    "kill": ("processes", "end a background command"),
    "pty": ("terminal", "open a terminal in a sandbox (ctrl-p ctrl-q leaves it)"),
    "attach": ("terminal", "attach to a terminal, or look on"),
    "recordings": ("recordings", "list, replay, check and export what sandboxes recorded"),
    "audit": ("audit", "show who did what through the API"),
    "cp": ("copy", "copy files and directories into or out of a sandbox"),
    "fs": ("fs", "list, show, write and remove a sandbox's files"),
    "image": ("images", "manage images"),
    "volume": ("volumes", "manage volumes"),
    "snapshot": ("snapshots", "manage snapshots"),
    "pool": ("pools", "manage pools of sandboxes that are already up"),
    "network": ("network", "show or change a sandbox's network policy"),
    "key": ("keys", "manage API keys"),
    "top": ("top", "watch what the sandboxes use"),
    "login": ("contexts", "remember a server and its key"),
    "logout": ("contexts", "forget a server's key"),
    "context": ("contexts", "choose between remembered servers"),
    "version": ("version", "show the versions of tsb and of the server"),
}
_SYNONYMS = {"list": "ls", "get": "info", "delete": "rm", "destroy": "rm"}
_TAKES_ARGV = ("run", "spawn", "pty")
_GLOBALS = ("--server", "--api-key", "--context", "--config")


class Session:
    """What a command works with: the parsed options, the client (made when first used), and argv after `--`."""

    def __init__(self, options: argparse.Namespace, argv: list[str]) -> None:
        self.options = options
        self.argv = argv

    @cached_property
    def client(self) -> Client:
        from .._sync.client import Client

        given = self.options
        return Client(given.server, given.api_key, context=given.context, config_file=given.config)

    def sandbox(self, id_or_name: str) -> Sandbox:
        """The sandbox a user named; found by the server, so that a wrong name is told at once."""
        return self.client.connect(id_or_name)

    def close(self) -> None:
        if "client" in self.__dict__:
            self.client.close()


class UsageError(TalonError):
    """The command line is wrong."""


class _Parser(argparse.ArgumentParser):
    """Gives wrong arguments exit code 1, like every other mistake of the user."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(1, f"{self.prog}: {message}\n")


def run(arguments: list[str]) -> int:
    """Run one command line and give its exit code."""
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except TalonError as error:
        tell(error)
        return exit_code(error)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def tell(error: TalonError) -> None:
    """Say on stderr what failed, why, and what to try."""
    from .output import printable

    code = f" [{error.code}]" if error.code else ""
    print(f"tsb: {printable(error.message)}{code}", file=sys.stderr)
    for label, text in (("cause", error.cause), ("try", error.remedy), ("request", error.request_id)):
        if text:
            shown = "\n    ".join(printable(line) for line in text.splitlines())
            print(f"  {label}: {shown}", file=sys.stderr)


def exit_code(error: TalonError) -> int:
    """The exit code for an error."""
    if isinstance(error, AuthError):
        return 3
    if isinstance(error, NotFoundError):
        return 4
    return 2 if isinstance(error, ServerError | NetworkError | TalonTimeoutError) else 1


def _dispatch(arguments: list[str]) -> int:
    place = _command_place(arguments)
    if place is None:
        return _without_command(arguments)
    word = arguments[place]
    name = _SYNONYMS.get(word, word)
    if name not in COMMANDS:
        raise UsageError(f"there is no command {word!r}", remedy=_similar(word))
    rest, argv = arguments[:place] + arguments[place + 1 :], []
    if name in _TAKES_ARGV and "--" in rest:
        split = rest.index("--")
        rest, argv = rest[:split], rest[split + 1 :]
    module, help_text = COMMANDS[name]
    parser = _Parser(prog=f"tsb {name}", description=help_text, allow_abbrev=False)
    _add_globals(parser)
    import_module(f".{module}", __package__).configure(name, parser)
    session = Session(parser.parse_args(rest), argv)
    try:
        return session.options.act(session) or 0
    finally:
        session.close()


def _command_place(arguments: list[str]) -> int | None:
    """Where the command's name stands: the first word that is neither a global option nor its value."""
    place = 0
    while place < len(arguments):
        word = arguments[place]
        if not word.startswith("-"):
            return place
        place += 2 if word in _GLOBALS else 1
    return None


def _without_command(arguments: list[str]) -> int:
    if "--version" in arguments:
        from .._version import __version__

        print(f"tsb {__version__}")
        return 0
    wants_help = not arguments or "-h" in arguments or "--help" in arguments
    print(_overview(), file=sys.stdout if wants_help else sys.stderr)
    return 0 if wants_help else 1


def _overview() -> str:
    lines = ["usage: tsb [--server URL] [--api-key KEY] [--context NAME] [--config FILE] COMMAND …", ""]
    lines += [f"  {name:<10} {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join([*lines, "", "tsb COMMAND --help tells more. First steps: tsb run -- python3 -c 'print(1)'"])


def _similar(word: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(word, COMMANDS, 1)
    return f"did you mean `tsb {close[0]}`?" if close else "see `tsb --help`"


def _add_globals(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("server")
    group.add_argument("--server", metavar="URL", help="default: TALON_SANDBOX_SERVER, the context, or this machine")
    group.add_argument("--api-key", metavar="KEY", help="better: TALON_SANDBOX_API_KEY or `tsb login`")
    group.add_argument("--context", metavar="NAME", help="a server remembered by `tsb login`")
    group.add_argument("--config", metavar="FILE", help="configuration file")
