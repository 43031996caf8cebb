"""`tsb login`, `logout` and `context`: servers and keys remembered in the configuration file."""

from __future__ import annotations

import argparse
import getpass
import sys

from .. import config
from ..config import Config, ConfigFile
from .app import Session, UsageError
from .output import add_format, show


def configure(name: str, parser: argparse.ArgumentParser) -> None:
    if name == "login":
        parser.add_argument("--name", default="default", help="the context's name")
        parser.set_defaults(act=_login)
    elif name == "logout":
        parser.set_defaults(act=_logout)
    else:
        _configure_context(parser)


def _configure_context(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    listing = verbs.add_parser("ls", help="list remembered servers")
    add_format(listing)
    listing.set_defaults(act=_ls)
    for verb, act, text in (("use", _use, "make one the default"), ("rm", _rm, "forget one")):
        one = verbs.add_parser(verb, help=text)
        one.add_argument("name")
        one.set_defaults(act=act)


def _login(session: Session) -> None:
    """Ask for what was not given, try it, and remember it."""
    from .._sync.client import Client

    given = session.options
    server = (given.server or config.resolve(config_file=given.config).server).rstrip("/")
    key = given.api_key or _ask_key(server)
    with Client(server, key, config_file=given.config) as client:
        client.check()
    file = config.load_file(given.config)
    file.contexts[given.name] = Config(server, key)
    file.current = given.name
    file.save()
    print(f"{given.name}: {server} (remembered in {file.path})")


def _ask_key(server: str) -> str:
    if sys.stdin.isatty():
        return getpass.getpass(f"API key for {server}: ").strip()
    return sys.stdin.readline().strip()


def _logout(session: Session) -> None:
    file = config.load_file(session.options.config)
    name = session.options.context or file.current
    _known(file, name)
    file.contexts[name] = Config(file.contexts[name].server)
    file.save()


def _ls(session: Session) -> None:
    file = config.load_file(session.options.config)
    rows = [(name, item.server, "*" if name == file.current else "") for name, item in sorted(file.contexts.items())]
    raw = [{"name": row[0], "server": row[1], "current": bool(row[2])} for row in rows]
    show(session.options.output, rows, ("NAME", "SERVER", "CURRENT"), raw)


def _use(session: Session) -> None:
    file = config.load_file(session.options.config)
    _known(file, session.options.name)
    file.current = session.options.name
    file.save()


def _rm(session: Session) -> None:
    file = config.load_file(session.options.config)
    _known(file, session.options.name)
    del file.contexts[session.options.name]
    file.current = "" if file.current == session.options.name else file.current
    file.save()


def _known(file: ConfigFile, name: str) -> None:
    if name not in file.contexts:
        known = ", ".join(sorted(file.contexts)) or "none yet; make one with `tsb login`"
        raise UsageError(f"there is no context {name!r}", remedy=f"known: {known}")
