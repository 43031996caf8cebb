"""The recording of one sandbox: JSON lines, each bound to all before it by a hash chain.

The agent writes the lines, the server closes and reads them; both follow this format to the byte:
a line is a JSON object whose last member is `"h"`, 64 hexadecimal digits:

    h[n] = SHA-256( h[n-1] (32 bytes) + the line's bytes before `,"h":"…"}` )        h[-1] = 32 zero bytes

Every record has `n` (0, 1, 2…), `at` (Unix seconds, microseconds kept) and `kind`; see `KINDS`. Pure functions.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

START = bytes(32)
_TAIL = len(b',"h":"') + 64 + len(b'"}')

KINDS: Mapping[str, str] = {
    "open": "the recording begins: sandbox, format, mode",
    "term.open": "a terminal starts: id, command, cwd, user, cols, rows",
    "term.out": "its output: id, data (text) or b64",
    "term.in": "input to it: id, data or b64",
    "term.resize": "its new size: id, cols, rows",
    "term.exit": "it ended: id, exit_code",
    "cmd.start": "a command starts: id, command, cwd, user",
    "cmd.out": "its output: id, stream (stdout, stderr), data or b64",
    "cmd.exit": "it ended: id, exit_code, signal, duration_s, timed_out, oom_killed",
    "file": "a file was changed through the API: action, path, size, sha256",
    "port": "a port was opened or closed: action, port, process",
    "life": "a change of the sandbox's state: state, reason",
    "net": "a decision on the network: allowed, name, address, port, protocol, rule",
    "note": "said by the server: text",
    "gap": "records could not be written: lost, reason",
}


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` found: `bad_record`/`bad_offset` (bytes) name the first record that does not hold, or None."""

    records: int
    size: int
    head: str
    bad_record: int | None = None
    bad_offset: int | None = None
    reason: str = ""

    @property
    def sound(self) -> bool:
        return self.bad_record is None


def seal(previous: bytes, record: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """The line of a record and its hash: `(line with newline, 32 bytes)`."""
    body = json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()[:-1]
    digest = hashlib.sha256(previous + body).digest()
    return body + b',"h":"' + digest.hex().encode() + b'"}\n', digest


def verify(lines: Iterable[bytes], head: str | None = None) -> Verification:
    """Check a whole recording line by line; `head` is the signed hash of the last record, when it was closed."""
    previous, offset, count = START, 0, 0
    for line in lines:
        reason = _check(line, previous, count)
        if reason:
            return Verification(count, offset, previous.hex(), count, offset, reason)
        previous = bytes.fromhex(line[-67:-3].decode())
        offset += len(line)
        count += 1
    if head is not None and head != previous.hex():
        return Verification(count, offset, previous.hex(), count, offset, "the recording ends before its signed head")
    return Verification(count, offset, previous.hex())


def _check(line: bytes, previous: bytes, number: int) -> str:
    if not line.endswith(b'"}\n') or len(line) < _TAIL + 2:
        return "the record is cut short"
    body, tail = line[: -_TAIL - 1], line[-_TAIL - 1 :]
    if not tail.startswith(b',"h":"'):
        return "the record carries no hash"
    if hashlib.sha256(previous + body).hexdigest().encode() != tail[6:70]:
        return "the record does not follow from the one before it"
    try:
        if json.loads(line).get("n") != number:
            return "a record is missing or out of order"
    except ValueError:
        return "the record is not JSON"
    return ""


def last_hash(line: bytes) -> bytes:
    """The hash that a line ends with, to continue the chain after it."""
    return bytes.fromhex(line[-67:-3].decode())


def cast(records: Iterable[Mapping[str, Any]], terminal: str) -> Iterator[str]:
    """One terminal of a recording as asciicast v2 lines (asciinema's format, version 2)."""
    begun = 0.0
    for record in records:
        if record.get("id") != terminal:
            continue
        kind, at = record["kind"], float(record["at"])
        if kind == "term.open":
            begun = at
            yield _cast_header(record)
        elif event := _cast_event(kind, record):
            yield json.dumps([round(at - begun, 6), *event], ensure_ascii=False)


def _cast_header(record: Mapping[str, Any]) -> str:
    header = {
        "version": 2,
        "width": record.get("cols", 80),
        "height": record.get("rows", 24),
        "timestamp": int(record["at"]),
        "command": record.get("command") or "",
        "env": {"TERM": "xterm-256color", "SHELL": "/bin/bash"},
    }
    return json.dumps(header, ensure_ascii=False)


def _cast_event(kind: str, record: Mapping[str, Any]) -> tuple[str, str] | None:
    if kind == "term.out":
        return "o", text_of(record)
    if kind == "term.in":
        return "i", text_of(record)
    if kind == "term.resize":
        return "r", f"{record['cols']}x{record['rows']}"
    return None


def text_of(record: Mapping[str, Any]) -> str:
    """The text of an output or input record; bytes that are no UTF-8 were kept as base64."""
    if "data" in record:
        return str(record["data"])
    return base64.b64decode(record.get("b64", "")).decode(errors="replace")
