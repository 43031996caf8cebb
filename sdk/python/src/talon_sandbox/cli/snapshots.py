"""`tsb snapshot`: kept file systems that new sandboxes can start from."""

from __future__ import annotations

import argparse

from .app import Session
from .arguments import each
from .output import add_format, age, fields, show, show_json, size


def configure(name: str, parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    listing = verbs.add_parser("ls", help="list snapshots")
    add_format(listing)
    listing.set_defaults(act=_ls)
    create = verbs.add_parser("create", help="keep a sandbox's file system")
    create.add_argument("sandbox", metavar="SB")
    create.add_argument("--name")
    create.set_defaults(act=_create)
    info = verbs.add_parser("info", help="show one snapshot")
    info.add_argument("snapshot")
    add_format(info, ("table", "json"))
    info.set_defaults(act=_info)
    remove = verbs.add_parser("rm", help="remove snapshots")
    remove.add_argument("names", nargs="+", metavar="SNAPSHOT")
    remove.set_defaults(act=lambda session: each(session, session.options.names, session.client.snapshots.delete))


def _ls(session: Session) -> None:
    found = session.client.snapshots.list()
    rows = [
        (item.id, item.name, item.state, item.sandbox_id, size(item.size_bytes), age(item.created_at)) for item in found
    ]
    header = ("ID", "NAME", "STATE", "SANDBOX", "SIZE", "CREATED")
    show(session.options.output, rows, header, [item.raw for item in found])


def _create(session: Session) -> None:
    print(session.sandbox(session.options.sandbox).snapshot(session.options.name).id)


def _info(session: Session) -> None:
    snapshot = session.client.snapshots.get(session.options.snapshot)
    if session.options.output == "json":
        show_json(snapshot.raw)
    else:
        fields(dict(snapshot.raw))
