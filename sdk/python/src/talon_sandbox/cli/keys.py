"""`tsb key`: API keys of the server."""

from __future__ import annotations

import argparse

from .app import Session
from .arguments import each
from .output import add_format, age, show


def configure(name: str, parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    listing = verbs.add_parser("ls", help="list keys")
    add_format(listing)
    listing.set_defaults(act=_ls)
    create = verbs.add_parser("create", help="make a key; it is shown this once")
    create.add_argument("name")
    create.set_defaults(act=_create)
    remove = verbs.add_parser("rm", help="revoke keys")
    remove.add_argument("ids", nargs="+", metavar="ID")
    remove.set_defaults(act=lambda session: each(session, session.options.ids, session.client.keys.delete))


def _ls(session: Session) -> None:
    found = session.client.keys.list()
    rows = [(item.id, item.name, "yes" if item.admin else "", age(item.created_at)) for item in found]
    show(session.options.output, rows, ("ID", "NAME", "ADMIN", "CREATED"), [item.raw for item in found])


def _create(session: Session) -> None:
    print(session.client.keys.create(session.options.name).key)
