"""The native API as one Starlette application, with what is open to everyone: health, version, the specification."""

from importlib.metadata import version
from pathlib import Path

import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from talon_server.api.services import Services
from talon_server.api.v2 import images, sandboxes
from talon_server.api.v2.http import failure
from talon_server.errors import TalonError

SPECIFICATION = Path(__file__).parents[5] / "api" / "openapi.yaml"


def build(services: Services, more: list[Route]) -> ASGIApp:
    """All routes of /v2, and `more`."""

    async def missing(request: Request, _error: Exception) -> Response:
        return failure(TalonError("not_found", f"there is nothing at {request.url.path}"), request)

    async def wrong_method(request: Request, _error: Exception) -> Response:
        return failure(TalonError("method_not_allowed", f"{request.url.path} does not take {request.method}"), request)

    routes = [
        Route("/healthz", _health),
        Route("/version", _version),
        Route("/openapi.json", _specification),
        Route("/docs", _docs),
        *sandboxes.routes(services),
        *images.routes(services),
        *more,
    ]
    return Starlette(routes=routes, exception_handlers={404: missing, 405: wrong_method})


async def _health(_request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _version(_request: Request) -> Response:
    return JSONResponse({"version": version("talon-sandbox-server")})


async def _specification(_request: Request) -> Response:
    return JSONResponse(yaml.safe_load(SPECIFICATION.read_text()))


async def _docs(_request: Request) -> Response:
    return HTMLResponse((Path(__file__).parent.parent / "pages" / "docs.html").read_text())
