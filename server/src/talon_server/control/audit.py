"""The audit log: who did what, when, from where, and how it ended. Append-only, each line bound to all before it.

One file, `<home>/audit.jsonl`, in the line format of recordings (`model.recording`), so the same check finds the first
line that was altered. Written by `api.audited` after each call that changes or reads something sensitive.
"""

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from talon_server.model.recording import START, Verification, last_hash, seal, verify

log = logging.getLogger(__name__)

_BLOCK = 1 << 16
Listener = Callable[[Mapping[str, Any]], None]


class Audit:
    """The log of one server. `write` never raises: an entry that cannot be written is said in the server's log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listeners: list[Listener] = []
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._next, self._last = self._resume()

    def _resume(self) -> tuple[int, bytes]:
        size = os.fstat(self._file).st_size
        line = next(self._backwards(), None)
        whole = size if line is None else self._end_of_last_line(size)
        if whole < size:
            os.ftruncate(self._file, whole)
        return (0, START) if line is None else (json.loads(line)["n"] + 1, last_hash(line))

    def _end_of_last_line(self, size: int) -> int:
        tail = os.pread(self._file, _BLOCK, max(0, size - _BLOCK))
        return size - (len(tail) - (tail.rfind(b"\n") + 1))

    def write(self, action: str, fields: Mapping[str, Any]) -> None:
        """Add one entry: `fields` are tenant, key_id, target, outcome, status, address, request_id."""
        entry = {"n": self._next, "at": round(time.time(), 6), "kind": action, **fields}
        line, digest = seal(self._last, entry)
        try:
            os.write(self._file, line)
        except OSError as error:
            log.error("an audit entry could not be written (%s): %s", error, entry)
            return
        self._next, self._last = self._next + 1, digest
        for listener in tuple(self._listeners):
            listener(entry)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with each entry until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def query(
        self,
        *,
        tenant: str,
        action: str = "",
        target: str = "",
        key_id: str = "",
        before: int | None = None,
        limit: int,
    ) -> Sequence[Mapping[str, Any]]:
        """Entries newest first, numbered below `before`. `action` may end in `*`."""
        found: list[Mapping[str, Any]] = []
        for line in self._backwards():
            entry = json.loads(line)
            if (before is None or entry["n"] < before) and _fits(entry, tenant, action, target, key_id):
                found.append(entry)
                if len(found) >= limit:
                    break
        return found

    def check(self) -> Verification:
        """Check the whole chain; blocking."""
        with self._path.open("rb") as file:
            return verify(file)

    def _backwards(self) -> Iterator[bytes]:
        """The whole lines of the file, last first."""
        at, rest = os.fstat(self._file).st_size, b""
        while at > 0:
            start = max(0, at - _BLOCK)
            rest = os.pread(self._file, at - start, start) + rest
            at = start
            first, *whole = rest.split(b"\n")
            for line in reversed(whole[:-1] if whole else []):
                yield line + b"\n"
            rest = first + b"\n" if whole else first
        if rest.endswith(b"}\n"):
            yield rest

    def close(self) -> None:
        os.close(self._file)


def _fits(entry: Mapping[str, Any], tenant: str, action: str, target: str, key_id: str) -> bool:
    kind = str(entry["kind"])
    named = not action or kind == action or (action.endswith("*") and kind.startswith(action[:-1]))
    return bool(
        entry.get("tenant") == tenant
        and named
        and target in ("", entry.get("target"))
        and key_id in ("", entry.get("key_id"))
    )
