"""Sizes and durations as people write them.

    size     = number [ B | KiB | MiB | GiB | TiB | KB | MB | GB | TB | K | M | G | T | Ki | Mi | Gi | Ti ]
    duration = number [ ms | s | m | h | d | w ], or several: 1h30m

Case does not matter for sizes; a bare number is bytes, or seconds. Zero and negative numbers are refused.
"""

import math
import re

from talon_server.errors import TalonError

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*\Z", re.IGNORECASE)
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?\s*")
_SIZES = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _SIZES[f"{_letter}ib"] = _SIZES[f"{_letter}i"] = 1024**_power
    _SIZES[f"{_letter}b"] = _SIZES[_letter] = 1000**_power
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, None: 1}
MAX_BYTES = 1 << 50
MAX_SECONDS = 10 * 365 * 86400


def parse_size(value: str | int | float, field: str = "size") -> int:
    """Bytes. Raises invalid_size naming `field` and what was given."""
    if isinstance(value, bool):
        raise _not_a_size(value, field)
    if isinstance(value, int | float):
        number, unit = float(value), 1
    else:
        match = _SIZE.match(value)
        if match is None or match[2].lower() not in _SIZES:
            raise _not_a_size(value, field)
        number, unit = float(match[1]), _SIZES[match[2].lower()]
    size = number * unit
    if not math.isfinite(size) or not 1 <= size <= MAX_BYTES:
        raise _not_a_size(value, field)
    return int(size)


def parse_duration(value: str | int | float, field: str = "duration") -> float:
    """Seconds. Raises invalid_duration naming `field` and what was given."""
    if isinstance(value, bool):
        raise _not_a_duration(value, field)
    seconds = float(value) if isinstance(value, int | float) else _spelled(value, field)
    if not math.isfinite(seconds) or not 0 < seconds <= MAX_SECONDS:
        raise _not_a_duration(value, field)
    return seconds


def _spelled(text: str, field: str) -> float:
    total, at = 0.0, 0
    while at < len(text) or at == 0:
        match = _DURATION.match(text, at)
        if match is None:
            raise _not_a_duration(text, field)
        total += float(match[1]) * _SECONDS[match[2]]
        at = match.end()
    return total


def _not_a_size(value: object, field: str) -> TalonError:
    return TalonError("invalid_size", f"{field} {value!r} is not a size")


def _not_a_duration(value: object, field: str) -> TalonError:
    return TalonError("invalid_duration", f"{field} {value!r} is not a duration")
