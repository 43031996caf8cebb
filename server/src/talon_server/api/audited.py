"""Notes in the audit log what every dialect was asked to do: an ASGI wrapper around all of them.

An action's name is read from method and path, so no handler can forget to tell. Reading what is not sensitive (lists,
states, health) is not noted.
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import unquote

from talon_server.api.services import Services
from talon_server.control.audit import Audit
from talon_server.gateway.heads import first_values

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_NOUNS = {
    "sandboxes": "sandbox",
    "images": "image",
    "volumes": "volume",
    "snapshots": "snapshot",
    "pools": "pool",
    "keys": "key",
    "recordings": "recording",
    "templates": "template",
}
_VERBS = {"POST": "create", "PUT": "replace", "PATCH": "change", "DELETE": "delete", "GET": "read"}
_SENSITIVE = frozenset({"fs", "timeline", "cast", "export", "logs", "output", "attach", "endpoints", "proxy", "files"})


def action_of(method: str, path: str) -> tuple[str, str] | None:
    """(action, target) of a call to be noted, None for one that is not. `POST /v2/sandboxes/x/exec` → sandbox.exec, x."""
    parts = [unquote(part) for part in path.split("/") if part]
    if parts and parts[0] in ("v1", "v2"):
        parts = parts[1:]
    noun, _, batch = parts[0].partition(":") if parts else ("", "", "")
    if noun == "audit":
        return ("audit.read", "") if method == "GET" else None
    if noun not in _NOUNS or method in ("OPTIONS", "HEAD"):
        return None
    target = parts[1] if len(parts) > 1 else ""
    rest = parts[2:]
    if method == "GET" and not _SENSITIVE.intersection(rest):
        return None
    verb = batch or (rest[0] if rest else _VERBS.get(method, method.lower()))
    detail = f".{_VERBS[method]}" if rest and method != "POST" and method in _VERBS else ""
    return f"{_NOUNS[noun]}.{verb}{detail}", target


def audited(app: App, services: Services, audit: Audit) -> App:
    """`app`, with its calls noted once they are answered."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        named = action_of(scope["method"], scope["path"]) if scope["type"] == "http" else None
        if named is None:
            await app(scope, receive, send)
            return
        answer: dict[str, Any] = {"status": 499, "headers": {}}

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer["status"] = message["status"]
                answer["headers"] = first_values(message.get("headers", ()))
            await send(message)

        try:
            await app(scope, receive, noting)
        finally:
            audit.write(named[0], _entry(services, scope, named[1], answer["status"], answer["headers"]))

    return wrapped


def _entry(
    services: Services, scope: Scope, target: str, status: int, headers: Mapping[bytes, bytes]
) -> Mapping[str, Any]:
    asked = first_values(scope["headers"])
    bearer = asked.get(b"authorization", b"")
    key = asked.get(b"open-sandbox-api-key") or (bearer[7:].strip() if bearer[:7].lower() == b"bearer " else b"")
    principal = services.keys.authenticate(key.decode("latin-1")) if key else None
    made = headers.get(b"location", b"").decode("latin-1").rpartition("/")[2]
    client = scope.get("client") or ("", 0)
    return {
        "tenant": principal.tenant if principal is not None else "default",
        "key_id": principal.key_id if principal is not None else "",
        "target": target or made,
        "outcome": "success" if status < 400 else "refused" if status < 500 else "failed",
        "status": status,
        "address": client[0],
        "request_id": headers.get(b"x-request-id", b"").decode("latin-1"),
    }
