"""Server-sent events and newline-delimited JSON, as decoders without I/O: bytes go in, whole events come out.

Used for command output, logs, events (SSE) and for progress of image pulls and batches (NDJSON). Follows the WHATWG
"Server-sent events" section 9.2.6 for the fields event, data and id; a piece that ends in the middle of a line, of a
CRLF pair or of a UTF-8 sequence is kept until the rest comes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `data` is the text of its data lines."""

    name: str
    data: str
    id: str | None = None

    def json(self) -> Any:
        return json.loads(self.data)


class LineDecoder:
    """Splits a byte stream into lines without their endings (LF or CRLF)."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        head, newline, rest = data.partition(b"\n")
        self._parts.append(head)
        if not newline:
            return []
        first = b"".join(self._parts)
        *lines, last = rest.split(b"\n")
        self._parts = [last]
        return [line.removesuffix(b"\r") for line in (first, *lines)]

    def flush(self) -> bytes:
        """What came after the last line end."""
        rest, self._parts = b"".join(self._parts), []
        return rest


class SSEDecoder:
    """Turns the bytes of a text/event-stream into events."""

    def __init__(self) -> None:
        self._lines = LineDecoder()
        self._name = ""
        self._data: list[str] = []
        self._id: str | None = None

    def feed(self, data: bytes) -> list[Event]:
        events = (self._line(line) for line in self._lines.feed(data))
        return [event for event in events if event is not None]

    def _line(self, line: bytes) -> Event | None:
        if not line:
            return self._dispatch()
        field, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        elif field == "id":
            self._id = value
        return None

    def _dispatch(self) -> Event | None:
        name, data = self._name or "message", self._data
        self._name, self._data = "", []
        return Event(name, "\n".join(data), self._id) if data else None


class NDJSONDecoder:
    """Turns the bytes of an application/x-ndjson stream into objects; empty lines are skipped."""

    def __init__(self) -> None:
        self._lines = LineDecoder()

    def feed(self, data: bytes) -> list[Any]:
        return [json.loads(line) for line in self._lines.feed(data) if line.strip()]

    def flush(self) -> list[Any]:
        rest = self._lines.flush().strip()
        return [json.loads(rest)] if rest else []
