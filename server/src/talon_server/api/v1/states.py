"""OpenSandbox's state names, derived from the one lifecycle table (`model.sandbox.State`). Pure."""

from collections.abc import Mapping
from types import MappingProxyType

from talon_server.model.sandbox import State

NAMES: Mapping[State, str] = MappingProxyType(
    {
        State.PENDING: "Pending",
        State.STARTING: "Pending",
        State.RUNNING: "Running",
        State.PAUSING: "Pausing",
        State.PAUSED: "Paused",
        State.RESUMING: "Resuming",
        State.STOPPING: "Stopping",
        State.STOPPED: "Terminated",
        State.FAILED: "Failed",
        State.TERMINATED: "Terminated",
    }
)

_REASONS: Mapping[State, tuple[str, str]] = MappingProxyType(
    {
        State.PENDING: ("CONTAINER_STARTING", "The sandbox is being prepared."),
        State.STARTING: ("CONTAINER_STARTING", "The sandbox is starting."),
        State.RUNNING: ("CONTAINER_RUNNING", "The sandbox is running and ready to accept requests."),
        State.PAUSING: ("CONTAINER_PAUSING", "The sandbox is being paused."),
        State.PAUSED: ("CONTAINER_PAUSED", "The sandbox is paused; resume it to go on."),
        State.RESUMING: ("CONTAINER_RESUMING", "The sandbox is being resumed."),
        State.STOPPING: ("DELETING", "The sandbox is ending."),
        State.STOPPED: ("CONTAINER_EXITED", "The sandbox was stopped; its files are kept."),
        State.FAILED: ("CONTAINER_EXITED_ERROR", "The sandbox failed."),
        State.TERMINATED: ("CONTAINER_EXITED", "The sandbox has ended."),
    }
)


def status_of(state: State, reason: str, since: str) -> dict[str, str]:
    """SandboxStatus: a stable reason, and a message that carries the platform's own reason when there is one.

    An entrypoint that ended well has terminated in OpenSandbox's words, not failed.
    """
    if state is State.FAILED and reason.endswith("exited with code 0"):
        state = State.TERMINATED
    code, message = _REASONS[state]
    return {"state": NAMES[state], "reason": code, "message": reason or message, "lastTransitionAt": since}


def states_named(names: list[str]) -> set[State]:
    """The states that the filter's names mean (case does not matter); unknown names mean none."""
    wanted = {name.lower() for part in names for name in part.split(",")}
    return {state for state, name in NAMES.items() if name.lower() in wanted}
