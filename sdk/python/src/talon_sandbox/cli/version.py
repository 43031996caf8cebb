"""`tsb version`: the versions on both sides."""

from __future__ import annotations

import argparse

from .._version import __version__
from .app import Session
from .output import add_format, fields, show_json


def configure(name: str, parser: argparse.ArgumentParser) -> None:
    add_format(parser, ("table", "json"))
    parser.set_defaults(act=_version)


def _version(session: Session) -> None:
    answer = session.client.version()
    if session.options.output == "json":
        show_json({"client": __version__, "server": answer, "address": session.client.server})
    else:
        fields({"tsb": __version__, "server": answer.get("version"), "address": session.client.server})
