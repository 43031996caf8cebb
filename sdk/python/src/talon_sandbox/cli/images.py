"""`tsb image`: the images of the server."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ..archive import pack
from ..errors import TransferError
from .app import Session
from .arguments import each
from .output import add_format, age, fields, progress, show, show_json, size

_PIECE = 1 << 20


def configure(name: str, parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    listing = verbs.add_parser("ls", help="list images")
    add_format(listing)
    listing.set_defaults(act=_ls)
    pull = verbs.add_parser("pull", help="fetch an image from a registry")
    pull.add_argument("ref", metavar="REF", help="python:3.12, registry.example.com/team/app:1")
    pull.add_argument("--name", help="its name here; default: the reference")
    _add_registry(pull)
    pull.set_defaults(act=_pull)
    push = verbs.add_parser("push", help="send an image to a registry")
    push.add_argument("image", metavar="IMAGE")
    push.add_argument("ref", metavar="REF")
    _add_registry(push)
    push.set_defaults(act=_push)
    load = verbs.add_parser("import", help="load an OCI or docker archive, or a root file system as tar")
    load.add_argument("file", help="a tar file, or - for standard input")
    load.add_argument("--name", required=True)
    load.set_defaults(act=_import)
    base = verbs.add_parser("build-base", help="build the image `base` on the server")
    base.set_defaults(act=_build_base)
    build = verbs.add_parser("build", help="build an image from a directory with a Dockerfile")
    build.add_argument("directory")
    build.add_argument("-t", "--name", required=True)
    build.add_argument("-f", "--file", help="the Dockerfile's path in the directory")
    build.set_defaults(act=_build)
    remove = verbs.add_parser("rm", help="remove images")
    remove.add_argument("images", nargs="+", metavar="IMAGE")
    remove.set_defaults(act=_rm)
    info = verbs.add_parser("info", help="show one image")
    info.add_argument("image", metavar="IMAGE")
    add_format(info, ("table", "json"))
    info.set_defaults(act=_info)
    alias = verbs.add_parser("alias", help="let an image go by one more name")
    alias.add_argument("image", metavar="IMAGE")
    alias.add_argument("alias", metavar="ALIAS")
    alias.set_defaults(act=lambda session: session.client.images.alias(session.options.image, session.options.alias))


def _add_registry(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--username")
    add("--password", help="asked for when only --username is given; - reads standard input")
    add("--insecure", action="store_true", help="the registry speaks plain HTTP or has no known certificate")


def _ls(session: Session) -> None:
    found = session.client.images.list()
    rows = [(item.name, " ".join(item.aliases), size(item.size_bytes), age(item.created_at)) for item in found]
    show(session.options.output, rows, ("NAME", "ALIASES", "SIZE", "CREATED"), [item.raw for item in found])


def _pull(session: Session) -> None:
    given = session.options
    _finish(progress(session.client.images.pull_progress(given.ref, name=given.name, **_registry(given))))


def _push(session: Session) -> None:
    given = session.options
    progress(session.client.images.push_progress(given.image, given.ref, **_registry(given)))
    print(given.ref)


def _registry(given: argparse.Namespace) -> dict[str, Any]:
    password = _password(given.username, given.password)
    return {"username": given.username, "password": password, "insecure": given.insecure or None}


def _password(username: str | None, password: str | None) -> str | None:
    if password == "-":
        return sys.stdin.readline().rstrip("\n")
    return getpass.getpass("registry password: ") if username and password is None else password


def _finish(last: Mapping[str, Any]) -> None:
    image = last.get("image") or {}
    print(image.get("name", image) if isinstance(image, dict) else image)


def _import(session: Session) -> None:
    given = session.options
    with _opened(given.file) as file:
        pieces = iter(lambda: file.read(_PIECE), b"")
        _finish(progress(session.client.images.import_progress(pieces, given.name)))


def _opened(path: str) -> BinaryIO:
    try:
        return sys.stdin.buffer if path == "-" else Path(path).open("rb")
    except OSError as error:
        raise TransferError(f"cannot read {path}", code="local_file", cause=str(error)) from error


def _build_base(session: Session) -> None:
    _finish(progress(session.client.images.build_base_progress()))


def _build(session: Session) -> None:
    given = session.options
    directory = Path(given.directory)
    if not directory.is_dir():
        raise TransferError(f"{directory} is not a directory", code="local_file")
    steps = session.client.images.build_progress(pack(directory, [0, 0]), given.name, dockerfile=given.file)
    _finish(progress(steps))


def _rm(session: Session) -> int:
    return each(session, session.options.images, session.client.images.delete)


def _info(session: Session) -> None:
    image = session.client.images.get(session.options.image)
    if session.options.output == "json":
        show_json(image.raw)
    else:
        fields({**image.raw, "size_bytes": size(image.size_bytes)})
