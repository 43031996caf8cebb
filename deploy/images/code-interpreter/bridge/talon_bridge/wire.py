"""The framing of Jupyter messages: signed JSON in ZMQ multipart frames.

Source: Jupyter messaging protocol 5.4, "The Wire Protocol". Without I/O.
"""

import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

_DELIMITER = b"<IDS|MSG>"
_SESSION = secrets.token_hex(8)

Content = dict[str, Any]


@dataclass(frozen=True)
class Message:
    """One message; `size` is that of its content in bytes, and `content` is empty when it was too large to read."""

    kind: str
    parent: str
    content: Content
    size: int
    header: Content


def header(kind: str) -> Content:
    now = datetime.now(UTC).isoformat()
    told = {"msg_id": secrets.token_hex(12), "session": _SESSION, "username": "talon", "date": now}
    return {**told, "msg_type": kind, "version": "5.4"}


def pack(key: bytes, head: Content, content: Content, parent: Content | None = None) -> list[bytes]:
    """The frames of a message."""
    parts = [json.dumps(part).encode() for part in (head, parent or {}, {}, content)]
    return [_DELIMITER, _sign(key, parts), *parts]


def unpack(key: bytes, frames: list[bytes], limit: int) -> Message | None:
    """Read a message; None when it is none of ours. Content of more than `limit` bytes is not read."""
    try:
        start = frames.index(_DELIMITER)
        signature, parts = frames[start + 1], frames[start + 2 : start + 6]
    except (ValueError, IndexError):
        return None
    if len(parts) != 4 or not hmac.compare_digest(signature, _sign(key, parts)):
        return None
    size = len(parts[3]) + sum(len(frame) for frame in frames[start + 6 :])
    head = json.loads(parts[0])
    content = json.loads(parts[3]) if size <= limit else {}
    return Message(head["msg_type"], json.loads(parts[1]).get("msg_id", ""), content, size, head)


def _sign(key: bytes, parts: list[bytes]) -> bytes:
    digest = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        digest.update(part)
    return digest.hexdigest().encode()
