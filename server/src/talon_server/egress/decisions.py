"""The record of what the network layer decided: bounded in memory, followed live, appended to a file.

The resolver and the walls' log reader call `Decisions.note`; the API lists and follows; the recorder subscribes.
A burst of equal decisions within a second is one record with a count, so a loop cannot flood it.
"""

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

KEPT_PER_SANDBOX = 2000
MERGE_S = 1.0


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision. `at_s` Unix time; `layer` dns or packet; `rule` the policy's rule index or None (default)."""

    sequence: int
    at_s: float
    sandbox: str
    allowed: bool
    layer: str
    name: str = ""
    address: str = ""
    port: int = 0
    protocol: str = ""
    rule: int | None = None
    reason: str = ""
    count: int = 1

    def as_json(self) -> Mapping[str, Any]:
        return asdict(self)

    def line(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @property
    def key(self) -> tuple[object, ...]:
        return (self.allowed, self.layer, self.name, self.address, self.port, self.protocol, self.reason)


Listener = Callable[[Decision], None]


class Decisions:
    """All sandboxes' decisions of this host."""

    def __init__(self, kept: int = KEPT_PER_SANDBOX) -> None:
        self._kept = kept
        self._logs: dict[str, deque[Decision]] = {}
        self._listeners: list[Listener] = []
        self._sequence = 0
        self.totals = {True: 0, False: 0}

    def note(self, decision: Decision) -> Decision:
        """Keep and announce one decision; its sequence number is set here."""
        self.totals[decision.allowed] += decision.count
        log = self._logs.setdefault(decision.sandbox, deque(maxlen=self._kept))
        last = log[-1] if log else None
        if last is not None and last.key == decision.key and decision.at_s - last.at_s < MERGE_S:
            log[-1] = replace(last, count=last.count + decision.count)
            return log[-1]
        self._sequence += 1
        kept = replace(decision, sequence=self._sequence)
        log.append(kept)
        for listener in tuple(self._listeners):
            listener(kept)
        return kept

    def since(self, sandbox: str, sequence: int = 0, limit: int = 500) -> list[Decision]:
        """The decisions after `sequence`, oldest first, at most `limit`."""
        found = [decision for decision in self._logs.get(sandbox, ()) if decision.sequence > sequence]
        return found[-limit:] if sequence == 0 else found[:limit]

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with each new decision until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def forget(self, sandbox: str) -> None:
        self._logs.pop(sandbox, None)
