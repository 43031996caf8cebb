"""What the gateway knows of the rest of the server: where sandboxes are, whose keys hold, and how access renews.

Made by `compose` from the control plane's parts. All answers come from memory.
"""

import time
from datetime import UTC, datetime, timedelta

from talon_server.control.keys import Keys
from talon_server.control.lifecycle import Lifecycle
from talon_server.control.principals import Principal
from talon_server.control.registry import Registry
from talon_server.errors import TalonError
from talon_server.gateway.access import Located
from talon_server.model.sandbox import Sandbox, State
from talon_server.worker.port import WorkerPort

RENEW_EXTENSION = "access.renew.extend.seconds"
_COOL_DOWN_S = 60.0


class ServerDirectory:
    def __init__(self, registry: Registry, keys: Keys, lifecycle: Lifecycle, worker: WorkerPort) -> None:
        self._registry = registry
        self._keys = keys
        self._lifecycle = lifecycle
        self._worker = worker
        self._renewed: dict[str, float] = {}

    def tenant(self, key: str) -> str | None:
        principal = self._keys.authenticate(key)
        return principal.tenant if principal is not None else None

    def locate(self, ref: str, tenant: str | None) -> Located:
        """Raises sandbox_not_found, sandbox_not_running."""
        sandbox = self._registry.find(tenant, ref)
        if sandbox.state is not State.RUNNING:
            raise TalonError("sandbox_not_running", f"the sandbox is {sandbox.state}")
        address = self._worker.agent(sandbox.id)
        renews = RENEW_EXTENSION in sandbox.spec.extensions
        return Located(sandbox.id, address.socket, address.token, sandbox.tenant, renews)

    def accessed(self, id: str) -> None:
        """Move the expiry to now + extension when that is later; at most once a minute for a sandbox."""
        sandbox = self._registry.living(id)
        now = time.monotonic()
        if sandbox is None or sandbox.expires_at is None or now < self._renewed.get(id, 0.0):
            return
        if len(self._renewed) > 10_000:
            self._renewed = {known: until for known, until in self._renewed.items() if until > now}
        self._renewed[id] = now + _COOL_DOWN_S
        self._renew(sandbox)

    def _renew(self, sandbox: Sandbox) -> None:
        seconds = float(sandbox.spec.extensions[RENEW_EXTENSION])
        until = datetime.now(UTC) + timedelta(seconds=seconds)
        if sandbox.expires_at is not None and until > sandbox.expires_at:
            owner = Principal(sandbox.key_id, sandbox.tenant, "access")
            self._lifecycle.renew_until(owner, sandbox.id, until)
