"""`tsb audit`: who changed or read what through the API, and whether the log of it is whole."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from .._sync.recordings import Audit
from .app import Session
from .output import add_format, printable, show

_HEADER = ("SEQ", "AT", "ACTION", "TARGET", "OUTCOME", "KEY", "ADDRESS", "REQUEST")


def configure(name: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", nargs="?", choices=("verify",), help="check the log's chain")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what happens from now on")
    parser.add_argument("--action", help="only this, such as sandbox.create")
    parser.add_argument("--target", help="only this, such as a sandbox's id")
    parser.add_argument("--key", help="only what this key's id did")
    parser.add_argument("--limit", type=int, default=50, help="at most so many, newest first (default 50)")
    add_format(parser, ("table", "json"))
    parser.set_defaults(act=_audit)


def _audit(session: Session) -> int:
    given = session.options
    audit = session.client.audit
    if given.verb == "verify":
        return _verify(audit)
    filters = {"action": given.action, "target": given.target, "key": given.key}
    if given.follow:
        for entry in audit.follow(action=given.action):
            text = json.dumps(entry) if given.output == "json" else "  ".join(printable(str(c)) for c in _row(entry))
            print(text, flush=True)
        return 0
    found = audit.list(**filters, limit=given.limit)
    show(given.output, [_row(entry) for entry in found], _HEADER, found)
    return 0


def _row(entry: Mapping[str, Any]) -> tuple[object, ...]:
    return tuple(
        entry.get(key) for key in ("sequence", "at", "action", "target", "outcome", "key_id", "address", "request_id")
    )


def _verify(audit: Audit) -> int:
    found = audit.verify()
    if found["sound"]:
        print(f"sound: {found['records']} records, head {found['head']}")
        return 0
    print(f"ALTERED at record {found['bad_record']}: {found['reason']}")
    return 1
