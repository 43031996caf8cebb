"""The frames of a terminal's WebSocket, from the server's side (api/agent.yaml); pure, for both clients."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_ERRORS, _REPLAY = 2, 3
_OFFSET_BYTES = 8


@dataclass(frozen=True, slots=True)
class Output:
    """Output of the program; `offset` of its first byte when the frame tells it, else it follows the frame before."""

    data: bytes
    offset: int | None = None
    error: bool = False


def output(frame: bytes) -> Output:
    """A binary frame."""
    if frame[:1] == bytes([_REPLAY]):
        at = int.from_bytes(frame[1 : 1 + _OFFSET_BYTES], "big")
        return Output(frame[1 + _OFFSET_BYTES :], at)
    return Output(frame[1:], None, frame[:1] == bytes([_ERRORS]))


def control(frame: str) -> dict[str, Any]:
    """A text frame: connected, exit, error or pong."""
    message = json.loads(frame)
    return message if isinstance(message, dict) else {}
