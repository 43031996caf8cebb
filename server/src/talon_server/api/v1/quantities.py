"""Kubernetes quantities ("500m", "512Mi", "1.5", "64G") as numbers. Pure; used for resourceLimits."""

import re
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType

_SHAPE = re.compile(r"(\d+(?:\.\d+)?)(m|k|K|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?B?\Z")
_SCALE: Mapping[str, Decimal] = MappingProxyType(
    {"": Decimal(1), "m": Decimal("0.001"), "k": Decimal(1000)}
    | {letter: Decimal(1000) ** power for power, letter in enumerate("KMGTPE", 1)}
    | {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)}
)


class BadQuantity(ValueError):
    """Not a quantity; the text says what one looks like."""


def parse(text: str) -> Decimal:
    """Raises `BadQuantity`."""
    match = _SHAPE.match(text.strip())
    if match is None:
        raise BadQuantity(f"{text!r} is not a quantity; write for example '500m', '2' or '512Mi'")
    return Decimal(match[1]) * _SCALE[match[2] or ""]
