"""/v2/host and /metrics: what this host has, uses and has done."""

import time

from starlette.responses import Response
from starlette.routing import Route

from talon_server.api.metrics import Metrics
from talon_server.api.services import Services
from talon_server.api.v2.http import Call, endpoint, reply

_BEGUN = time.time()


async def host(call: Call) -> Response:
    capacity = await call.services.worker.capacity()
    return reply({**capacity, "uptime_s": round(time.time() - _BEGUN, 1), "queue": call.services.lifecycle.waiting})


def routes(services: Services, metrics: Metrics) -> list[Route]:
    """The routes of this module."""

    async def scrape(call: Call) -> Response:
        capacity = await call.services.worker.capacity()
        return Response(metrics.render(capacity, call.services.lifecycle), media_type=metrics.content_type)

    return [
        Route("/v2/host", endpoint(services, host), methods=["GET"]),
        Route("/metrics", endpoint(services, scrape), methods=["GET"]),
    ]
