"""The sandbox routes of the OpenSandbox lifecycle API: create, list, get, delete, metadata, pause, resume, renew, endpoints.

Handlers of `app`; they read the request, call the control plane's `Lifecycle`, and show the result.
"""

import hashlib
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from talon_server.api.services import Services
from talon_server.api.v1 import metadata, shapes, sources
from talon_server.api.v1.http import Handler, Problem, Reply, Request, invalid, paged
from talon_server.api.v1.schemas import CreateSandbox, Renew
from talon_server.api.v1.states import states_named
from talon_server.api.v1.translate import kept
from talon_server.control.requests import CreateRequest
from talon_server.gateway.routes import EGRESS_PORT
from talon_server.gateway.signing import make_token
from talon_server.model.sandbox import Sandbox, State

_ALL = 1_000_000


class SandboxRoutes:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._lifecycle = services.lifecycle

    async def create(self, request: Request) -> Reply:
        raw = await request.body()
        body = request.parse(CreateSandbox, raw)
        _check_labels(body.metadata)
        spec = sources.prepare(self._services, request.principal, body)
        asked = CreateRequest(
            spec,
            labels=body.metadata,
            ttl_s=body.timeout,
            idempotency=request.text("idempotency-key")[:200],
            fingerprint=hashlib.sha256(raw).hexdigest(),
            pool=body.pool_ref or "",
            unasked=frozenset({"recording"} if body.network_policy is not None else {"recording", "network"}),
        )
        create = self._services.pools.claim if asked.pool else self._lifecycle.create
        made = await request.unless_gone(create(request.principal, asked))
        return Reply(202, shapes.created(made), {"Location": f"/v1/sandboxes/{made.id}"})

    async def list(self, request: Request) -> Reply:
        page, size = request.page()
        try:
            labels = metadata.parse_filter(request.one("metadata") or "")
        except metadata.BadFilter as error:
            raise Problem(400, "INVALID_METADATA_FORMAT", str(error)) from error
        named = request.query().get("state")
        states = states_named(named) if named else None
        if states is not None and not states:
            return Reply(200, paged([], page, size, 0))
        found, _ = self._lifecycle.list(request.principal, labels=labels, states=tuple(states or ()), limit=_ALL)
        shown = [shapes.sandbox(one) for one in found[(page - 1) * size : page * size]]
        return Reply(200, paged(shown, page, size, len(found)))

    async def get(self, request: Request) -> Reply:
        return Reply(200, shapes.sandbox(self._find(request)))

    async def delete(self, request: Request) -> Reply:
        await self._lifecycle.delete(request.principal, request.args[0])
        sources.release(self._services, request.principal, self._find(request))
        return Reply(204)

    async def patch_metadata(self, request: Request) -> Reply:
        patch = await request.json()
        if not isinstance(patch, dict) or not all(value is None or isinstance(value, str) for value in patch.values()):
            raise Problem(
                400, "SANDBOX::INVALID_METADATA_LABEL", "metadata: send an object of strings; null deletes a key."
            )
        _check_labels(patch)
        current = self._find(request)
        merged = metadata.merge(current.labels, patch)
        return Reply(200, shapes.sandbox(self._lifecycle.patch(request.principal, current.id, labels=merged)))

    async def pause(self, request: Request) -> Reply:
        current = self._find(request)
        if current.state is not State.RUNNING:
            raise Problem(
                409, "DOCKER::SANDBOX_NOT_RUNNING", f"The sandbox is {current.state}; only a running one can be paused."
            )
        await self._lifecycle.pause(request.principal, current.id)
        return Reply(202)

    async def resume(self, request: Request) -> Reply:
        current = self._find(request)
        if current.state is not State.PAUSED:
            raise Problem(
                409, "DOCKER::SANDBOX_NOT_PAUSED", f"The sandbox is {current.state}; only a paused one can be resumed."
            )
        await self._lifecycle.resume(request.principal, current.id)
        return Reply(202)

    async def renew(self, request: Request) -> Reply:
        """To any time to come, sooner or later, within the server's maximum."""
        until = (await request.read(Renew)).expires_at
        until = until.replace(tzinfo=UTC) if until.tzinfo is None else until
        current = self._find(request)
        if current.expires_at is None:
            raise Problem(
                409, "DOCKER::INVALID_EXPIRATION", "This sandbox was created without a timeout; it never expires."
            )
        if until <= datetime.now(UTC):
            raise Problem(400, "DOCKER::INVALID_EXPIRATION", "expiresAt must be in the future.")
        renewed = self._lifecycle.renew_until(request.principal, current.id, until)
        assert renewed.expires_at is not None
        return Reply(200, {"expiresAt": shapes.timestamp(renewed.expires_at)})

    async def endpoint(self, request: Request) -> Reply:
        """An address of a port, without a scheme; the client sends `headers` with every request to it."""
        current = self._find(request)
        port = _port(request.args[1])
        proxied, expires = request.flag("use_server_proxy"), request.one("expires")
        if proxied and expires is not None:
            raise Problem(400, "SANDBOX::INVALID_PARAMETER", "Give either use_server_proxy or expires, not both.")
        if current.state is State.PENDING:
            raise Problem(404, "KUBERNETES::POD_IP_NOT_AVAILABLE", "The sandbox is not started yet; ask again.")
        if not current.live:
            raise Problem(404, "DOCKER::SANDBOX_NOT_FOUND", f"The sandbox has ended ({current.state}); create another.")
        host = self._services.config.listen.public_url.partition("://")[2] or request.host
        if expires is not None:
            return Reply(200, {"endpoint": f"{host}/signed/{_signed(current, port, expires)}"})
        mount = request.mount if proxied else ""
        address = f"{host}{mount}/sandboxes/{current.id}/proxy/{port}"
        return Reply(200, {"endpoint": address, "headers": _credentials(current, port)})

    def _find(self, request: Request) -> Sandbox:
        return self._lifecycle.get(request.principal, request.args[0])


