"""/v2/images: what there is, its other names, and making more; long works answer with lines of JSON, the last the image."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route

from talon_server.api.services import Services
from talon_server.api.v2 import models_gen as models
from talon_server.api.v2.http import Call, endpoint, lines, reply
from talon_server.api.v2.shapes import time
from talon_server.control.images import Step, image_name
from talon_server.errors import TalonError
from talon_server.worker.images.registry import Source
from talon_server.worker.images.store import Image


def image_body(image: Image) -> dict[str, Any]:
    """An image as JSON."""
    return {
        "id": image.id,
        "name": image.name,
        "aliases": list(image.aliases),
        "size_bytes": image.size_bytes,
        "layers": len(image.layers),
        "user": image.user,
        "workdir": image.workdir,
        "created_at": time(datetime.fromtimestamp(image.created_at, UTC)),
    }


async def list_all(call: Call) -> Response:
    return reply({"items": [image_body(image) for image in call.services.images.all()]})


async def get(call: Call) -> Response:
    return reply(image_body(call.services.images.get(call.path("name"))))


async def delete(call: Call) -> Response:
    call.services.images.remove(call.path("name"))
    return Response(status_code=204)


async def alias(call: Call) -> Response:
    return reply(image_body(call.services.images.alias(call.path("name"), call.path("alias"))))


async def build_base(call: Call) -> Response:
    return lines(_told(call.services.image_works.build_base()), call.request)


async def build_code_interpreter(call: Call) -> Response:
    return lines(_told(call.services.image_works.build_code_interpreter()), call.request)


async def pull(call: Call) -> Response:
    body = await call.read(models.ImagePull)
    source = Source(body.ref, body.username or "", body.password or "", bool(body.insecure))
    return lines(_told(call.services.image_works.pull(source, body.name)), call.request)


async def take(call: Call) -> Response:
    if not call.query("name"):
        raise TalonError("invalid_request", "the image needs a name", remedy="Add ?name=… to the address.")
    name, works = image_name(call.query("name")), call.services.image_works
    try:
        received = await works.receive(call.request.stream())
    except ClientDisconnect as error:
        raise TalonError("invalid_request", "the request ended before its body did") from error
    return lines(_told(works.take(received, name)), call.request)


async def _told(steps: AsyncIterator[Step]) -> AsyncIterator[Mapping[str, Any]]:
    async for step in steps:
        yield {"image": image_body(step)} if isinstance(step, Image) else step


def routes(services: Services) -> list[Route]:
    """The routes of this module. Names hold slashes and colons: `team/app:1`."""

    def route(path: str, method: str, handler: Callable[[Call], Awaitable[Response]], *, admin: bool = False) -> Route:
        return Route(path, endpoint(services, handler, admin=admin), methods=[method])

    return [
        route("/v2/images", "GET", list_all),
        route("/v2/images:build-base", "POST", build_base, admin=True),
        route("/v2/images:build-code-interpreter", "POST", build_code_interpreter, admin=True),
        route("/v2/images:pull", "POST", pull, admin=True),
        route("/v2/images:import", "POST", take, admin=True),
        route("/v2/images/{name:path}/aliases/{alias:path}", "PUT", alias, admin=True),
        route("/v2/images/{name:path}", "GET", get),
        route("/v2/images/{name:path}", "DELETE", delete, admin=True),
    ]
