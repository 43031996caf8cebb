"""What the gateway knows of the rest: where sandboxes are, whose keys hold, what an access means."""

from talon_server.api.services import Services
from talon_server.errors import TalonError
from talon_server.gateway.access import Located
from talon_server.model.sandbox import State

RENEW = "access.renew.extend.seconds"


class ServerDirectory:
    """Answers from memory: it is asked by every request of the data plane."""

    def __init__(self, services: Services) -> None:
        self._lifecycle = services.lifecycle
        self._worker = services.worker
        self._keys = services.keys

    def tenant(self, key: str) -> str | None:
        """Whose key it is; None when it does not hold."""
        principal = self._keys.authenticate(key)
        return principal.tenant if principal is not None else None

    def locate(self, ref: str, tenant: str | None) -> Located:
        """By id, or by name within a tenant. Raises sandbox_not_found, sandbox_not_running."""
        sandbox = self._lifecycle.located(ref, tenant)
        if sandbox.state is not State.RUNNING:
            raise TalonError("sandbox_not_running", f"the sandbox is {sandbox.state}")
        address = self._worker.agent(sandbox.id)
        renews = RENEW in sandbox.spec.extensions
        return Located(sandbox.id, address.socket, address.token, sandbox.tenant, renews)

    def accessed(self, id: str) -> None:
        """Move the expiry of a sandbox that renews by access."""
        self._lifecycle.accessed(id)
