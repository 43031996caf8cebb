"""What one sandbox's resolver has granted so far: the book behind its set in the walls.

The walls' set refuses ranges that overlap, so what is admitted here is cut to be disjoint. The book also knows
which name an address was granted for, so that a change of policy can grant again what the new one still allows.
Pure state; times are seconds of any monotonic clock.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from talon_server.egress.addresses import Address
from talon_server.egress.answers import Grant
from talon_server.egress.policy import CompiledPolicy, Opening, subtract

REMEMBERED = 4096


@dataclass(slots=True)
class _Entry:
    grant: Grant
    until_s: float


class GrantBook:
    """The grants of one sandbox, at most `REMEMBERED` (the oldest go first)."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[str, Address], _Entry] = OrderedDict()
        self._elements: dict[Address, dict[Opening, float]] = {}

    def admit(self, grants: Iterable[Grant], now_s: float) -> list[Grant]:
        """The grants to write into the walls, cut so that no two ranges towards one address overlap."""
        admitted = []
        for one in grants:
            if one.address.version != 4:
                continue
            self._remember(one, now_s)
            pieces = self._cut(one, now_s)
            if pieces:
                admitted.append(replace(one, openings=pieces))
        return admitted

    def reissue(self, policy: CompiledPolicy, now_s: float) -> list[Grant]:
        """Start anew under another policy: the grants that it still gives, for the time they had left."""
        entries, self._elements = list(self._entries.values()), {}
        self._entries.clear()
        kept = []
        for entry in entries:
            verdict = policy.name(entry.grant.name)
            left_s = int(entry.until_s - now_s)
            if verdict.allowed and verdict.listed and left_s > 0 and policy.answer(entry.grant.address):
                kept.append(replace(entry.grant, openings=verdict.openings, life_s=left_s))
        return self.admit(kept, now_s)

    def names(self, address: Address) -> list[str]:
        """The names that an address was granted for: to tell in the log what a packet was about."""
        return [name for name, known in self._entries if known == address]

    def _remember(self, grant: Grant, now_s: float) -> None:
        key = (grant.name, grant.address)
        self._entries[key] = _Entry(grant, now_s + grant.life_s)
        self._entries.move_to_end(key)
        while len(self._entries) > REMEMBERED:
            (_, address), _ = self._entries.popitem(last=False)
            if not self.names(address):
                self._elements.pop(address, None)

    def _cut(self, grant: Grant, now_s: float) -> tuple[Opening, ...]:
        present = self._elements.setdefault(grant.address, {})
        for opening in [opening for opening, until_s in present.items() if until_s <= now_s]:
            del present[opening]
        pieces: list[Opening] = []
        for opening in grant.openings:
            pieces.extend([opening] if opening in present else subtract([opening], present))
        for piece in pieces:
            present[piece] = now_s + grant.life_s
        return tuple(pieces)
