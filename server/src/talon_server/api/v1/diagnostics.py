"""Diagnostics of a sandbox: what its entry process wrote, what happened to it, and a summary.

Handlers of `app`. With `scope` the answer is OpenSandbox's JSON descriptor; without, the older plain text.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime

from talon_server.api.services import Services
from talon_server.api.v1 import shapes
from talon_server.api.v1.http import Problem, Reply, Request
from talon_server.errors import TalonError
from talon_server.gateway.calls import ask
from talon_server.model.sandbox import Sandbox, State

_SCOPES: Mapping[str, tuple[str, ...]] = {"logs": ("container", "all"), "events": ("runtime", "all")}
_OLD = {"Deprecation": "true"}


class DiagnosticRoutes:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def show(self, request: Request) -> Reply:
        """`/sandboxes/{id}/diagnostics/{logs|events|inspect|summary}`."""
        kind = request.args[1]
        sandbox = self._services.lifecycle.get(request.principal, request.args[0])
        if kind == "logs":
            return await self._logs(sandbox, request)
        if kind == "events":
            return self._events(sandbox, request)
        if kind == "inspect":
            return Reply(200, json.dumps(shapes.sandbox(sandbox), indent=2) + "\n")
        if kind == "summary":
            logs = await self._log_lines(sandbox, request.number("tail", 50, 1, 10_000))
            events = self._event_lines(sandbox, request.number("event_limit", 20, 1, 500))
            inspected = json.dumps(shapes.sandbox(sandbox), indent=2)
            return Reply(200, f"== sandbox\n{inspected}\n\n== events\n{events}\n== logs\n{logs}")
        raise Problem(404, "NOT_FOUND", f"There is no diagnostics/{kind}.", detail="Not Found")

    async def _logs(self, sandbox: Sandbox, request: Request) -> Reply:
        scope = request.one("scope")
        if scope is None:
            return Reply(200, await self._log_lines(sandbox, request.number("tail", 100, 1, 10_000)), _OLD)
        _check(scope, "logs")
        return _described(sandbox, "logs", scope, await self._log_lines(sandbox, 100))

    def _events(self, sandbox: Sandbox, request: Request) -> Reply:
        scope = request.one("scope")
        if scope is None:
            return Reply(200, self._event_lines(sandbox, request.number("limit", 50, 1, 500)), _OLD)
        _check(scope, "events")
        return _described(sandbox, "events", scope, self._event_lines(sandbox, 50))

    async def _log_lines(self, sandbox: Sandbox, most: int) -> str:
        """The entry process's last lines; a sandbox that does not run has none to give."""
        if sandbox.state is not State.RUNNING:
            return f"The sandbox is {sandbox.state}; its log can be read while it runs.\n"
        address = self._services.worker.agent(sandbox.id)
        try:
            _, body = await ask(address, "GET", "/v2/processes")
            entry = next(one["id"] for one in json.loads(body)["items"] if one.get("name") == "entrypoint")
            _, log = await ask(address, "GET", f"/v2/processes/{entry}/logs?stream=both")
        except (TalonError, StopIteration, ValueError, KeyError):
            return ""
        return "".join(line + "\n" for line in log.decode(errors="replace").splitlines()[-most:])

    def _event_lines(self, sandbox: Sandbox, most: int) -> str:
        known = self._services.events.since(0, tenant=sandbox.tenant, sandbox_id=sandbox.id)[-most:]
        lines = [f"{shapes.timestamp(sandbox.created_at)} created image={sandbox.spec.image or sandbox.spec.snapshot}"]
        for event in known:
            at = shapes.timestamp(datetime.fromtimestamp(event.at, UTC))
            lines.append(
                " ".join([at, event.kind, *(f"{key}={value}" for key, value in event.detail.items() if value)])
            )
        return "\n".join(lines) + "\n"


def _check(scope: str, kind: str) -> None:
    if scope not in _SCOPES[kind]:
        offered = " or ".join(_SCOPES[kind])
        raise Problem(
            400, "DIAGNOSTICS_SCOPE_UNSUPPORTED", f"scope {scope!r} is not offered for {kind}; use {offered}."
        )


def _described(sandbox: Sandbox, kind: str, scope: str, content: str) -> Reply:
    return Reply(
        200,
        {
            "sandboxId": sandbox.id,
            "kind": kind,
            "scope": scope,
            "delivery": "inline",
            "contentType": "text/plain; charset=utf-8",
            "content": content,
            "contentLength": len(content.encode()),
            "truncated": False,
        },
    )
