"""The server that OpenSandbox's clients meet: the run's own, or one that is named in the environment.

`TALON_CONFORMANCE_DOMAIN` (host:port) and `TALON_CONFORMANCE_KEY` point the suite at a server that runs already.
"""

import os

import pytest

from tests.conformance.opensandbox.live import Live


@pytest.fixture
def live(request: pytest.FixtureRequest) -> Live:
    domain = os.environ.get("TALON_CONFORMANCE_DOMAIN")
    if domain:
        return Live(domain, os.environ["TALON_CONFORMANCE_KEY"])
    platform = request.getfixturevalue("platform")
    return Live(platform.url.removeprefix("http://"), platform.key)
