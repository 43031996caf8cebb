"""The native API as one Starlette application, with what is open to everyone: health, version, the specification."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp
from swagger_ui_bundle import swagger_ui_path

from talon_server.api.metrics import Metrics
from talon_server.api.services import Services
from talon_server.api.v2 import audit, host, images, kept, pages, recordings, sandboxes
from talon_server.api.v2.http import failure
from talon_server.errors import TalonError

_DOCS = (Path(__file__).parent.parent / "pages" / "docs.html").read_text()
SPECIFICATION = Path(__file__).parents[5] / "api" / "openapi.yaml"


def build(services: Services) -> ASGIApp:
    """All routes of /v2."""

    async def missing(request: Request, _error: Exception) -> Response:
        return failure(TalonError("not_found", f"there is nothing at {request.url.path}"), request)

    async def wrong_method(request: Request, _error: Exception) -> Response:
        return failure(TalonError("method_not_allowed", f"{request.url.path} does not take {request.method}"), request)

    routes = [
        Route("/healthz", _health),
        Route("/version", _version),
        Route("/openapi.json", _specification),
        Route("/docs", _docs),
        Route("/docs/openapi.json", _specification_for_page),
        *sandboxes.routes(services),
        *images.routes(services),
        *kept.routes(services),
        *audit.routes(services),
        *recordings.routes(services),
        *pages.routes(services),
        *host.routes(services, Metrics(services.events)),
        Mount("/docs/assets", StaticFiles(directory=swagger_ui_path)),
    ]
    return Starlette(routes=routes, exception_handlers={404: missing, 405: wrong_method})


async def _health(_request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _version(_request: Request) -> Response:
    return JSONResponse({"version": version("talon-sandbox-server")})


async def _specification(_request: Request) -> Response:
    return JSONResponse(yaml.safe_load(SPECIFICATION.read_text()))


async def _specification_for_page(_request: Request) -> Response:
    return JSONResponse({**_as_3_0(yaml.safe_load(SPECIFICATION.read_text())), "openapi": "3.0.3"})


def _as_3_0(node: Any) -> Any:
    """OpenAPI 3.1 in the words of 3.0, which is what the page's Swagger UI reads."""
    if isinstance(node, list):
        return [_as_3_0(item) for item in node]
    if not isinstance(node, dict):
        return node
    kinds = node.get("type")
    changed = {key: _as_3_0(value) for key, value in node.items() if key != "examples"}
    if isinstance(kinds, list):
        named = [kind for kind in kinds if kind != "null"]
        changed = {key: value for key, value in changed.items() if key != "type"}
        changed |= {"type": named[0]} if len(named) == 1 else {"oneOf": [{"type": kind} for kind in named]}
        changed |= {"nullable": True} if "null" in kinds else {}
    return changed


async def _docs(_request: Request) -> Response:
    return HTMLResponse(_DOCS)
