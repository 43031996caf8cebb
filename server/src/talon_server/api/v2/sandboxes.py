"""/v2/sandboxes: create, look, change, end; one, or many at once."""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from talon_server.api.services import Services
from talon_server.api.v2 import models_gen as models
from talon_server.api.v2.http import Call, endpoint, lines, reply, server_sent, told
from talon_server.api.v2.shapes import create_request, network, network_body, refuse_with_pool, sandbox_body
from talon_server.control.events import Event
from talon_server.control.requests import CreateRequest
from talon_server.egress.decisions import Decision, Decisions
from talon_server.errors import TalonError
from talon_server.lib.companion import Companion
from talon_server.model.sandbox import Sandbox, State
from talon_server.model.units import parse_duration

log = logging.getLogger(__name__)

_WAIT_S = 60.0
_BATCH_AT_ONCE = 32
_BACKLOG = 1000


async def create(call: Call) -> Response:
    data = await call.body()
    body = await call.read(models.SandboxCreate, data)
    wait = call.query("wait", "running")
    if wait not in ("running", "none"):
        raise TalonError("invalid_request", f"wait {wait!r} must be running or none")
    request = create_request(
        body,
        idempotency=call.request.headers.get("idempotency-key", "")[:200],
        fingerprint=hashlib.sha256(data).hexdigest(),
        queue_timeout_s=call.seconds("queue_timeout_s"),
        wait=wait == "running",
    )
    timeout_s = call.seconds("wait_timeout_s") or _WAIT_S
    try:
        async with asyncio.timeout(timeout_s):
            sandbox = await call.unless_gone(_create(call, request))
    except TimeoutError as error:
        raise TalonError("wait_timeout", f"the sandbox did not run within {timeout_s:g} s") from error
    return reply(sandbox_body(sandbox), 201, {"Location": f"/v2/sandboxes/{sandbox.id}"})


async def _create(call: Call, request: CreateRequest) -> Sandbox:
    if request.pool:
        refuse_with_pool(request.spec)
        return await call.services.pools.claim(call.principal, request)
    if request.spec.snapshot:
        own = call.services.snapshots.get(call.principal, request.spec.snapshot)
        request = replace(request, spec=replace(request.spec, snapshot=own.id))
    return await call.services.lifecycle.create(call.principal, request)


async def list_all(call: Call) -> Response:
    params = call.request.query_params
    labels = dict(_label(text) for text in params.getlist("label"))
    states = tuple(_state(text) for given in params.getlist("state") for text in given.split(","))
    limit = max(1, call.number("limit", 100, most=1000))
    items, cursor = call.services.lifecycle.list(
        call.principal,
        labels=labels,
        states=states,
        name=params.get("name"),
        limit=limit,
        cursor=call.query("cursor"),
    )
    return reply({"items": [sandbox_body(one) for one in items], "next_cursor": cursor})


async def get(call: Call) -> Response:
    return reply(sandbox_body(call.services.lifecycle.get(call.principal, call.path("id"))))


async def delete(call: Call) -> Response:
    await call.services.lifecycle.delete(call.principal, call.path("id"))
    return Response(status_code=204)


async def patch(call: Call) -> Response:
    body = await call.read(models.SandboxPatch)
    lifecycle, ref = call.services.lifecycle, call.path("id")
    sandbox = lifecycle.get(call.principal, ref)
    if body.labels is not None:
        sandbox = lifecycle.patch(call.principal, ref, labels=body.labels)
    if "ttl" in body.model_fields_set:
        sandbox = lifecycle.renew(call.principal, ref, _ttl(body.ttl))
    return reply(sandbox_body(sandbox))


async def renew(call: Call) -> Response:
    body = await call.read(models.Renew)
    return reply(sandbox_body(call.services.lifecycle.renew(call.principal, call.path("id"), _ttl(body.ttl))))


def verb(name: str) -> Callable[[Call], Awaitable[Response]]:
    """start, stop, pause or resume."""

    async def act(call: Call) -> Response:
        change = getattr(call.services.lifecycle, name)
        return reply(sandbox_body(await change(call.principal, call.path("id"))))

    return act


async def get_network(call: Call) -> Response:
    sandbox = call.services.lifecycle.get(call.principal, call.path("id"))
    return reply(network_body(sandbox.spec.network))


async def put_network(call: Call) -> Response:
    policy = network(await call.read(models.Network))
    sandbox = await call.services.lifecycle.set_network(call.principal, call.path("id"), policy)
    return reply(network_body(sandbox.spec.network))


async def network_log(call: Call) -> Response:
    """Decisions of the network layer; as events with Accept: text/event-stream."""
    sandbox = call.services.lifecycle.get(call.principal, call.path("id"))
    since, decisions = call.number("since", 0, most=1 << 53), call.services.worker.decisions
    if "text/event-stream" in call.request.headers.get("accept", ""):
        return server_sent(_decided(decisions, sandbox.id, since))
    limit = max(1, call.number("limit", 500, most=10000))
    return reply({"items": [one.as_json() for one in decisions.since(sandbox.id, since, limit)]})


async def _decided(decisions: Decisions, id: str, since: int) -> AsyncIterator[tuple[str, int, Mapping[str, Any]]]:
    queue: asyncio.Queue[Decision] = asyncio.Queue(_BACKLOG)

    def put(decision: Decision) -> None:
        if decision.sandbox == id and not queue.full():
            queue.put_nowait(decision)

    stop = decisions.subscribe(put)
    try:
        for decision in decisions.since(id, since, _BACKLOG):
            since = decision.sequence
            yield "decision", decision.sequence, decision.as_json()
        while True:
            decision = await queue.get()
            if decision.sequence > since:
                yield "decision", decision.sequence, decision.as_json()
    finally:
        stop()


