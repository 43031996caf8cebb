"""What Prometheus sees: how long creates take by phase, how they end, and how full the host is."""

from collections.abc import Mapping
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from talon_server.control.events import Event, Events
from talon_server.control.lifecycle import Lifecycle

_BUCKETS = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """The server's metrics; it follows the events."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, events: Events) -> None:
        self._registry = CollectorRegistry()
        book = self._registry
        self._phases = Histogram(
            "talon_create_phase_seconds", "Time of each phase of a create", ["phase"], buckets=_BUCKETS, registry=book
        )
        self._states = Counter("talon_state_changes_total", "Changes of sandboxes' state", ["state"], registry=book)
        self._creates = Counter(
            "talon_creates_total", "Creates by where their shell came from", ["from"], registry=book
        )
        self._living = Gauge("talon_sandboxes", "Sandboxes by state", ["state"], registry=book)
        self._pool = Gauge("talon_pool_ready", "Shells ready to be claimed", registry=book)
        self._target = Gauge("talon_pool_target", "Shells the pool wants ready", registry=book)
        self._misses = Gauge("talon_pool_misses", "Creates that found no ready shell", registry=book)
        self._queue = Gauge("talon_create_queue", "Creates that wait for a place", registry=book)
        events.listen(self._heard)

    def _heard(self, event: Event) -> None:
        if event.kind == "state":
            self._states.labels(event.detail["state"]).inc()
        elif event.kind == "created":
            self._creates.labels("pool" if event.detail["pooled"] else "plain").inc()
            for phase, took_ms in event.detail["timings_ms"].items():
                self._phases.labels(phase.removesuffix("_ms")).observe(took_ms / 1000)

    def render(self, capacity: Mapping[str, Any], lifecycle: Lifecycle) -> bytes:
        """The text that Prometheus reads."""
        self._living.clear()
        for state, count in lifecycle.counts().items():
            self._living.labels(state).set(count)
        pool = capacity.get("pool", {})
        self._pool.set(pool.get("level", 0))
        self._target.set(pool.get("target", 0))
        self._misses.set(pool.get("misses", 0))
        self._queue.set(lifecycle.waiting)
        return generate_latest(self._registry)
