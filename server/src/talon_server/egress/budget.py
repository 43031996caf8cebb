"""How much a sandbox may say through DNS: bounds that make a tunnel useless and leave programs alone.

Pure state, one `DnsBudget` per sandbox, asked by the resolver with the present time. Three bounds: questions
per second (a token bucket), distinct names below one parent per minute, and long random-looking labels.
"""

import math
from collections import Counter, OrderedDict
from dataclasses import dataclass, field

MAX_PARENTS = 256


@dataclass(frozen=True, slots=True)
class DnsLimits:
    """`rate_per_s` and `burst` bound all questions; `names_per_minute` the new names below one parent."""

    rate_per_s: float = 50.0
    burst: int = 200
    names_per_minute: int = 120
    random_bytes_per_minute: int = 2048


@dataclass(slots=True)
class _Parent:
    since_s: float
    names: set[str] = field(default_factory=set)
    random_bytes: int = 0


class DnsBudget:
    """Counts one sandbox's questions; `refuse` gives the reason a question must not go out, or None."""

    def __init__(self, limits: DnsLimits | None = None) -> None:
        self._limits = limits or DnsLimits()
        self._tokens = float(self._limits.burst)
        self._at_s = 0.0
        self._parents: OrderedDict[str, _Parent] = OrderedDict()

    def refuse(self, name: str, now_s: float) -> str | None:
        """`rate`, `names` or `entropy`, or None when the question may be asked."""
        limits = self._limits
        self._tokens = min(limits.burst, self._tokens + max(0.0, now_s - self._at_s) * limits.rate_per_s)
        self._at_s = now_s
        if self._tokens < 1:
            return "rate"
        self._tokens -= 1
        parent = self._parent(parent_of(name), now_s)
        if name in parent.names:
            return None
        if len(parent.names) >= limits.names_per_minute:
            return "names"
        parent.names.add(name)
        parent.random_bytes += random_bytes(name)
        return "entropy" if parent.random_bytes > limits.random_bytes_per_minute else None

    def _parent(self, name: str, now_s: float) -> _Parent:
        parent = self._parents.get(name)
        if parent is None or now_s - parent.since_s >= 60:
            parent = self._parents[name] = _Parent(now_s)
        self._parents.move_to_end(name)
        while len(self._parents) > MAX_PARENTS:
            self._parents.popitem(last=False)
        return parent


def parent_of(name: str) -> str:
    """The last two labels: what one party usually owns."""
    return ".".join(name.rsplit(".", 2)[-2:])


def random_bytes(name: str) -> int:
    """Bytes in labels that look like data: 20 characters or more, above 3.3 bits a character."""
    return sum(len(label) for label in name.split(".")[:-2] if len(label) >= 20 and entropy_bits(label) > 3.3)


def entropy_bits(label: str) -> float:
    """Shannon entropy of a label, bits per character."""
    return -sum(n / len(label) * math.log2(n / len(label)) for n in Counter(label).values())
