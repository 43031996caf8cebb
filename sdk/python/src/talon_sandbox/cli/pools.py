"""`tsb pool`: sandboxes of one kind that are already up, their start-up command done."""

from __future__ import annotations

import argparse
from typing import Any

from ..spec import create_body
from .app import Session
from .arguments import add_command_options, add_sandbox_options, create_options, each, environment
from .output import add_format, fields, show, show_json


def configure(name: str, parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    listing = verbs.add_parser("ls", help="list pools")
    add_format(listing)
    listing.set_defaults(act=_ls)
    create = verbs.add_parser("create", help="make a pool")
    create.add_argument("pool", metavar="NAME")
    create.add_argument("--size", type=int, default=1, help="how many to keep ready at least")
    create.add_argument("--max", type=int, help="how many to keep ready at most, when many are taken")
    create.add_argument("--command", metavar="CMD", help="run in each before it counts as ready")
    add_sandbox_options(create)
    add_command_options(create)
    create.set_defaults(act=_create)
    info = verbs.add_parser("info", help="show one pool")
    info.add_argument("pool", metavar="NAME")
    add_format(info, ("table", "json"))
    info.set_defaults(act=_info)
    scale = verbs.add_parser("scale", help="keep more or fewer ready")
    scale.add_argument("pool", metavar="NAME")
    scale.add_argument("size", type=int)
    scale.add_argument("--max", type=int)
    scale.set_defaults(act=_scale)
    remove = verbs.add_parser("rm", help="remove pools and the sandboxes waiting in them")
    remove.add_argument("names", nargs="+", metavar="NAME")
    remove.set_defaults(act=lambda session: each(session, session.options.names, session.client.pools.delete))


def _ls(session: Session) -> None:
    found = session.client.pools.list()
    rows = [(item.name, item.spec.get("image"), item.ready, item.minimum, item.maximum) for item in found]
    show(session.options.output, rows, ("NAME", "IMAGE", "READY", "MIN", "MAX"), [item.raw for item in found])


def _create(session: Session) -> None:
    given = session.options
    options = create_options(given)
    if given.env:
        options["env"] = environment(given.env)
    if given.user:
        options["user"] = given.user
    if given.workdir:
        options["workdir"] = given.workdir
    body = {"spec": create_body(options), **_sizes(given)}
    if given.command:
        body["warm_command"] = given.command
    print(session.client.pools.create(given.pool, **body).name)


def _info(session: Session) -> None:
    pool = session.client.pools.get(session.options.pool)
    if session.options.output == "json":
        show_json(pool.raw)
    else:
        fields(dict(pool.raw))


def _scale(session: Session) -> None:
    pool = session.client.pools.update(session.options.pool, **_sizes(session.options))
    print(f"{pool.name} {pool.minimum} to {pool.maximum}")


def _sizes(given: argparse.Namespace) -> dict[str, Any]:
    return {"minimum": given.size, "maximum": max(given.size, given.max or 0)}
