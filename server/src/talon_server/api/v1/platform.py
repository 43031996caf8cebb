"""The small routes of the OpenSandbox lifecycle API: health, version, metrics events, diagnostics, network policy, templates.

Handlers of `app`.
"""

from collections.abc import Mapping

from talon_server.api.services import Services
from talon_server.api.v1.diagnostics import DiagnosticRoutes
from talon_server.api.v1.egress import EgressApi
from talon_server.api.v1.http import Handler, Problem, Reply, Request
from talon_server.api.v1.schemas import MetricsEvent

_PROTOCOL = "1.1.1"
"""The release of OpenSandbox whose lifecycle API this is."""


async def health(request: Request) -> Reply:
    return Reply(200, {"status": "healthy"})


async def version(request: Request) -> Reply:
    return Reply(200, {"version": _PROTOCOL})


async def metrics_event(request: Request) -> Reply:
    """SDKs tell how long a create took for them. Checked and dropped: the server measures its own creates."""
    await request.read(MetricsEvent)
    return Reply(204)


async def no_templates(request: Request) -> Reply:
    raise Problem(501, "FSB::API_NOT_SUPPORTED", "Templates are not supported by this server; use snapshots instead.")


def table(services: Services) -> Mapping[tuple[str, ...], Mapping[str, Handler]]:
    policy = EgressApi(services.lifecycle).lifecycle_policy
    return {
        ("health",): {"GET": health},
        ("version",): {"GET": version},
        ("metrics", "*"): {"POST": metrics_event},
        ("templates",): {"GET": no_templates, "POST": no_templates},
        ("templates", "*"): {"GET": no_templates, "DELETE": no_templates},
        ("sandboxes", "*", "networkpolicy"): {"GET": policy, "PUT": policy, "PATCH": policy, "DELETE": policy},
        ("sandboxes", "*", "diagnostics", "*"): {"GET": DiagnosticRoutes(services).show},
    }
