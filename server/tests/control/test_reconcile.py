"""After whatever crash, every sandbox is in a state of rest that agrees with the host."""

import pytest

from talon_server.control.reconcile import Work, decide
from talon_server.model.sandbox import State

REST = {State.RUNNING, State.PAUSED, State.STOPPED, State.FAILED, State.TERMINATED}
SEEN = (None, State.RUNNING, State.PAUSED)


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("wanted", State)
def test_every_pair_comes_to_rest(wanted: State, seen: State | None) -> None:
    verdict = decide(wanted, seen)
    assert verdict.state in REST
    assert (verdict.state in (State.RUNNING, State.PAUSED)) == (seen is not None and verdict.work is Work.NOTHING)
    again = decide(verdict.state, seen if verdict.work is Work.NOTHING else None)
    assert again.state is verdict.state


@pytest.mark.parametrize("wanted", [State.STOPPED, State.STOPPING, State.STARTING])
def test_files_of_a_stopped_sandbox_are_kept(wanted: State) -> None:
    verdict = decide(wanted, None)
    assert (verdict.state, verdict.work) == (State.STOPPED, Work.NOTHING)


def test_a_stop_is_finished() -> None:
    assert decide(State.STOPPING, State.RUNNING).work is Work.STOP


@pytest.mark.parametrize("wanted", [State.PENDING, State.RUNNING, State.PAUSED, State.PAUSING, State.RESUMING])
def test_what_is_gone_has_failed_with_a_reason(wanted: State) -> None:
    verdict = decide(wanted, None)
    assert (verdict.state, verdict.work) == (State.FAILED, Work.REMOVE)
    assert verdict.reason
