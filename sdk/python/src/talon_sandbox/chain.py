"""The hash chain of a recording, checked on its lines without trusting the server that gave them; pure.

Each line ends with `"h"`: SHA-256 over the hash before it and the line's own bytes up to there (see the how-to "see what
the agent did"). What a whole chain proves: nothing in it was altered, left out or reordered after its head was known.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

_MARK = b',"h":"'
_TAIL_BYTES = len(_MARK) + 64 + len(b'"}\n')


@dataclass(frozen=True, slots=True)
class Checked:
    """`bad_record` and `bad_offset` (bytes) name the first record that does not hold; None when all do."""

    records: int
    size: int
    head: str
    bad_record: int | None = None
    bad_offset: int | None = None
    reason: str = ""

    @property
    def sound(self) -> bool:
        return self.bad_record is None


def check(lines: Iterable[bytes], head: str | None = None) -> Checked:
    """Check all lines in order, and that they end at `head`, when it is known."""
    previous, offset, count = bytes(32).hex(), 0, 0
    for line in lines:
        if reason := _wrong(line, previous, count):
            return Checked(count, offset, previous, count, offset, reason)
        previous = line[-67:-3].decode()
        offset += len(line)
        count += 1
    if head is not None and head != previous:
        return Checked(count, offset, previous, count, offset, "it ends before its signed head")
    return Checked(count, offset, previous)


def _wrong(line: bytes, previous: str, number: int) -> str:
    body, tail = line[:-_TAIL_BYTES], line[-_TAIL_BYTES:]
    if not body or not tail.startswith(_MARK) or not tail.endswith(b'"}\n'):
        return "the record is cut short or carries no hash"
    if hashlib.sha256(bytes.fromhex(previous) + body).hexdigest().encode() != tail[len(_MARK) : -3]:
        return "the record does not follow from the one before it"
    try:
        found = json.loads(line).get("n")
    except ValueError:
        return "the record is not JSON"
    return "" if found == number else "a record is missing or out of order"
