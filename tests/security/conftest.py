"""An attacker: a sandbox in which everything is tried as root."""

from collections.abc import Callable

import pytest

from talon_sandbox import Result, Sandbox

Attack = Callable[..., Result]


@pytest.fixture
def attack(shared: Sandbox) -> Attack:
    """Run a command as the sandbox's root."""
    return lambda command, **options: shared.run(command, user="root", timeout=60, **options)