def table(services: Services) -> Mapping[tuple[str, ...], Mapping[str, Handler]]:
    routes = SandboxRoutes(services)
    one = ("sandboxes", "*")
    return {
        ("sandboxes",): {"GET": routes.list, "POST": routes.create},
        one: {"GET": routes.get, "DELETE": routes.delete},
        (*one, "metadata"): {"PATCH": routes.patch_metadata},
        (*one, "pause"): {"POST": routes.pause},
        (*one, "resume"): {"POST": routes.resume},
        (*one, "renew-expiration"): {"POST": routes.renew},
        (*one, "endpoints", "*"): {"GET": routes.endpoint},
    }


def _check_labels(labels: Mapping[str, str | None]) -> None:
    try:
        metadata.check(labels)
    except metadata.BadLabel as error:
        raise Problem(400, "SANDBOX::INVALID_METADATA_LABEL", str(error)) from error


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:6]) <= 65535:
        raise invalid("port", "must be a number from 1 to 65535", where="path")
    return int(text)


def _signed(sandbox: Sandbox, port: int, text: str) -> str:
    if not text.isascii() or not text.isdigit() or len(text) > 20 or (len(text) > 1 and text[0] == "0"):
        raise invalid("expires", "must be Unix seconds, a whole number", where="query")
    if int(text) <= time.time() or int(text) >= 2**63:
        raise Problem(400, "SANDBOX::INVALID_PARAMETER", "expires must be a Unix time (seconds) in the future.")
    return make_token(sandbox.id, port, int(text), sandbox.token)


def _credentials(sandbox: Sandbox, port: int) -> dict[str, str]:
    headers = {"X-EXECD-ACCESS-TOKEN": sandbox.token}
    if kept(sandbox.spec.extensions, "secure"):
        headers["OpenSandbox-Secure-Access"] = sandbox.token
    if port == EGRESS_PORT:
        headers["OPENSANDBOX-EGRESS-AUTH"] = sandbox.token
    return headers
