"""Fixtures of all tests that need a running platform: one server for a whole run, and sandboxes that end with the test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from talon_sandbox import Sandbox
from tests.framework.platform import Platform, home

Maker = Callable[..., Sandbox]


@pytest.fixture(scope="session")
def shared_platform() -> Iterator[Platform]:
    """The server of this run, with the image `base`."""
    with Platform(home("platform")) as platform:
        platform.clear()
        platform.ensure_base()
        yield platform


@pytest.fixture
def platform(shared_platform: Platform) -> Platform:
    """The same, started again should an earlier test have left it dead."""
    if not shared_platform.running:
        shared_platform.start()
    return shared_platform


@pytest.fixture
def make(platform: Platform) -> Iterator[Maker]:
    """Makes sandboxes that end with the test."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(platform.sandbox(**options))


@pytest.fixture
def sb(make: Maker) -> Sandbox:
    """A fresh sandbox."""
    return make()


@pytest.fixture(scope="module")
def shared(shared_platform: Platform) -> Iterator[Sandbox]:
    """One sandbox for a whole file of tests that leave it as it was."""
    if not shared_platform.running:
        shared_platform.start()
    with shared_platform.sandbox() as sandbox:
        yield sandbox


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Show the end of the server's log beside a failure."""
    report = yield
    platform = getattr(item, "funcargs", {}).get("shared_platform")
    if report.failed and platform is not None:  # type: ignore[attr-defined]
        report.sections.append(("the server's log", platform.log_end(40)))  # type: ignore[attr-defined]
    return report
