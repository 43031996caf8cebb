"""What a sandbox may reach: the one policy model of every dialect.

Read by the worker's walls and by the API adapters. Pure data: the first rule whose target, port and
protocol match decides; no match takes `default`. Private ranges, the host, other sandboxes and cloud
metadata stay closed unless a rule names their address.
"""

from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """Talon's names for the three usual policies."""

    OPEN = "open"
    ALLOWLIST = "allowlist"
    SEALED = "sealed"


class Action(StrEnum):
    ALLOW = "allow"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Rule:
    """`target` is an exact name, `*.suffix` (any depth, not the apex), an address or a CIDR.

    `ports` are inclusive ranges, empty for all; `protocol` is "tcp", "udp" or None for both.
    """

    action: Action
    target: str
    ports: tuple[tuple[int, int], ...] = ()
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    mode: Mode = Mode.OPEN
    rules: tuple[Rule, ...] = ()
    default: Action = Action.ALLOW
