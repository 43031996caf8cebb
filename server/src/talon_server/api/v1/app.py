"""The OpenSandbox dialect as one ASGI callable: finds the handler, checks the key, renders errors.

`compose` calls it after the gateway. Mounted at `/` and `/v1`, as upstream does; it leaves paths that are not
OpenSandbox's to the next API.
"""

import logging
from collections.abc import Mapping
from urllib.parse import unquote

from talon_server.api.services import Services
from talon_server.api.v1 import platform, pools, sandboxes, snapshots
from talon_server.api.v1.http import Handler, Problem, Receive, Reply, Request, Scope, Send
from talon_server.api.v1.problems import problem_of
from talon_server.control.keys import Keys
from talon_server.control.principals import Principal
from talon_server.errors import TalonError
from talon_server.gateway.heads import first_values
from talon_server.gateway.relay import request_id_of

Table = Mapping[tuple[str, ...], Mapping[str, Handler]]
"""Pattern → method → handler. Every second part of a pattern is `*`: an identifier or a last word."""

log = logging.getLogger(__name__)

_OPEN = frozenset({("health",), ("version",)})
_OURS = frozenset({"sandboxes", "snapshots", "pools", "templates", "health"})
_CORS = {"access-control-allow-origin": "*", "access-control-expose-headers": "OPEN-SANDBOX-ORIGIN, X-Request-ID"}


class OpenSandbox:
    def __init__(self, table: Table, keys: Keys) -> None:
        self._table = table
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Answer if the path is OpenSandbox's; False (nothing done) when it is not."""
        path: str = scope["raw_path"].decode("latin-1")
        mount = "/v1" if path == "/v1" or path.startswith("/v1/") else ""
        parts = [unquote(part) for part in path[len(mount) :].strip("/").split("/")]
        if not mount and parts[0] not in _OURS:
            return False
        headers = first_values(scope["headers"])
        request_id = request_id_of(headers)
        reply = await self._answer(Request(scope, receive, headers, mount), parts)
        if b"origin" in headers:
            reply = Reply(reply.status, reply.body, {**reply.fields, **_CORS})
        await reply.send(send, request_id)
        return True

    async def _answer(self, request: Request, parts: list[str]) -> Reply:
        try:
            return await self._handle(request, parts)
        except Problem as problem:
            return problem.reply()
        except TalonError as error:
            return problem_of(error).reply()
        except Exception:
            log.exception("unexpected error on %s %s", request.method, "/".join(parts))
            return Problem(
                500, "GENERAL::UNKNOWN_ERROR", "An unexpected error occurred; the server's log has the details."
            ).reply()

    async def _handle(self, request: Request, parts: list[str]) -> Reply:
        pattern = tuple("*" if index % 2 else part for index, part in enumerate(parts))
        methods = self._table.get(pattern)
        if request.method == "OPTIONS" and methods is not None:
            return _preflight(methods)
        if pattern not in _OPEN:
            request.principal = self._authenticate(request.headers)
        if methods is None:
            raise Problem(404, "NOT_FOUND", f"There is no /{'/'.join(parts)}.", detail="Not Found")
        handler = methods.get(request.method)
        if handler is None:
            allow = ", ".join(methods)
            said = f"Use one of: {allow}."
            raise Problem(405, "METHOD_NOT_ALLOWED", said, detail="Method Not Allowed", fields={"Allow": allow})
        request.args = tuple(parts[1::2])
        return await handler(request)

    def _authenticate(self, headers: Mapping[bytes, bytes]) -> Principal:
        key = headers.get(b"open-sandbox-api-key")
        if key is None and (bearer := headers.get(b"authorization", b""))[:7].lower() == b"bearer ":
            key = bearer[7:].strip()
        if not key:
            said = "Authentication credentials are missing. Provide API key via OPEN-SANDBOX-API-KEY header."
            raise Problem(401, "MISSING_API_KEY", said)
        principal = self._keys.authenticate(key.decode("latin-1"))
        if principal is None:
            said = "Authentication credentials are invalid. Check your API key and try again."
            raise Problem(401, "INVALID_API_KEY", said)
        return principal


def _preflight(methods: Mapping[str, Handler]) -> Reply:
    fields = {"access-control-allow-methods": ", ".join(methods), "access-control-allow-headers": "*"}
    return Reply(200, "OK", fields)


def build(services: Services) -> OpenSandbox:
    """The dialect over the platform's services."""
    parts = (platform, sandboxes, snapshots, pools)
    table = {pattern: methods for part in parts for pattern, methods in part.table(services).items()}
    return OpenSandbox(table, services.keys)
