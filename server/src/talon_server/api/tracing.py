"""Traces of creates for OpenTelemetry: one span for the whole, one for each phase down to the agent's claim.

Off unless `tracing.endpoint` is set; the exporter's packages are imported only then (`pip install
talon-sandbox-server[tracing]`). The phases were measured where they happened, so nothing is added to the create path.
"""

from talon_server.control.events import Event, Events
from talon_server.errors import TalonError

_NANOSECONDS = 1_000_000


def follow(events: Events, endpoint: str) -> None:
    """Export a trace of each create from now on. Raises host_unsuitable when the packages are missing."""
    if not endpoint:
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace import set_span_in_context
    except ImportError as error:
        raise TalonError(
            "host_unsuitable",
            "tracing.endpoint is set, and OpenTelemetry is not installed",
            remedy="Install talon-sandbox-server[tracing], or clear tracing.endpoint.",
        ) from error
    provider = TracerProvider(resource=Resource.create({"service.name": "talon-server"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    tracer = provider.get_tracer("talon_server")

    def heard(event: Event) -> None:
        if event.kind != "created":
            return
        phases = dict(event.detail["timings_ms"])
        end = int(event.at * 1000) * _NANOSECONDS
        at = end - int(phases.pop("total_ms", 0.0) * _NANOSECONDS)
        attributes = {"talon.sandbox": event.sandbox_id, "talon.pooled": bool(event.detail["pooled"])}
        whole = tracer.start_span("sandbox.create", start_time=at, attributes=attributes)
        context = set_span_in_context(whole)
        for name, took_ms in phases.items():
            done = at + int(took_ms * _NANOSECONDS)
            layer = "control" if name == "queue_ms" else "agent" if name == "claim_ms" else "worker"
            span = tracer.start_span(f"{layer}.{name.removesuffix('_ms')}", context=context, start_time=at)
            span.end(done)
            at = done
        whole.end(end)

    events.listen(heard)
