"""What to do about one sandbox, from what the store says of it and what the host has. Pure; called by `lifecycle`.

Level-triggered: it looks at states, not at what happened in between, so it may be asked again at any time and after
any crash. Whatever was half done is finished or undone, and nothing stays in a state between two.
"""

from dataclasses import dataclass
from enum import Enum

from talon_server.model.sandbox import State

UNMADE = "the server ended while it was made"
VANISHED = "it ended while the server was down"


class Work(Enum):
    """What the host has to do."""

    NOTHING = "nothing"
    STOP = "stop"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state a sandbox is in from now on, why, and what the host has to do for that."""

    state: State
    reason: str = ""
    work: Work = Work.NOTHING


def decide(wanted: State, seen: State | None) -> Verdict:
    """`wanted` stands in the store; `seen` is running, paused, or None for a sandbox that the host does not run."""
    if wanted in (State.FAILED, State.TERMINATED):
        return Verdict(wanted, work=Work.NOTHING if seen is None else Work.REMOVE)
    if seen is not None:
        return Verdict(State.STOPPED, work=Work.STOP) if wanted in (State.STOPPING, State.STOPPED) else Verdict(seen)
    if wanted in (State.STOPPING, State.STOPPED, State.STARTING):
        return Verdict(State.STOPPED)
    return Verdict(State.FAILED, UNMADE if wanted is State.PENDING else VANISHED, Work.REMOVE)
