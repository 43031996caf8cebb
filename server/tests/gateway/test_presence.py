"""Who is in use: requests in flight, and the time since the last."""

import time

from talon_server.gateway.presence import Presence


def test_a_request_in_flight_is_use() -> None:
    presence = Presence()
    long_ago = time.monotonic() - 100
    assert presence.idle_s("a", long_ago) >= 100
    with presence.using("a"), presence.using("a"):
        assert presence.idle_s("a", long_ago) == 0
    assert presence.idle_s("a", long_ago) < 50
    assert presence.idle_s("b", long_ago) >= 100


def test_what_is_forgotten_counts_from_its_beginning() -> None:
    presence = Presence()
    with presence.using("a"):
        pass
    presence.forget("a")
    assert presence.idle_s("a", time.monotonic() - 100) >= 100
