"""Waiting for conditions with a bound; the only place in the tests that looks at the clock."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

BOUND_S = 60.0
"""Long enough for a machine that is busy with other things."""


def until(condition: Callable[[], T], what: str, *, bound_s: float = BOUND_S, step_s: float = 0.05) -> T:
    """Ask again until the answer is true, and return it; fail with `what` when the bound is over."""
    deadline = time.monotonic() + bound_s
    pause = threading.Event()
    while True:
        if answer := condition():
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not in {bound_s:.0f} s: {what} (last answer: {answer!r})")
        pause.wait(step_s)
