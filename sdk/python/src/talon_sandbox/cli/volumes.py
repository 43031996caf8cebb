"""`tsb volume`: named storage that outlives sandboxes."""

from __future__ import annotations

import argparse

from .app import Session
from .arguments import each
from .output import add_format, age, fields, show, show_json, size


def configure(name: str, parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    listing = verbs.add_parser("ls", help="list volumes")
    add_format(listing)
    listing.set_defaults(act=_ls)
    create = verbs.add_parser("create", help="make a volume")
    create.add_argument("name")
    create.add_argument("--size", help='how much it may hold, "10GiB"')
    create.set_defaults(act=_create)
    info = verbs.add_parser("info", help="show one volume")
    info.add_argument("name")
    add_format(info, ("table", "json"))
    info.set_defaults(act=_info)
    remove = verbs.add_parser("rm", help="remove volumes and what is in them")
    remove.add_argument("names", nargs="+", metavar="NAME")
    remove.set_defaults(act=lambda session: each(session, session.options.names, session.client.volumes.delete))


def _ls(session: Session) -> None:
    found = session.client.volumes.list()
    rows = [(item.name, size(item.size_bytes), size(item.used_bytes), age(item.created_at)) for item in found]
    show(session.options.output, rows, ("NAME", "SIZE", "USED", "CREATED"), [item.raw for item in found])


def _create(session: Session) -> None:
    given = session.options
    options = {"size": given.size} if given.size else {}
    print(session.client.volumes.create(given.name, **options).name)


def _info(session: Session) -> None:
    volume = session.client.volumes.get(session.options.name)
    if session.options.output == "json":
        show_json(volume.raw)
    else:
        fields(dict(volume.raw))
