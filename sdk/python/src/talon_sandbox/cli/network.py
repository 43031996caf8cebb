"""`tsb network`: what a sandbox may reach, now and from now on."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from .app import Session
from .arguments import network_policy
from .output import add_format, show, show_json


def configure(name: str, parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    get = verbs.add_parser("get", help="show the policy")
    get.add_argument("sandbox", metavar="SB")
    get.set_defaults(act=_get)
    log = verbs.add_parser("log", help="show what was allowed and refused")
    log.add_argument("sandbox", metavar="SB")
    log.add_argument("--since", type=int, help="after this sequence number")
    log.add_argument("--limit", type=int, default=100)
    add_format(log, ("table", "json"))
    log.set_defaults(act=_log)
    change = verbs.add_parser("set", help="replace the policy; open connections are judged again at once")
    change.add_argument("sandbox", metavar="SB")
    change.add_argument("mode", choices=("open", "allowlist", "sealed"))
    change.add_argument("--allow", action="append", default=[], metavar="TARGET", help="name, *.name, address or range")
    change.add_argument("--deny", action="append", default=[], metavar="TARGET")
    change.set_defaults(act=_set)


def _get(session: Session) -> None:
    show_json(session.sandbox(session.options.sandbox).get_network())


def _set(session: Session) -> None:
    given = session.options
    policy = network_policy(given.mode, given.allow, given.deny)
    assert policy is not None
    show_json(session.sandbox(given.sandbox).set_network(policy))


def _log(session: Session) -> None:
    given = session.options
    found = session.sandbox(given.sandbox).network_log(since=given.since, limit=given.limit)
    header = ("SEQ", "VERDICT", "NAME", "ADDRESS", "PORT", "PROTOCOL", "COUNT", "REASON")
    show(given.output, [_decision(item) for item in found], header, found)


def _decision(item: Mapping[str, Any]) -> tuple[object, ...]:
    verdict = "allowed" if item.get("allowed") else "refused"
    rest = (item.get(key) for key in ("name", "address", "port", "protocol", "count", "reason"))
    return (item.get("sequence"), verdict, *rest)
