"""`tsb start`, `stop`, `pause`, `resume` and `renew`."""

from __future__ import annotations

import argparse

from .app import Session
from .arguments import each


def configure(name: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sandboxes", nargs="+" if name != "renew" else 1, metavar="SB")
    if name == "renew":
        parser.add_argument("ttl", metavar="TTL", help='how long it may live from now on: "10m", "2h"')
    parser.set_defaults(act=_act, verb=name)


def _act(session: Session) -> int:
    given = session.options

    def turn(name: str) -> None:
        with session.client.lease():
            sandbox = session.sandbox(name)
            info = sandbox.renew(given.ttl) if given.verb == "renew" else getattr(sandbox, given.verb)()
            print(f"{info.id} {info.state}" + (f" until {info.expires_at}" if given.verb == "renew" else ""))

    return each(session, given.sandboxes, turn)
