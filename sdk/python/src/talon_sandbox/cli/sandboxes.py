"""`tsb create`, `ls`, `info` and `rm`."""

from __future__ import annotations

import argparse

from ..errors import NotFoundError
from ..models import SandboxInfo
from .app import Session, UsageError
from .arguments import add_command_options, add_sandbox_options, create_options, each, environment, pairs
from .output import add_format, age, fields, left, show, show_json, size

_HEADER = ("ID", "NAME", "STATE", "IMAGE", "NETWORK", "CPU", "MEMORY", "CREATED", "EXPIRES")


def configure(name: str, parser: argparse.ArgumentParser) -> None:
    {"create": _configure_create, "ls": _configure_ls, "info": _configure_info, "rm": _configure_rm}[name](parser)


def _configure_create(parser: argparse.ArgumentParser) -> None:
    add_sandbox_options(parser)
    add_command_options(parser)
    parser.add_argument("--entrypoint", metavar="CMD", help="a shell command started with the sandbox")
    parser.add_argument(
        "--wait", choices=("running", "none"), default="running", help="return when it runs, or at once"
    )
    parser.add_argument("--wait-timeout", type=float, metavar="SECONDS")
    add_format(parser, ("id", "table", "json"))
    parser.set_defaults(act=_create)


def _create(session: Session) -> None:
    given = session.options
    options = create_options(given)
    options["wait"] = given.wait == "running"
    if given.env:
        options["env"] = environment(given.env)
    if given.user:
        options["user"] = given.user
    if given.workdir:
        options["workdir"] = given.workdir
    if given.entrypoint:
        options["entrypoint"] = ["/bin/sh", "-c", given.entrypoint]
    if given.wait_timeout is not None:
        options["wait_timeout"] = given.wait_timeout
    sandbox = session.client.create(**options)
    _show(given.output, [sandbox.data])


def _configure_ls(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--label", action="append", default=[], metavar="K=V", help="only those with it (repeat: all)")
    parser.add_argument("--state", help="only those in this state")
    parser.add_argument("--name", help="only those with this name")
    add_format(parser)
    parser.set_defaults(act=_ls)


def _ls(session: Session) -> None:
    given = session.options
    found = session.client.list(labels=pairs(given.label, "label"), state=given.state, name=given.name)
    _show(given.output, found, [item.raw for item in found])


def _show(form: str, found: list[SandboxInfo], raw: object = None) -> None:
    show(form, [_row(item) for item in found], _HEADER, found[0].raw if raw is None else raw)


def _row(info: SandboxInfo) -> tuple[object, ...]:
    resources = info.resources
    network = (info.network or {}).get("mode")
    memory = size(resources.get("memory_bytes"))
    ends = left(info.expires_at)
    return (
        info.id,
        info.name,
        info.state,
        info.image,
        network,
        resources.get("cpu"),
        memory,
        age(info.created_at),
        ends,
    )


def _configure_info(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sandbox", metavar="SB")
    add_format(parser, ("table", "json"))
    parser.set_defaults(act=_info)


def _info(session: Session) -> None:
    info = session.client.get(session.options.sandbox)
    if session.options.output == "json":
        show_json(info.raw)
        return
    resources = dict(info.resources)
    for key in ("memory_bytes", "disk_bytes"):
        if resources.get(key):
            resources[key.removesuffix("_bytes")] = size(resources.pop(key))
    fields(
        {
            "id": info.id,
            "name": info.name,
            "state": info.state,
            "reason": info.reason,
            "image": info.image,
            "resources": " ".join(f"{key}={value}" for key, value in resources.items() if value),
            "user": info.user,
            "workdir": info.workdir,
            "labels": " ".join(f"{key}={value}" for key, value in info.labels.items()),
            "network": info.network,
            "volumes": info.volumes,
            "created": info.created_at,
            "expires": info.expires_at,
            "timings": " ".join(f"{key}={value}" for key, value in info.timings.items() if value not in (None, 0)),
        }
    )


def _configure_rm(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sandboxes", nargs="*", metavar="SB")
    parser.add_argument("--label", action="append", default=[], metavar="K=V", help="all that have it (repeat: all)")
    parser.add_argument("-f", "--force", action="store_true", help="one that does not exist is fine")
    parser.set_defaults(act=_rm)


def _rm(session: Session) -> int:
    given = session.options
    names = list(given.sandboxes)
    if given.label:
        names += [item.id for item in session.client.list(labels=pairs(given.label, "label")) if _alive(item)]
    elif not names:
        raise UsageError("there is nothing to remove", remedy="name sandboxes, or give --label K=V")

    def remove(name: str) -> None:
        try:
            session.client.delete(name)
        except NotFoundError:
            if not (given.force or given.label):
                raise
            return
        print(name)

    return each(session, names, remove)


def _alive(info: SandboxInfo) -> bool:
    return info.state != "terminated"