async def batch(call: Call) -> Response:
    body = await call.read(models.BatchCreate)
    request = create_request(body.spec or models.SandboxCreate(), queue_timeout_s=call.seconds("queue_timeout_s"))
    if request.name and body.count > 1:
        raise TalonError("invalid_request", "sandboxes made together cannot share one name")

    async def one(index: int, gate: asyncio.Semaphore, done: asyncio.Queue[Mapping[str, Any]]) -> None:
        async with gate:
            try:
                sandbox = await _create(call, request)
                done.put_nowait({"index": index, "sandbox": sandbox_body(sandbox)})
            except Exception as error:
                known = error if isinstance(error, TalonError) else TalonError("internal")
                if known is not error:
                    log.exception("sandbox %s of a batch could not be made", index)
                done.put_nowait({"index": index, "error": told(known, call.request.scope.get("request_id"))})

    async def each(done: asyncio.Queue[Mapping[str, Any]]) -> None:
        gate = asyncio.Semaphore(_BATCH_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for index in range(body.count):
                group.create_task(one(index, gate, done))

    async def results() -> AsyncIterator[Mapping[str, Any]]:
        done = asyncio.Queue[Mapping[str, Any]]()
        async with Companion(each(done)):
            for _ in range(body.count):
                yield await done.get()

    return lines(results(), call.request)


def by_labels(act: Callable[[Services, Call, Sandbox], Awaitable[object]]) -> Callable[[Call], Awaitable[Response]]:
    """Do something to every sandbox with the labels given."""

    async def run(call: Call) -> Response:
        body = await call.read(models.LabelSelector)
        if not body.labels:
            raise TalonError("invalid_request", "labels must not be empty: that would be every sandbox")
        done: list[str] = []
        failed: list[Mapping[str, Any]] = []
        cursor: str | None = ""
        while cursor is not None:
            found, cursor = call.services.lifecycle.list(
                call.principal, labels=body.labels, limit=1000, cursor=cursor or ""
            )
            for sandbox in found:
                try:
                    await act(call.services, call, sandbox)
                    done.append(sandbox.id)
                except TalonError as error:
                    failed.append({"id": sandbox.id, **told(error, call.request.scope.get("request_id"))})
        return reply({"done": done, "failed": failed})

    return run


async def _delete(services: Services, call: Call, sandbox: Sandbox) -> None:
    await services.lifecycle.delete(call.principal, sandbox.id)


async def _stop(services: Services, call: Call, sandbox: Sandbox) -> None:
    await services.lifecycle.stop(call.principal, sandbox.id)


async def events(call: Call) -> Response:
    """Of one sandbox, or of all of the tenant."""
    ref = call.request.path_params.get("id")
    sandbox_id = call.services.lifecycle.get(call.principal, ref).id if ref else None
    since = call.number("since", 0, most=1 << 53) or _last_event(call)

    async def stream() -> AsyncIterator[tuple[str, int, Mapping[str, Any]]]:
        async for event in call.services.events.follow(since, tenant=call.principal.tenant, sandbox_id=sandbox_id):
            yield event.kind, event.sequence, _event(event)

    return server_sent(stream())


def _last_event(call: Call) -> int:
    """Where a client that comes back wants to go on (`Last-Event-ID` of the standard for event streams)."""
    given = call.request.headers.get("last-event-id", "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 17 else 0


def _event(event: Event) -> Mapping[str, Any]:
    return {
        "sequence": event.sequence,
        "at": event.at,
        "kind": event.kind,
        "sandbox_id": event.sandbox_id,
        **event.detail,
    }


def _label(text: str) -> tuple[str, str]:
    key, separator, value = text.partition(":")
    if not separator:
        key, separator, value = text.partition("=")
    if not key or not separator:
        raise TalonError("invalid_request", f"label {text!r} must be written key:value")
    return key, value


def _state(text: str) -> State:
    try:
        return State(text)
    except ValueError as error:
        raise TalonError("invalid_request", f"state {text!r} is none of {', '.join(State)}") from error


def _ttl(given: str | float | None) -> float | None:
    return parse_duration(given, "ttl") if given is not None else None


def routes(services: Services) -> list[Route]:
    """The routes of this module."""

    def route(path: str, method: str, handler: Callable[[Call], Awaitable[Response]]) -> Route:
        return Route(path, endpoint(services, handler), methods=[method])

    one = "/v2/sandboxes/{id}"
    return [
        route("/v2/sandboxes", "POST", create),
        route("/v2/sandboxes", "GET", list_all),
        route("/v2/sandboxes:batch", "POST", batch),
        route("/v2/sandboxes:delete", "POST", by_labels(_delete)),
        route("/v2/sandboxes:stop", "POST", by_labels(_stop)),
        route("/v2/events", "GET", events),
        route(one, "GET", get),
        route(one, "DELETE", delete),
        route(one, "PATCH", patch),
        route(f"{one}/renew", "POST", renew),
        route(f"{one}/network", "GET", get_network),
        route(f"{one}/network", "PUT", put_network),
        route(f"{one}/network/log", "GET", network_log),
        route(f"{one}/events", "GET", events),
        *(route(f"{one}/{name}", "POST", verb(name)) for name in ("start", "stop", "pause", "resume")),
    ]
