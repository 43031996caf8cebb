"""OpenSandbox's egress API (port 18080 of every sandbox, and `/sandboxes/{id}/networkpolicy`), over the one policy.

The gateway calls `EgressApi` for 18080; errors are plain text there, as upstream's. The policy is enforced on the
host, so a change holds for existing connections at once.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from talon_server.api.v1 import policy as policies
from talon_server.api.v1.http import Problem, Receive, Reply, Request, Scope, Send, validation_problem
from talon_server.api.v1.problems import problem_of
from talon_server.api.v1.schemas import Policy, Rule
from talon_server.control.lifecycle import Lifecycle
from talon_server.control.principals import Principal
from talon_server.errors import TalonError
from talon_server.gateway.access import Located
from talon_server.gateway.heads import first_values
from talon_server.gateway.relay import request_id_of
from talon_server.model.network import NetworkPolicy

Item = TypeVar("Item")

_RULES = TypeAdapter(list[Rule])
_TARGETS = TypeAdapter(list[str])
_MOST_RULES = 4096


class EgressApi:
    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle

    async def __call__(self, located: Located, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        headers = first_values(scope["headers"])
        owner = Principal("", located.tenant, "egress")
        try:
            reply = await self._answer(owner, located.id, path, Request(scope, receive, headers, ""))
        except Problem as problem:
            reply = Reply(problem.status, problem.message)
        except TalonError as error:
            reply = Reply(error.status, str(error))
        await reply.send(send, request_id_of(headers))

    async def _answer(self, owner: Principal, id: str, path: str, request: Request) -> Reply:
        if path == "/healthz":
            return Reply(200, "ok")
        if path == "/policy":
            return await self.policy(owner, id, request)
        if path.startswith("/credential-vault"):
            raise Problem(501, "SANDBOX::API_NOT_SUPPORTED", "the credential vault is not available on this server")
        raise Problem(404, "NOT_FOUND", "not found; the egress API has /policy and /healthz")

    async def policy(self, owner: Principal, id: str, request: Request) -> Reply:
        """GET, PUT or POST (replace), PATCH (merge) and DELETE (by target) of the policy."""
        current = self._lifecycle.get(owner, id).spec.network
        changes: dict[str, Callable[[NetworkPolicy, Any], NetworkPolicy]] = {
            "PUT": _replaced,
            "POST": _replaced,
            "PATCH": _patched,
            "DELETE": _deleted,
        }
        if request.method == "GET":
            return Reply(200, policies.status(current))
        change = changes.get(request.method)
        if change is None:
            raise Problem(405, "METHOD_NOT_ALLOWED", "method not allowed; use GET, PUT, PATCH or DELETE")
        try:
            wanted = change(current, await request.json())
        except ValidationError as error:
            raise Problem(
                400, "INVALID_REQUEST", f"invalid policy: {validation_problem(error, 'body').message}"
            ) from error
        except policies.BadTarget as error:
            raise Problem(400, "INVALID_REQUEST", f"invalid policy: {error}") from error
        if len(wanted.rules) > _MOST_RULES:
            raise Problem(400, "INVALID_REQUEST", f"a policy may have at most {_MOST_RULES} rules")
        changed = await self._lifecycle.set_network(owner, id, wanted)
        return Reply(200, policies.status(changed.spec.network))

    async def lifecycle_policy(self, request: Request) -> Reply:
        """The same under the lifecycle API, with its JSON errors."""
        try:
            return await self.policy(request.principal, request.args[0], request)
        except TalonError as error:
            raise problem_of(error) from error


def _replaced(current: NetworkPolicy, body: Any) -> NetworkPolicy:
    return policies.to_model(Policy.model_validate({} if body is None else body))


def _patched(current: NetworkPolicy, body: Any) -> NetworkPolicy:
    return policies.merged(current, _some(_RULES.validate_python(body)))


def _deleted(current: NetworkPolicy, body: Any) -> NetworkPolicy:
    return policies.without(current, _some(_TARGETS.validate_python(body)))


def _some(items: list[Item]) -> list[Item]:
    if not items:
        raise policies.BadTarget("send at least one")
    return items
